"""What can go wrong on the way to a running system.

RevealError (schemas)
├── NoEmbeddedBroker  the embedded broker cannot be had here
├── NoBroker          no Kafka broker answers
├── NoTopic           a topic does not exist
└── PartFailed        a part of the stack did not start, or ended by itself
"""

from __future__ import annotations

from schemas.errors import RevealError


class NoEmbeddedBroker(RevealError):
    """The embedded broker cannot be had here. The text says what was looked for."""


class NoBroker(RevealError):
    """No Kafka broker answers. The text names the address."""


class NoTopic(RevealError):
    """A topic does not exist. The text says how to make it."""


class PartFailed(RevealError):
    """A part of the stack did not start, or ended by itself. The text has its last log lines."""
