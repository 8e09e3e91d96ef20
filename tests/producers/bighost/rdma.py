"""RDMA ports: InfiniBand, and Ethernet that speaks RoCE."""

from __future__ import annotations

from tests.producers.bighost.size import Size
from tests.producers.bighost.state import Files, counter, fixed, table

PORT = table(
    """
    VL15_dropped 0.0  excessive_buffer_overrun_errors 0  link_downed 0.00001
    link_error_recovery 0.00001  local_link_integrity_errors 0  multicast_rcv_packets 2
    multicast_xmit_packets 1  port_rcv_constraint_errors 0  port_rcv_data 2.2e9
    port_rcv_errors 0.0001  port_rcv_packets 2.4e6  port_rcv_remote_physical_errors 0
    port_rcv_switch_relay_errors 0  port_xmit_constraint_errors 0  port_xmit_data 2.1e9
    port_xmit_discards 0.001  port_xmit_packets 2.3e6  port_xmit_wait 4.0e5  symbol_error 0.0001
    unicast_rcv_packets 2.4e6  unicast_xmit_packets 2.3e6
    """
)
HARDWARE = table(
    """
    duplicate_request 0.01  implied_nak_seq_err 0  local_ack_timeout_err 0.002  out_of_buffer 0.1
    out_of_sequence 0.4  packet_seq_err 0.2  req_cqe_error 0  req_cqe_flush_error 0.001
    req_remote_access_errors 0  req_remote_invalid_request 0  resp_cqe_error 0.001
    resp_cqe_flush_error 0.001  resp_local_length_error 0  resp_remote_access_errors 0
    rnr_nak_retry_err 0.01  rx_atomic_requests 40  rx_dct_connect 0  rx_icrc_encapsulated 0
    rx_read_requests 3100  rx_write_requests 2.2e5  roce_adp_retrans 0  roce_adp_retrans_to 0
    roce_slow_restart 0  roce_slow_restart_cnps 0  roce_slow_restart_trans 0
    """
)
ROCE = {"np_cnp_sent": 12.0, "np_ecn_marked_roce_packets": 14, "rp_cnp_handled": 9}
ROCE |= {"rp_cnp_ignored": 0}

TEXTS = {
    "fw_ver": "28.39.1002",
    "board_id": "MT_0000000838",
    "hca_type": "MT4129",
    "hw_rev": "0x0",
    "node_type": "1: CA",
    "ports/1/state": "4: ACTIVE",
    "ports/1/phys_state": "5: LinkUp",
    "ports/1/sm_lid": "0x1",
    "ports/1/sm_sl": "0",
    "ports/1/lid_mask_count": "0",
    "ports/1/cap_mask": "0xa751e848",
}


def add(files: Files, size: Size) -> None:
    """Add the files."""
    for n, (device, interface, _) in enumerate(size.adapters):
        _port(files, device, interface, n, ethernet=n >= size.infiniband)


def _port(files: Files, device: str, interface: str, n: int, *, ethernet: bool) -> None:
    root = f"sys/class/infiniband/{device}"
    port = f"{root}/ports/1"
    files.text(f"{port}/rate", "200 Gb/sec (4X HDR)" if ethernet else "400 Gb/sec (4X NDR)")
    files.text(f"{port}/link_layer", "Ethernet" if ethernet else "InfiniBand")
    files.text(f"{port}/lid", f"0x{0 if ethernet else n + 17:x}")
    files.text(f"{port}/gid_attrs/ndevs/0", interface)
    files.text(f"{root}/device/net/{interface}/dev_port", "0")
    files.text(f"{root}/node_desc", f"node1 {device}")
    for name in ("node_guid", "sys_image_guid"):
        files.text(f"{root}/{name}", f"a088:c203:00a1:{n:04x}")
    for name, text in TEXTS.items():
        files.text(f"{root}/{name}", text)
    for label, rate in PORT.items():
        files.one(f"{port}/counters/{label}", counter(rate, since_s=4e5))
    for label, rate in (HARDWARE | (ROCE if ethernet else {})).items():
        files.one(f"{port}/hw_counters/{label}", counter(rate, since_s=4e5))
    files.one(f"{port}/hw_counters/lifespan", fixed(10))
