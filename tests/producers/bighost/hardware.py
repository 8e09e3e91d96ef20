"""Heat and power: hwmon, thermal zones, RAPL."""

from __future__ import annotations

from tests.producers.bighost.size import Size
from tests.producers.bighost.state import ZERO, Files, counter, fixed, level

BOOT_ID = "6f0c1d3e-58a2-4b7c-9d41-0e8b7a25c9f3"
RANGE_UJ = 262_143_328_850


def add(files: Files, size: Size) -> None:
    """Add the files."""
    files.text("proc/sys/kernel/random/boot_id", BOOT_ID)
    files.text("proc/sys/kernel/random/entropy_avail", "256")
    files.add("proc/sys/fs/file-nr", "%d\t%d\t%d\n", level(9300), ZERO, fixed(2**40))
    files.add("proc/sys/fs/inode-nr", "%d\t%d\n", level(2_400_000), level(310_000))
    names = (level(2_900_000), level(2_600_000), fixed(45), ZERO, level(61_000), ZERO)
    files.add("proc/sys/fs/dentry-state", "\t".join(["%d"] * 6) + "\n", *names)
    for bus_id in size.gpus:
        at = f"proc/driver/nvidia/gpus/{bus_id}/information"
        files.text(at, f"Model: \t\t NVIDIA H100 80GB HBM3\nBus Location: \t {bus_id}")
    _monitors(files, size)
    _zones(files, size)
    _rapl(files, size)


def _monitors(files: Files, size: Size) -> None:
    number = 0

    def begin(name: str, device: str) -> str:
        nonlocal number
        root = f"sys/class/hwmon/hwmon{number}"
        files.link(root, f"{device}/hwmon/hwmon{number}")
        files.link(f"{root}/device", device)
        number += 1
        files.text(f"{root}/name", name)
        return root

    for socket in range(size.sockets):
        root = begin("coretemp", f"sys/devices/platform/coretemp.{socket}")
        for n in range(size.per_socket + 1):
            label = f"Package id {socket}" if n == 0 else f"Core {n - 1}"
            at = f"{root}/temp{n + 1}"
            files.text(f"{at}_label", label)
            files.add(f"{at}_input", "%d000\n", level(58 + n % 11, 0.06))
            for limit, value in (("max", 90_000), ("crit", 100_000), ("crit_alarm", 0)):
                files.one(f"{at}_{limit}", fixed(value))
    for n, name in enumerate(size.nvme):
        root = begin("nvme", f"sys/devices/pci0000:c0/0000:{0xC1 + n:02x}:00.0/nvme/{name}")
        files.text(f"{root}/device/address", f"0000:{0xC1 + n:02x}:00.0")
        for place, label in enumerate(("Composite", "Sensor 1", "Sensor 2"), start=1):
            files.text(f"{root}/temp{place}_label", label)
            files.add(f"{root}/temp{place}_input", "%d850\n", level(37 + 3 * place, 0.05))
        for limit, value in (("max", 80_850), ("min", -273_150), ("crit", 83_850), ("alarm", 0)):
            files.one(f"{root}/temp1_{limit}", fixed(value))
    for _, _, pci in size.adapters:
        root = begin("mlx5", f"sys/devices/pci0000:00/{pci}")
        files.text(f"{root}/device/uevent", f"DRIVER=mlx5_core\nPCI_SLOT_NAME={pci}")
        files.text(f"{root}/temp1_label", "asic")
        files.add(f"{root}/temp1_input", "%d000\n", level(61, 0.05))
        for limit, value in (("highest", 74_000), ("crit", 105_000)):
            files.one(f"{root}/temp1_{limit}", fixed(value))
    root = begin("power_meter", "sys/devices/LNXSYSTM:00/ACPI000D:00")
    files.one(f"{root}/power1_average", level(2_450_000_000, 0.1))
    files.one(f"{root}/power1_average_interval", fixed(1000))
    root = begin("nct6779", "sys/devices/platform/nct6775.656")
    for n in range(1, 7):
        files.one(f"{root}/fan{n}_input", level(7200, 0.05))
        files.one(f"{root}/fan{n}_min", fixed(0))
        files.one(f"{root}/fan{n}_alarm", ZERO)
    for n, millivolts in enumerate((890, 3312, 5020, 12_096)):
        files.one(f"{root}/in{n}_input", level(millivolts, 0.01))


def _zones(files: Files, size: Size) -> None:
    for socket in range(size.sockets):
        root = f"sys/class/thermal/thermal_zone{socket}"
        files.text(f"{root}/type", "x86_pkg_temp")
        files.text(f"{root}/policy", "step_wise")
        files.text(f"{root}/mode", "enabled")
        files.add(f"{root}/temp", "%d000\n", level(66, 0.06))
    for n in range(2):
        root = f"sys/class/thermal/cooling_device{n}"
        files.text(f"{root}/type", "intel_powerclamp" if n else "Processor")
        files.one(f"{root}/cur_state", ZERO)
        files.one(f"{root}/max_state", fixed(100))


def _rapl(files: Files, size: Size) -> None:
    root = "sys/class/powercap"
    files.text(f"{root}/intel-rapl/enabled", "1")
    for socket in range(size.sockets):
        for zone, name, watts in (
            (f"intel-rapl:{socket}", f"package-{socket}", 240.0),
            (f"intel-rapl:{socket}:0", "dram", 38.0),
        ):
            files.text(f"{root}/{zone}/name", name)
            files.text(f"{root}/{zone}/enabled", "1")
            files.one(f"{root}/{zone}/max_energy_range_uj", fixed(RANGE_UJ))
            at = counter(1e6 * watts, since_s=500.0 + 90 * socket)
            files.one(f"{root}/{zone}/energy_uj", at)
            files.one(f"{root}/{zone}/constraint_0_power_limit_uw", fixed(350_000_000))
            files.text(f"{root}/{zone}/constraint_0_name", "long_term")
