"""What can go wrong with a contract.

RevealError
├── InvalidRecord   a message is truncated, foreign or of an unknown schema
└── InvalidSettings a flag, a variable or a file sets something that cannot be
"""


class RevealError(Exception):
    """Base of the errors whose message is meant for the person who runs the program."""


class InvalidRecord(RevealError, ValueError):
    """A message is not one of ours, or not whole. The text says what was found."""


class InvalidSettings(RevealError, ValueError):
    """A setting is unknown or has a value that cannot be. The text names the setting."""
