"""Protocols and sockets of one network namespace."""

from __future__ import annotations

from tests.producers.bighost.size import Size
from tests.producers.bighost.state import ZERO, Files, Number, counter, fixed, level, table, words

IP = table(
    """
    Forwarding 1  DefaultTTL 64  InReceives -2.2e5  InHdrErrors 0  InAddrErrors 0
    ForwDatagrams -300  InUnknownProtos 0  InDiscards -0.01  InDelivers -2.2e5  OutRequests -1.9e5
    OutDiscards -0.1  OutNoRoutes 0  ReasmTimeout 0  ReasmReqds 0  ReasmOKs 0  ReasmFails 0
    FragOKs 0  FragFails 0  FragCreates 0  OutTransmits -1.9e5
    """
)
"""A level, or the rate of a counter with the sign turned round."""
ICMP = table(
    """
    InMsgs -3  InErrors 0  InCsumErrors 0  InDestUnreachs -1  InTimeExcds 0  InParmProbs 0
    InSrcQuenchs 0  InRedirects 0  InEchos -1  InEchoReps -1  InTimestamps 0  InTimestampReps 0
    InAddrMasks 0  InAddrMaskReps 0  OutMsgs -3  OutErrors 0  OutRateLimitGlobal 0
    OutRateLimitHost 0  OutDestUnreachs -1  OutTimeExcds 0  OutParmProbs 0  OutSrcQuenchs 0
    OutRedirects 0  OutEchos -1  OutEchoReps -1  OutTimestamps 0  OutTimestampReps 0
    OutAddrMasks 0  OutAddrMaskReps 0
    """
)
TCP = table(
    """
    RtoAlgorithm 1  RtoMin 200  RtoMax 120000  MaxConn 0  ActiveOpens -20  PassiveOpens -14
    AttemptFails -0.4  EstabResets -0.6  CurrEstab 420  InSegs -2.1e5  OutSegs -3.9e5
    RetransSegs -12  InErrs -0.001  OutRsts -3  InCsumErrors 0
    """
)
UDP = table(
    """
    InDatagrams -300  NoPorts -0.1  InErrors -0.01  OutDatagrams -310  RcvbufErrors -0.01
    SndbufErrors 0  InCsumErrors 0  IgnoredMulti 0  MemErrors 0
    """
)
TCP_EXT = words(
    """
    SyncookiesSent SyncookiesRecv SyncookiesFailed EmbryonicRsts PruneCalled RcvPruned OfoPruned
    OutOfWindowIcmps LockDroppedIcmps ArpFilter TW TWRecycled TWKilled PAWSActive PAWSEstab
    DelayedACKs DelayedACKLocked DelayedACKLost ListenOverflows ListenDrops TCPHPHits
    TCPPureAcks TCPHPAcks TCPRenoRecovery TCPSackRecovery TCPSACKReneging TCPSACKReorder
    TCPRenoReorder TCPTSReorder TCPFullUndo TCPPartialUndo TCPDSACKUndo TCPLossUndo
    TCPLostRetransmit TCPRenoFailures TCPSackFailures TCPLossFailures TCPFastRetrans
    TCPSlowStartRetrans TCPTimeouts TCPLossProbes TCPLossProbeRecovery TCPRenoRecoveryFail
    TCPSackRecoveryFail TCPRcvCollapsed TCPBacklogCoalesce TCPDSACKOldSent TCPDSACKOfoSent
    TCPDSACKRecv TCPDSACKOfoRecv TCPAbortOnData TCPAbortOnClose TCPAbortOnMemory
    TCPAbortOnTimeout TCPAbortOnLinger TCPAbortFailed TCPMemoryPressures
    TCPMemoryPressuresChrono TCPSACKDiscard TCPDSACKIgnoredOld TCPDSACKIgnoredNoUndo
    TCPSpuriousRTOs TCPMD5NotFound TCPMD5Unexpected TCPMD5Failure TCPSackShifted TCPSackMerged
    TCPSackShiftFallback TCPBacklogDrop PFMemallocDrop TCPMinTTLDrop TCPDeferAcceptDrop
    IPReversePathFilter TCPTimeWaitOverflow TCPReqQFullDoCookies TCPReqQFullDrop TCPRetransFail
    TCPRcvCoalesce TCPOFOQueue TCPOFODrop TCPOFOMerge TCPChallengeACK TCPSYNChallenge
    TCPFastOpenActive TCPFastOpenActiveFail TCPFastOpenPassive TCPFastOpenPassiveFail
    TCPFastOpenListenOverflow TCPFastOpenCookieReqd TCPFastOpenBlackhole
    TCPSpuriousRtxHostQueues BusyPollRxPackets TCPAutoCorking TCPFromZeroWindowAdv
    TCPToZeroWindowAdv TCPWantZeroWindowAdv TCPSynRetrans TCPOrigDataSent TCPHystartTrainDetect
    TCPHystartTrainCwnd TCPHystartDelayDetect TCPHystartDelayCwnd TCPACKSkippedSynRecv
    TCPACKSkippedPAWS TCPACKSkippedSeq TCPACKSkippedFinWait2 TCPACKSkippedTimeWait
    TCPACKSkippedChallenge TCPWinProbe TCPKeepAlive TCPMTUPFail TCPMTUPSuccess TCPDelivered
    TCPDeliveredCE TCPAckCompressed TCPZeroWindowDrop TCPRcvQDrop TCPWqueueTooBig
    TCPFastOpenPassiveAltKey TcpTimeoutRehash TcpDuplicateDataRehash TCPDSACKRecvSegs
    TCPDSACKIgnoredDubious TCPMigrateReqSuccess TCPMigrateReqFailure TCPPLBRehash
    """
)
TCP_RATES = table(
    """
    TW 8.0  DelayedACKs 900  TCPHPHits 6e4  TCPPureAcks 3e4  TCPHPAcks 8e4  TCPOrigDataSent 3.1e5
    TCPDelivered 3.1e5  TCPLossProbes 6  TCPRcvCoalesce 4.2e4  TCPAutoCorking 400  TCPKeepAlive 9
    TCPTimeouts 0.3  TCPSackRecovery 1  TCPFastRetrans 8  TCPSackShifted 3  TCPSackMerged 2
    TCPBacklogCoalesce 800  TCPOFOQueue 60  TCPDSACKOldSent 1  TCPSynRetrans 1
    """
)
IP_EXT = words(
    """
    InNoRoutes InTruncatedPkts InMcastPkts OutMcastPkts InBcastPkts OutBcastPkts InOctets
    OutOctets InMcastOctets OutMcastOctets InBcastOctets OutBcastOctets InCsumErrors InNoECTPkts
    InECT1Pkts InECT0Pkts InCEPkts ReasmOverlaps
    """
)
IP6 = words(
    """
    InReceives InHdrErrors InTooBigErrors InNoRoutes InAddrErrors InUnknownProtos
    InTruncatedPkts InDiscards InDelivers OutForwDatagrams OutRequests OutDiscards OutNoRoutes
    ReasmTimeout ReasmReqds ReasmOKs ReasmFails FragOKs FragFails FragCreates InMcastPkts
    OutMcastPkts InOctets OutOctets InMcastOctets OutMcastOctets InBcastOctets OutBcastOctets
    InNoECTPkts InECT1Pkts InECT0Pkts InCEPkts OutTransmits
    """
)
ICMP6 = words(
    """
    InMsgs InErrors OutMsgs OutErrors InCsumErrors OutRateLimitHost InDestUnreachs InPktTooBigs
    InTimeExcds InParmProblems InEchos InEchoReplies InGroupMembQueries InGroupMembResponses
    InGroupMembReductions InRouterSolicits InRouterAdvertisements InNeighborSolicits
    InNeighborAdvertisements InRedirects InMLDv2Reports OutDestUnreachs OutPktTooBigs
    OutTimeExcds OutParmProblems OutEchos OutEchoReplies OutGroupMembQueries
    OutGroupMembResponses OutGroupMembReductions OutRouterSolicits OutRouterAdvertisements
    OutNeighborSolicits OutNeighborAdvertisements OutRedirects OutMLDv2Reports
    """
)

