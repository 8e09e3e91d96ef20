"""Command-line flags made from settings sections, so that a key is written down once."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

from schemas.errors import RevealError
from schemas.settings import Resolved, Section, flag, resolve, variable

_ALSO = "also"


class UserError(click.ClickException):
    """What the user can mend, in one line: `click.UsageError` would put the usage before it."""

    exit_code = 2


def with_settings(**sections: type[Section]) -> Callable[[Callable[..., Any]], Any]:
    """Give a click command the flags of `sections`; it is called with ``settings=Resolved``.

    What goes wrong in a way that the user can mend (`RevealError`) becomes click's one-line
    error and exit code 2.
    """

    def decorate(command: Callable[..., Any]) -> Any:
        @functools.wraps(command)
        def run(*args: Any, config: Path | None, **kwargs: Any) -> Any:
            context = click.get_current_context()
            flags: dict[str, dict[str, Any]] = {}
            for name, cls in sections.items():
                for key in cls.model_fields:
                    value = kwargs.pop(f"{name}__{key}")
                    if (
                        context.get_parameter_source(f"{name}__{key}")
                        is ParameterSource.COMMANDLINE
                    ):
                        flags.setdefault(name, {})[key] = value
            try:
                settings = resolve(sections, flags=flags, environ=os.environ, file=config)
                return command(*args, settings=settings, **kwargs)
            except RevealError as e:
                raise UserError(str(e)) from e

        wrapped: Any = run
        for name, cls in reversed(sections.items()):
            for key, field in reversed(cls.model_fields.items()):
                wrapped = _option(name, key, field)(wrapped)
        return click.option(
            "--config",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="TOML file with settings (or REVEAL_CONFIG).",
        )(wrapped)

    return decorate


def print_settings(settings: Resolved) -> None:
    """Print what is in force and where each value came from, as TOML with comments."""
    section = ""
    for s in settings.settings:
        if s.section != section:
            if section:
                click.echo()
            section = s.section
            click.echo(f"[{section}]")
        click.echo(f"{f'{s.key} = {_toml(s.value)}':<40} # {s.origin}")


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    # A JSON string is a TOML basic string.
    return json.dumps(str(value), ensure_ascii=False)


def also(*flags: str) -> JsonDict:
    """Give a setting other flags, too, that people know from elsewhere: ``--path.proc``.

    For pydantic's ``Field(json_schema_extra=...)``.
    """
    return {_ALSO: [*flags]}


def _option(section: str, key: str, field: FieldInfo) -> Callable[[Any], Any]:
    annotation, default, description = field.annotation, field.default, field.description
    extra = field.json_schema_extra
    others = extra.get(_ALSO) if isinstance(extra, dict) else None
    names = [
        flag(key),
        *(map(str, others) if isinstance(others, list) else ()),
        f"{section}__{key}",
    ]
    shown = "" if default in ("", None) else f" [default: {default}]"
    text = f"{description or ''}{shown} (or {variable(section, key)})"
    if annotation is bool:
        names[0] = f"{flag(key)}/--no-{flag(key)[2:]}"
        return click.option(*names, default=None, help=text)
    # The value goes to pydantic as text: it knows the type, and one message serves all sources.
    return click.option(*names, type=str, metavar=_metavar(annotation), default=None, help=text)


def _metavar(annotation: Any) -> str:
    return {int: "N", float: "X", Path: "PATH"}.get(annotation, "TEXT")
