"""Objects as they are stored and sent: JSON that begins with kind, apiVersion and metadata, stored without resourceVersion.

The resourceVersion is the revision of the write, known only after it: on the way out it is put in by position, so that an object is
encoded once, however often it is read.
"""

from __future__ import annotations

from typing import Any

import msgspec

JSONObject = dict[str, Any]

_ENCODER = msgspec.json.Encoder()
#: Custom objects are Go maps in a kube-apiserver, whose keys are written in order at every level.
_SORTING_ENCODER = msgspec.json.Encoder(order="sorted")
_DECODER = msgspec.json.Decoder()
_METADATA = b'"metadata":{'


def encode(tree: object) -> bytes:
    return _ENCODER.encode(tree)


def encode_sorted(tree: object) -> bytes:
    """JSON with the keys of every object in order, as a kube-apiserver writes custom objects."""
    return _SORTING_ENCODER.encode(tree)


def sorted_keys(tree: Any) -> Any:
    """A copy of a JSON tree with the keys of every object in order."""
    return decode(encode_sorted(tree))


def decode(data: bytes) -> Any:
    return _DECODER.decode(data)


def stored_form(obj: JSONObject, api_version: str, kind: str) -> bytes:
    """What is written to storage: without resourceVersion, kind and apiVersion first. ``obj`` is not changed."""
    metadata = {name: value for name, value in obj["metadata"].items() if name not in ("resourceVersion", "selfLink")}
    tree: JSONObject = {"kind": kind, "apiVersion": api_version, "metadata": metadata}
    for name, value in obj.items():
        if name not in tree:
            tree[name] = value
    return _ENCODER.encode(tree)


def stored_head(kind: str, api_version: str) -> bytes:
    """How the stored form of such an object begins."""
    return b'{"kind":%b,"apiVersion":%b,' % (_ENCODER.encode(kind), _ENCODER.encode(api_version))


def wire_form(value: bytes, revision: int) -> bytes:
    """A stored value as clients see it, with its resourceVersion."""
    at = value.index(_METADATA) + len(_METADATA)
    return b'%b"resourceVersion":"%d",%b' % (value[:at], revision, value[at:])


def list_item(value: bytes, revision: int) -> bytes:
    """A stored value as an item of a typed list, which names kind and apiVersion once for all items."""
    at = value.index(_METADATA)
    return b'{"metadata":{"resourceVersion":"%d",%b' % (revision, value[at + len(_METADATA) :])


def object_form(value: bytes, revision: int) -> JSONObject:
    """A stored value as a fresh tree, with its resourceVersion."""
    obj: JSONObject = _DECODER.decode(value)
    obj["metadata"]["resourceVersion"] = str(revision)
    return obj


def event_frame(type_: str, wire: bytes) -> bytes:
    """One frame of a watch."""
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), wire)
