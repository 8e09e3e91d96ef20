"""Cores: their time, interrupts, scheduler, sleep, frequency, place and heat."""

from __future__ import annotations

from tests.producers.bighost.size import Size
from tests.producers.bighost.state import ZERO, Files, Number, counter, fixed, level, spread, total

HZ = 100
STATES = {"user": 52, "nice": 0.2, "system": 6, "idle": 38, "iowait": 1.5, "irq": 0.8}
STATES |= {"softirq": 1.4, "steal": 0.05, "guest": 0.02, "guest_nice": 0.01}
SOFTIRQS = {"HI": 0.02, "TIMER": 210, "NET_TX": 4, "NET_RX": 900, "BLOCK": 60, "IRQ_POLL": 0}
SOFTIRQS |= {"TASKLET": 12, "SCHED": 180, "HRTIMER": 0.4, "RCU": 320}
ARCHITECTURE: dict[str, tuple[float, str]] = {
    "NMI": (0.3, "Non-maskable interrupts"),
    "LOC": (480, "Local timer interrupts"),
    "SPU": (0, "Spurious interrupts"),
    "PMI": (0.3, "Performance monitoring interrupts"),
    "IWI": (2.5, "IRQ work interrupts"),
    "RTR": (0, "APIC ICR read retries"),
    "RES": (140, "Rescheduling interrupts"),
    "CAL": (85, "Function call interrupts"),
    "TLB": (60, "TLB shootdowns"),
    "TRM": (0, "Thermal event interrupts"),
    "THR": (0, "Threshold APIC interrupts"),
    "DFR": (0, "Deferred Error APIC interrupts"),
    "MCE": (0, "Machine check exceptions"),
    "MCP": (0.003, "Machine check polls"),
}
POSTED = {
    "PIN": "Posted-interrupt notification event",
    "NPI": "Nested posted-interrupt event",
    "PIW": "Posted-interrupt wakeup event",
}
NUMBERED = 1024
"""Interrupt numbers in the line of /proc/stat, most of which nobody has."""


def add(files: Files, size: Size) -> None:
    """Add the files."""
    _interrupts(files, size)
    _stat(files, size)
    _softirqs(files, size)
    _schedstat(files, size)
    files.add("proc/loadavg", "%d.%02d %d.%02d %d.%02d %d/%d %d\n", *_loads())
    files.add("proc/uptime", "%d.%02d %d.%02d\n", *map(counter, (1, 0, 18, 0)))
    files.text("proc/cpuinfo", "\n".join(_cpuinfo(size, core) for core in range(size.cores)))
    for name in ("online", "possible", "present"):
        files.text(f"sys/devices/system/cpu/{name}", size.online)
    files.text("sys/devices/system/cpu/offline", "")
    files.text("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle")
    files.text("sys/devices/system/cpu/intel_pstate/status", "active")
    for core in range(size.cores):
        root = f"sys/devices/system/cpu/cpu{core}"
        _place(files, size, root, core)
        _idle(files, f"{root}/cpuidle", core)
        _frequency(files, f"{root}/cpufreq", core)
        _throttle(files, f"{root}/thermal_throttle")


