"""Objects over storage: keys, versions of a group, and a bounded cache of decoded trees. Knows nothing of requests."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from kubeloop.apiserver.registry.resource import ConversionNeeded, ServedResource
from kubeloop.apiserver.storage import KeyValue, Storage, prefix_end
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.encoding import (
    decode,
    encode,
    encode_sorted,
    int64_numbers,
    object_form,
    stored_form,
    stored_head,
    wire_form,
)
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.types import JSONObject

T = TypeVar("T")

_DecodedKey = tuple[str, int, str, int]

#: Decoded trees are kept of so many bytes as stored, and so many at most; beyond either the ones used least recently go. A tree takes
#: about three times its bytes.
_MOST_DECODED_BYTES = 4 << 20
_MOST_DECODED = 4096


class Converted(bytes):
    """A stored value that somebody else converted: complete, its defaults are those of the version it was stored in."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as read: ``kv`` is what storage holds, ``obj`` the shared tree in the version asked for. Never change ``obj``; copy it.

    Where ``kv`` was converted (``Objects.presented``), ``source`` is what storage holds.
    """

    kv: KeyValue
    obj: JSONObject
    source: KeyValue | None = None

    @property
    def stored(self) -> bytes:
        """The value in storage."""
        return (self.source or self.kv).value

    @property
    def revision(self) -> int:
        return self.kv.mod_revision


class PreconditionFailed(Exception):
    """Somebody else wrote first; ``current`` is what is there now, None when it is gone."""

    def __init__(self, current: KeyValue | None) -> None:
        super().__init__("the key has changed")
        self.current = current


class Objects:
    """Reads and writes objects of any served resource.

    Guarantees
        A read shows the newest write of this process or a later state. A write happens only if the object is at the revision given.
        Objects are stored in the resource's storage version and come out in the version asked for, defaulted when they were converted.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._decoded: OrderedDict[_DecodedKey, tuple[JSONObject, int, object]] = OrderedDict()
        self._decoded_bytes = 0
        self._followers: dict[str, Callable[[int], Awaitable[None]]] = {}
        #: By storage prefix, the versions of the definition that all its stored objects have: none is ever stored in another.
        self._checked: dict[str, object] = {}

    def follow(self, resource_prefix: str, reached: Callable[[int], Awaitable[None]]) -> None:
        """From now on a write or removal below ``resource_prefix`` is done when ``reached`` has returned for its revision."""
        self._followers[resource_prefix] = reached

    @staticmethod
    def key(resource: ServedResource, namespace: str, name: str) -> str:
        return f"{Objects.prefix(resource, namespace)}{name}"

    @staticmethod
    def prefix(resource: ServedResource, namespace: str) -> str:
        """Key prefix of all objects of a resource, or of those in one namespace."""
        return f"{resource.storage_prefix}{namespace}/" if namespace else resource.storage_prefix

    async def get(self, resource: ServedResource, namespace: str, name: str) -> StoredObject | None:
        kv, _ = await self.storage.get(self.key(resource, namespace, name))
        if kv is None:
            return None
        if resource.converter is None:
            return StoredObject(kv, self.tree(resource, kv))
        (shown,) = await self.presented(resource, [kv])
        return StoredObject(shown, self.tree(resource, shown), kv)

    async def all(self, resource: ServedResource) -> list[JSONObject]:
        """The shared trees of every object of a resource; for resources of which there are few."""
        prefix = self.prefix(resource, "")
        found = await self.storage.range(prefix, prefix_end(prefix))
        return [self.tree(resource, kv) for kv in await self.presented(resource, found.items)]

    async def presented(self, resource: ServedResource, found: list[KeyValue]) -> list[KeyValue]:
        """What storage gave, ready for ``tree`` and ``wire``: converted where that means asking a webhook, else as it is.

        Raises:
            ApiError: the webhook failed.
        """
        if resource.converter is None:
            return found
        api_version = resource.gvk.api_version
        head = stored_head(resource.kind, api_version)
        foreign = [place for place, kv in enumerate(found) if not kv.value.startswith(head)]
        if not foreign:
            return found
        trees = await resource.converter.convert([decode(found[place].value) for place in foreign], api_version, stored=True)
        shown = list(found)
        for place, tree in zip(foreign, trees, strict=True):
            value = Converted(stored_form(tree, api_version, resource.kind))
            shown[place] = replace(shown[place], value=value)
        return shown

    async def require_defined_versions(self, resource: ServedResource) -> None:
        """Refuse what upstream reads from its watch cache, which it cannot fill while an object is stored in a version without definition.

        Raises:
            TooManyRequests: such an object is stored.
        """
        if not resource.custom:
            return
        versions, prefix = resource.extra["schemas"], resource.storage_prefix
        if self._checked.get(prefix) is versions:
            return
        heads = tuple(stored_head(resource.kind, api_version) for api_version in versions)
        for kv in (await self.storage.range(prefix, prefix_end(prefix))).items:
            if not kv.value.startswith(heads):
                why = api_errors.undefined_version(decode(kv.value)["apiVersion"]).status.message
                raise api_errors.storage_initializing(f"failed to list {resource.gvk.api_version}, Kind={resource.kind}: {why}")
        self._checked[prefix] = versions

    async def write(self, resource: ServedResource, obj: JSONObject, *, expected: int, lease: int = 0) -> StoredObject:
        """Create (``expected`` 0) or replace. ``obj`` is in the resource's version; it becomes shared: do not change it afterwards.

        Raises:
            PreconditionFailed
        """
        metadata = obj["metadata"]
        key = self.key(resource, metadata.get("namespace", ""), metadata["name"])
        encoded = await self.encoded(resource, obj)
        value = int64_numbers(encoded) if resource.custom else encoded
        written = await self.storage.write(key, value, expected=expected, lease=lease)
        if not written.succeeded:
            raise PreconditionFailed(written.current)
        assert written.current is not None
        if resource.storage_prefix in self._followers:
            await self._followers[resource.storage_prefix](written.revision)
        if not self._is_storage(resource):
            # As the next reader sees it, with the defaults of the stored version: what its way there and back left of it.
            (shown,) = await self.presented(resource, [written.current])
            return StoredObject(shown, self.tree(resource, shown), written.current)
        if value is not encoded:
            obj.update(decode(value))  # The numbers that the next reader sees.
        obj["metadata"]["resourceVersion"] = str(written.current.mod_revision)
        _default_as_read(resource, obj)
        self._keep(resource, written.current, obj)
        return StoredObject(written.current, obj)

    async def rehearse(self, resource: ServedResource, obj: JSONObject) -> JSONObject:
        """What a write of ``obj`` would make of it, for a dry run: the object goes through its stored version, and is not stored.

        Raises:
            ApiError: a webhook that converts failed.
        """
        if self._is_storage(resource):
            _default_as_read(resource, obj)
            return obj
        metadata = obj["metadata"]
        key = self.key(resource, metadata.get("namespace", ""), metadata["name"])
        value = await self.encoded(resource, obj)
        (shown,) = await self.presented(resource, [KeyValue(key, value, create_revision=0, mod_revision=0)])
        made = self.fresh(resource, shown)
        made["metadata"].pop("resourceVersion")
        # Storage drops both on the way, and a dry run does not get there.
        made["metadata"].update({name: metadata[name] for name in ("resourceVersion", "selfLink") if name in metadata})
        return made

    async def remove(self, stored: StoredObject) -> int:
        """Delete; returns the revision of the deletion.

        Raises:
            PreconditionFailed
        """
        written = await self.storage.write(stored.kv.key, None, expected=stored.revision)
        if not written.succeeded:
            raise PreconditionFailed(written.current)
        for prefix, reached in self._followers.items():
            if stored.kv.key.startswith(prefix):
                await reached(written.revision)
        return written.revision

    async def convert(self, resource: ServedResource, obj: JSONObject, to: GroupVersionKind) -> JSONObject:
        """``obj`` (not changed) in another version than it is in; the same tree where it is in that one.

        Raises:
            ApiError: a webhook that converts failed.
        """
        if obj.get("apiVersion") == to.api_version:
            return obj
        if resource.converter is None:
            return converted(resource, obj, to)
        return (await resource.converter.convert([obj], to.api_version))[0]

    async def supply(self, resource: ServedResource, need: ConversionNeeded) -> None:
        """Have converted what was needed; whoever needed it begins again.

        Raises:
            ApiError: the webhook failed.
        """
        assert resource.converter is not None
        await resource.converter.convert([need.obj], need.to)

    async def settled(self, resource: ServedResource, compute: Callable[[], T]) -> T:
        """What ``compute`` gives, begun again after each conversion that it lacks.

        Raises:
            ApiError: the webhook failed.
        """
        while True:
            try:
                return compute()
            except ConversionNeeded as need:
                await self.supply(resource, need)

    async def encoded(self, resource: ServedResource, obj: JSONObject) -> bytes:
        """As it is stored.

        Raises:
            ApiError: a webhook that converts failed.
        """
        if resource.converter is None or self._is_storage(resource):
            return self.encode(resource, obj)
        assert resource.storage is not None
        tree = await self.convert(resource, obj, resource.storage)
        return stored_form(tree, resource.storage.api_version, resource.storage.kind)

    @staticmethod
    def _is_storage(resource: ServedResource) -> bool:
        return resource.storage is None or resource.storage.group_version == resource.gvk.group_version

    def encode(self, resource: ServedResource, obj: JSONObject) -> bytes:
        """As it is stored, where no webhook converts."""
        storage = resource.storage or resource.gvk
        if storage.group_version != resource.gvk.group_version and not resource.custom:
            obj = converted(resource, obj, storage)
        return stored_form(obj, storage.api_version, storage.kind)

    def tree(self, resource: ServedResource, kv: KeyValue) -> JSONObject:
        """The object in the resource's version, shared: do not change it."""
        key = _decoded_key(resource, kv)
        found = self._decoded.get(key)
        # A request that began before a definition changed may decode by the old schemas after the trees were dropped.
        if found is None or found[2] is not resource.extra.get("schemas"):
            obj = self.fresh(resource, kv)
            self._keep(resource, kv, obj)
            return obj
        self._decoded.move_to_end(key)
        return found[0]

    def fresh(self, resource: ServedResource, kv: KeyValue) -> JSONObject:
        """The object in the resource's version, the caller's own."""
        obj = object_form(kv.value, kv.mod_revision)
        if not self.is_plain(resource) and not isinstance(kv.value, Converted):
            if obj.get("apiVersion") != resource.gvk.api_version:
                if not resource.custom and resource.storage is not None and resource.storage.group == resource.gvr.group:
                    resource.strategy.default(obj)
                obj = converted(resource, obj, resource.gvk)
                if resource.custom:
                    return obj  # its defaults are those of the version it was stored in
            elif resource.custom:
                resource.strategy.conform(obj)
            resource.strategy.default(obj)
        return obj

    def wire(self, resource: ServedResource, kv: KeyValue) -> bytes:
        """The object in the resource's version, as JSON."""
        if self.is_plain(resource):
            return wire_form(kv.value, kv.mod_revision)
        tree = self.tree(resource, kv)
        return encode_sorted(tree) if resource.custom else encode(tree)

    @staticmethod
    def is_plain(resource: ServedResource) -> bool:
        """Whether what is stored can be sent as it is. A custom resource's schema may have changed since, so it is defaulted when read."""
        return not resource.custom and (resource.storage is None or resource.storage == resource.gvk)

    def forget_decoded(self) -> None:
        """Decode again what is read from now on: schemas of custom resources have changed."""
        self._decoded.clear()
        self._decoded_bytes = 0

    def _keep(self, resource: ServedResource, kv: KeyValue, obj: JSONObject) -> None:
        key, size = _decoded_key(resource, kv), len(kv.value)
        replaced = self._decoded.pop(key, None)
        self._decoded[key] = obj, size, resource.extra.get("schemas")
        self._decoded_bytes += size - (replaced[1] if replaced else 0)
        while self._decoded_bytes > _MOST_DECODED_BYTES or len(self._decoded) > _MOST_DECODED:
            self._decoded_bytes -= self._decoded.popitem(last=False)[1][1]


def _default_as_read(resource: ServedResource, obj: JSONObject) -> None:
    """Set what reading from storage would default: of a custom object also the status, which its creation emptied."""
    if resource.custom:
        resource.strategy.default(obj)


def _decoded_key(resource: ServedResource, kv: KeyValue) -> _DecodedKey:
    """The value counts too: a watch shows an object that leaves its selection as it was, at the revision at which it left."""
    return kv.key, kv.mod_revision, resource.gvk.api_version, hash(kv.value)


def converted(resource: ServedResource, obj: JSONObject, to: GroupVersionKind) -> JSONObject:
    """``obj`` in another version of its group; without a converter only apiVersion changes (as CRDs with strategy None).

    Raises:
        ConversionNeeded: a webhook must be asked, which takes ``Objects.convert``.
    """
    if resource.converter is not None:
        return resource.converter.known(obj, to.api_version)
    if resource.convert is not None:
        return resource.convert(obj, to.api_version if resource.storage_resource else to.version)
    return {**obj, "apiVersion": to.api_version, "kind": to.kind}
