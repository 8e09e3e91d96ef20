"""Settings of the worker with some of them changed, checked like any others."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from schemas.errors import InvalidSettings
from streams.config import WorkerSettings


def changed(worker: WorkerSettings, changes: Mapping[str, Any], why: str) -> WorkerSettings:
    """Return settings with changes.

    Parameters
    ----------
    worker
        What is in force.
    changes
        New values by key, as text or as what they are.
    why
        Where they come from: errors begin with it.

    Raises
    ------
    InvalidSettings
        A value cannot be, or does not fit the others. The text says which.
    """
    try:
        return WorkerSettings.model_validate({**worker.model_dump(), **changes})
    except ValidationError as e:
        said = []
        for item in e.errors():
            key = f"{item['loc'][0]} = {item['input']!r}: " if item["loc"] else ""
            said.append(key + item["msg"].removeprefix("Value error, "))
        raise InvalidSettings(f"{why}: {'; '.join(said)}") from None


def parse(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Return values by key from texts of the form ``key=value``.

    Raises
    ------
    InvalidSettings
        One has another form, a key that there is not, or one for the second time.
    """
    known = WorkerSettings.model_fields
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise InvalidSettings(f"{option} {pair}: write key=value, such as window_ms=1500")
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]}? " if close else ""
            raise InvalidSettings(
                f"{option} {pair}: there is no setting {key!r}; {hint}There are: {', '.join(known)}"
            )
        if key in found:
            raise InvalidSettings(f"{option} {pair}: {key} is set to {found[key]} already")
        found[key] = value.strip()
    return found
