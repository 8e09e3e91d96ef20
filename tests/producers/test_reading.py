"""Reading: kept descriptors, files that grow, leave and come back, and files in memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from producers.reading import MemoryReader, SystemReader, Unreadable


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("proc/net", "sys/class/net/eth0/statistics", "sys/class/net/eth1/statistics"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "proc/stat").write_text("cpu 1 2 3\n")
    for n in (0, 1):
        (tmp_path / f"sys/class/net/eth{n}/statistics/rx_bytes").write_text(f"{n}\n")
    return tmp_path


@pytest.fixture
def reader(root: Path) -> Iterator[SystemReader]:
    with SystemReader(root / "proc", root / "sys") as reader:
        yield reader


def test_roots_are_parameters(reader: SystemReader) -> None:
    assert reader.read("proc/stat") == b"cpu 1 2 3\n"
    assert reader.read("sys/class/net/eth1/statistics/rx_bytes") == b"1\n"


def test_a_file_is_opened_once(reader: SystemReader, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    real = os.open

    def counted(path: str, flags: int) -> int:
        opened.append(path)
        return real(path, flags)

    monkeypatch.setattr(os, "open", counted)
    assert [reader.read("proc/stat") for _ in range(5)] == [b"cpu 1 2 3\n"] * 5
    assert len(opened) == 1


def test_what_changed_is_seen(reader: SystemReader, root: Path) -> None:
    reader.read("proc/stat")
    (root / "proc/stat").write_text("cpu 4 5 6\n")
    assert reader.read("proc/stat") == b"cpu 4 5 6\n"


@pytest.mark.parametrize("size", [511, 512, 513, 5000, 300_000])
def test_a_file_may_grow(size: int, reader: SystemReader, root: Path) -> None:
    reader.read("proc/stat")
    long = b"x" * size
    for text in (long, long, b"", b"short", long + long):
        (root / "proc/stat").write_bytes(text)
        assert reader.read("proc/stat") == text


@pytest.mark.parametrize("path", ["proc/crypto", "proc/kallsyms", "proc/modules", "proc/iomem"])
def test_kernel_files_of_many_pages_come_whole(path: str) -> None:
    """One read gives at most a page of what the kernel makes line by line."""
    file = Path("/", path)
    try:
        after = file.read_bytes()
    except OSError as e:
        pytest.skip(f"/{path}: {e.strerror}")
    with SystemReader() as reader:
        for _ in range(100):
            before = after
            read = [reader.read(path), reader.read(path)]
            after = file.read_bytes()
            if before == after:  # else a module came or went meanwhile
                break
    assert read == [after, after]


def test_what_is_not_there_is_a_value(reader: SystemReader) -> None:
    missing = reader.read("proc/pressure/cpu")
    assert missing == Unreadable("proc/pressure/cpu", "No such file or directory", absent=True)


def test_what_may_not_be_read_is_another(
    reader: SystemReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    missing = reader.read("proc/stat")
    assert missing == Unreadable("proc/stat", "Permission denied", absent=False)


def test_a_directory_is_no_file(reader: SystemReader) -> None:
    assert reader.read("proc/net") == Unreadable("proc/net", "Is a directory", absent=False)


def test_what_comes_later_is_found(reader: SystemReader, root: Path) -> None:
    assert isinstance(reader.read("proc/late"), Unreadable)
    (root / "proc/late").write_text("1\n")
    readings = [reader.read("proc/late") for _ in range(10)]
    assert readings[-1] == b"1\n"
    assert reader.read("proc/late") == b"1\n"


@pytest.mark.parametrize("code", [errno.ESTALE, errno.ENODEV, errno.EIO])
def test_a_device_that_was_replaced_is_opened_again(
    code: int, reader: SystemReader, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a driver was loaded again: the descriptor is dead, the name is there."""
    path = "sys/class/net/eth0/statistics/rx_bytes"
    reader.read(path)
    (root / path).unlink()
    (root / path).write_text("77\n")
    fail_once(monkeypatch, code)
    assert reader.read(path) == b"77\n"
    assert reader.read(path) == b"77\n"


def test_a_device_that_left_is_absent_until_it_is_back(
    reader: SystemReader, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "sys/class/net/eth0/statistics/rx_bytes"
    reader.read(path)
    (root / path).unlink()
    fail_once(monkeypatch, errno.ENODEV)
    missing = reader.read(path)
    assert isinstance(missing, Unreadable)
    assert missing.absent
    (root / path).write_text("5\n")
    assert [reader.read(path) for _ in range(10)][-1] == b"5\n"


def fail_once(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    real = os.pread
    failed: list[int] = []

    def pread(descriptor: int, size: int, at: int) -> bytes:
        if not failed:
            failed.append(code)
            raise OSError(code, os.strerror(code))
        return real(descriptor, size, at)

    monkeypatch.setattr(os, "pread", pread)


def test_no_descriptor_is_left_behind(root: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with SystemReader(root / "proc", root / "sys") as reader:
        reader.read("proc/stat")
        reader.read("proc/net")
        reader.read("proc/nothing")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_memory_with_a_prefix_for_each_host() -> None:
    files = {"rank0:proc/net/dev": b"0", "rank1:proc/net/dev": b"1", "proc/stat": b"s"}
    reader = MemoryReader(files, prefix="rank1:")
    assert reader.read("proc/net/dev") == b"1"
    missing = reader.read("proc/stat")
    assert isinstance(missing, Unreadable)
    assert missing.absent
    reader.files = {"rank1:proc/net/dev": b"2"}
    assert reader.read("proc/net/dev") == b"2"


def test_more_files_than_may_stay_open(root: Path) -> None:
    """The rest are opened each time, and read as well."""
    names = [f"proc/f{n}" for n in range(5)]
    with SystemReader(root / "proc", root / "sys", keep=2) as reader:
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - no path is wanted
        for turn in range(3):
            for name in names:
                (root / name).write_text(f"{name} {turn}\n")
            assert [reader.read(n) for n in names] == [f"{n} {turn}\n".encode() for n in names]
            assert [reader.small(n) for n in names] == [f"{n} {turn}\n".encode() for n in names]
        assert len(os.listdir("/proc/self/fd")) == before + 2  # noqa: PTH208


def test_a_device_that_is_off_is_looked_at_again_at_the_next_reading(
    reader: SystemReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link's speed: EINVAL while it is down."""
    path = "sys/class/net/eth0/statistics/rx_bytes"
    fail_once(monkeypatch, errno.EINVAL)
    assert isinstance(reader.small(path), Unreadable)
    assert reader.small(path) == b"0\n"
