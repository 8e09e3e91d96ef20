"""`reveal import`: what it says, what it refuses, and that replay finds what is in a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from deploy.cli import main
from deploy.import_ import import_
from tests.streams.importing.files import START_S, recorded, table

HOSTS = ("htc-g004", "htc-g005")
SECONDS = 150
FAULT = range(100, 125)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(import_, [str(a) for a in arguments])


def names(host: str) -> list[str]:
    return [
        f"Perf:IPC.{host}[-]",
        f"Perf:Branch_Misses.{host}[count]",
        f"Turbostat:Busy%.-.{host}[%]",
        *(f"Turbostat:IRQ.{core}.{host}[count]" for core in range(8)),
        f"Memory:MemFree.{host}[kB]",
        f"Meminfo_diff:MemAvailable.{host}[kB]",
        f"GPU: utilization.gpu.0.{host}[%]",
        f"GPU: ecc.errors.corrected.volatile.dram.0.{host}[count]",
        *(
            f"NetworkInterStat_diff:{c}.ib{i}.{host}[Bytes]"
            for c in ("rx_bytes", "tx_bytes")
            for i in range(3)
        ),
        f"NetworkProtocolCounts:TCP.{host}[count]",
        f"Storage:time_spent_reading_(ms).{host}[ms]",
        f"Storage:discards_merged.{host}[count]",
    ]


def rows() -> Iterator[list[str]]:
    """Two hosts at work; during the fault the network of the first is ten times slower."""
    random = np.random.default_rng(7)
    for tick in range(10 * SECONDS):
        row = [f"{START_S + tick / 10:.1f}"]
        for host in HOSTS:
            slow = 0.1 if host == HOSTS[0] and tick // 10 in FAULT else 1.0
            noise = iter(1 + 0.05 * random.normal(size=32))
            cells: list[float] = [1.4 * next(noise), 2e6 * next(noise), 80 * next(noise)]
            cells += [round(100 * next(noise)) for _ in range(8)]
            cells += [round(1e8 * next(noise)), round(1e4 * random.normal()), 95 * next(noise), 0]
            cells += [round(slow * 1e8 * next(noise)) for _ in range(6)]
            cells += [round(slow * 4000 * next(noise)), 7 * tick]
            row += [*(f"{cell:.6g}" for cell in cells), ""]
        yield row


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    return table(folder / "run.csv", [n for host in HOSTS for n in names(host)], rows(), "\t")


def test_replay_finds_the_fault_of_an_imported_file_when_and_where_it_was(
    dataset: Path, tmp_path: Path
) -> None:
    done = run("reveal-dataset", dataset, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{host}.avro" for host in HOSTS]
    opened: dict[str, list[dict[str, Any]]] = {}
    for host in HOSTS:
        command = ["replay", str(tmp_path / f"{host}.avro"), "--json", "--baseline-seconds", "60"]
        replayed = CliRunner().invoke(main, command)
        assert replayed.exit_code == 0, replayed.output
        *anomalies, summary = [json.loads(line) for line in replayed.stdout.splitlines()]
        assert (summary["hosts"], summary["rejected"]) == (1, 0)
        assert summary["recording_seconds"] == SECONDS
        assert summary["missing_ticks"] == 0
        opened[host] = [a for a in anomalies if a["state"] == "open"]
    fault = [a for a in opened[HOSTS[0]] if abs(a["onset"] / 1e6 - START_S - FAULT.start) <= 4]
    (found,) = fault
    assert found["host"] == HOSTS[0]
    assert found["subsystems"][0]["subsystem"] == "network"
    assert {c["metric"] for c in found["channels"]} & {"net.rx_bytes", "net.tx_bytes"}
    during = range(START_S + FAULT.start - 4, START_S + FAULT.stop)
    assert not [a for a in opened[HOSTS[1]] if int(a["onset"] / 1e6) in during]


def test_a_line_says_what_became_of_each_host_and_file(dataset: Path, tmp_path: Path) -> None:
    done = run("reveal-dataset", dataset, "--out", tmp_path)
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(HOSTS)
    for line in lines:
        assert "1,500 rows, 23 channels (21 with the agent's names), every 100 ms" in line
        assert "for 2 min 30 s; left out: 1 column without a value" in line
        assert "1 column all zero, 2 totals made rates" in line
    assert f"{dataset}: 1,500 rows of 48 columns; times are seconds since the epoch" in done.stderr


def test_json_says_the_same(dataset: Path, tmp_path: Path) -> None:
    done = run("reveal-dataset", dataset, "--out", tmp_path, "--json")
    *hosts, summary = [json.loads(line) for line in done.stdout.splitlines()]
    assert [h["host"] for h in hosts] == list(HOSTS)
    for host in hosts:
        assert (host["rows"], host["channels"], host["ours"]) == (1500, 23, 21)
        assert (host["interval_us"], host["missing"], host["zero"]) == (100_000, 1, 1)
        assert (host["duplicates"], host["out_of_order"], host["missing_ticks"]) == (0, 0, 0)
        assert Path(host["path"]).stat().st_size > 10_000
    (file,) = summary["files"]
    assert (file["rows"], file["columns"], file["bad_cells"]) == (1500, 48, 0)


def test_nothing_is_replaced_without_a_word_and_nothing_read_for_it(
    dataset: Path, tmp_path: Path
) -> None:
    (tmp_path / "htc-g005.avro").write_bytes(b"precious")
    done = run("reveal-dataset", dataset, "--out", tmp_path)
    assert done.exit_code == 2
    assert "htc-g005.avro is there already: give another --out, or --force" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["htc-g005.avro"]
    assert (tmp_path / "htc-g005.avro").read_bytes() == b"precious"
    assert run("reveal-dataset", dataset, "--out", tmp_path, "--force").exit_code == 0
    assert recorded(tmp_path / "htc-g005.avro").layout.host == "htc-g005"


def gpu_log(path: Path, ms: int = 100, header: str = "timestamp, uuid, power.draw [W]\n") -> Path:
    lines = [
        f"2025/01/31 12:00:{i * ms // 1000:02}.{i * ms % 1000:03}, GPU-{gpu}, {i + gpu} W\n"
        for i in range(40)
        for gpu in range(2)
    ]
    path.write_text(header + "".join(lines))
    return path


def test_a_log_of_nvidia_smi(tmp_path: Path) -> None:
    done = run("nvidia-smi", gpu_log(tmp_path / "g.csv"), "--host", "n1", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "n1: 40 rows, 2 channels (2 with the agent's names), every 100 ms" in done.stdout
    assert "taken as UTC; left out: 2 columns of description" in done.stderr
    host = recorded(tmp_path / "n1.avro")
    assert host.of("gpu.power[GPU-1]") == [float(i + 1) for i in range(40)]


def test_a_log_without_names_asks_for_them(tmp_path: Path) -> None:
    path = gpu_log(tmp_path / "g.csv", header="")
    done = run("nvidia-smi", path, "--out", tmp_path)
    assert done.exit_code == 2
    assert "g.csv line 1 names no column timestamp" in done.stderr
    assert "--columns timestamp,uuid" in done.stderr
    fields = "timestamp,uuid,power.draw"
    assert run("nvidia-smi", path, "--out", tmp_path, "--columns", fields).exit_code == 0
    assert recorded(tmp_path / "g.avro").labels == ["gpu.power[GPU-0]", "gpu.power[GPU-1]"]


def test_an_interval_that_fits_no_window_asks_for_one(tmp_path: Path) -> None:
    path = gpu_log(tmp_path / "g.csv", ms=140)
    done = run("nvidia-smi", path, "--out", tmp_path)
    assert done.exit_code == 2
    assert "rows are 140 ms apart" in done.stderr
    assert "--interval-ms 125 or 150" in done.stderr
    again = run("nvidia-smi", path, "--out", tmp_path, "--interval-ms", "150")
    assert again.exit_code == 0
    assert "every 150 ms (rows: 140 ms)" in again.stdout


def test_errors_are_one_line(tmp_path: Path) -> None:
    for command in ("reveal-dataset", "nvidia-smi"):
        done = run(command, tmp_path / "none.csv", "--out", tmp_path)
        assert done.exit_code == 2
        assert done.stderr.count("\n") == 1
        assert "none.csv cannot be read: No such file" in done.stderr
        assert run(command).exit_code == 2
    (tmp_path / "file").touch()
    path = gpu_log(tmp_path / "g.csv")
    done = run("nvidia-smi", path, "--out", tmp_path / "file" / "x")
    assert done.exit_code == 2
    assert "cannot be made: Not a directory" in done.stderr


def test_hosts_whose_names_make_the_same_file_have_one_each(tmp_path: Path) -> None:
    header = ["Perf:IPC.a/b[-]", "Perf:IPC.a:b[-]", "Perf:IPC...c[-]"]
    path = table(tmp_path / "t.csv", header, [(f"{START_S + i}", i, 2 * i, 3) for i in range(9)])
    done = run("reveal-dataset", path, "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    hosts = [json.loads(line) for line in done.stdout.splitlines()][:-1]
    found = {h["host"]: Path(h["path"]).name for h in hosts}
    assert found == {"a/b": "a_b.avro", "a:b": "a_b-2.avro", "c": "c.avro"}


def test_the_command_is_in_the_table() -> None:
    done = CliRunner().invoke(main, ["import", "--help"])
    assert done.exit_code == 0
    assert "reveal-dataset" in done.output
    assert "nvidia-smi" in done.output


def test_a_host_without_a_value_is_said_and_the_others_are_written(tmp_path: Path) -> None:
    names = ["Perf:IPC.a[-]", "Perf:IPC.b[-]", "Perf:IPC.c[-]"]
    rows = [(f"{START_S + i / 10:.1f}", "", i, "nan") for i in range(20)]
    path = table(tmp_path / "t.csv", names, rows)
    done = run("reveal-dataset", path, "--out", tmp_path / "out")
    assert done.exit_code == 0
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["b.avro"]
    said = [line for line in done.stderr.splitlines() if line.startswith("nothing to write")]
    assert said == [
        f"nothing to write: {path}: {host!r} has no value in any column" for host in "ac"
    ]
    path = table(tmp_path / "t.csv", names, [(row[0], "", "", "") for row in rows])
    done = run("reveal-dataset", path, "--out", tmp_path / "none")
    assert done.exit_code != 0
    assert "has no value in any column" in done.stderr
    assert not list((tmp_path / "none").iterdir())


def test_a_host_with_dots_is_doubted_and_named_by_hand(tmp_path: Path) -> None:
    names = ["Perf:IPC.n1.example.org[-]", "Perf:IPC.n2.example.org[-]"]
    path = table(tmp_path / "t.csv", names, [(f"{START_S + i / 10:.1f}", i, i) for i in range(20)])
    done = run("reveal-dataset", path, "--out", tmp_path)
    assert f"{path}: Perf:IPC is taken for 'n1.example' of host 'org'" in done.stderr
    assert "say --host n1.example.org" in done.stderr
    hosts = ["n1.example.org", "n2.example.org"]
    done = run("reveal-dataset", path, "--out", tmp_path, "--host", hosts[0], "--host", hosts[1])
    assert "taken for" not in done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == hosts
