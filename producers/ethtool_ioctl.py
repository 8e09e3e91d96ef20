"""Asking the drivers of network cards for their statistics: ioctl SIOCETHTOOL.

Kernel: include/uapi/linux/ethtool.h, net/ethtool/ioctl.c. No privilege is needed. The kernel
writes as many statistics as there are at that moment, whatever room was made for them; so there is
more room than any driver adds at once (`_SPARE`).
"""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_SIOCETHTOOL = 0x8946
_GSTRINGS = 0x1B
_GSTATS = 0x1D
_GSSET_INFO = 0x37
_STATISTICS = 1  # ETH_SS_STATS
_NAME_BYTES = 32
_MOST = 1 << 16
_SPARE = 8192
"""A card that goes from one queue to 128 has fewer statistics more than these."""


class SystemEthtool:
    """The drivers of this machine, through a socket that is opened when it is first needed."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def count(self, interface: str) -> int:
        """Return how many statistics an interface has.

        Raises
        ------
        OSError
            There is no such interface, or its driver has none.
        """
        request = ctypes.create_string_buffer(
            struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _STATISTICS, 0)
        )
        self._ask(interface, request)
        _, _, mask, count = struct.unpack_from("=IIQI", request)
        return min(count, _MOST) if mask else 0

    def names(self, interface: str, count: int) -> Sequence[str]:
        """Return the names of its statistics; `count` is how many there were a moment ago.

        Raises
        ------
        OSError
            There is no such interface any more, or its statistics have become others.
        """
        room = ctypes.create_string_buffer(12 + _NAME_BYTES * (count + _SPARE))
        struct.pack_into("=III", room, 0, _GSTRINGS, _STATISTICS, count)
        self._ask(interface, room)
        self._same(struct.unpack_from("=III", room)[2], count)
        at = range(12, 12 + _NAME_BYTES * count, _NAME_BYTES)
        raw = (room.raw[i : i + _NAME_BYTES].partition(b"\0")[0] for i in at)
        return [name.decode("ascii", "replace") for name in raw]

    def values(self, interface: str, count: int) -> NDArray[np.uint64]:
        """Return its statistics, shape ``(count,)``.

        Raises
        ------
        OSError
            As `names`.
        """
        room = ctypes.create_string_buffer(8 + 8 * (count + _SPARE))
        struct.pack_into("=II", room, 0, _GSTATS, count)
        self._ask(interface, room)
        self._same(struct.unpack_from("=II", room)[1], count)
        return np.frombuffer(room.raw, np.uint64, count, 8)

    def close(self) -> None:
        """Close the socket. It is opened again when it is needed."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self, interface: str, room: ctypes.Array[ctypes.c_char]) -> None:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        name = interface.encode()[:15]
        fcntl.ioctl(
            self._socket, _SIOCETHTOOL, struct.pack("16sP16x", name, ctypes.addressof(room))
        )

    def _same(self, now: int, before: int) -> None:
        if now != before:
            raise OSError(f"{now} statistics, a moment ago {before}")
