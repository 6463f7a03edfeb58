"""Encodes and decodes whole objects (four magic bytes, then a runtime.Unknown with type and message) and frames of watches.

Source: Kubernetes documentation, "Kubernetes Protobuf encoding"; k8s.io/apimachinery pkg/runtime/serializer/protobuf.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kubeloop.codec.protobuf.decoder import read_message
from kubeloop.codec.protobuf.encoder import write_message
from kubeloop.codec.protobuf.table import table
from kubeloop.codec.protobuf.wire import EncodeError, FlatFields, varint
from kubeloop.meta.errors import DecodeError
from kubeloop.meta.kinds import GroupVersion, GroupVersionKind
from kubeloop.types import JSONObject

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

#: The first four bytes of every encoded object.
MAGIC = b"k8s\0"


class Envelope(NamedTuple):
    """A decoded runtime.Unknown. ``api_version`` and ``kind`` are empty if the sender left them out; ``raw`` is the object's message."""

    api_version: str
    kind: str
    raw: bytes


def open_envelope(data: bytes) -> Envelope:
    """Return the type and the raw message of an object, without decoding the message.

    Raises:
        DecodeError: The bytes are not an envelope. The message is that of kube-apiserver if it has one for the error.
    """
    if not data:
        raise DecodeError("empty data")
    if not data.startswith(MAGIC):
        raise DecodeError(f"provided data does not appear to be a protobuf message, expected prefix [{' '.join(map(str, MAGIC))}]")
    if len(data) == len(MAGIC):
        raise DecodeError("empty body")
    outer = FlatFields("Unknown", data, len(MAGIC))
    meta = FlatFields("TypeMeta", outer.bytes(1))
    return Envelope(meta.text(1), meta.text(2), outer.bytes(2))


def decode(data: bytes, default: GroupVersionKind | None = None) -> JSONObject:
    """Decode an object into the JSON tree that Kubernetes would print: kind and apiVersion first, unknown fields left out.

    ``default`` gives the parts of the type that the object leaves out.

    Raises:
        DecodeError: The bytes are malformed; the message names message and field.
        UnknownKind: The kind has no protobuf message, as every custom resource.
    """
    envelope = open_envelope(data)
    return decode_message(kind_of(envelope, default), envelope.raw)


def kind_of(envelope: Envelope, default: GroupVersionKind | None = None) -> GroupVersionKind:
    """Return the type of an object. A malformed apiVersion counts as missing, as upstream.

    Raises:
        DecodeError: The object has no kind, and there is no default.
    """
    kind = envelope.kind or (default.kind if default else "")
    if not kind:
        raise DecodeError("the object has no kind")
    try:
        group_version = GroupVersion.parse(envelope.api_version)
    except ValueError:
        group_version = default.group_version if default else GroupVersion("", "")
    return GroupVersionKind(*group_version, kind)


def decode_message(gvk: GroupVersionKind, raw: bytes) -> JSONObject:
    """Decode the message of an object without its envelope. A kind without a version (APIVersions of discovery) is looked up in v1.

    Raises:
        DecodeError: The bytes are malformed.
        UnknownKind: The kind has no protobuf message.
    """
    tree: JSONObject = {"kind": gvk.kind, "apiVersion": gvk.api_version} if gvk.version else {"kind": gvk.kind}
    tree |= read_message(table().kind(gvk), raw, 0, len(raw))
    if "items" in tree and tree["items"] is None:
        tree["items"] = []  # an empty list and a missing list are the same bytes; servers print the former
    return tree


def encode(obj: JSONObject) -> bytes:
    """Encode a JSON tree of a built-in kind, a list or a Status, with its envelope.

    Raises:
        EncodeError: The tree has no kind, an unknown field or a value of the wrong type; the message names message and field.
        UnknownKind: The kind has no protobuf message, as every custom resource.
    """
    api_version, kind = obj.get("apiVersion", ""), obj.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        raise EncodeError("an object without a kind has no protobuf form")
    return wrapped(api_version, kind, encode_message(kind_of(Envelope(api_version, kind, b"")), obj))


def encode_message(gvk: GroupVersionKind, obj: JSONObject) -> bytes:
    """Encode the message of an object without its envelope.

    Raises:
        EncodeError, UnknownKind: See ``encode``.
    """
    return write_message(table().kind(gvk), obj)


def wrapped(api_version: str, kind: str, raw: bytes) -> bytes:
    """Return a message in its envelope."""
    meta = _field(1, api_version.encode()) + _field(2, kind.encode())
    # Empty encoding and content type are written too, as upstream does.
    return b"".join((MAGIC, _field(1, meta), _field(2, raw), b"\x1a\x00\x22\x00"))


def encode_list(gvk: GroupVersionKind, metadata: JSONObject, items: list[bytes]) -> bytes:
    """Encode a list of kind ``gvk`` from the messages of its items, with its envelope.

    Raises:
        UnknownKind: The list has no protobuf message.
    """
    message = table().kind(gvk)
    head = write_message(message, {"metadata": metadata})
    number = message.by_name["items"].number
    return wrapped(gvk.api_version, gvk.kind, head + b"".join([_field(number, item) for item in items]))


def has_protobuf(gvk: GroupVersionKind) -> bool:
    return gvk in table()


def encode_event(type_: str, obj: bytes) -> bytes:
    """Encode one frame of a watch: its length in four bytes, then a WatchEvent around an encoded object."""
    event = _field(1, type_.encode()) + _field(2, _field(1, obj))
    return len(event).to_bytes(4, "big") + event


def decode_event(frame: bytes) -> JSONObject:
    """Decode a WatchEvent (without the length before it) as ``{"type": ..., "object": ...}``.

    Raises:
        DecodeError: The bytes are malformed.
        UnknownKind: The kind has no protobuf message.
    """
    event = FlatFields("WatchEvent", frame)
    return {"type": event.text(1), "object": decode(FlatFields("RawExtension", event.bytes(2)).bytes(1))}


def split_frames(data: bytes) -> Iterator[bytes]:
    """Yield the complete frames at the start of ``data``, without their lengths; the caller stores the remaining bytes."""
    at = 0
    while at + 4 <= len(data):
        stop = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if stop > len(data):
            return
        yield data[at + 4 : stop]
        at = stop


def _field(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + varint(len(content)) + content
