"""The aggregated document in protobuf. Source: k8s.io/api apidiscovery/v2 generated.proto, whose field numbers these are."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from kubeloop.codec import protobuf
from kubeloop.codec.protobuf.table import Count, Document, FieldRow, MessageRow, Scalar, Table
from kubeloop.codec.protobuf.writing import write_message
from kubeloop.meta.kinds import GroupVersionKind

JSONObject = dict[str, Any]

KIND: Final = GroupVersionKind("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList")

#: By message: the JSON names of its fields with their numbers. A type is another message, or nothing for text; a star says that there are many.
_FIELDS: Final = {
    "APIGroupDiscoveryList": "metadata 1 ListMeta, items 2 APIGroupDiscovery*",
    "APIGroupDiscovery": "metadata 1 ObjectMeta, versions 2 APIVersionDiscovery*",
    "APIVersionDiscovery": "version 1, resources 2 APIResourceDiscovery*, freshness 3",
    "APIResourceDiscovery": (
        "resource 1, responseKind 2 GroupVersionKind, scope 3, singularResource 4, verbs 5 *, shortNames 6 *, categories 7 *, "
        "subresources 8 APISubresourceDiscovery*"
    ),
    "APISubresourceDiscovery": "subresource 1, responseKind 2 GroupVersionKind, acceptedTypes 3 GroupVersionKind*, verbs 4 *",
    "GroupVersionKind": "group 1, version 2, kind 3",
    "ListMeta": "",
    "ObjectMeta": "name 1",
}


def pack(document: JSONObject) -> bytes:
    """The document, a JSON tree, with its envelope."""
    raw = write_message(_table().kind(KIND), document)
    return protobuf.wrapped(KIND.api_version, KIND.kind, raw)


@cache
def _table() -> Table:
    names = list(_FIELDS)
    rows = [MessageRow(name, "", msgspec.Raw(msgspec.json.encode(_rows(text, names)))) for name, text in _FIELDS.items()]
    return Table(Document(rows, {"/".join(KIND): 0}))


def _rows(text: str, names: list[str]) -> list[FieldRow]:
    rows = []
    for field in text.split(", ") if text else ():
        name, number, *kind = field.split()
        many = bool(kind) and kind[0].endswith("*")
        message = kind[0].removesuffix("*") if kind else ""
        rows.append(FieldRow(int(number), name, names.index(message) if message else Scalar.STRING, Count.REPEATED if many else Count.ONE))
    return rows
