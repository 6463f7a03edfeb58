"""Formats values as kube-apiserver quotes them in its messages: as Go's internal types, not as the JSON that clients send.

Fields of internal types have Go's names and order, and are printed even if they are unset. ``tools/internaltypes`` extracts the types.
"""

from __future__ import annotations

import gzip
import re
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from kubeloop.meta.kinds import GroupKind
from kubeloop.types import JSONObject

DOCUMENT = "internaltypes.json.gz"

_STEP = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")
_METADATA = "metadata."
_ABSENT: dict[str, Any] = {"string": "", "bool": False, "int": 0, "float": 0, "quantity": "0", "duration": "0s"}


class InternalField(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One field of an internal Go type; a type's fields are in the order in which they are printed.

    ``wire``: its JSON name for clients. It is "metadata.NAME" for a field of the metadata, "^NAME" if clients write the field beside the
    struct, "." if clients write the fields of the inner struct in its place, and empty if clients cannot write it.
    ``omit``: "e" for omitempty, "z" for omitzero.
    """

    printed: str
    wire: str
    type: int
    omit: str


class _Document(msgspec.Struct):
    types: list[msgspec.Raw]
    kinds: dict[str, int]
    names: dict[str, int]


class UnlikeType(ValueError):
    """A value does not have its declared type."""


class InternalTypes:
    """Converts client JSON to the JSON of internal objects."""

    def __init__(self, document: _Document) -> None:
        self._raw = document.types
        self._kinds, self._names = document.kinds, document.names
        self._types: dict[int, tuple[str, Any]] = {}

    def named(self, name: str) -> int:
        """Return the index of a struct by Go's name, as ``core.PodSpec``."""
        return self._names[name]

    def at(self, kind: GroupKind, path: str) -> int | None:
        """Return the index of the type of the field at a path as messages write it (``spec.ports[0]``), or None if it is unknown."""
        found = self._kinds.get(f"{kind.group}/{kind.kind}")
        prefix = ""
        for name, _ in _STEP.findall(path):
            if found is None:
                return None
            category, argument = self._plain(found)
            if not name:
                found = argument if category in ("slice", "map") else None
            elif category != "struct":
                return None
            elif name == "metadata" and not prefix:
                prefix = _METADATA
            else:
                found = next((field.type for field in argument if field.wire == prefix + name), None)
                prefix = ""
        return None if prefix else found

    def shown(self, index: int, tree: Any, sent: Any = None) -> Any:
        """Return ``tree`` as encoding/json prints the internal value; encode it without sorting.

        ``sent``: the same part of the request's body, which distinguishes an empty list or map from a missing one.

        Raises:
            UnlikeType: A value does not have its declared type.
        """
        return self._shown(index, tree, sent, {})

    def _type(self, index: int) -> tuple[str, Any]:
        found = self._types.get(index)
        if found is None:
            row = msgspec.json.decode(self._raw[index])
            found = row[0], row[1] if len(row) > 1 else None
            if found[0] == "struct":
                found = "struct", msgspec.convert(row[1], tuple[InternalField, ...])
            self._types[index] = found
        return found

    def _plain(self, index: int) -> tuple[str, Any]:
        category, argument = self._type(index)
        while category == "pointer":
            category, argument = self._type(argument)
        return category, argument

    def _shown(self, index: int, tree: Any, sent: Any, beside: JSONObject) -> Any:
        category, argument = self._type(index)
        if category == "pointer":
            if tree is None and not any(beside.get(name) for name in self._moved_into(argument)):
                return {} if sent == {} else None
            return self._shown(argument, tree, sent, beside)
        if category == "struct":
            return self._struct(argument, {} if tree is None else tree, sent, beside)
        if tree is None:
            empty = (sent == [] and category == "slice") or (sent == {} and category == "map")
            return sent if empty else _ABSENT.get(category)
        if category == "slice":
            parts = sent if isinstance(sent, list) and len(sent) == len(tree) else [None] * len(tree)
            return [self._shown(argument, one, part, {}) for one, part in zip(_of(list, tree), parts, strict=True)]
        if category == "map":
            return {key: self._shown(argument, one, _part(sent, key), {}) for key, one in sorted(_of(dict, tree).items())}
        if isinstance(tree, dict | list) and category != "raw":
            raise UnlikeType
        return tree

    def _struct(self, fields: tuple[InternalField, ...], tree: Any, sent: Any, beside: JSONObject) -> JSONObject:
        if _of(dict, tree) and not tree.keys() & self._wire_names(fields):
            raise UnlikeType
        whole: JSONObject = {}
        for field in fields:
            holder, part, name = tree, sent, field.wire
            if name.startswith(_METADATA):
                holder, part, name = tree.get("metadata") or {}, _part(sent, "metadata"), name.removeprefix(_METADATA)
            if name == ".":
                apart = {other.wire for other in fields}
                shown = self._shown(field.type, {key: one for key, one in tree.items() if key not in apart}, sent, {})
            elif name.startswith("^"):
                shown = self._shown(field.type, beside.get(name[1:]), None, {})
            else:
                shown = self._shown(field.type, holder.get(name), _part(part, name), tree)
            if not (field.omit and (shown is None or (not shown and self._type(field.type)[0] not in ("pointer", "struct")))):
                whole[field.printed] = shown
        return whole

    def _wire_names(self, fields: tuple[InternalField, ...]) -> set[str]:
        result = {"apiVersion", "kind"}
        for field in fields:
            if field.wire == ".":
                result |= self._wire_names(self._plain(field.type)[1])
            result.add(field.wire.partition(".")[0])
        return result

    def _moved_into(self, index: int) -> set[str]:
        """Return the JSON names of fields that clients write beside a field of this type, but that Go's internal struct contains."""
        category, fields = self._plain(index)
        return {field.wire[1:] for field in fields if field.wire.startswith("^")} if category == "struct" else set()


def _of(kind: type[Any], tree: Any) -> Any:
    if not isinstance(tree, kind):
        raise UnlikeType
    return tree


def _part(sent: Any, name: str) -> Any:
    return sent.get(name) if isinstance(sent, dict) else None


@cache
def internal_types() -> InternalTypes:
    data = gzip.decompress((resources.files("kubeloop.schema") / DOCUMENT).read_bytes())
    return InternalTypes(msgspec.json.decode(data, type=_Document))


def internal_value(struct: str, tree: Any, sent: Any = None) -> Any:
    """Return a struct (or a list of structs) in the form that messages quote. ``struct`` is Go's name of it, such as ``core.PodSpec``."""
    types = internal_types()
    index = types.named(struct)
    return [types.shown(index, one) for one in tree] if isinstance(tree, list) else types.shown(index, tree, sent)
