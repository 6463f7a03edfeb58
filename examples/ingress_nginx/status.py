"""Writes the controller's addresses into the status of the Ingresses that it serves."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from examples.ingress_nginx.ingress.classes import ClassRules
from examples.ingress_nginx.options import ControllerOptions
from kubeloop import Client, Result
from kubeloop.api.core.v1 import Node, Pod, Service
from kubeloop.api.networking.v1 import Ingress, IngressClass, IngressLoadBalancerIngress
from kubeloop.cache import Head, Lister
from kubeloop.controller import KeyController, WatchedKind, annotations_changed, path_changed, resource_version_changed
from kubeloop.meta import KubeloopError, NotFound, ObjectKey

#: The key whose reconcile reads the addresses.
ADDRESSES: Final = ObjectKey("", "", "addresses")
#: Largest number of writes at the same time.
PARALLEL_WRITES: Final = 10
#: Seconds between two reads of addresses that no watch reports: those of nodes.
POLL_SECONDS: Final = 60.0
#: Labels that replicas of one controller do not share.
_TEMPLATE_LABELS = frozenset({"controller-revision-hash", "pod-template-generation", "pod-template-hash"})
#: In the order in which an address is chosen.
_NODE_ADDRESSES = ("ExternalIP", "InternalIP")


@dataclass(frozen=True, slots=True, order=True)
class PublishedAddress:
    """An entry of ``status.loadBalancer.ingress``: an IP address or the name of a host."""

    ip: str = ""
    hostname: str = ""

    @staticmethod
    def of(text: str) -> PublishedAddress:
        try:
            return PublishedAddress(ip=str(ipaddress.ip_address(text)))
        except ValueError:
            return PublishedAddress(hostname=text)

    def to_dict(self) -> dict[str, str]:
        return {"ip": self.ip} if self.ip else {"hostname": self.hostname}


Addresses = tuple[PublishedAddress, ...]


class ControllerPods(Protocol):
    """Finds the replicas of the controller."""

    async def ready_nodes(self) -> list[str]:
        """Return the names of the nodes with a ready replica."""

    async def others(self) -> int:
        """Return the number of running replicas apart from this one."""


class ReplicaPods:
    """Finds the replicas by the labels of this replica's pod.

    Args:
        client: Client of the cluster, which lists pods of one namespace.
        namespace: Namespace of the pod of this replica.
        name: Name of that pod; empty: this replica is no pod, and the only one.
    """

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    async def ready_nodes(self) -> list[str]:
        return sorted({pod.spec.node_name for pod in await self._pods() if pod.spec.node_name and _is_ready(pod)})

    async def others(self) -> int:
        return sum(pod.metadata.name != self._name for pod in await self._pods())

    async def _pods(self) -> list[Pod]:
        """Return the running pods that are not being deleted."""
        if not self._name:
            return []
        own = await self._client.get(Pod, self._name, namespace=self._namespace)
        labels = {name: value for name, value in own.metadata.labels.items() if name not in _TEMPLATE_LABELS}
        if not labels:
            return [own]
        found = [pod async for pod in self._client.list(Pod, namespace=self._namespace, label_selector=labels)]
        return [pod for pod in found if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None]


def addresses_of_service(service: Service) -> Addresses:
    """Return the addresses under which a Service is reached, sorted, each once."""
    spec = service.spec
    texts: list[str | None] = []
    match spec.type:
        case "ExternalName":
            texts = [spec.external_name]
        case "NodePort" if spec.external_ips:
            texts = [*spec.external_ips]
        case "LoadBalancer":
            entries = service.status.load_balancer.ingress
            texts = [*(entry.ip or entry.hostname for entry in entries), *spec.external_ips]
        case _:
            texts = [spec.cluster_ip if spec.cluster_ip != "None" else None]
    return published(filter(None, texts))


def address_of_node(node: Node) -> str:
    """Return the external address of a node, else its internal one; empty: it has neither."""
    found = {address.type: address.address for address in reversed(node.status.addresses)}
    return next((found[kind] for kind in _NODE_ADDRESSES if kind in found), "")


def published(texts: Iterable[str]) -> Addresses:
    """Return addresses as a status has them: sorted, each once."""
    return tuple(sorted({PublishedAddress.of(text.strip()) for text in texts if text.strip()}))


class IngressStatusWriter(
    KeyController[Ingress],
    predicates=[path_changed("spec") | path_changed("status") | annotations_changed],
    watches=[
        WatchedKind(IngressClass, to="class_changed", predicates=(resource_version_changed,)),
        WatchedKind(Service, to="service_changed", predicates=(path_changed("spec") | path_changed("status"),)),
    ],
    gets=[Node],
    write_verbs={Ingress: []},
    workers=PARALLEL_WRITES,
    needs_leader=True,
    name="ingress-status",
):
    """Keeps ``status.loadBalancer.ingress`` of the served Ingresses equal to the controller's addresses.

    The addresses are those of the options, else those of the published Service, else those of the nodes with ready replicas.

    Guarantees:
        Only the leader writes. A status that has the addresses already is not written.
        Nothing is written while the addresses are unknown, for example because the published Service does not exist.

    Args:
        options: Options of the replica.
        clear_on_shutdown: The last replica removes its addresses from the status when it stops.
        pods: Finds the replicas; None: by the labels of ``options.pod``.
    """

    def __init__(
        self, options: ControllerOptions | None = None, *, clear_on_shutdown: bool = True, pods: ControllerPods | None = None
    ) -> None:
        self.options = options or ControllerOptions()
        self._clear = clear_on_shutdown
        self._given_pods = pods
        self._addresses: Addresses | None = None

    async def start(self) -> None:
        self.enqueue(ADDRESSES)

    async def stop(self) -> None:
        if not self._clear or not self._addresses:
            return
        try:
            others = await self._pods.others()
        except KubeloopError as error:
            self.log.warning("The status of Ingresses keeps its addresses, because the other replicas are unknown: %s", error)
            return
        if not others:
            await self._clear_all()

    def class_changed(self, _: Head) -> list[ObjectKey]:
        return self._keys()

    def service_changed(self, head: Head) -> list[ObjectKey]:
        return [ADDRESSES] if (head.namespace, head.name) == self.options.publish_service else []

    async def reconcile(self, key: ObjectKey) -> Result | None:
        if key.name == ADDRESSES.name and not key.namespace:  # the queue adds the name of the cluster to the key
            return await self._read_addresses()
        ingress = self._ingresses.get(key.name, key.namespace)
        if self._addresses is not None and ingress is not None and self._serves(ingress):
            await self._write(ingress, self._addresses)
        return None

    async def _read_addresses(self) -> Result | None:
        """Read the addresses; if they differ from the last ones, all Ingresses are compared with them."""
        found = await self._current_addresses()
        if found is not None and found != self._addresses:
            self._addresses = found
            if shown := ", ".join(entry.ip or entry.hostname for entry in found):
                self.log.info("The status of Ingresses gets the addresses %s", shown)
            for key in self._keys():
                self.enqueue(key)
        watched = self.options.status_addresses or self.options.publish_service
        return None if watched else Result(requeue_after=POLL_SECONDS)

    async def _current_addresses(self) -> Addresses | None:
        """Return the addresses; None: they are not known."""
        if self.options.status_addresses:
            return published(self.options.status_addresses)
        if self.options.publish_service is not None:
            namespace, name = self.options.publish_service
            service = self.lister(Service).get(name, namespace)
            if service is None:
                self.log.warning("Service %s/%s (--publish-service) does not exist; no status is written until it does", namespace, name)
            return None if service is None else addresses_of_service(service)
        return published([await self._node_address(name) for name in await self._pods.ready_nodes()])

    async def _node_address(self, name: str) -> str:
        try:
            return address_of_node(await self.client.get(Node, name))
        except NotFound:
            # The node was removed between the two requests; its pods follow.
            return ""

    async def _clear_all(self) -> None:
        slots = asyncio.Semaphore(PARALLEL_WRITES)

        async def clear(ingress: Ingress) -> None:
            async with slots:
                try:
                    await self._write(ingress, ())
                except KubeloopError as error:
                    self.log.warning("Ingress %s/%s keeps its addresses: %s", ingress.metadata.namespace, ingress.metadata.name, error)

        async with asyncio.TaskGroup() as tasks:
            for ingress in self._ingresses.list():
                # Another controller may have written the status since: only the addresses of this one are removed.
                if self._serves(ingress) and _addresses_in(ingress) == self._addresses:
                    tasks.create_task(clear(ingress))

    async def _write(self, ingress: Ingress, addresses: Addresses) -> None:
        if _addresses_in(ingress) == addresses:
            return
        patch = {"status": {"loadBalancer": {"ingress": [entry.to_dict() for entry in addresses] or None}}}
        metadata = ingress.metadata
        try:
            await self.client.patch(Ingress, metadata.name, patch, namespace=metadata.namespace, subresource="status")
        except NotFound:
            self.log.debug("Ingress %s/%s was deleted before its status was written", metadata.namespace, metadata.name)

    def _serves(self, ingress: Ingress) -> bool:
        classes: ClassRules = self.options.builder.classes
        return ingress.metadata.deletion_timestamp is None and not classes.reason_against(ingress, self.lister(IngressClass).get)

    def _keys(self) -> list[ObjectKey]:
        return [ingress.object_key() for ingress in self._ingresses.list()]

    @property
    def _ingresses(self) -> Lister[Ingress]:
        return self.lister(Ingress)

    @property
    def _pods(self) -> ControllerPods:
        return self._given_pods or ReplicaPods(self.client, *self.options.pod)


def _addresses_in(ingress: Ingress) -> Addresses:
    """Return the addresses of a status in their order: another order is another status."""
    entries: list[IngressLoadBalancerIngress] = ingress.status.load_balancer.ingress
    return tuple(PublishedAddress(ip=entry.ip or "", hostname=entry.hostname or "") for entry in entries)


def _is_ready(pod: Pod) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)
