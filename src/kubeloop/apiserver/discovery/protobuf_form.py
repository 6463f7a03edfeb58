"""Aggregated discovery as Kubernetes protobuf. Field numbers: k8s.io/api/apidiscovery/v2/generated.proto.

Aside from the codec's table, which holds the kinds that are stored or sent as objects: nobody reads or writes these as such.
"""

from __future__ import annotations

from typing import Any, Final

from kubeloop.codec.protobuf.envelope import wrapped
from kubeloop.codec.protobuf.wire import varint
from kubeloop.types import JSONObject

_BYTES: Final = 2
#: By message, its fields in order: number, name, and what it is: ``text`` (always written), ``[text]``, a message, or ``[message]``.
_MESSAGES: Final[dict[str, tuple[tuple[int, str, str], ...]]] = {
    "APIGroupDiscoveryList": ((1, "metadata", "ListMeta"), (2, "items", "[APIGroupDiscovery]")),
    "APIGroupDiscovery": ((1, "metadata", "ObjectMeta"), (2, "versions", "[APIVersionDiscovery]")),
    "APIVersionDiscovery": ((1, "version", "text"), (2, "resources", "[APIResourceDiscovery]"), (3, "freshness", "text")),
    "APIResourceDiscovery": (
        (1, "resource", "text"),
        (2, "responseKind", "GroupVersionKind"),
        (3, "scope", "text"),
        (4, "singularResource", "text"),
        (5, "verbs", "[text]"),
        (6, "shortNames", "[text]"),
        (7, "categories", "[text]"),
        (8, "subresources", "[APISubresourceDiscovery]"),
    ),
    "APISubresourceDiscovery": (
        (1, "subresource", "text"),
        (2, "responseKind", "GroupVersionKind"),
        (3, "acceptedTypes", "[GroupVersionKind]"),
        (4, "verbs", "[text]"),
    ),
    "GroupVersionKind": ((1, "group", "text"), (2, "version", "text"), (3, "kind", "text")),
    "ListMeta": ((1, "selfLink", "text"), (2, "resourceVersion", "text"), (3, "continue", "text")),
    "ObjectMeta": tuple(
        (number, name, "text") for number, name in enumerate(("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), 1)
    ),
}
#: generation 0 and no creationTimestamp, which Go writes of metadata that has neither.
_NO_TIME: Final = b"\x38\x00\x42\x00"


def encode_discovery(tree: JSONObject) -> bytes:
    """An APIGroupDiscoveryList, in Kubernetes' envelope."""
    return wrapped(tree["apiVersion"], tree["kind"], _message("APIGroupDiscoveryList", tree))


def _message(name: str, tree: JSONObject) -> bytes:
    parts = []
    for number, field, form in _MESSAGES[name]:
        inner = form.strip("[]")
        values: list[Any] = tree.get(field) or [] if form.startswith("[") else [tree.get(field) or ("" if form == "text" else {})]
        for value in values:
            content: bytes = value.encode() if inner == "text" else _message(inner, value)
            parts += [varint(number << 3 | _BYTES), varint(len(content)), content]
    if name == "ObjectMeta":
        parts.append(_NO_TIME)
    return b"".join(parts)