def sources(size: Size) -> list[tuple[str, str, float, int | None]]:
    """Return numbered interrupts: chip, name, how many a second, and the only core that has it."""
    found: list[tuple[str, str, float, int | None]] = [
        ("IO-APIC    2-edge    ", "timer", 0, 0),
        ("IO-APIC    8-edge    ", "rtc0", 0, 0),
        ("IO-APIC    9-fasteoi ", "acpi", 0.001, 1),
        *((f"DMAR-MSI    {n}-edge    ", f"dmar{n}", 0.0, n) for n in range(8)),
        ("PCI-MSIX-0000:00:14.0    0-edge    ", "xhci_hcd", 3, 5),
    ]
    queues = max(1, size.cores // 2)
    for d, name in enumerate(size.nvme):
        chip = f"PCI-MSIX-0000:{0xC1 + d:02x}:00.0"
        for q in range(queues + 1):
            rate = 0.002 if q == 0 else 35.0 + 11 * (q % 7)
            found.append((f"{chip}  {q:3}-edge    ", f"{name}q{q}", rate, (2 * q) % size.cores))
    for a, (_, _, pci) in enumerate(size.adapters):
        chip = f"PCI-MSIX-{pci}"
        found.append((f"{chip}    0-edge    ", f"mlx5_async0@pci:{pci}", 0.01, a % size.cores))
        for v in range(queues):
            busy = 420.0 if v % 3 == 0 else 25.0
            name = f"mlx5_comp{v}@pci:{pci}"
            core = (2 * v + a) % size.cores
            found.append((f"{chip}  {v + 1:3}-edge    ", name, busy, core))
    for g, pci in enumerate(size.gpus):
        chip = f"PCI-MSIX-{pci}"
        found += ((f"{chip}  {v:3}-edge    ", "nvidia", 180 / (v + 1), 7 * g + v) for v in range(6))
    return found


def _interrupts(files: Files, size: Size) -> None:
    cores = range(size.cores)
    lines = [f"{'':5}" + "".join(f"  CPU{core:<6}" for core in cores)]
    numbers: list[Number] = []
    cells = " %10d" * size.cores
    for n, (chip, name, rate, only) in enumerate(sources(size)):
        lines.append(f"{_irq(n):4}:{cells} {chip}  {name}")
        for core in cores:
            into = f"irq{_irq(n)}"
            mine = only is None or core == only % size.cores
            numbers.append(counter(rate if mine else 0, bits=32, into=into))
    for label, (rate, what) in ARCHITECTURE.items():
        lines.append(f"{label:>4}:{cells}   {what}")
        numbers += (counter(rate * (0.6 + (core % 8) / 10), bits=32) for core in cores)
    lines += ("ERR: %10d", "MIS: %10d")
    numbers += (ZERO, ZERO)
    for label, what in POSTED.items():
        lines.append(f"{label:>4}:{cells}   {what}")
        numbers += [ZERO] * size.cores
    files.add("proc/interrupts", "\n".join(lines) + "\n", *numbers)


def _irq(n: int) -> int:
    """Return the number of the nth source: devices begin at 24."""
    return (2, 8, 9)[n] if n < 3 else 21 + n


def _stat(files: Files, size: Size) -> None:
    lines, numbers = [f"cpu {' %d' * len(STATES)}"], [total(f"cpu.{state}") for state in STATES]
    for core in range(size.cores):
        lines.append(f"cpu{core}{' %d' * len(STATES)}")
        busy = 0.5 + (core % 12) / 12
        shares = [part * (1 if state == "idle" else busy) for state, part in STATES.items()]
        for state, rate in zip(STATES, spread(shares, HZ), strict=True):
            numbers.append(counter(rate, group=f"cpu{core}", into=f"cpu.{state}"))
    known = {_irq(n) for n in range(len(sources(size)))}
    lines.append("intr" + " %d" * (NUMBERED + 1))
    numbers.append(counter(900.0 * size.cores))
    numbers += (total(f"irq{n}") if n in known else ZERO for n in range(NUMBERED))
    lines += ("ctxt %d", "btime %d", "processes %d", "procs_running %d", "procs_blocked %d")
    numbers += (counter(3100.0 * size.cores), fixed(1_750_000_000), counter(9))
    numbers += (level(38, 0.2), level(2, 0.3))
    lines.append("softirq" + " %d" * (len(SOFTIRQS) + 1))
    numbers.append(counter(sum(SOFTIRQS.values()) * size.cores))
    numbers += (total(f"softirq.{kind}") for kind in SOFTIRQS)
    files.add("proc/stat", "\n".join(lines) + "\n", *numbers)


def _softirqs(files: Files, size: Size) -> None:
    cores = range(size.cores)
    lines = [f"{'':16}" + "".join(f"{f'CPU{core}':<11}" for core in cores)]
    numbers: list[Number] = []
    for kind, rate in SOFTIRQS.items():
        lines.append(f"{kind:>12}:" + " %10d" * size.cores)
        for core in cores:
            uneven = 0.2 + (core % 6) / 3
            numbers.append(counter(rate * uneven, bits=32, into=f"softirq.{kind}"))
    files.add("proc/softirqs", "\n".join(lines) + "\n", *numbers)


def _schedstat(files: Files, size: Size) -> None:
    lines, numbers = ["version 15", "timestamp %d"], [counter(250)]
    mask = f"{(1 << size.cores) - 1:x}"
    mask = f"{mask[:-8] or '0'},{mask[-8:]:0>8}"
    for core in range(size.cores):
        lines.append(f"cpu{core} 0 0 %d %d %d %d %d %d %d")
        numbers += map(counter, (2600, 900, 1700, 800, 6.1e8, 2.4e7, 1650))
        for domain in range(2):
            lines.append(f"domain{domain} {mask}" + " %d" * 36)
            for _ in range(3):
                numbers += map(counter, (9, 8, 0.2, 60, 0.4, 0.01, 0.1, 8))
            numbers += map(counter, (0.01, 0, 0.01, 0, 0, 0, 0, 0, 0, 310, 12, 0))
    files.add("proc/schedstat", "\n".join(lines) + "\n", *numbers)


def _loads() -> list[Number]:
    hundredths = level(55, 0.5)
    return [
        *(level(31, 0.1), hundredths, level(28, 0.05), hundredths, level(26, 0.02), hundredths),
        *(level(33, 0.2), level(2400, 0.02), counter(9, since_s=200_000)),
    ]


def _cpuinfo(size: Size, core: int) -> str:
    return (
        f"processor\t: {core}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
        f"model name\t: Intel(R) Xeon(R) Platinum 8468V\nstepping\t: 8\n"
        f"cpu MHz\t\t: {2900 + 7 * core}.000\ncache size\t: 99840 KB\n"
        f"physical id\t: {core // size.per_socket}\nsiblings\t: {size.per_socket}\n"
        f"core id\t\t: {core % size.per_socket}\ncpu cores\t: {size.per_socket}\n"
        "flags\t\t: fpu tsc msr aperfmperf constant_tsc nonstop_tsc arch_perfmon\n"
    )


def _place(files: Files, size: Size, root: str, core: int) -> None:
    socket = core // size.per_socket
    if core:
        files.text(f"{root}/online", "1")
    for name, value in (
        ("physical_package_id", socket),
        ("die_id", 0),
        ("core_id", core % size.per_socket),
        ("core_cpus_list", core),
        ("thread_siblings_list", core),
        ("package_cpus_list", size.socket(socket)),
        ("core_siblings_list", size.socket(socket)),
    ):
        files.text(f"{root}/topology/{name}", str(value))


def _idle(files: Files, root: str, core: int) -> None:
    """Add intel_idle's states: microseconds asleep and how often, of a core that is so idle."""
    asleep = 3e5 + 4e5 * (core % 9) / 9
    states = (
        ("POLL", "CPUIDLE CORE POLL IDLE", 0, 0, 0.001, 4.0),
        ("C1", "MWAIT 0x00", 1, 1, 0.05, 300.0),
        ("C1E", "MWAIT 0x01", 2, 4, 0.35, 450.0),
        ("C6", "MWAIT 0x20", 290, 800, 0.6, 210.0),
    )
    for n, (name, what, latency, residency, share, entered) in enumerate(states):
        state = f"{root}/state{n}"
        files.text(f"{state}/name", name)
        files.text(f"{state}/desc", what)
        files.one(f"{state}/latency", fixed(latency))
        files.one(f"{state}/residency", fixed(residency))
        files.one(f"{state}/disable", ZERO)
        files.text(f"{state}/default_status", "enabled")
        files.one(f"{state}/power", ZERO)
        files.one(f"{state}/time", counter(asleep * share, group=f"idle{core}"))
        files.one(f"{state}/usage", counter(entered))
        files.one(f"{state}/above", counter(entered / 20))
        files.one(f"{state}/below", counter(entered / 30))
        files.one(f"{state}/rejected", counter(entered / 900))


def _frequency(files: Files, root: str, core: int) -> None:
    files.text(f"{root}/scaling_driver", "intel_pstate")
    files.text(f"{root}/scaling_governor", "performance")
    files.text(f"{root}/scaling_available_governors", "performance powersave")
    files.text(f"{root}/scaling_setspeed", "<unsupported>")
    files.text(f"{root}/affected_cpus", str(core))
    files.text(f"{root}/related_cpus", str(core))
    files.one(f"{root}/cpuinfo_transition_latency", ZERO)
    files.one(f"{root}/scaling_cur_freq", level(2_900_000 + 9000 * core, 0.08))
    for name, khz in (("cpuinfo", 0), ("scaling", 0)):
        files.one(f"{root}/{name}_max_freq", fixed(3_800_000 + khz))
        files.one(f"{root}/{name}_min_freq", fixed(800_000 + khz))
    files.one(f"{root}/base_frequency", fixed(2_400_000))


def _throttle(files: Files, root: str) -> None:
    for part, rate in (("core", 0.02), ("package", 0.3)):
        files.one(f"{root}/{part}_throttle_count", counter(rate))
        files.one(f"{root}/{part}_throttle_total_time_ms", counter(3 * rate))
        files.one(f"{root}/{part}_throttle_max_time_ms", fixed(5))
