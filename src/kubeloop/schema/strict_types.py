"""Go's encoding of each built-in type: field order, Go type names, and which zero values are left out.

Facts of reflection over Kubernetes' API modules (``tools/wiretypes``); OpenAPI does not carry them.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from kubeloop.meta.kinds import GroupVersionKind

DOCUMENT = "wiretypes.json.gz"


class WireField(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One field of a Go struct, as its JSON tags declare it.

    ``omit``: "e" for omitempty, "z" for omitzero. ``prefix``: the embedded structs that contain the field, each followed by a dot.
    """

    name: str
    type: int
    omit: str
    prefix: str

    @property
    def omitempty(self) -> bool:
        return "e" in self.omit

    @property
    def omitzero(self) -> bool:
        return "z" in self.omit


class WireType(msgspec.Struct, frozen=True, gc=False):
    """One Go type. ``category``: pointer, slice, map, struct, bytes, raw, time, microtime, quantity, intorstring, or a scalar's Go kind."""

    name: str
    category: str
    element: int = -1
    fields: tuple[WireField, ...] = ()

    @property
    def struct_name(self) -> str:
        """The name without its package, as decoding errors show it."""
        return self.name.rpartition(".")[2]


class _Row(msgspec.Struct, array_like=True):
    """A type as the file stores it; ``rest`` is an element's index or a struct's fields, decoded on demand."""

    name: str
    category: str
    rest: msgspec.Raw = msgspec.Raw(b"")


class _Document(msgspec.Struct):
    types: list[_Row]
    kinds: dict[str, int]


class WireTypes:
    """All Go types by index, and the index of the type of each built-in kind."""

    def __init__(self, document: _Document) -> None:
        self._raw = document.types
        self._kinds = document.kinds
        self._types: dict[int, WireType] = {}
        self.schema_props = next(at for at, row in enumerate(self._raw) if row.name == "v1.JSONSchemaProps")

    def kind(self, gvk: GroupVersionKind) -> int | None:
        """Return the index of the type of a built-in kind, or None for other kinds."""
        return self._kinds.get("/".join(gvk))

    def kinds(self) -> Iterator[tuple[GroupVersionKind, int]]:
        """Yield every built-in kind with the index of its type."""
        for key, index in self._kinds.items():
            yield GroupVersionKind(*key.rsplit("/", 2)), index

    def type(self, index: int) -> WireType:
        found = self._types.get(index)
        if found is None:
            found = self._types[index] = _wire_type(self._raw[index])
        return found


def _wire_type(row: _Row) -> WireType:
    if row.category == "struct":
        return WireType(row.name, row.category, fields=msgspec.json.decode(row.rest, type=tuple[WireField, ...]))
    return WireType(row.name, row.category, element=msgspec.json.decode(row.rest, type=int) if bytes(row.rest) else -1)


@cache
def wire_types() -> WireTypes:
    data = gzip.decompress((resources.files("kubeloop.schema") / DOCUMENT).read_bytes())
    return WireTypes(msgspec.json.decode(data, type=_Document))


def in_go_order(value: Any, index: int) -> Any:
    """Return ``value`` with its fields in the order of its Go type, and maps by key; unknown fields come last."""
    kind = wire_types().type(index)
    if kind.category == "pointer":
        return in_go_order(value, kind.element)
    if kind.category == "slice" and isinstance(value, list):
        return [in_go_order(item, kind.element) for item in value]
    if kind.category == "map" and isinstance(value, dict):
        return {name: in_go_order(value[name], kind.element) for name in sorted(value)}
    if kind.category != "struct" or not isinstance(value, dict):
        return value
    return {one.name: in_go_order(value[one.name], one.type) for one in kind.fields if one.name in value} | {
        name: part for name, part in value.items() if all(one.name != name for one in kind.fields)
    }
