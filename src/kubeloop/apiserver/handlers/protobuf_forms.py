"""Stored objects in Kubernetes' protobuf: each revision is encoded once, however many read, list or watch it.

What is kept is an object's bare message: a list holds it as it is, an object and a watch event put their heads before it.
"""

from __future__ import annotations

from collections import OrderedDict

from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.storage import KeyValue
from kubeloop.codec import protobuf
from kubeloop.meta.errors import UnknownKind
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.types import JSONObject

_Key = tuple[str, int, str, int]

#: Bytes of messages kept; beyond it those used least recently go.
_MOST_KEPT = 16 * 1024 * 1024


class ProtobufForms:
    """Encodes objects of built-in kinds. ``object`` and ``page`` give None for what has no such form, as custom resources."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._messages: OrderedDict[_Key, bytes] = OrderedDict()
        self._size = 0

    def object(self, resource: ServedResource, kv: KeyValue) -> bytes | None:
        try:
            return self._object(resource, kv)
        except (protobuf.EncodeError, UnknownKind):
            return None

    def page(self, resource: ServedResource, list_kind: str, metadata: JSONObject, items: list[KeyValue]) -> bytes | None:
        """A list with the list's ``metadata``."""
        gvk = GroupVersionKind(*resource.gvk.group_version, list_kind)
        try:
            return protobuf.encode_list(gvk, metadata, [self._message(resource, kv) for kv in items])
        except (protobuf.EncodeError, UnknownKind):
            return None

    def event(self, type_: str, resource: ServedResource, kv: KeyValue) -> bytes:
        """One frame of a watch.

        Raises:
            EncodeError, UnknownKind: there is no such form.
        """
        return protobuf.encode_event(type_, self._object(resource, kv))

    def _object(self, resource: ServedResource, kv: KeyValue) -> bytes:
        gvk = resource.gvk
        return protobuf.wrapped(gvk.api_version, gvk.kind, self._message(resource, kv))

    def _message(self, resource: ServedResource, kv: KeyValue) -> bytes:
        # The value counts too: a watch shows an object that leaves its selection as it was, at the revision at which it left.
        key = (kv.key, kv.mod_revision, resource.gvk.api_version, hash(kv.value))
        message = self._messages.get(key)
        if message is not None:
            self._messages.move_to_end(key)
            return message
        message = self._messages[key] = protobuf.encode_message(resource.gvk, self._objects.tree(resource, kv))
        self._size += len(message)
        while self._size > _MOST_KEPT:
            _, oldest = self._messages.popitem(last=False)
            self._size -= len(oldest)
        return message
