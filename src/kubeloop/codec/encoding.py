"""Encodes objects: the document that an object was read from with the caller's changes, or all set fields of a constructed object."""

from __future__ import annotations

from typing import Any

import msgspec

from kubeloop.codec.changes import change_struct, change_tree, encode_struct
from kubeloop.codec.decoding import decode_struct
from kubeloop.codec.shape import fields_of
from kubeloop.meta.errors import IncompleteObject
from kubeloop.meta.model import DocumentSource
from kubeloop.meta.resource import Resource, source_of
from kubeloop.meta.unstructured import PartialObject, Unstructured


def encode(obj: Resource) -> bytes:
    """Return the object as JSON, with ``apiVersion`` and ``kind``.

    Guarantees
        The result for an unchanged object is the document that it was read from, byte for byte (``apiVersion`` and ``kind`` are added to
        an item of a list without them).
        A changed object keeps everything unknown to the models: unknown fields at any depth, explicit nulls, the spelling of numbers.
        List items are matched by key, by equality, else by likeness; where two items differ only in their unknown fields,
        removing one of them may keep the unknown fields of the other.

    Raises:
        IncompleteObject: Only a part of the object is known here.
    """
    source = source_of(obj)
    _refuse_partial(obj, source)
    if isinstance(obj, Unstructured):
        return _encode_tree(obj, source)
    if source is None:
        return with_kind(encode_struct(obj), obj)
    return with_kind(_changed(source, obj), obj)


def to_dict(obj: Resource) -> dict[str, Any]:
    """Return the JSON that ``encode`` returns as a new tree.

    Raises:
        IncompleteObject: See ``encode``.
    """
    return msgspec.json.decode(encode(obj), type=dict[str, Any])


def document_of(obj: Resource) -> bytes | None:
    """Return the bytes that an object was read from, or None if it was constructed in this program."""
    source = source_of(obj)
    return None if source is None else source.document


def require_document(obj: Resource) -> bytes:
    """Encode an object for an update, which replaces the whole object.

    Raises:
        IncompleteObject: Only a part of the object was read, or a typed object was not read but constructed.
    """
    if source_of(obj) is None and not isinstance(obj, Unstructured):
        raise IncompleteObject(
            f"{describe(obj)} was made here, not read from the server: an update would erase every field that it does not set. "
            "Get the object and change that, or send a patch."
        )
    return encode(obj)


def _refuse_partial(obj: Resource, source: DocumentSource | None) -> None:
    if source is not None and source.partial:
        raise IncompleteObject(f"{describe(obj)} is not whole: {source.partial}. Get the object and change that, or send a patch.")
    if isinstance(obj, PartialObject):
        raise IncompleteObject(f"{describe(obj)} is only metadata: get the object and change that, or send a patch.")


def _changed(source: DocumentSource, obj: Resource) -> bytes:
    cls: type[Resource] = type(obj)
    old = decode_struct(cls, source.document, cls.kind)
    return source.document if _same(old, obj) else change_struct(source.document, old, obj)


def _same(old: Resource, new: Resource) -> bool:
    if not fields_of(type(new)).loose:
        return old == new
    return encode_struct(old) == encode_struct(new)


def _encode_tree(obj: Unstructured, source: DocumentSource | None) -> bytes:
    tree = obj.to_dict()
    if source is None:
        return msgspec.json.encode(tree)
    old = msgspec.json.decode(source.document)
    return change_tree(source.document, old, tree)


class _Head(msgspec.Struct):
    api_version: str | None = msgspec.field(default=None, name="apiVersion")
    kind: str | None = None


_HEAD = msgspec.json.Decoder(_Head)
_PARTS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def with_kind(document: bytes, obj: Resource) -> bytes:
    """Return the document with the ``apiVersion`` and ``kind`` of ``obj``, which are put in front if they are missing or differ."""
    version, kind = b'"apiVersion":"%b"' % obj.api_version.encode(), b'"kind":"%b"' % obj.kind.encode()
    wanted = version + b"," + kind
    # Only at the very front: later the same words may belong to an owner reference.
    if document.startswith((b"{" + wanted, b"{" + kind + b"," + version)):
        return document
    head = _HEAD.decode(document)
    if head.api_version == obj.api_version and head.kind == obj.kind:
        return document
    parts = {wire: raw for wire, raw in _PARTS.decode(document).items() if wire not in ("apiVersion", "kind")}
    rest = msgspec.json.encode(parts)
    return b"{" + wanted + (b"," if parts else b"") + rest[1:]


def describe(obj: Resource) -> str:
    """Return the kind and key of an object for messages, such as ``Pod "shop/web-0"``."""
    key = obj.object_key()
    return f'{obj.kind or "object"} "{key}"'
