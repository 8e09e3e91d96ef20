"""Settings: flags over environment over a TOML file over defaults.

A program's settings are sections, each a frozen pydantic model with a description per field.
The key `interval_ms` of section `agent` is the flag ``--interval-ms``, the variable
``REVEAL_AGENT_INTERVAL_MS`` and the line ``interval_ms = 100`` under ``[agent]`` in the file
named by ``--config`` or ``REVEAL_CONFIG``. What nobody knows is an error that names the nearest
known name. Secrets go into the environment or a file, never into a flag.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from schemas.errors import InvalidSettings

PREFIX = "REVEAL_"
CONFIG_VARIABLE = "REVEAL_CONFIG"
SECTIONS = ("kafka", "agent", "worker", "view")
"""Sections of the file, whichever program reads it: a program skips what is not its own."""


class Section(BaseModel):
    """Base of a section: frozen, and what it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        # pydantic takes true for 1, which is right for text from the environment only.
        field = cls.model_fields[info.field_name or ""]
        if isinstance(value, bool) and field.annotation in (int, float):
            raise ValueError("a number is needed here")
        return value


class Kafka(Section):
    """How every program reaches Kafka."""

    brokers: str = Field("", description="host:port of one or more brokers, comma-separated")

    @field_validator("brokers")
    @classmethod
    def _are_addresses(cls, value: str) -> str:
        brokers = [broker.strip() for broker in value.split(",")] if value.strip() else []
        for broker in brokers:
            host, _, port = broker.rpartition(":")
            if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
                raise ValueError(f"{broker!r} is no broker: write host:port, comma-separated")
        return ",".join(brokers)


S = TypeVar("S", bound=Section)


@dataclass(frozen=True, slots=True)
class Setting:
    """One value in force, and where it came from."""

    section: str
    key: str
    value: Any
    origin: str


@dataclass(frozen=True)
class Resolved:
    """Every section of one program, checked, with the origin of each value."""

    sections: Mapping[str, Section]
    settings: tuple[Setting, ...]

    def get(self, name: str, cls: type[S]) -> S:
        """Return section `name`."""
        section = self.sections[name]
        if not isinstance(section, cls):
            raise TypeError(f"section {name} is {type(section).__name__}, not {cls.__name__}")
        return section


def resolve(
    sections: Mapping[str, type[Section]],
    *,
    flags: Mapping[str, Mapping[str, Any]],
    environ: Mapping[str, str],
    file: Path | None = None,
) -> Resolved:
    """Merge the sources and check every value.

    Parameters
    ----------
    sections
        The program's sections by name.
    flags
        Values given on the command line, by section and key; only those that were given.
    environ
        The process environment.
    file
        A TOML file; by default the one that ``REVEAL_CONFIG`` names, if any.

    Raises
    ------
    InvalidSettings
        Something is unknown, unreadable or has a value that cannot be.
    """
    if file is None and environ.get(CONFIG_VARIABLE):
        file = Path(environ[CONFIG_VARIABLE])
    in_file = _read_file(file, sections) if file is not None else {}
    in_environ = _read_environ(environ, sections)
    done: dict[str, Section] = {}
    settings: list[Setting] = []
    for name, cls in sections.items():
        layers: tuple[tuple[str, Mapping[str, Any]], ...] = (
            ("default", {}),
            (str(file), in_file.get(name, {})),
            ("environment", in_environ.get(name, {})),
            ("flag", dict(flags.get(name, {}))),
        )
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for origin, layer in layers:
            for key, value in layer.items():
                values[key] = value
                origins[key] = _origin(origin, name, key)
        try:
            done[name] = section = cls(**values)
        except ValidationError as e:
            raise InvalidSettings(_explain(e, name, origins)) from None
        settings.extend(
            Setting(name, key, getattr(section, key), origins.get(key, "default"))
            for key in cls.model_fields
        )
    return Resolved(done, tuple(settings))


def variable(section: str, key: str) -> str:
    """Return the name of the environment variable of a key."""
    return f"{PREFIX}{section}_{key}".upper()


def flag(key: str) -> str:
    """Return the name of the flag of a key."""
    return "--" + key.replace("_", "-")


def _origin(origin: str, section: str, key: str) -> str:
    if origin == "environment":
        return variable(section, key)
    return flag(key) if origin == "flag" else origin


def _read_file(file: Path, sections: Mapping[str, type[Section]]) -> dict[str, dict[str, Any]]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as e:
        raise InvalidSettings(f"settings file {file}: {e.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise InvalidSettings(f"settings file {file} is not TOML: {e}") from None
    for name, table in content.items():
        if name not in SECTIONS:
            raise InvalidSettings(f"{file}: unknown section [{name}]{_nearest(name, SECTIONS)}")
        if not isinstance(table, dict):
            raise InvalidSettings(f"{file}: {name} is a section: write [{name}] and keys below it")
        if name in sections:
            known = sections[name].model_fields
            for key in table:
                if key not in known:
                    raise InvalidSettings(
                        f"{file}: unknown key {key!r} in [{name}]{_nearest(key, known)}"
                    )
    return cast("dict[str, dict[str, Any]]", content)


def _read_environ(
    environ: Mapping[str, str], sections: Mapping[str, type[Section]]
) -> dict[str, dict[str, str]]:
    known = {
        variable(name, key): (name, key)
        for name, cls in sections.items()
        for key in cls.model_fields
    }
    others = tuple(f"{PREFIX}{name.upper()}_" for name in SECTIONS if name not in sections)
    found: dict[str, dict[str, str]] = {}
    for name, value in environ.items():
        if not name.startswith(PREFIX) or name == CONFIG_VARIABLE or name.startswith(others):
            continue
        if name not in known:
            raise InvalidSettings(
                f"unknown environment variable {name}{_nearest(name, [*known, CONFIG_VARIABLE])}"
            )
        section, key = known[name]
        found.setdefault(section, {})[key] = value
    return found


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known: {', '.join(names)}"


def _explain(error: ValidationError, section: str, origins: Mapping[str, str]) -> str:
    lines = []
    for item in error.errors():
        what = item["msg"].removeprefix("Value error, ")
        if not item["loc"]:  # values that do not fit together
            lines.append(f"[{section}] {what}")
            continue
        key = str(item["loc"][0])
        where = origins.get(key, "default")
        lines.append(f"{section}.{key} = {item['input']!r} (from {where}): {what}")
    return "; ".join(lines)
