"""A cache of objects in Kubernetes' protobuf: each revision is encoded once for all reads, lists and watches.

The cache holds messages without envelope. Lists contain these messages unchanged; single objects and watch events add an envelope.
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

#: Maximum bytes of cached messages. The least recently used ones are dropped.
_MOST_KEPT = 16 * 1024 * 1024


class ProtobufEncoder:
    """Encodes objects of built-in kinds. ``object`` and ``page`` return None for kinds without protobuf, such as custom resources."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._messages: OrderedDict[_Key, bytes] = OrderedDict()
        self._size = 0

    def object(self, resource: ServedResource, kv: KeyValue) -> bytes | None:
        """Return a stored object as protobuf in its envelope, or None if the kind has no protobuf form."""
        try:
            return self._object(resource, kv)
        except (protobuf.EncodeError, UnknownKind):
            return None

    def page(self, resource: ServedResource, list_kind: str, metadata: JSONObject, items: list[KeyValue]) -> bytes | None:
        """Return a list as protobuf, or None if the kind has no protobuf form.

        Args:
            resource: The resource.
            list_kind: Kind of the list.
            metadata: Metadata of the list.
            items: The objects.
        """
        gvk = GroupVersionKind(*resource.gvk.group_version, list_kind)
        try:
            return protobuf.encode_list(gvk, metadata, [self._message(resource, kv) for kv in items])
        except (protobuf.EncodeError, UnknownKind):
            return None

    def event(self, type_: str, resource: ServedResource, kv: KeyValue) -> bytes:
        """Return the frame of a watch event.

        Raises:
            EncodeError, UnknownKind: The kind has no protobuf form.
        """
        return protobuf.encode_event(type_, self._object(resource, kv))

    def _object(self, resource: ServedResource, kv: KeyValue) -> bytes:
        gvk = resource.gvk
        return protobuf.wrapped(gvk.api_version, gvk.kind, self._message(resource, kv))

    def _message(self, resource: ServedResource, kv: KeyValue) -> bytes:
        # The key contains the value, because a watch shows the old state of an object that leaves its selection at the new revision.
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
