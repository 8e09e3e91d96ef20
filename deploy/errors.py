"""What can go wrong on the way to a running system; see also `schemas.errors`."""

from __future__ import annotations

from schemas.errors import RevealError


class NoEmbeddedBroker(RevealError):
    """The embedded broker cannot be had here. The text says what was looked for."""
