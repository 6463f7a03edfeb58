"""An index of the cluster IPs and node ports in use, which follows the stored Services, IPAddresses and ServiceCIDRs."""

from __future__ import annotations

import ipaddress
from abc import abstractmethod

from kubeloop.apiserver.admission.cached_lister import WatchedPrefix
from kubeloop.apiserver.builtin.services.predicates import node_ports
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.apiserver.validation.formats import sloppy_cidr
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.types import JSONObject

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: An IP address as text, or a port number.
Key = str | int
_Object = tuple[str, str]


class _Keys(WatchedPrefix):
    """The addresses or ports that each object of one resource uses. A subclass defines ``keys_of``."""

    def __init__(self, gvr: GroupVersionResource, registry: Registry, objects: Objects, cache: WatchCache) -> None:
        super().__init__(gvr, registry, objects, cache)
        self.takers: dict[Key, _Object] = {}
        self._keys: dict[_Object, tuple[Key, ...]] = {}

    async def update(self) -> None:
        """Read all changes that are stored at the time of the call."""
        await self._cache.wait_until(await self._objects.storage.revision())
        await self._follow()

    @abstractmethod
    def keys_of(self, name: str, obj: JSONObject) -> tuple[Key, ...]:
        """Return the keys that ``obj`` uses."""

    def _clear(self) -> None:
        self.takers, self._keys = {}, {}

    def _put(self, namespace: str, name: str, obj: JSONObject) -> None:
        self._drop(namespace, name)
        if keys := self.keys_of(name, obj):
            self._keys[namespace, name] = keys
            self.takers.update(dict.fromkeys(keys, (namespace, name)))

    def _drop(self, namespace: str, name: str) -> None:
        for key in self._keys.pop((namespace, name), ()):
            if self.takers.get(key) == (namespace, name):
                del self.takers[key]


class _OfServices(_Keys):
    def keys_of(self, name: str, obj: JSONObject) -> tuple[Key, ...]:
        """Return the cluster IPs and node ports of a Service."""
        spec = obj["spec"]
        value: tuple[Key, ...] = (*(spec.get("clusterIPs") or ()), *node_ports(obj), spec.get("healthCheckNodePort", 0))
        return tuple(key for key in value if key not in ("None", 0))


class _OfAddresses(_Keys):
    def keys_of(self, name: str, obj: JSONObject) -> tuple[Key, ...]:
        """Return the address of an IPAddress object."""
        return (name,)


class _Ranges(WatchedPrefix):
    """The ranges of ServiceCIDR objects that are ready.

    An object without a Ready condition counts as ready, because the controller that sets the condition may not run.
    """

    def __init__(self, gvr: GroupVersionResource, registry: Registry, objects: Objects, cache: WatchCache) -> None:
        super().__init__(gvr, registry, objects, cache)
        self.ready: dict[str, list[Network]] = {}

    async def update(self) -> None:
        """Read all changes that are stored at the time of the call."""
        await self._cache.wait_until(await self._objects.storage.revision())
        await self._follow()

    def _clear(self) -> None:
        self.ready = {}

    def _put(self, namespace: str, name: str, obj: JSONObject) -> None:
        self._drop(namespace, name)
        conditions = (obj.get("status") or {}).get("conditions") or []
        state = next((one.get("status") for one in conditions if one.get("type") == "Ready"), "True")
        if state == "True" and not obj["metadata"].get("deletionTimestamp"):
            value = (sloppy_cidr(text) for text in obj["spec"].get("cidrs") or ())
            self.ready[name] = [network for network in value if network is not None]

    def _drop(self, namespace: str, name: str) -> None:
        self.ready.pop(name, None)


class AllocatorIndex:
    """An index of the cluster IPs and node ports that stored objects use.

    An update costs time in proportion to the changed objects, not to all of them.

    Not guaranteed
        The index does not contain Services whose write is still in progress.
    """

    def __init__(self, registry: Registry, objects: Objects, cache: WatchCache) -> None:
        sources = registry, objects, cache
        self._services = _OfServices(GroupVersionResource("", "v1", "services"), *sources)
        addresses = GroupVersionResource("networking.k8s.io", "v1", "ipaddresses")
        self._addresses = _OfAddresses(addresses, *sources) if registry.get(addresses) is not None else None
        ranges = GroupVersionResource("networking.k8s.io", "v1", "servicecidrs")
        self._ranges = _Ranges(ranges, *sources) if registry.get(ranges) is not None else None

    async def update(self) -> None:
        """Apply all stored changes to the index. Callers await this method before they use the other methods."""
        await self._services.update()
        if self._addresses is not None:
            await self._addresses.update()
        if self._ranges is not None:
            await self._ranges.update()

    def networks(self) -> list[Network]:
        """Return the ranges of ServiceCIDR objects, sorted by the names of the objects."""
        if self._ranges is None:
            return []
        return [network for _, networks in sorted(self._ranges.ready.items()) for network in networks]

    def __contains__(self, key: object) -> bool:
        return key in self._services.takers or (self._addresses is not None and key in self._addresses.takers)
