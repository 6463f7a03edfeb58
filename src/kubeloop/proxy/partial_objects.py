"""Decodes of an object only what rules read or change. The rest stays JSON, which is written as it was received.

Most of an object's cost is the parts that no rule concerns: the containers of a pod, its status, its managedFields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from kubeloop.proxy.rules.selection import LAST_APPLIED
from kubeloop.types import JSONObject

#: An object whose fields are not decoded yet.
RawFields = dict[str, msgspec.Raw]
_Path = tuple[str, ...]

_decode_fields: Final = msgspec.json.Decoder(RawFields).decode
_decode: Final = msgspec.json.Decoder().decode
#: Maximum number of different fields of the first level that a decoder learns; objects with others are decoded in two steps.
_MOST_FIELDS: Final = 64
#: The fields of metadata that decide whether a rule matches an object.
_HEAD: Final = ("name", "namespace", "labels")
_LAST_APPLIED: Final = LAST_APPLIED.encode()


class _Shape:
    """The fields of the first level that objects may have, and decoders for such objects. It is not changed.

    One pass over an object takes half of the time of a pass for each level. Structures drop fields that they do not have; these refuse
    them, so that they can be added.
    """

    def __init__(self, types: Mapping[str, Any]) -> None:
        self.names = tuple(types)
        attributes = [f"field_{index}" for index in range(len(types))]
        fields = [
            (attribute, type_ | msgspec.UnsetType, msgspec.UNSET) for attribute, type_ in zip(attributes, types.values(), strict=True)
        ]
        names = dict(zip(attributes, self.names, strict=True))
        object_type = msgspec.defstruct("PartialObject", fields, rename=names, forbid_unknown_fields=True, gc=False)
        event_type = msgspec.defstruct("PartialEvent", [("type", str), ("object", object_type)], gc=False)
        self.object: Callable[[bytes | memoryview], Any] = msgspec.json.Decoder(object_type).decode
        self.event: Callable[[bytes | memoryview], Any] = msgspec.json.Decoder(event_type).decode


class PartialDecoder:
    """Decodes objects as far as some paths need it; two levels deep, and everything below whole.

    Guarantees
        The fields at the paths, and name, namespace and labels in ``metadata``, are as in a whole tree. So are annotations that contain the
        object as kubectl applied it, because a changed object loses that one.
        managedFields are missing, unless a path names them. Every other field is ``msgspec.Raw``, at its place.

    Example:
        >>> decoder = PartialDecoder([("spec", "nodeName")])
        >>> tree = decoder.decode(b'{"metadata":{},"spec":{"nodeName":"a","containers":[]}}')
        >>> tree["spec"]["nodeName"], bytes(tree["spec"]["containers"])
        ('a', b'[]')
    """

    def __init__(self, paths: Iterable[_Path]) -> None:
        """Create a decoder for the fields at ``paths``. No path is empty, and ``may_name_field`` is true for the first name of each."""
        whole, parts = set(), dict[str, set[str]]()
        for path in paths:
            if len(path) == 1:
                whole.add(path[0])
            else:
                parts.setdefault(path[0], set()).add(path[1])
        of_metadata = parts.pop("metadata", set())
        self._whole_metadata = "metadata" in whole
        self._keeps_managed = self._whole_metadata or "managedFields" in of_metadata
        self._of_metadata = (*_HEAD, *sorted(of_metadata - {*_HEAD}))
        whole -= {"metadata"}
        #: Names of fields of the first level, and their types.
        self._types: dict[str, Any] = {"kind": str, "apiVersion": str, "metadata": RawFields}
        self._types |= {name: RawFields for name in parts if name not in whole}
        self._types |= dict.fromkeys(whole, Any)
        self._parts = tuple((name, tuple(sorted(names))) for name, names in parts.items() if name not in whole)
        self._shape = _Shape(self._types)

    def decode(self, data: bytes | memoryview) -> JSONObject:
        """Return an object as a tree in which only the necessary fields are decoded.

        Raises:
            msgspec.ValidationError: A field on the way to a path is no object: only a whole tree shows what it is.
            msgspec.DecodeError: It is not one JSON document.
        """
        shape = self._shape
        try:
            return self._tree(shape, shape.object(data))
        except msgspec.ValidationError:
            shape = self._learned(_decode_fields(data))
        return self._tree(shape, shape.object(data))

    def decode_event(self, frame: bytes | memoryview) -> tuple[str, JSONObject]:
        """Return the type of an event, and its object as ``decode`` does.

        Raises:
            msgspec.ValidationError, msgspec.DecodeError: See ``decode``.
        """
        shape = self._shape
        try:
            event = shape.event(frame)
        except msgspec.ValidationError:
            shape = self._learned(_decode_event_fields(frame).object)
            event = shape.event(frame)
        return event.type, self._tree(shape, event.object)

    def _learned(self, fields: RawFields) -> _Shape:
        """Return the shape of objects that may have these fields, too."""
        unknown = [name for name in fields if name not in self._types and may_name_field(name)]
        if unknown and len(self._types) + len(unknown) <= _MOST_FIELDS:
            types = self._types | dict.fromkeys(unknown, msgspec.Raw)
            self._shape = _Shape(types)
            self._types = types
        return self._shape

    def _tree(self, shape: _Shape, decoded: msgspec.Struct) -> JSONObject:
        unset = msgspec.UNSET
        values = msgspec.structs.astuple(decoded)
        tree: JSONObject = {name: value for name, value in zip(shape.names, values, strict=True) if value is not unset}
        metadata = tree.get("metadata")
        if metadata is not None:
            self._complete(metadata)
        for name, members in self._parts:
            fields = tree.get(name)
            if fields is not None:
                for member in members:
                    if member in fields:
                        fields[member] = _decode(fields[member])
        return tree

    def _complete(self, metadata: JSONObject) -> None:
        """Decode the necessary fields of metadata."""
        if not self._keeps_managed:
            metadata.pop("managedFields", None)
        if self._whole_metadata:
            for name, value in metadata.items():
                metadata[name] = _decode(value)
            return
        for name in self._of_metadata:
            value = metadata.get(name)
            if value is not None:
                metadata[name] = _decode(value)
        annotations = metadata.get("annotations")
        if isinstance(annotations, msgspec.Raw):
            raw = bytes(annotations)
            # JSON may escape the characters of a name, although Go does not.
            if _LAST_APPLIED in raw or b"\\u" in raw or b"\\/" in raw:
                metadata["annotations"] = _decode(annotations)


class _FieldsEvent(msgspec.Struct):
    object: RawFields


_decode_event_fields: Final = msgspec.json.Decoder(_FieldsEvent).decode


@lru_cache(maxsize=64)
def partial_decoder(paths: frozenset[_Path]) -> PartialDecoder:
    """Return the decoder for the fields at some paths. All requests share it, because its types are costly to make."""
    return PartialDecoder(paths)


def may_name_field(name: str) -> bool:
    """Return whether a structure of msgspec can have a field of that name in JSON."""
    return name.isprintable() and '"' not in name and "\\" not in name


def has_name(tree: JSONObject) -> bool:
    """Return whether an object has metadata whose name and namespace are texts, or missing."""
    metadata = tree.get("metadata")
    return isinstance(metadata, dict) and isinstance(metadata.get("name", ""), str) and isinstance(metadata.get("namespace", ""), str)
