"""Protobuf of OpenAPI documents, from tables of their messages. What such a message holds as YAML is JSON here, which is YAML too."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kubeloop.codec.protobuf.wire import EncodeError, varint

#: Stands in a table for all extensions: fields whose names begin with ``x-``.
EXTENSION: Final = "x-*"

#: By message: JSON name to field number and type. A type is a scalar, a message, [type] for many, or {message} for a map: a message whose
#: entries (name 1, value 2) are its field of the number behind the slash.
Messages = Mapping[str, Mapping[str, tuple[int, str]]]
#: By message that holds one of several: what makes its content.
Choices = Mapping[str, Callable[[Any], bytes]]


class Form:
    """Writes JSON trees as the messages of one table.

    Raises
        EncodeError: a tree holds what its message has no place for.
    """

    def __init__(self, messages: Messages, choices: Choices) -> None:
        self._messages = messages
        self._choices = choices

    def message(self, name: str, tree: Mapping[str, Any]) -> bytes:
        fields = self._messages[name]
        out = []
        for key, value in tree.items():
            if key.startswith("x-"):
                number, _ = fields[EXTENSION]
                out.append((number, block(number, string(1, key) + block(2, anything(value)))))
                continue
            if key not in fields:
                raise EncodeError(f"OpenAPI {name} has no place for {key}")
            number, kind = fields[key]
            out.append((number, self.field(number, kind, value)))
        out.sort(key=lambda one: one[0])
        return b"".join(data for _, data in out)

    def field(self, number: int, kind: str, value: Any) -> bytes:
        if kind[0] == "[":
            return b"".join(self.field(number, kind[1:-1], one) for one in value)
        if kind[0] == "{":
            message, _, entries = kind[1:].partition("}/")
            named = (block(int(entries), string(1, key) + self.field(2, message, one)) for key, one in value.items())
            return block(number, b"".join(named))
        if kind in _SCALARS:
            return scalar(number, kind, value) if value or kind == "string" else b""
        if kind == "any":
            return block(number, anything(value))
        choose = self._choices.get(kind)
        return block(number, choose(value) if choose else self.message(kind, value))


_SCALARS: Final = frozenset({"string", "bool", "int", "double"})


def scalar(number: int, kind: str, value: Any) -> bytes:
    """Also a zero, as a message that holds one of several needs it."""
    if kind == "string":
        return string(number, value)
    if kind == "double":
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return varint(number << 3) + varint(int(value))


def block(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def string(number: int, text: str) -> bytes:
    return block(number, text.encode())


def anything(value: Any) -> bytes:
    return block(2, msgspec.json.encode(value) + b"\n")
