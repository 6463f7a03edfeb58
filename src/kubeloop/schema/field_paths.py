"""Paths to fields as CRDs write them: ``.spec.names['a.b']``; checked against the schema they point into.

Source: apiextensions-apiserver schema/cel ValidFieldPath.
"""

from __future__ import annotations

import re
from typing import Final

from kubeloop.schema.node import TypeSchema
from kubeloop.schema.structural import ANY_VALUE, NO_OTHER

_PIECE: Final = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]']+|'")
_ESCAPED: Final = re.compile(r"\\(.)")
_LETTERS: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


class FieldPathError(ValueError):
    """The path is malformed or leads to no field. The message is that of Kubernetes."""


def normalise(path: str, schema: TypeSchema) -> str:
    """Return the path as field errors print it: ``spec.names[a.b]``.

    Raises:
        FieldPathError: The path does not lead to a field of the schema.
    """
    pieces = iter(_PIECE.findall(path))
    shown = ""
    found = schema
    for piece in pieces:
        if piece not in (".", "["):
            raise FieldPathError(f"expected [ or . but got: {piece}")
        name = next(pieces, None)
        if name is None:
            raise FieldPathError("unexpected end of JSON path")
        if piece == "[":
            name = _unquoted(name)
        found, named = _below(found, name)
        shown += (f".{name}" if shown else name) if named else f"[{name}]"
        if piece == "[":
            closing = next(pieces, None)
            if closing is None:
                raise FieldPathError("unexpected end of JSON path")
            if closing != "]":
                raise FieldPathError(f"expected ] but got {closing}")
    return shown


def _unquoted(piece: str) -> str:
    if len(piece) < 2 or piece[0] != "'" or piece[-1] != "'":
        raise FieldPathError(f"expected single quoted string but got {piece}")

    def character(match: re.Match[str]) -> str:
        if match[1] not in _LETTERS:
            raise FieldPathError(f"invalid string literal: invalid escape char {match[0]}")
        return _LETTERS[match[1]]

    return _ESCAPED.sub(character, piece[1:-1])


def _below(schema: TypeSchema, name: str) -> tuple[TypeSchema, bool]:
    if schema.properties:
        if name not in schema.properties:
            raise FieldPathError("does not refer to a valid field")
        return schema.properties[name], True
    if schema.values is None or schema.values is ANY_VALUE or schema.values is NO_OTHER:
        raise FieldPathError("does not refer to a valid field")
    return schema.values, False
