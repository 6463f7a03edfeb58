"""Allocates cluster IPs and node ports. There is no separate record of allocations: the stored Services decide which values are free.

Source: pkg/registry/core/service/storage/alloc.go, ipallocator, portallocator; defaults of kube-apiserver's flags.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import itertools
import random
from functools import partial

from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.admission.allocator_index import AllocatorIndex, Network
from kubeloop.apiserver.builtin.services.cluster_ips import default_ip_families, sync_cluster_ip_fields
from kubeloop.apiserver.builtin.services.predicates import (
    is_headless,
    needs_cluster_ip,
    needs_health_check,
    needs_node_port,
    node_ports,
    type_of,
)
from kubeloop.apiserver.builtin.services.ranges import ServiceRanges
from kubeloop.apiserver.ownership import SERVER, Owners
from kubeloop.apiserver.registry.object_meta import fill_new
from kubeloop.apiserver.registry.objects import Objects, PreconditionFailed
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.endpoints import api_errors
from kubeloop.meta.errors import ApiError
from kubeloop.meta.field_error import FieldError, invalid
from kubeloop.meta.kinds import GroupKind, GroupResource, GroupVersionResource
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

# IPAddress objects: each cluster IP has one with the address as its name, which refers to the Service. Other controllers may create
# IPAddress objects to reserve addresses.
#
# Source: pkg/registry/core/service/ipallocator/ipallocator.go (MultiCIDRServiceAllocator); KEP-1880.


_SERVICES = GroupVersionResource("", "v1", "services")
_ADDRESSES = GroupVersionResource("networking.k8s.io", "v1", "ipaddresses")
_LABEL = "ipaddress.kubernetes.io/"
_MANAGER = "ipallocator.k8s.io"


class IPAddressObjects:
    """Creates and deletes the IPAddress object of a Service after the Service is written, rejected or deleted."""

    def __init__(self, registry: Registry, objects: Objects, clock: Clock) -> None:
        self._registry = registry
        self._objects = objects
        self._owners = Owners(registry, clock)
        self._clock = clock

    async def repair(self) -> None:
        """Create missing and delete obsolete IPAddress objects of Services.

        A crash between two writes leaves a Service without its object, or an object without its Service.
        """
        services, resource = self._registry.get(_SERVICES), self._registry.get(_ADDRESSES)
        if services is None or resource is None:
            return
        requested: dict[str, tuple[str, str]] = {}
        for one in await self._objects.all(services):
            whose = one["metadata"]["namespace"], one["metadata"]["name"]
            requested.update((address, whose) for address in one["spec"].get("clusterIPs") or () if address != "None")
        present: dict[str, tuple[str, str]] = {}
        for one in await self._objects.all(resource):
            if (one["metadata"].get("labels") or {}).get(f"{_LABEL}managed-by") == _MANAGER:
                parent = (one.get("spec") or {}).get("parentRef") or {}
                present[one["metadata"]["name"]] = parent.get("namespace", ""), parent.get("name", "")
        for address, whose in {*requested.items()} ^ {*present.items()}:
            await self.reconcile(address, *whose)

    async def reconcile(self, address: str, namespace: str, name: str) -> None:
        """Create the IPAddress of ``address`` if the stored Service uses the address, and delete it if not."""
        services, resource = self._registry.get(_SERVICES), self._registry.get(_ADDRESSES)
        if services is None or resource is None:
            return
        service = await self._objects.get(services, namespace, name)
        has = service is not None and address in (service.obj["spec"].get("clusterIPs") or ())
        current = await self._objects.get(resource, "", address)
        with contextlib.suppress(PreconditionFailed):  # another request has created it meanwhile
            if has and current is None:
                await self._objects.write(resource, self._made(resource, address, namespace, name), expected=0)
            elif not has and current is not None:
                parent = (current.obj.get("spec") or {}).get("parentRef") or {}
                if _is_of_service(parent) and (parent.get("namespace"), parent.get("name")) == (namespace, name):
                    await self._objects.remove(current)

    def _made(self, resource: ServedResource, address: str, namespace: str, name: str) -> JSONObject:
        labels = {f"{_LABEL}ip-family": f"IPv{ipaddress.ip_address(address).version}", f"{_LABEL}managed-by": _MANAGER}
        obj: JSONObject = {
            "kind": resource.kind,
            "apiVersion": resource.gvk.api_version,
            "metadata": {"name": address, "labels": labels},
            "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": name}},
        }
        fill_new(obj["metadata"], self._clock.wall())
        scope = self._owners.scope(resource, "")
        self._owners.updated(scope, scope.empty, obj, SERVER)
        return obj


def _is_of_service(parent: JSONObject) -> bool:
    return (parent.get("group", ""), parent.get("resource")) == ("", "services")


SERVICES = GroupResource("", "services")

_TAKEN_PORT = "provided port is already allocated"


class ServiceAddressAllocator:
    """Allocates the cluster IPs and node ports of Services: the requested ones, or free ones.

    Guarantees
        No two stored Services share a cluster IP or a node port of the range, even if they are created concurrently.

    Not guaranteed
        IPv6 and dual stack are not supported. Addresses of the server's own range are allocated first, and then those of ServiceCIDR
        objects; upstream uses the ranges in any order.

    Raises
        Invalid: The requested address or port is in use or out of range.
        InternalError: The range has no free address or port.
    """

    resources = frozenset({SERVICES})

    def __init__(self, registry: Registry, objects: Objects, cache: WatchCache, ranges: ServiceRanges, clock: Clock) -> None:
        """Create the allocator.

        Args:
            registry: The served resources.
            objects: Reads and writes Services and IPAddresses.
            cache: Publishes the changes of Services, IPAddresses and ServiceCIDRs.
            ranges: The server's own ranges.
            clock: The clock for metadata of IPAddresses.
        """
        self._stored = AllocatorIndex(registry, objects, cache)
        self._address_objects = IPAddressObjects(registry, objects, clock)
        self._is_repaired = False
        self._network = ranges.cluster_ips
        self._ports = ranges.node_ports
        #: Addresses and ports of Services whose write is in progress, which storage does not show yet.
        self._reserved: dict[str | int, _Request] = {}
        self._lock = asyncio.Lock()

    async def mutate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if attributes.resource.gvr.group_resource != SERVICES or attributes.operation not in ("CREATE", "UPDATE", "DELETE"):
            return
        if attributes.old is not None and not attributes.dry_run:
            self._reconcile_later(attributes, attributes.old)
        if obj is None or attributes.subresource:
            return
        if attributes.reinvocation.requested and not attributes.reinvocation.again:
            return  # Webhooks are called once more and must not see the allocated values.
        old = attributes.old
        if old is not None:
            _keep_allocated(obj, old)
        sync_cluster_ip_fields(obj, old)
        if problems := default_ip_families(obj, old):
            raise _refused(obj, problems)
        async with self._lock:
            if not self._is_repaired:
                await self._address_objects.repair()
                self._is_repaired = True
            await self._stored.update()
            request = _Request(obj, old, self, dry_run=attributes.dry_run)
            attributes.after.append(lambda: self._release(request))
            request.allocate()
        if not attributes.dry_run:
            self._reconcile_later(attributes, obj)

    def _reconcile_later(self, attributes: Attributes, service: JSONObject) -> None:
        for address in service["spec"].get("clusterIPs") or ():
            if address != "None":
                attributes.settling.append(partial(self._reconcile, address, service))

    async def _reconcile(self, address: str, service: JSONObject) -> None:
        # The name may have been generated since.
        metadata = service["metadata"]
        await self._address_objects.reconcile(address, metadata.get("namespace", ""), metadata.get("name", ""))

    async def validate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only mutates."""

    def is_allocated(self, key: str | int) -> bool:
        """Return whether an address or port belongs to a stored Service, or to any Service whose write is in progress."""
        return key in self._reserved or key in self._stored

    def reserve(self, key: str | int, request: _Request) -> None:
        """Reserve an address or port for a write in progress."""
        self._reserved[key] = request

    def _release(self, request: _Request) -> None:
        self._reserved = {key: holder for key, holder in self._reserved.items() if holder is not request}

    def _networks(self) -> list[Network]:
        """Return the server's own range, then the ranges of ServiceCIDR objects with the same address family."""
        added = (network for network in self._stored.networks() if network.version == self._network.version)
        return list(dict.fromkeys([self._network, *added]))

    def in_range(self, address: str) -> bool:
        """Return whether an address is in one of the ranges."""
        value = ipaddress.ip_address(address)
        return any(value in one and value not in (one.network_address, one.broadcast_address) for one in self._networks())

    def free_address(self) -> str | None:
        """Return a free address of the first range that has one, or None if there is none."""
        return next((address for network in self._networks() if (address := self._free_in(network)) is not None), None)

    def _free_in(self, network: Network) -> str | None:
        """Return a free address of a range, preferably of its upper part, or None.

        The lower part is for Services that request an address (KEP-3070).
        """
        last = network.num_addresses - 1
        upper = min(min(max(16, network.num_addresses // 16), 256) + 1, last)
        for part in (range(upper, last), range(1, upper)):
            if part:
                begin = random.randrange(len(part))
                for offset in itertools.chain(part[begin:], part[:begin]):
                    address = str(network[offset])
                    if not self.is_allocated(address):
                        return address
        return None

    def free_port(self) -> int | None:
        """Return a free node port, or None if there is none."""
        free = [port for port in self._ports if not self.is_allocated(port)]
        return random.choice(free) if free else None

    @property
    def network(self) -> str:
        """The server's own range of cluster IPs in CIDR notation."""
        return str(self._network)

    @property
    def dry_address(self) -> str:
        """The address that a dry run shows. It is not reserved."""
        return str(self._network.network_address)

    @property
    def ports(self) -> range:
        """The range of node ports."""
        return self._ports


class _Request:
    """The allocation of addresses and ports for one write of a Service."""

    def __init__(self, obj: JSONObject, old: JSONObject | None, owner: ServiceAddressAllocator, *, dry_run: bool) -> None:
        self.owner, self.obj, self.old, self.dry_run = owner, obj, old, dry_run
        self._dry_port = owner.ports.stop  # A dry run gets ports above the range.

    def allocate(self) -> None:
        """Allocate addresses and ports of the Service."""
        self._allocate_address()
        self._allocate_ports()

    def _allocate_address(self) -> None:
        spec = self.obj["spec"]
        if not needs_cluster_ip(self.obj) or is_headless(self.obj):
            return
        # A Service keeps its address. A new Service, or a former ExternalName Service, gets one.
        if self.old is not None and type_of(self.old) != "ExternalName":
            return
        requested = (spec.get("clusterIPs") or [""])[0]
        if requested:
            self._check_address(requested)
            address = requested
        else:
            address = self.owner.dry_address if self.dry_run else self._next_address()
        self._take(address)
        spec["clusterIP"], spec["clusterIPs"] = address, [address, *(spec.get("clusterIPs") or [])[1:]]

    def _next_address(self) -> str:
        address = self.owner.free_address()
        if address is None:
            name = self.obj["metadata"].get("name", "")
            raise api_errors.internal_error(f'failed to allocate a serviceIP for Service "{name}": range is full')
        return address

    def _check_address(self, address: str) -> None:
        why = ""
        in_range = self.owner.in_range(address)
        if not in_range and not self.dry_run:
            why = "the provided network does not match the current range"
        elif not in_range:
            # A dry run uses another allocator upstream, which has another message.
            why = f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {self.owner.network}"
        elif not self.dry_run and self.owner.is_allocated(address):
            why = "provided IP is already allocated"
        if why:
            raise _refused(self.obj, [invalid("spec.clusterIPs", [address], f"failed to allocate IP {address}: {why}")])

    def _allocate_ports(self) -> None:
        spec = self.obj["spec"]
        if type_of(self.obj) in ("NodePort", "LoadBalancer"):
            if self.old is None:
                self._allocate_node_ports(spec.get("ports") or [])
            else:
                self._change_node_ports(spec.get("ports") or [], self.old)
        if needs_health_check(self.obj) and not (self.old is not None and needs_health_check(self.old)):
            requested = spec.get("healthCheckNodePort")
            if requested:
                if error := self._port_fault(requested):
                    raise api_errors.internal_error(f"failed to allocate requested HealthCheck NodePort {requested}: {error}")
                self._take(requested)
            else:
                spec["healthCheckNodePort"] = self._next_port()

    def _allocate_node_ports(self, ports: list[JSONObject]) -> None:
        """Allocate the node ports of a Service.

        Ports with equal numbers and different protocols share a node port, unless the Service requests otherwise.
        """
        allocated: dict[int, int] = {}
        taken: set[int] = set()
        for index, port in enumerate(ports):
            requested, number = port.get("nodePort", 0), port.get("port", 0)
            if not requested and not needs_node_port(self.obj):
                continue
            if number not in allocated:
                expected = next((one["nodePort"] for one in ports if one.get("port") == number and one.get("nodePort")), 0)
                if expected:
                    self._take_node_port(index, expected, taken)
                allocated[number] = port["nodePort"] = expected or self._next_port()
            elif not requested:
                port["nodePort"] = allocated[number]
            elif requested != allocated[number]:
                self._take_node_port(index, requested, taken)

    def _change_node_ports(self, ports: list[JSONObject], old: JSONObject) -> None:
        taken = set(node_ports(old))
        seen: set[tuple[str, int]] = set()
        for index, port in enumerate(ports):
            requested = port.get("nodePort", 0)
            if not requested and not needs_node_port(self.obj):
                continue
            if not requested:
                port["nodePort"] = self._next_port()
            elif requested not in taken:
                self._take_node_port(index, requested, taken)
            key = port.get("protocol", ""), port["nodePort"]
            if key in seen:
                raise api_errors.internal(f"duplicate nodePort: {{{key[0]} {key[1]}}}")
            seen.add(key)

    def _take_node_port(self, at: int, number: int, taken: set[int]) -> None:
        """Reserve a requested node port. ``taken`` holds the ports that the Service already has; this one is added to it."""
        error = _TAKEN_PORT if number in taken else self._port_fault(number)
        if error:
            raise _refused(self.obj, [invalid(f"spec.ports[{at}].nodePort", number, error)])
        self._take(number)
        taken.add(number)

    def _port_fault(self, port: int) -> str:
        if port not in self.owner.ports and self.dry_run:
            return ""  # Upstream only checks whether the port is free in that case.
        if port not in self.owner.ports:
            return (
                f"provided port is not in the valid range. The range of valid ports is {self.owner.ports.start}-{self.owner.ports.stop - 1}"
            )
        return _TAKEN_PORT if self.owner.is_allocated(port) else ""

    def _next_port(self) -> int:
        if self.dry_run:
            self._dry_port += 1
            return self._dry_port
        port = self.owner.free_port()
        if port is None:
            raise api_errors.internal_error("failed to allocate a nodePort: range is full")
        self._take(port)
        return port

    def _take(self, key: str | int) -> None:
        if not self.dry_run:
            self.owner.reserve(key, self)


def _refused(obj: JSONObject, problems: list[FieldError]) -> ApiError:
    return api_errors.invalid(GroupKind("", "Service"), obj["metadata"].get("name", ""), problems)


def _keep_allocated(obj: JSONObject, old: JSONObject) -> None:
    """Keep the allocated values of a Service when a client sends its original manifest again. Source: patchAllocatedValues."""
    new, before = obj["spec"], old["spec"]
    if needs_cluster_ip(old) and needs_cluster_ip(obj):
        if not new.get("clusterIP") and before.get("clusterIP"):
            new["clusterIP"] = before["clusterIP"]
        if not new.get("clusterIPs") and before.get("clusterIPs"):
            new["clusterIPs"] = list(before["clusterIPs"])
    if needs_node_port(old) and needs_node_port(obj):
        used = set(node_ports(old)) & set(node_ports(obj))
        by_name = {port.get("name", ""): port.get("nodePort", 0) for port in before.get("ports") or ()}
        for port in new.get("ports") or ():
            retained = by_name.get(port.get("name", ""), 0)
            if not port.get("nodePort") and retained and retained not in used:
                port["nodePort"] = retained
    if needs_health_check(old) and needs_health_check(obj) and not new.get("healthCheckNodePort") and before.get("healthCheckNodePort"):
        new["healthCheckNodePort"] = before["healthCheckNodePort"]
