"""The reader of ttar archives, over one made up here."""

from __future__ import annotations

from tests.producers.archives import followed, parse

ARCHIVE = rb"""# Archive created by hand
Directory: sys/class
Mode: 755
# ttar - - -
Path: sys/class/heat/chip0
SymlinkTo: ../../devices/board/heat/chip0
# ttar - - -
Path: sys/devices/board/heat/chip0/device
SymlinkTo: ../../../board
# ttar - - -
Path: sys/devices/board/heat/chip0/subsystem
SymlinkTo: ../../../../class/heat
# ttar - - -
Path: sys/devices/board/heat/chip0/temp
Lines: 1
42000
Mode: 444
# ttar - - -
Path: sys/devices/board/name
Lines: 2
one
twoEOF
Mode: 444
# ttar - - -
Path: sys/devices/board/empty
Lines: 0
Mode: 444
# ttar - - -
Path: sys/devices/board/raw
Lines: 1
aNULLBYTEb\NULLBYTEc\EOF
Mode: 444
"""


def test_an_archive() -> None:
    files, links = parse(ARCHIVE)
    assert files == {
        "sys/devices/board/heat/chip0/temp": b"42000\n",
        "sys/devices/board/name": b"one\ntwo",
        "sys/devices/board/empty": b"",
        "sys/devices/board/raw": b"a\x00bNULLBYTEcEOF\n",
    }
    assert links == {
        "sys/class/heat/chip0": "sys/devices/board/heat/chip0",
        "sys/devices/board/heat/chip0/device": "sys/devices/board",
        "sys/devices/board/heat/chip0/subsystem": "sys/class/heat",
    }


def test_files_have_the_names_that_links_give_them() -> None:
    every = followed(*parse(ARCHIVE))
    assert every["sys/class/heat/chip0/temp"] == b"42000\n"
    assert every["sys/devices/board/heat/chip0/device/name"] == b"one\ntwo"
    assert every["sys/class/heat/chip0/device/name"] == b"one\ntwo"
    assert not any("subsystem" in path for path in every)
