"""Command lines of Kubernetes' programs: each flag is classified as implemented, harmless or refused. No flag is ignored silently.

It imports only the standard library: envtest calls ``--help`` of each program before each start.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

_TRUE: Final = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "false", "FALSE", "False"))


class Treatment(Enum):
    """How a launcher treats a flag of the original program: implemented, accepted without effect, or refused."""

    IMPLEMENTED = "implemented"
    HARMLESS = "harmless"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of a program.

    ``default`` is the value that matches the server's behaviour without the flag; it is always accepted. ``note`` says why a harmless flag
    changes no response of the server, or what to do instead of a refused one. ``accepted`` are further values of a refused flag that match
    the server's behaviour.
    """

    name: str
    type: str
    default: str
    treatment: Treatment
    note: str = ""
    accepted: tuple[str, ...] = ()

    @property
    def is_bool(self) -> bool:
        return self.type == "bool"


class FlagError(Exception):
    """A command line that the program does not accept; the message names the flag and says what to do."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A parsed command line: the values of implemented flags, and the harmless flags with their notes."""

    values: Mapping[str, tuple[str, ...]]
    harmless: Sequence[tuple[str, str]]

    def last(self, name: str, default: str = "") -> str:
        """Return the last value of a flag with a single value, as pflag does."""
        return self.values[name][-1] if self.values.get(name) else default

    def harmless_text(self) -> str:
        """Return the harmless flags with their notes as one line for the log."""
        return ", ".join(f"{shown} ({why})" for shown, why in self.harmless)

    def all(self, name: str) -> tuple[str, ...]:
        """Return all values of a list flag, which are separated by commas or given several times."""
        return tuple(part.strip() for value in self.values.get(name, ()) for part in value.split(",") if part.strip())


class FlagSet:
    """The flags of one program.

    Args:
        program: Its name, for messages.
        version: The version of the original program with these flags, for messages.
        flags: All flags of that version.
        removed: Flags of older versions, each with the values that describe today's behaviour.
        single_dash: True for Go's package flag, which also accepts ``-name``; False for pflag, which accepts ``_`` for ``-``.
    """

    def __init__(
        self,
        program: str,
        version: str,
        flags: Iterable[Flag],
        *,
        removed: Mapping[str, tuple[str, ...]] | None = None,
        single_dash: bool = False,
    ) -> None:
        self.program = program
        self.version = version
        self.flags = {flag.name: flag for flag in flags}
        self._removed = dict(removed or {})
        self._single_dash = single_dash

    def parse(self, arguments: Sequence[str]) -> CommandLine:
        """Parse the arguments and classify each flag.

        Raises:
            FlagError: An unknown flag, a refused flag (the message names all of them), a value of a wrong type, or a positional argument.
        """
        values: dict[str, list[str]] = {}
        harmless: list[tuple[str, str]] = []
        refused: list[str] = []
        for name, value in self._pairs(arguments):
            flag = self.flags.get(name)
            if flag is None:
                harmless.append((f"--{name}={value}", f"{self.program} {self.version} has no such flag, and this value requests it"))
                continue
            _check_type(flag, value)
            if flag.treatment is Treatment.IMPLEMENTED:
                values.setdefault(name, []).append(value)
            elif flag.treatment is Treatment.HARMLESS:
                harmless.append((f"--{name}={value}", flag.note))
            elif _same(flag, value):
                harmless.append((f"--{name}={value}", "this is so anyway"))
            else:
                refused.append(f"--{name}={value}: {flag.note}")
        if refused:
            raise FlagError(f"kubeloop's {self.program} does not implement " + "; nor ".join(refused))
        return CommandLine({name: tuple(given) for name, given in values.items()}, harmless)

    def help(self) -> str:
        """Return the text of ``--help``: one flag per line, which envtest searches, with the refused flags together at the end."""
        lines = [
            f"kubeloop's {self.program}: takes the flags of {self.program} {self.version} and runs kubeloop's embedded API server.",
            "",
            "Usage:",
            f"  {self.program} [flags]",
        ]
        for title, treatment in (
            ("Flags", Treatment.IMPLEMENTED),
            ("Flags that are accepted and change nothing here", Treatment.HARMLESS),
        ):
            lines += ["", f"{title}:", ""]
            lines += [f"      --{_usage(flag)}" for flag in self.flags.values() if flag.treatment is treatment]
        refused = ", ".join(f"--{flag.name}" for flag in self.flags.values() if flag.treatment is Treatment.REFUSED)
        return "\n".join([*lines, "", f"Refused unless the value is the default: {refused}", ""])

    def _pairs(self, arguments: Sequence[str]) -> Iterable[tuple[str, str]]:
        """Yield name and value of each flag. Sources: pflag's documentation, "Command line flag syntax"; Go's package flag."""
        rest = list(arguments)
        while rest:
            argument = rest.pop(0)
            if argument == "--" or not argument.startswith("-") or argument == "-":
                raise self._positional(rest if argument == "--" else [argument, *rest])
            if argument.startswith("--") or self._single_dash:
                name, equals, value = argument.lstrip("-").partition("=")
                name = name if self._single_dash else name.replace("_", "-")
            else:
                name, value = argument[1], argument[2:].removeprefix("=")
                equals = "=" if len(argument) > 2 else ""
                name = "help" if name == "h" else name
            flag = self._known(name, argument)
            if not equals:
                if flag is not None and (flag.is_bool or "[=" in flag.type):
                    value = "true"
                elif rest:
                    value = rest.pop(0)
                else:
                    raise FlagError(f"flag needs an argument: --{name}; write --{name}=VALUE")
            if flag is None and value not in self._removed[name]:
                raise self._unknown(name)
            yield name, value

    def _known(self, name: str, argument: str) -> Flag | None:
        """Return the flag with this name, or None for a flag of an older version. Raises FlagError for an unknown flag."""
        if name in self.flags:
            return self.flags[name]
        if name in self._removed:
            return None
        raise self._unknown(name if argument.startswith("--") or self._single_dash else argument)

    def _unknown(self, name: str) -> FlagError:
        near = difflib.get_close_matches(name.lstrip("-"), self.flags, 1)
        hint = (
            f"did you mean --{near[0]}?"
            if near
            else "remove it from Args, or from Configure(), of the control plane in your envtest.Environment"
        )
        dashed = name if name.startswith("-") else f"--{name}"
        return FlagError(f"unknown flag: {dashed}; {self.program} {self.version} has no such flag; {hint}")

    def _positional(self, arguments: Sequence[str]) -> FlagError:
        shown = " ".join(json.dumps(one) for one in arguments)
        return FlagError(f'"{self.program}" does not take any arguments, got [{shown}]; write the value of a flag as --flag=value')


