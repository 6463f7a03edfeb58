"""What admission looks up again and again (limit ranges, quotas, default classes), kept at hand: no plug-in lists storage per request."""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.storage import KeyValue, prefix_end
from kubeloop.apiserver.watch_cache import Subscription, WatchCache
from kubeloop.meta.kinds import GroupVersionResource

JSONObject = dict[str, Any]


class Kept:
    """The objects of one built-in resource, by namespace.

    Guarantees
        Reflects every change that the watch cache has handed out. The objects are shared: never change them.
        Storage is listed once, at the first question, and again only if so many changes came meanwhile that they were not kept.

    Not guaranteed
        That a write counts for the very next request: a moment may pass, as with Kubernetes.
    """

    def __init__(self, gvr: GroupVersionResource, registry: Registry, objects: Objects, cache: WatchCache) -> None:
        self._gvr = gvr
        self._registry = registry
        self._objects = objects
        self._cache = cache
        self._subscription: Subscription | None = None
        self._found: dict[str, dict[str, JSONObject]] = {}
        self._revision = 0

    async def of(self, namespace: str = "") -> list[JSONObject]:
        """Those of a namespace (of a resource without namespaces: all), by name."""
        subscription = self._subscription
        if subscription is None or subscription.ended:
            await self._read()
        elif subscription.waiting:
            await self._catch_up(subscription)
        found = self._found.get(namespace)
        return [found[name] for name in sorted(found)] if found else []

    async def _read(self) -> None:
        resource = self._registry.get(self._gvr)
        if resource is None:
            raise LookupError(f"the registry does not serve {self._gvr}")
        prefix = resource.storage_prefix
        # Before the list, so that nothing is missed between the two.
        subscription = self._cache.subscribe(prefix)
        found = await self._objects.storage.range(prefix, prefix_end(prefix))
        if self._subscription is not None:
            self._subscription.close()
        self._subscription, self._found, self._revision = subscription, {}, found.revision
        for kv in found.items:
            self._put(kv)

    async def _catch_up(self, subscription: Subscription) -> None:
        for change in await subscription.take():
            if change.revision <= self._revision:
                continue
            if change.event.value is not None:
                self._put(change.current())
                continue
            namespace, name = _place(change.key, subscription.prefix)
            of_namespace = self._found.get(namespace, {})
            of_namespace.pop(name, None)
            if not of_namespace:
                self._found.pop(namespace, None)

    def _put(self, kv: KeyValue) -> None:
        resource = self._registry.get(self._gvr)
        assert resource is not None
        namespace, name = _place(kv.key, resource.storage_prefix)
        self._found.setdefault(namespace, {})[name] = self._objects.tree(resource, kv)


def _place(key: str, prefix: str) -> tuple[str, str]:
    namespace, _, name = key[len(prefix) :].rpartition("/")
    return namespace, name
