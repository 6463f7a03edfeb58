"""The JSON form in which objects are stored and sent. It begins with kind, apiVersion and metadata.

Objects are stored without resourceVersion, because that is the revision of the write and known only after the write. Responses insert the
resourceVersion at a known position, so that an object is encoded once and not for each read.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kubeloop.meta.field_error import fits_int64, go_float, go_whole
from kubeloop.types import JSONObject

_ENCODER = msgspec.json.Encoder()
#: In a kube-apiserver custom objects are Go maps, so their keys are sorted at every level.
_SORTING_ENCODER = msgspec.json.Encoder(order="sorted")
_DECODER = msgspec.json.Decoder()
_METADATA = b'"metadata":{'


def encode(tree: object) -> bytes:
    return _ENCODER.encode(tree)


def encode_sorted(tree: object) -> bytes:
    """Return JSON with sorted keys at every level and numbers in Go's format, as a kube-apiserver writes custom objects."""
    return go_numbers(_SORTING_ENCODER.encode(tree))


#: This pattern begins with a literal, because such searches are several times faster than searches that begin with a character class.
#: It may also match inside a string.
_WHOLE_FLOAT = re.compile(rb"\.0[,\]}]")
#: Maps each digit to 0, and each character that may follow a number to a comma, so that one literal pattern matches all exponents.
_ALIKE = bytes.maketrans(b"123456789]}", b"000000000,,")
_EXPONENT = re.compile(rb"0e-?0+,")
_TEXT_OR_FLOAT = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?e-?[0-9]+|-?[0-9]+\.0(?=[,\]}])')


def go_numbers(data: bytes) -> bytes:
    """Return msgspec's JSON with floats in the format of Go's encoding/json: ``1000000.0`` becomes ``1000000``, and ``1e21`` ``1e+21``."""
    return _TEXT_OR_FLOAT.sub(_written_by_go, data) if _has_floats(data) else data


def floats_to_int64(data: bytes) -> bytes:
    """Return msgspec's JSON with floats as integers where Go reads them as int64; ``data`` itself if nothing changes."""
    if not _has_floats(data):
        return data
    changed = _TEXT_OR_FLOAT.sub(_read_by_go, data)
    return data if changed == data else changed


def _has_floats(data: bytes) -> bool:
    return _WHOLE_FLOAT.search(data) is not None or _EXPONENT.search(data.translate(_ALIKE)) is not None


def _written_by_go(match: re.Match[bytes]) -> bytes:
    text = match.group()
    return text if text.startswith(b'"') else go_float(float(text)).encode()


def _read_by_go(match: re.Match[bytes]) -> bytes:
    text = match.group()
    if text.startswith(b'"'):
        return text
    number = go_whole(float(text))
    return b"%d" % number if isinstance(number, int) and fits_int64(number) else text


def sorted_keys(tree: Any) -> Any:
    """Return a copy of a JSON tree with sorted keys at every level."""
    return decode(encode_sorted(tree))


def decode(data: bytes) -> Any:
    return _DECODER.decode(data)


def stored_form(obj: JSONObject, api_version: str, kind: str) -> bytes:
    """Return the stored form of an object: kind and apiVersion come first, and resourceVersion is left out. ``obj`` is not changed."""
    metadata = {name: value for name, value in obj["metadata"].items() if name not in ("resourceVersion", "selfLink")}
    tree: JSONObject = {"kind": kind, "apiVersion": api_version, "metadata": metadata}
    for name, value in obj.items():
        if name not in tree:
            tree[name] = value
    return _ENCODER.encode(tree)


def stored_head(kind: str, api_version: str) -> bytes:
    """Return the first bytes of the stored form of every object with this kind and apiVersion."""
    return b'{"kind":%b,"apiVersion":%b,' % (_ENCODER.encode(kind), _ENCODER.encode(api_version))


def wire_form(value: bytes, revision: int) -> bytes:
    """Return a stored value in the form that clients receive, with the resourceVersion inserted."""
    at = value.index(_METADATA) + len(_METADATA)
    return b'%b"resourceVersion":"%d",%b' % (value[:at], revision, value[at:])


def list_item(value: bytes, revision: int) -> bytes:
    """Return a stored value as an item of a typed list: without kind and apiVersion, which only the list has, and with resourceVersion."""
    at = value.index(_METADATA)
    return b'{"metadata":{"resourceVersion":"%d",%b' % (revision, value[at + len(_METADATA) :])


def object_form(value: bytes, revision: int) -> JSONObject:
    """Return a stored value as a new JSON tree, with its resourceVersion."""
    obj: JSONObject = _DECODER.decode(value)
    obj["metadata"]["resourceVersion"] = str(revision)
    return obj


def event_frame(type_: str, wire: bytes) -> bytes:
    """Return one line of a watch response: the event type and the encoded object."""
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), wire)


#: Fields in the order of the Go types ObjectMeta, OwnerReference and ManagedFieldsEntry, in which a kube-apiserver writes them.
_FIELDS = (
    "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers", "managedFields",
)  # fmt: skip
_ITEM_FIELDS = {
    "ownerReferences": ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"),
    "managedFields": ("manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"),
}


def in_declared_order(metadata: JSONObject) -> JSONObject:
    """Return metadata with its fields in the order of the Go type, and with labels and annotations sorted by key. Values are not copied."""
    ordered = {field: metadata[field] for field in _FIELDS if field in metadata} | metadata
    for field in ("labels", "annotations"):
        if isinstance(value := ordered.get(field), dict):
            ordered[field] = dict(sorted(value.items()))
    for field, declared in _ITEM_FIELDS.items():
        if isinstance(items := ordered.get(field), list):
            ordered[field] = [{name: item[name] for name in declared if name in item} | item for item in items]
    return ordered
