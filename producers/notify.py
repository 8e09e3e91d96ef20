"""What the agent tells systemd: that it is ready, how it fares, and that it is alive.

The protocol is one datagram of ``KEY=value`` lines to the Unix socket that ``NOTIFY_SOCKET``
names (sd_notify(3), sd_watchdog_enabled(3)). Nobody need listen: without the variable, or with
one that leads nowhere, nothing is sent and nothing else changes.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, MutableMapping
from contextlib import suppress

SECOND_NS = 1_000_000_000
STATUS_NS = 10 * SECOND_NS
RETRY_NS = SECOND_NS
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """Speaks to the service manager, if there is one.

    Parameters
    ----------
    address
        Path of the socket, or with ``@`` first its abstract name; empty: nobody listens.
    watchdog_ns
        The manager ends a service from which it hears nothing for so long; 0: it does not.
    """

    def __init__(self, address: str = "", watchdog_ns: int = 0) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog = watchdog_ns > 0
        # Half of the time is what sd_watchdog_enabled(3) asks for.
        self._every_ns = min(STATUS_NS, watchdog_ns // 2) if self._watchdog else STATUS_NS
        self._ready = False
        self._due_ns = 0
        self._socket: socket.socket | None = None
        if address:
            with suppress(OSError):  # no Unix sockets, or no file descriptor left
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] = os.environ) -> Notifier:
        """Make one of the manager's variables, and take them out: they are not for children."""
        address, watchdog_us, watchdog_pid = (environ.pop(name, "") for name in VARIABLES)
        for_us = watchdog_pid in ("", str(os.getpid())) and re.fullmatch("[0-9]{1,18}", watchdog_us)
        return cls(address, 1000 * int(watchdog_us) if for_us else 0)

    def beat(self, mono_ns: int, status: Callable[[], str]) -> None:
        """Tell what is due: call after every tick, so that without ticks the watchdog bites.

        The first tells that the agent is ready, too.
        """
        if self._socket is None or mono_ns < self._due_ns:
            return
        words = ["STATUS=" + " ".join(status().split())]
        if self._watchdog:
            words.append("WATCHDOG=1")
        if not self._ready:
            words.append("READY=1")
        sent = self._send(words)
        self._ready = self._ready or sent
        self._due_ns = mono_ns + (self._every_ns if sent else min(RETRY_NS, self._every_ns))

    def stopping(self) -> None:
        """Tell that the agent ends; what follows is only what is left to send."""
        self._send(["STOPPING=1", "STATUS=sending what is left"])

    def close(self) -> None:
        """Close the socket; nothing is sent after it."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, words: list[str]) -> bool:
        if self._socket is None:
            return False
        try:
            self._socket.sendto("\n".join(words).encode(), self._address)
        except OSError:  # nobody there, or too busy to listen
            return False
        return True
