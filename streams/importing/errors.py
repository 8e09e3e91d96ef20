"""What can go wrong with a file that is to be imported."""

from __future__ import annotations

from schemas.errors import RevealError


class InvalidImport(RevealError, ValueError):
    """A file is not what it was said to be. The text names file and line and says what to do."""


class NothingThereError(InvalidImport):
    """A host of a file has nothing to record: its columns hold no value."""