NEIGHBOURS = words(
    """
    entries allocs destroys hash_grows lookups hits res_failed rcv_probes_mcast rcv_probes_ucast
    periodic_gc_runs forced_gc_runs unresolved_discards table_fulls
    """
)
CONNTRACK = words(
    """
    entries clashres found new invalid ignore delete chainlength insert insert_failed drop
    early_drop icmp_error expect_new expect_create expect_delete search_restart
    """
)
PROTOCOLS: tuple[tuple[str, int, int, int | None], ...] = (
    ("PACKET", 1600, 2, None),
    ("RAWv6", 1344, 1, None),
    ("UDPv6", 1472, 6, 20),
    ("TCPv6", 2432, 22, 120),
    ("UNIX", 1152, 410, None),
    ("RAW", 1152, 2, None),
    ("UDP", 1344, 24, 60),
    ("TCP", 2304, 520, 2100),
    ("NETLINK", 1096, 80, None),
)
"""Name, bytes of a socket, sockets, and pages that they hold where that is counted."""


def add(files: Files, size: Size) -> None:
    """Add the files."""
    for name, pairs in (("proc/net/snmp", _snmp()), ("proc/net/netstat", _netstat())):
        lines: list[str] = []
        numbers: list[Number] = []
        for group, columns in pairs:
            lines.append(f"{group}: {' '.join(columns)}\n{group}:{' %d' * len(columns)}\n")
            numbers += columns.values()
        files.add(name, "".join(lines), *numbers)
    _snmp6(files)
    files.add(
        "proc/net/sockstat",
        "sockets: used %d\nTCP: inuse %d orphan %d tw %d alloc %d mem %d\nUDP: inuse %d mem %d\n"
        "UDPLITE: inuse %d\nRAW: inuse %d\nFRAG: inuse %d memory %d\n",
        *map(level, (940, 430, 3, 120, 520, 2100, 24, 60, 0, 2, 0, 0)),
    )
    files.add(
        "proc/net/sockstat6",
        "TCP6: inuse %d\nUDP6: inuse %d\nUDPLITE6: inuse %d\nRAW6: inuse %d\n"
        "FRAG6: inuse %d memory %d\n",
        *map(level, (22, 6, 0, 1, 0, 0)),
    )
    numbers = []
    for core in range(size.cores):
        numbers += (counter(4600, bits=32), ZERO, counter(0.02, bits=32), *[ZERO] * 6)
        numbers += (counter(2, bits=32), ZERO, ZERO, fixed(core), ZERO, ZERO)
    files.add("proc/net/softnet_stat", (" ".join(["%08x"] * 15) + "\n") * size.cores, *numbers)
    _tables(files, size)
    _sizes(files)
    files.text("proc/sys/net/netfilter/nf_conntrack_max", "262144")
    files.one("proc/sys/net/netfilter/nf_conntrack_count", level(4100))


