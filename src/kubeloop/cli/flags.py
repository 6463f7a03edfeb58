"""Command-line flags declared once, as fields of a dataclass; durations as values of flags.

    @dataclass(frozen=True, slots=True)
    class LogFlags:
        log_file: Path | None = flag(type=click.Path(path_type=Path), help="File to write to. Default: standard error.")
        verbose: bool = flag(False, help="Log more.")

    @click.command()
    @with_flags(log=LogFlags)
    def run(log: LogFlags) -> None: ...

The command gets ``--log-file`` and ``--verbose``, and their values as one object.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|m|us|µs|ns|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


class DurationParameter(click.ParamType[float]):
    """Seconds, positive unless ``zero``: ``300``, ``0.5``, ``5m``, ``1h30m``.

    Source: Go's time.ParseDuration, and a number without a unit.
    """

    name = "duration"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = value if isinstance(value, int | float) else seconds(str(value))
        if found is None or not (0 < found < math.inf or (found == 0 and self._zero)):
            self.fail(f"{value!r} is not a valid duration; write seconds, or one like 5m or 1h30m", param, ctx)
        return float(found)


def seconds(text: str) -> float | None:
    """Return the seconds of a duration such as ``5m``, or None if the text is not a duration."""
    if re.fullmatch(r"\d+(\.\d*)?|\.\d+", text):
        return float(text)
    if not re.fullmatch(f"({_PART.pattern})+", text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)

_OPTION = "click option"


def flag(default: Any = None, *names: str, help: str, **settings: Any) -> Any:  # noqa: A002 - click's name
    """Declare a field of a dataclass as a flag.

    Args:
        default: The value without the flag. ``False`` makes a flag without a value, ``()`` a flag that may be repeated.
        names: All names of the flag, with their dashes. Without them, the name is that of the field, with dashes.
        help: Text of ``--help``.
        settings: Further settings of ``click.option``: ``type``, ``metavar``, ``show_default``, ``hidden``, ``required``.

    Returns:
        A field for a class that is passed to ``with_flags``.
    """
    if default is False and "type" not in settings:
        settings["is_flag"] = True
    if default == () and default is not None:
        settings["multiple"] = True
    elif not settings.get("required"):
        settings["default"] = default
    return dataclasses.field(default=default, metadata={_OPTION: (names, {"help": help, **settings})})


def with_flags(**groups: type[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the flags of each group to a click command, which gets one argument for each group.

    Args:
        groups: Name of the command's argument, and the dataclass whose fields are flags.
    """
    fields = {name: dataclasses.fields(group) for name, group in groups.items()}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def run(*positional: Any, **values: Any) -> Any:
            filled = {name: group(**{one.name: values.pop(one.name) for one in fields[name]}) for name, group in groups.items()}
            return command(*positional, **filled, **values)

        for one in reversed([one for group in fields.values() for one in group]):
            names, settings = one.metadata[_OPTION]
            run = click.option(*(names or (f"--{one.name.replace('_', '-')}",)), one.name, **settings)(run)
        return run

    return decorate
