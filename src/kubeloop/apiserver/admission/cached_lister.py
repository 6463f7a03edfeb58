"""Local copies of the objects that admission plug-ins read for each write: limit ranges, quotas, default classes."""

from __future__ import annotations

from abc import ABC, abstractmethod

from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.storage import KeyValue, prefix_end
from kubeloop.apiserver.storage.watch_cache import Subscription, WatchCache
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.types import JSONObject


class WatchedPrefix(ABC):
    """Base class that receives every object of one built-in resource, and every change, when ``_follow`` is called.

    The first call lists storage. A later call lists again only if the watch cache has dropped changes since the previous call.
    """

    def __init__(self, gvr: GroupVersionResource, registry: Registry, objects: Objects, cache: WatchCache) -> None:
        """Create a lister, which reads nothing before the first call of ``_follow``.

        Args:
            gvr: A built-in resource.
            registry: The served resources.
            objects: Reads the first list.
            cache: Publishes the changes.
        """
        self._gvr = gvr
        self._registry = registry
        self._objects = objects
        self._cache = cache
        self._subscription: Subscription | None = None
        self._revision = 0

    @abstractmethod
    def _clear(self) -> None:
        """Remove all objects; a new list follows."""

    @abstractmethod
    def _put(self, namespace: str, name: str, obj: JSONObject) -> None:
        """Add or replace an object. The object is shared and must not be changed."""

    @abstractmethod
    def _drop(self, namespace: str, name: str) -> None:
        """Remove an object, which may never have been added."""

    async def _follow(self) -> None:
        """Apply every change that the watch cache has published. No other code runs between the last change and the return."""
        subscription = self._subscription
        if subscription is None or subscription.ended:
            await self._read()
            return
        while subscription.waiting:
            for change in await subscription.receive():
                if change.revision <= self._revision:
                    continue
                if change.event.value is not None:
                    self._tell(change.current())
                else:
                    self._drop(*_place(change.key, subscription.prefix))

    async def _read(self) -> None:
        prefix = self._resource.storage_prefix
        # Subscribe before the list, so that no change between the two is lost.
        subscription = self._cache.subscribe(prefix)
        value = await self._objects.storage.range(prefix, prefix_end(prefix))
        if self._subscription is not None:
            self._subscription.close()
        self._subscription, self._revision = subscription, value.revision
        self._clear()
        for kv in value.items:
            self._tell(kv)

    def _tell(self, kv: KeyValue) -> None:
        resource = self._resource
        self._put(*_place(kv.key, resource.storage_prefix), self._objects.tree(resource, kv))

    @property
    def _resource(self) -> ServedResource:
        resource = self._registry.get(self._gvr)
        if resource is None:
            raise LookupError(f"the registry does not serve {self._gvr}")
        return resource


class CachedList(WatchedPrefix):
    """A local copy of the objects of one built-in resource, by namespace.

    Guarantees
        The copy includes every change that the watch cache has published. The objects are shared and must not be changed.

    Not guaranteed
        A write may not affect the very next request: as in Kubernetes, there is a short delay.
    """

    def __init__(self, gvr: GroupVersionResource, registry: Registry, objects: Objects, cache: WatchCache) -> None:
        """Create an empty copy, which the first call of ``items`` fills.

        Args:
            gvr: A built-in resource.
            registry: The served resources.
            objects: Reads the first list.
            cache: Publishes the changes.
        """
        super().__init__(gvr, registry, objects, cache)
        self._found: dict[str, dict[str, JSONObject]] = {}

    async def items(self, namespace: str = "") -> list[JSONObject]:
        """Return the objects of a namespace, or all objects of a cluster-scoped resource, sorted by name."""
        await self._follow()
        value = self._found.get(namespace)
        return [value[name] for name in sorted(value)] if value else []

    def _clear(self) -> None:
        self._found = {}

    def _put(self, namespace: str, name: str, obj: JSONObject) -> None:
        self._found.setdefault(namespace, {})[name] = obj

    def _drop(self, namespace: str, name: str) -> None:
        of_namespace = self._found.get(namespace, {})
        of_namespace.pop(name, None)
        if not of_namespace:
            self._found.pop(namespace, None)


def _place(key: str, prefix: str) -> tuple[str, str]:
    namespace, _, name = key[len(prefix) :].rpartition("/")
    return namespace, name