def _tables(files: Files, size: Size) -> None:
    """Add tables in hexadecimal, a line for each core; the entries are the machine's."""
    for name, columns, entries in (
        ("arp_cache", NEIGHBOURS, 41),
        ("ndisc_cache", NEIGHBOURS, 9),
        ("nf_conntrack", CONNTRACK, 4100),
    ):
        numbers: list[Number] = []
        for _ in range(size.cores):
            numbers.append(fixed(entries))
            numbers += (counter(0.3 if n % 4 == 0 else 0, bits=32) for n in range(len(columns) - 1))
        row = " ".join(["%08x"] * len(columns)) + "\n"
        files.add(f"proc/net/stat/{name}", "  ".join(columns) + "\n" + row * size.cores, *numbers)


def _sizes(files: Files) -> None:
    """Add what each protocol's sockets take."""
    head = f"{'protocol':9} size sockets  memory press maxhdr  slab module    "
    letters = "cl co di ac io in de sh ss gs se re bi br ha uh gp em"
    lines, numbers = [f"{head} {letters}"], []
    for name, size, sockets, pages in PROTOCOLS:
        memory = "%6d" if pages is not None else "    -1"
        press = "no" if name.startswith("TCP") else "NI"
        row = f"{name:9} {size:4} %6d  {memory}  {press:>3}   %5d   yes  kernel    "
        lines.append(row + "  y" * len(letters.split()))
        numbers.append(level(sockets))
        if pages is not None:
            numbers.append(level(pages))
        numbers.append(fixed(192 if name.startswith("TCP") else 0))
    files.add("proc/net/protocols", "\n".join(lines) + "\n", *numbers)


def _numbers(columns: dict[str, float]) -> dict[str, Number]:
    return {
        name: counter(-value) if value < 0 else level(value) if value > 200 else fixed(value)
        for name, value in columns.items()
    }


def _snmp() -> list[tuple[str, dict[str, Number]]]:
    messages = {name: counter(1.0) for name in ("InType0", "InType3", "InType8", "OutType0")}
    tcp = {n: fixed(v) if "Rto" in n else _numbers({n: v})[n] for n, v in TCP.items()}
    return [
        *(("Ip", _numbers(IP)), ("Icmp", _numbers(ICMP)), ("IcmpMsg", messages), ("Tcp", tcp)),
        *(("Udp", _numbers(UDP)), ("UdpLite", dict.fromkeys(UDP, ZERO))),
    ]


def _netstat() -> list[tuple[str, dict[str, Number]]]:
    tcp = {name: counter(TCP_RATES.get(name, 0.0)) for name in TCP_EXT}
    octets = {"InOctets": 2.1e8, "OutOctets": 1.8e9, "InNoECTPkts": 2.2e5, "InMcastPkts": 3.0}
    ip = {name: counter(octets.get(name, 0.0)) for name in IP_EXT}
    mptcp = dict.fromkeys(("MPCapableSYNRX", "MPCapableSYNTX", "MPTCPRetrans"), ZERO)
    return [("TcpExt", tcp), ("IpExt", ip), ("MPTcpExt", mptcp)]


def _snmp6(files: Files) -> None:
    names = {f"Ip6{name}": 30.0 if "In" in name else 20.0 for name in IP6}
    names |= {f"Icmp6{name}": 0.1 for name in ICMP6}
    names |= {"Icmp6InType135": 0.1, "Icmp6OutType136": 0.1}
    for group in ("Udp6", "UdpLite6"):
        names |= {f"{group}{name}": 2.0 if group == "Udp6" else 0.0 for name in UDP}
    template = "".join(f"{name:<32}\t%d\n" for name in names)
    files.add("proc/net/snmp6", template, *map(counter, names.values()))
