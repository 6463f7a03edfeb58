"""Objects over storage: keys, conversion between versions, and a bounded cache of decoded trees. They are independent of requests."""

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
    floats_to_int64,
    object_form,
    stored_form,
    stored_head,
    wire_form,
)
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.types import JSONObject

T = TypeVar("T")

_DecodedKey = tuple[str, int, str, int]

#: Limits of the cache of decoded trees: bytes of their stored forms, and number of trees. The least recently used trees are dropped.
#: A tree takes about three times the bytes of its stored form.
_MOST_DECODED_BYTES = 4 << 20
_MOST_DECODED = 4096


class Converted(bytes):
    """A stored value that a webhook has converted. It is complete, with the defaults of its stored version."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object from storage. ``kv`` is the stored value; ``obj`` is the shared tree in the requested version, which must not be changed.

    If ``kv`` was converted (``Objects.to_requested_version``), ``source`` is the stored value.
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
        """Revision of the object."""
        return self.kv.mod_revision


class PreconditionFailed(Exception):
    """A concurrent write came first. ``current`` is the stored object, or None if it was deleted."""

    def __init__(self, current: KeyValue | None) -> None:
        super().__init__("the key has changed")
        self.current = current


class Objects:
    """Reads and writes objects of any served resource.

    Guarantees
        A read returns the newest write of this process or a later state. A write succeeds only if the object has the expected revision.
        Objects are stored in the resource's storage version and returned in the requested version, with defaults if they were converted.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._decoded: OrderedDict[_DecodedKey, tuple[JSONObject, int, object]] = OrderedDict()
        self._decoded_bytes = 0
        self._followers: dict[str, Callable[[int], Awaitable[None]]] = {}
        #: Storage prefix -> the versions of its definition in which all its objects are stored.
        self._checked: dict[str, object] = {}

    def on_write(self, resource_prefix: str, reached: Callable[[int], Awaitable[None]]) -> None:
        """Delay the end of each write below ``resource_prefix`` until ``reached``, called with the revision of the write, has returned."""
        self._followers[resource_prefix] = reached

    @staticmethod
    def key(resource: ServedResource, namespace: str, name: str) -> str:
        """Return the storage key of an object."""
        return f"{Objects.prefix(resource, namespace)}{name}"

    @staticmethod
    def prefix(resource: ServedResource, namespace: str) -> str:
        """Return the key prefix of all objects of a resource, or of those in one namespace."""
        return f"{resource.storage_prefix}{namespace}/" if namespace else resource.storage_prefix

    async def get(self, resource: ServedResource, namespace: str, name: str) -> StoredObject | None:
        """Return an object, or None if it does not exist."""
        kv, _ = await self.storage.get(self.key(resource, namespace, name))
        if kv is None:
            return None
        if resource.converter is None:
            return StoredObject(kv, self.tree(resource, kv))
        (converted_kv,) = await self.to_requested_version(resource, [kv])
        return StoredObject(converted_kv, self.tree(resource, converted_kv), kv)

    async def all(self, resource: ServedResource) -> list[JSONObject]:
        """Return the shared trees of all objects of a resource. The list has no pages, so call it only for resources with few objects."""
        prefix = self.prefix(resource, "")
        result = await self.storage.range(prefix, prefix_end(prefix))
        return [self.tree(resource, kv) for kv in await self.to_requested_version(resource, result.items)]

    async def to_requested_version(self, resource: ServedResource, result: list[KeyValue]) -> list[KeyValue]:
        """Return stored values in the requested version, for use with ``tree`` and ``wire``. A webhook converts them if necessary.

        Raises:
            ApiError: The webhook failed.
        """
        if resource.converter is None:
            return result
        api_version = resource.gvk.api_version
        head = stored_head(resource.kind, api_version)
        foreign = [place for place, kv in enumerate(result) if not kv.value.startswith(head)]
        if not foreign:
            return result
        trees = await resource.converter.convert([decode(result[place].value) for place in foreign], api_version, stored=True)
        values = list(result)
        for place, tree in zip(foreign, trees, strict=True):
            value = Converted(stored_form(tree, api_version, resource.kind))
            values[place] = replace(values[place], value=value)
        return values

    async def require_defined_versions(self, resource: ServedResource) -> None:
        """Raise the error of upstream's watch cache, which cannot serve reads while an object is stored in an undefined version.

        Raises:
            TooManyRequests: Such an object exists.
        """
        if not resource.custom:
            return
        versions, prefix = resource.extra["schemas"], resource.storage_prefix
        if self._checked.get(prefix) is versions:
            return
        heads = tuple(stored_head(resource.kind, api_version) for api_version in versions)
        for kv in (await self.storage.range(prefix, prefix_end(prefix))).items:
            if not kv.value.startswith(heads):
                reason = api_errors.undefined_version(decode(kv.value)["apiVersion"]).status.message
                raise api_errors.storage_initializing(f"failed to list {resource.gvk.api_version}, Kind={resource.kind}: {reason}")
        self._checked[prefix] = versions

    async def write(self, resource: ServedResource, obj: JSONObject, *, expected: int, lease: int = 0) -> StoredObject:
        """Create or replace an object.

        Args:
            resource: The resource.
            obj: The object in the resource's version. It becomes shared and must not be changed afterwards.
            expected: Revision that the stored object must have; 0: it must not exist.
            lease: Lease whose end deletes the object; 0: none.

        Returns:
            The stored object.

        Raises:
            PreconditionFailed: The stored object has another revision.
        """
        metadata = obj["metadata"]
        key = self.key(resource, metadata.get("namespace", ""), metadata["name"])
        encoded = await self.encoded(resource, obj)
        value = floats_to_int64(encoded) if resource.custom else encoded
        written = await self.storage.write(key, value, expected=expected, lease=lease)
        if not written.succeeded:
            raise PreconditionFailed(written.current)
        assert written.current is not None
        if resource.storage_prefix in self._followers:
            await self._followers[resource.storage_prefix](written.revision)
        if not self._is_storage(resource):
            # The object as the next reader gets it: converted to the stored version and back, with its defaults.
            (converted_kv,) = await self.to_requested_version(resource, [written.current])
            return StoredObject(converted_kv, self.tree(resource, converted_kv), written.current)
        if value is not encoded:
            obj.update(decode(value))  # The numbers as the next reader gets them.
        obj["metadata"]["resourceVersion"] = str(written.current.mod_revision)
        _default_as_read(resource, obj)
        self._keep(resource, written.current, obj)
        return StoredObject(written.current, obj)

    async def dry_run(self, resource: ServedResource, obj: JSONObject) -> JSONObject:
        """Return the result of a write for a dry run: the object is converted to its stored version and back, but not stored.

        Raises:
            ApiError: A conversion webhook failed.
        """
        if self._is_storage(resource):
            _default_as_read(resource, obj)
            return obj
        metadata = obj["metadata"]
        key = self.key(resource, metadata.get("namespace", ""), metadata["name"])
        value = await self.encoded(resource, obj)
        (converted_kv,) = await self.to_requested_version(resource, [KeyValue(key, value, create_revision=0, mod_revision=0)])
        made = self.fresh(resource, converted_kv)
        made["metadata"].pop("resourceVersion")
        # Storage removes both; a dry run does not reach storage.
        made["metadata"].update({name: metadata[name] for name in ("resourceVersion", "selfLink") if name in metadata})
        return made

    async def remove(self, stored: StoredObject) -> int:
        """Delete an object. Returns the revision of the deletion.

        Raises:
            PreconditionFailed: The object has changed.
        """
        written = await self.storage.write(stored.kv.key, None, expected=stored.revision)
        if not written.succeeded:
            raise PreconditionFailed(written.current)
        for prefix, reached in self._followers.items():
            if stored.kv.key.startswith(prefix):
                await reached(written.revision)
        return written.revision

    async def convert(self, resource: ServedResource, obj: JSONObject, to: GroupVersionKind) -> JSONObject:
        """Return ``obj`` in another version, or ``obj`` itself if it already has this version. ``obj`` is not changed.

        Raises:
            ApiError: A conversion webhook failed.
        """
        if obj.get("apiVersion") == to.api_version:
            return obj
        if resource.converter is None:
            return converted(resource, obj, to)
        return (await resource.converter.convert([obj], to.api_version))[0]

    async def convert_missing(self, resource: ServedResource, need: ConversionNeeded) -> None:
        """Convert the objects that an operation needs. The caller then repeats the operation.

        Raises:
            ApiError: The webhook failed.
        """
        assert resource.converter is not None
        await resource.converter.convert([need.obj], need.to)

    async def compute_converted(self, resource: ServedResource, compute: Callable[[], T]) -> T:
        """Return the result of ``compute``, repeated after each missing conversion.

        Raises:
            ApiError: The webhook failed.
        """
        while True:
            try:
                return compute()
            except ConversionNeeded as need:
                await self.convert_missing(resource, need)

    async def encoded(self, resource: ServedResource, obj: JSONObject) -> bytes:
        """Return the stored form of an object.

        Raises:
            ApiError: A conversion webhook failed.
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
        """Return the stored form of an object of a resource without conversion webhook."""
        storage = resource.storage or resource.gvk
        if storage.group_version != resource.gvk.group_version and not resource.custom:
            obj = converted(resource, obj, storage)
        return stored_form(obj, storage.api_version, storage.kind)

    def tree(self, resource: ServedResource, kv: KeyValue) -> JSONObject:
        """Return the shared object in the resource's version. It must not be changed."""
        key = _decoded_key(resource, kv)
        result = self._decoded.get(key)
        # A request that began before a definition changed may decode with the old schema after the cache was cleared.
        if result is None or result[2] is not resource.extra.get("schemas"):
            obj = self.fresh(resource, kv)
            self._keep(resource, kv, obj)
            return obj
        self._decoded.move_to_end(key)
        return result[0]

    def fresh(self, resource: ServedResource, kv: KeyValue) -> JSONObject:
        """Return a copy of the object in the resource's version, which the caller may change."""
        obj = object_form(kv.value, kv.mod_revision)
        if not self.is_plain(resource) and not isinstance(kv.value, Converted):
            if obj.get("apiVersion") != resource.gvk.api_version:
                if not resource.custom and resource.storage is not None and resource.storage.group == resource.gvr.group:
                    resource.strategy.default(obj)
                obj = converted(resource, obj, resource.gvk)
                if resource.custom:
                    return obj  # it has the defaults of its stored version
            elif resource.custom:
                resource.strategy.conform(obj)
            resource.strategy.default(obj)
        return obj

    def wire(self, resource: ServedResource, kv: KeyValue) -> bytes:
        """Return the object in the resource's version as JSON."""
        if self.is_plain(resource):
            return wire_form(kv.value, kv.mod_revision)
        tree = self.tree(resource, kv)
        return encode_sorted(tree) if resource.custom else encode(tree)

    @staticmethod
    def is_plain(resource: ServedResource) -> bool:
        """Return whether the stored bytes can be sent unchanged.

        Custom resources are decoded and defaulted at each read, because their schema may have changed.
        """
        return not resource.custom and (resource.storage is None or resource.storage == resource.gvk)

    def clear_cache(self) -> None:
        """Clear the cache of decoded trees, after a change of schemas."""
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
    """Set the defaults that a later read of the stored object would set. Only custom objects get any, also in their status."""
    if resource.custom:
        resource.strategy.default(obj)


def _decoded_key(resource: ServedResource, kv: KeyValue) -> _DecodedKey:
    """Return the cache key. It contains the value, because two values can have the same revision: a watch shows the old state too."""
    return kv.key, kv.mod_revision, resource.gvk.api_version, hash(kv.value)


def converted(resource: ServedResource, obj: JSONObject, to: GroupVersionKind) -> JSONObject:
    """Return ``obj`` in another version of its group. Without a converter only apiVersion changes (conversion strategy None).

    Raises:
        ConversionNeeded: A webhook must convert the object (``Objects.convert``).
    """
    if resource.converter is not None:
        return resource.converter.known(obj, to.api_version)
    if resource.convert is not None:
        return resource.convert(obj, to.api_version if resource.storage_resource else to.version)
    return {**obj, "apiVersion": to.api_version, "kind": to.kind}
