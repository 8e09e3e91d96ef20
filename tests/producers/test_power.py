"""Power, heat and memory errors."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.collectors.hwmon import subsystem_of
from producers.collectors.thermal import COLDEST, HOTTEST, NO_SENSOR, millidegrees
from producers.source import SECOND_NS
from schemas.records import Kind, Subsystem
from tests.producers.archives import archive
from tests.producers.kernel import BETWEEN_S, Host

Files = dict[str, bytes]


def below(root: str, **numbers: object) -> Files:
    """Return files of a folder; two underscores in a name are a slash."""
    return {f"{root}/{n.replace('__', '/')}": f"{v}\n".encode() for n, v in numbers.items()}


def domains(**energies: tuple[str, int]) -> Files:
    """Return RAPL domains by the end of their name, ``0_1`` for ``intel-rapl:0:1``."""
    files: Files = {}
    for end, (name, energy) in energies.items():
        root = f"sys/class/powercap/intel-rapl:{end.strip('_').replace('_', ':')}"
        files |= below(root, name=name, energy_uj=energy, max_energy_range_uj=262143328850)
    return files


def changed(files: Mapping[str, bytes], **numbers: int) -> Files:
    """Add to the numbers of the files whose paths end so."""
    out = dict(files)
    for end, by in numbers.items():
        paths = [p for p in files if p.endswith(end)]
        assert paths, end
        for path in paths:
            out[path] = b"%d\n" % (int(files[path]) + by)
    return out


def test_power_is_energy_over_time() -> None:
    values = Host("rapl").twice()
    assert values == {
        "rapl.package[package-0]": pytest.approx(68.122822 / BETWEEN_S),
        "rapl.core[package-0]": pytest.approx(46.461543 / BETWEEN_S),
        "rapl.dram[package-0]": pytest.approx(11.085554 / BETWEEN_S),
        "rapl.package": pytest.approx(68.122822 / BETWEEN_S),
    }


def test_packages_parts_and_repeats() -> None:
    def at(joules: int) -> Files:
        files = domains(
            _0=("package-0", 200 * 10**6 * joules),
            _0_0=("core", 150 * 10**6 * joules),
            _0_1=("dram", 20 * 10**6 * joules),
            _1=("package-1", 100 * 10**6 * joules),
            _1_0=("dram", 10 * 10**6 * joules),
            _2=("psys", 400 * 10**6 * joules),
            _3=("package-1", 7 * 10**6 * joules),
        )
        mmio = "sys/class/powercap/intel-rapl-mmio"
        files |= below(f"{mmio}:0", name="package-0", energy_uj=200 * 10**6 * joules)
        return files | below("sys/class/powercap/dtpm", name="x", energy_uj=joules)

    host = Host("rapl")
    host.read(at(10), SECOND_NS)
    assert host.read(at(11), SECOND_NS) == {
        "rapl.package[package-0]": 200,
        "rapl.core[package-0]": 150,
        "rapl.dram[package-0]": 20,
        "rapl.package[package-1]": 100,
        "rapl.dram[package-1]": 10,
        "rapl.psys": 400,
        "rapl.package": 300,
    }
    channels = {c.label: c for c in host.group.channels}
    assert channels["rapl.dram[package-1]"].subsystem is Subsystem.MEMORY
    assert channels["rapl.psys"].subsystem is Subsystem.CPU
    assert {c.unit for c in channels.values()} == {"W"}


def test_energy_wraps_at_its_range() -> None:
    host = Host("rapl")
    top = 262143328850
    seen = [
        host.read(domains(_0=("package-0", energy % top)), SECOND_NS)["rapl.package[package-0]"]
        for energy in range(top - 350 * 10**6, top + 300 * 10**6, 100 * 10**6)
    ]
    assert seen[1:] == pytest.approx([100] * (len(seen) - 1))


def test_a_domain_with_an_odd_name_is_no_sum_of_packages() -> None:
    host = Host("rapl")
    host.read(domains(_0=("-package", 0), _1=("package-1", 0), _2=("??", 0)), SECOND_NS)
    values = host.read(domains(_0=("-package", 5_000_000), _1=("package-1", 0)), SECOND_NS)
    assert values["rapl.package[-package]"] == values["rapl.package"] == 5
    assert set(values) == {"rapl.package[-package]", "rapl.package[package-1]", "rapl.package"}
    assert not any("Error" in r for s in host.group.stats.values() for r in s.failures)


def test_only_root_may_read_it() -> None:
    """Then there is a name and no energy: no channel, and the reason."""
    files = {p: t for p, t in domains(_0=("package-0", 5)).items() if "energy_uj" not in p}
    host = Host("rapl")
    assert host.read(files) == {}
    assert host.failures == 0


@pytest.mark.parametrize("machine", ["node_exporter/sys", "procfs"])
def test_power_of_other_machines(machine: str) -> None:
    files = {p: t for p, t in archive(machine).items() if p.startswith("sys/class/powercap")}
    host = Host("rapl")
    host.read(files, SECOND_NS)
    grown = {
        "intel-rapl:0/energy_uj": 55_000_000,
        "intel-rapl:0:0/energy_uj": 25_000_000,
        "intel-rapl:a/energy_uj": 45_000_000,
    }
    grown = {end: by for end, by in grown.items() if any(p.endswith(end) for p in files)}
    values = host.read(changed(files, **grown), SECOND_NS)
    expected = {"rapl.package[package-0]": 55, "rapl.core[package-0]": 25, "rapl.package": 55}
    if machine == "procfs":
        expected |= {"rapl.package[package-10]": 45, "rapl.package": 100}
    assert values == pytest.approx(expected)


def test_sensor_chips() -> None:
    host = Host("hwmon")
    values = host.twice()
    assert values == pytest.approx(
        {
            "hwmon.temperature[coretemp/package_id_0]": 63,
            "hwmon.temperature[coretemp/core_0]": 62,
            "hwmon.temperature[nvme.0000:41:00.0/composite]": 39.85,
            "hwmon.power[power_meter/power1]": 318.25,
            "hwmon.energy_power[power_meter/energy1]": 318.248694 / BETWEEN_S,
            "hwmon.fan[nct6779/fan2]": 1101,
            "hwmon.voltage[nct6779/in0]": 0.8,
            "hwmon.current[power_meter/curr1]": 1.383,
            "hwmon.alarms[coretemp]": 0,
            "hwmon.alarms[nct6779]": 1,
        }
    )
    channels = {c.label: c for c in host.group.channels}
    assert channels["hwmon.temperature[nvme.0000:41:00.0/composite]"].subsystem is Subsystem.STORAGE
    assert channels["hwmon.temperature[coretemp/core_0]"].subsystem is Subsystem.CPU
    assert channels["hwmon.power[power_meter/power1]"].kind is Kind.GAUGE
    assert channels["hwmon.energy_power[power_meter/energy1]"].kind is Kind.RATE


def test_a_chip_keeps_its_name_when_the_numbers_change() -> None:
    """Two processors, and the driver of another chip that was loaded before theirs."""

    def boot(first: int) -> Files:
        files: Files = {}
        for package, celsius in ((0, 50), (1, 60)):
            chip = f"hwmon{first + package}"
            files |= below(
                f"sys/class/hwmon/{chip}",
                name="coretemp",
                temp1_label="Core 0",
                temp1_input=1000 * celsius,
            )
            files |= below(f"sys/devices/platform/coretemp.{package}/hwmon/{chip}", name="coretemp")
        if first:
            files |= below("sys/class/hwmon/hwmon0", name="acpitz", temp1_input=27800)
        return files

    expected = {
        "hwmon.temperature[coretemp.0/core_0]": 50,
        "hwmon.temperature[coretemp.1/core_0]": 60,
    }
    assert Host("hwmon").read(boot(0)) == expected
    assert Host("hwmon").read(boot(1)) == pytest.approx(
        expected | {"hwmon.temperature[acpitz/temp1]": 27.8}
    )


def test_chips_of_one_name_and_unknown_place() -> None:
    files: Files = {}
    for n in (2, 10, 1):
        files |= below(f"sys/class/hwmon/hwmon{n}", name="jc42", temp1_input=1000 * n)
    files |= below("sys/class/hwmon/hwmon3", name="k10temp", temp1_input=40000)
    uevent = "DRIVER=k10temp\nPCI_SLOT_NAME=0000:00:18.3\nMODALIAS=pci:v00001022"
    files |= below("sys/class/hwmon/hwmon3", device__uevent=uevent)
    files |= below("sys/bus/i2c/devices/1-0018/hwmon/hwmon2", name="jc42")
    host = Host("hwmon")
    assert host.read(files) == {
        "hwmon.temperature[jc42#1/temp1]": 1,
        "hwmon.temperature[jc42.1-0018/temp1]": 2,
        "hwmon.temperature[k10temp.0000:00:18.3/temp1]": 40,
        "hwmon.temperature[jc42#2/temp1]": 10,
    }
    assert host.group.channels[0].subsystem is Subsystem.MEMORY


def test_a_sensor_that_is_not_connected_is_absent() -> None:
    """And one that slips for a moment is unknown, and counted."""
    chip = {
        "name": "nct6779",
        "temp1_input": 40000,
        "temp2_input": -128000,
        "temp3_input": 65261850,
    }
    host = Host("hwmon")
    values = host.read(below("sys/class/hwmon/hwmon0", **chip))
    assert values == {"hwmon.temperature[nct6779/temp1]": 40}
    values = host.read(below("sys/class/hwmon/hwmon0", **chip | {"temp1_input": 127000}))
    assert math.isnan(values["hwmon.temperature[nct6779/temp1]"])
    assert host.bad_fields == 1


@given(st.integers(-(10**8), 10**8))
def test_temperatures_that_sensors_measure(number: int) -> None:
    if COLDEST < number < HOTTEST and number not in NO_SENSOR:
        assert millidegrees(b"%d\n" % number) == number
    else:
        with pytest.raises(ValueError, match="no sensor"):
            millidegrees(b"%d\n" % number)


@pytest.mark.parametrize(
    ("name", "subsystem"),
    [
        ("nvme", Subsystem.STORAGE),
        ("drivetemp", Subsystem.STORAGE),
        ("amdgpu", Subsystem.GPU),
        ("mlx5", Subsystem.NETWORK),
        ("i40e", Subsystem.NETWORK),
        ("spd5118", Subsystem.MEMORY),
        ("coretemp", Subsystem.CPU),
        ("k10temp", Subsystem.CPU),
        ("acpitz", Subsystem.CPU),
    ],
)
def test_what_a_chip_speaks_of(name: str, subsystem: Subsystem) -> None:
    assert subsystem_of(name) is subsystem


def test_sensor_chips_of_another_machine() -> None:
    files = archive("node_exporter/sys")
    host = Host("hwmon")
    values = host.read(files)
    expected: dict[str, float] = {}
    for package in (0, 1):
        chip = f"hwmon.temperature[coretemp.{package}"
        for label, celsius in (("physical_id_0", 55), ("core_0", 54), ("core_1", 52)):
            expected[f"{chip}/{label}]"] = celsius
        expected |= {f"{chip}/core_2]": 53, f"{chip}/core_3]": 50}
        expected[f"hwmon.alarms[coretemp.{package}]"] = 0
    expected |= {
        # Files beside those of the device itself, as older drivers have them.
        "hwmon.fan[applesmc.768/left_side]": int(
            files["sys/devices/platform/applesmc.768/fan1_input"]
        ),
        "hwmon.fan[applesmc.768/right_side]": int(
            files["sys/devices/platform/applesmc.768/fan2_input"]
        ),
        "hwmon.fan[nct6779.nct6775.656/fan2]": 1098,
        "hwmon.voltage[nct6779.nct6775.656/in0]": 0.792,
        "hwmon.voltage[nct6779.nct6775.656/in1]": 1.024,
        "hwmon.alarms[nct6779.nct6775.656]": 1,  # of in1; intrusions are not counted
        # A chip without a name, and two sensors with one label.
        "hwmon.temperature[hwmon4/foosensor#1]": 55,
        "hwmon.temperature[hwmon4/foosensor#2]": 54,
        "hwmon.alarms[hwmon4]": 0,
        "hwmon.temperature[mt7996_phy0_0/temp1]": 55,
        "hwmon.temperature[mt7996_phy0_1/temp1]": 56,
        "hwmon.temperature[mt7996_phy0_2/temp1]": 57,
    }
    assert values == pytest.approx(expected)
    assert host.failures == host.bad_fields == 0
    wifi = next(c for c in host.group.channels if "mt7996" in c.device)
    assert wifi.subsystem is Subsystem.NETWORK


def test_thermal_zones() -> None:
    assert Host("thermal").twice() == pytest.approx(
        {"thermal.zone[x86_pkg_temp]": 63, "thermal.zone[acpitz]": 27.8}
    )
    zones: Files = {}
    for n in (10, 2, 0):
        kind = "acpitz" if n == 0 else "x86_pkg_temp"
        zones |= below(f"sys/class/thermal/thermal_zone{n}", type=kind, temp=1000 * n)
    zones |= below("sys/class/thermal/thermal_zone3", type="pch", temp="")
    assert Host("thermal").read(zones) == {
        "thermal.zone[acpitz]": 0,
        "thermal.zone[x86_pkg_temp#2]": 2,
        "thermal.zone[x86_pkg_temp#10]": 10,
    }


def test_thermal_zones_of_other_machines() -> None:
    assert Host("thermal").read(archive("node_exporter/sys")) == pytest.approx(
        {"thermal.zone[cpu-thermal]": 12.376}
    )
    assert Host("thermal").read(archive("procfs")) == pytest.approx(
        {"thermal.zone[bcm2835_thermal]": 49.925, "thermal.zone[acpitz]": -44}
    )


def test_memory_errors() -> None:
    host = Host("edac")
    values = host.twice()
    two = pytest.approx(2 / BETWEEN_S)
    assert {label for label, value in values.items() if value} == {
        "edac.corrected",
        "edac.corrected[mc0]",
        "edac.csrow_corrected[mc0/csrow0]",
        "edac.dimm_corrected[mc0/dimm0]",
    }
    assert all(value in (0, two) for value in values.values())
    assert {c.subsystem for c in host.group.channels} == {Subsystem.MEMORY}


def test_memory_errors_of_another_machine() -> None:
    files = {p: t for p, t in archive("node_exporter/sys").items() if "/edac/" in p}
    host = Host("edac")
    host.read(files, SECOND_NS)
    grown = {"mc0/ce_count": 1, "mc0/ue_count": 2, "mc0/ce_noinfo_count": 3}
    grown |= {"mc0/ue_noinfo_count": 4, "csrow2/ue_count": 5, "csrow1/ce_count": 6}
    values = host.read(changed(files, **grown), SECOND_NS)
    assert values == {
        "edac.corrected[mc0]": 1,
        "edac.uncorrected[mc0]": 2,
        "edac.corrected_anywhere[mc0]": 3,
        "edac.uncorrected_anywhere[mc0]": 4,
        "edac.csrow_corrected[mc0/csrow0]": 0,
        "edac.csrow_corrected[mc0/csrow1]": 6,
        "edac.csrow_corrected[mc0/csrow2]": 0,
        "edac.csrow_uncorrected[mc0/csrow0]": 0,
        "edac.csrow_uncorrected[mc0/csrow1]": 0,
        "edac.csrow_uncorrected[mc0/csrow2]": 5,
        "edac.corrected": 1,
        "edac.uncorrected": 2,
        "edac.corrected_anywhere": 3,
        "edac.uncorrected_anywhere": 4,
    }