def parse_bool(text: str) -> bool | None:
    """Parse a boolean like Go's strconv.ParseBool; return None for any other text."""
    return True if text in _TRUE else False if text in _FALSE else None


def key_values(texts: Iterable[str], flag: str) -> dict[str, str]:
    """Parse ``a=1,b=2`` in one or several values. A key without a value has the value ``true``.

    Raises:
        FlagError: A part has no key.
    """
    found: dict[str, str] = {}
    for text in texts:
        for part in filter(None, (one.strip() for one in text.split(","))):
            key, equals, value = part.partition("=")
            if not key.strip():
                raise FlagError(f"--{flag}: {part!r} has no key; write KEY=VALUE")
            found[key.strip()] = value.strip() if equals else "true"
    return found


def _usage(flag: Flag) -> str:
    shown = flag.name if flag.is_bool else f"{flag.name} {flag.type}"
    return f"{shown:60} {flag.note}".rstrip()


def _same(flag: Flag, value: str) -> bool:
    """Return whether a value of a refused flag requests the present behaviour."""
    if flag.is_bool:
        wanted = {parse_bool(one) for one in (flag.default or "false", *flag.accepted)}
        return parse_bool(value) in wanted
    if value == "" or value in (flag.default, *flag.accepted):
        return True
    return bool(re.fullmatch(r"int|float|float32|duration", flag.type)) and not flag.default and not value.strip("0.hnums")


def _check_type(flag: Flag, value: str) -> None:
    """Check the type of a value. Raises FlagError for a value that the original program rejects."""
    if flag.is_bool and parse_bool(value) is None:
        raise FlagError(f'invalid argument "{value}" for "--{flag.name}" flag: {value!r} is not a boolean; write true or false')
    if flag.type == "int" and not re.fullmatch(r"[+-]?\d+", value):
        raise FlagError(f'invalid argument "{value}" for "--{flag.name}" flag: {value!r} is not a number')
