"""What a GPU says of itself: XID events of the driver, ECC errors, a PCIe link that is degraded."""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Reading, Remedy

ECC = (
    *("gpu.ecc_uncorrected", "gpu.double_bit_ecc_events", "gpu.ecc_corrected"),
    *("edac.uncorrected", "edac.corrected", "edac.uncorrected_anywhere", "edac.corrected_anywhere"),
)
FATAL = ("uncorrected", "double_bit")


def xid(case: Case) -> Cause | None:
    """Look for XID events, from NVML or from the kernel's log."""
    found = _risen(case, ("gpu.xid", "gpu.xid_logged"))
    if not found:
        return None
    device = _device(found[0])
    codes = [case.device(m, device) for m in ("gpu.last_xid", "gpu.last_xid_logged")]
    code = max((r.value for r in codes if r.value == r.value), default=0.0)
    named = f"XID {code:.0f}" if code else "an XID event"
    return Cause(
        "xid",
        "gpu",
        f"The driver reports {named} on GPU {device or 'of this host'}.",
        0.95,
        tuple(r.evidence for r in (found[0], *codes) if r.value == r.value),
        (
            Remedy("dmesg -T | grep -i xid | tail"),
            Remedy(f"nvidia-smi -i {device} -q" if device else "nvidia-smi -q"),
        ),
    )


def ecc(case: Case) -> Cause | None:
    """Look for errors of a GPU's memory or of the host's."""
    found = _risen(case, ECC)
    if not found:
        return None
    fatal = [r for r in found if any(word in r.label for word in FATAL)]
    worst = (fatal or found)[0]
    on_gpu = worst.label.startswith("gpu.")
    return Cause(
        "ecc",
        "gpu" if on_gpu else "memory",
        ("A GPU's memory" if on_gpu else "The host's memory")
        + (" has errors that could not be corrected." if fatal else " corrects errors."),
        0.95 if fatal else 0.85,
        tuple(r.evidence for r in found[:4]),
        (Remedy("nvidia-smi -q -d ECC,ROW_REMAPPER"),)
        if on_gpu
        else (Remedy("ras-mc-ctl --errors; grep . /sys/devices/system/edac/mc/mc*/*_count"),),
    )


def pcie_link(case: Case) -> Cause | None:
    """Look for links with fewer lanes than usual, slower than usual under load, or with replays."""
    width = [r for r in case.devices("gpu.pcie_link_width") if r.falls(0.99)]
    speed = [
        r
        for r in case.devices("gpu.pcie_link_generation")
        # An idle GPU lowers its link by itself.
        if r.falls(0.99) and case.device("gpu.utilization", _device(r)).value > 10
    ]
    replays = _risen(case, ("gpu.pcie_replays", "gpu.pcie_naks_received"), 10.0)
    found = [*width, *speed, *replays]
    if not found:
        return None
    device = _device(found[0])
    return Cause(
        "pcie_link",
        "gpu",
        f"The PCIe link of GPU {device} is degraded.",
        0.9 if width or speed else 0.75,
        tuple(r.evidence for r in found[:4]),
        (
            Remedy(f"nvidia-smi -i {device} -q | grep -A12 'GPU Link Info'"),
            Remedy("lspci -vv | grep -E 'NVIDIA|LnkSta:'"),
        ),
    )


def _risen(case: Case, metrics: tuple[str, ...], least: float = 0.0) -> list[Reading]:
    found = [r for m in metrics for r in (*case.devices(m), case.device(m, ""))]
    return [r for r in found if r.rises(2.0, least)]


def _device(reading: Reading) -> str:
    return reading.label.partition("[")[2].removesuffix("]")
