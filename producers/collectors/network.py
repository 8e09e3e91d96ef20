"""One network namespace: what moves fast is read often, the rest once a second."""

from __future__ import annotations

from producers.collectors import protocols, sockets
from producers.collectors.interfaces import Interfaces
from producers.collectors.softnet import softnet
from producers.source import Collector

_REMEDY = (
    "Without it {what} cannot be seen. In a container, run the agent in the host's network "
    "namespace (hostNetwork, --network host)."
)


def collector() -> Collector:
    """Return a collector of interfaces, protocols and sockets."""
    return Collector(
        "network",
        (
            Interfaces(_REMEDY.format(what="traffic")),
            *protocols.fast(_REMEDY),
            *sockets.fast(_REMEDY),
            softnet(_REMEDY.format(what="packets dropped before the stack")),
        ),
    )


def slow_collector() -> Collector:
    """Return a collector of what is looked at less often in one network namespace."""
    return Collector("network_slow", (*protocols.slow(_REMEDY), *sockets.slow(_REMEDY)))
