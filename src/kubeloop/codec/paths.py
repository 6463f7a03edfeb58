"""Paths into an object, in wire names: ``spec.nodeName``, ``spec.containers[*].image``, ``metadata.annotations["example.com/x"]``.

A path names a value to read; it never filters and never computes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec


class Each:
    """Every item of a list (``[*]``)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[*]"


EACH: Final = Each()
Segment = str | Each
_TOKEN = re.compile(r"""\.?(?P<name>[A-Za-z_$][\w$-]*)|(?P<each>\[\*\])|\[(?P<quote>["'])(?P<key>.+?)(?P=quote)\]""")


def parse_path(text: str) -> tuple[Segment, ...]:
    """Parse a path. Names with a dot or a slash go in ``["..."]``; a leading ``.`` or ``$.`` is accepted.

    Raises:
        ValueError: The text is not a path; the message points at the position.
    """
    path = text.removeprefix("$")
    segments: list[Segment] = []
    at = 0
    while at < len(path):
        token = _TOKEN.match(path, at)
        if token is None or (at and token["name"] and path[at] != "."):
            raise ValueError(f'path "{text}": cannot read "{path[at:]}"; wanted a name, [*] or ["key"], such as spec.containers[*].image')
        segments.append(EACH if token["each"] else token["name"] or token["key"])
        at = token.end()
    if not segments or isinstance(segments[0], Each):
        raise ValueError(f'path "{text}" names no field')
    return tuple(segments)


def walk(value: Any, segments: tuple[Segment, ...]) -> Iterator[Any]:
    """Yield the values at a path below ``value`` (structs by wire name, maps and lists); none where a step is missing or null."""
    for at, segment in enumerate(segments):
        value = _read(value)
        if isinstance(segment, Each):
            for item in value if isinstance(value, list) else ():
                yield from walk(item, segments[at + 1 :])
            return
        if isinstance(value, dict):
            value = value.get(segment)
        elif isinstance(value, msgspec.Struct):
            value = getattr(value, _attribute(type(value), segment), None)
        else:
            return
    value = _read(value)
    if value is not None:
        yield value


def _read(value: Any) -> Any:
    """Decode a value that is still JSON; return other values unchanged, and None for an absent one."""
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value) if memoryview(value).nbytes else None
    return value


def _attribute(cls: type[msgspec.Struct], wire: str) -> str:
    names = cls.__struct_encode_fields__
    return cls.__struct_fields__[names.index(wire)] if wire in names else ""
