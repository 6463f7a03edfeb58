"""Service proxy for process pods: listens on cluster IPs, which are loopback addresses, and on host ports, and forwards to pods.

The proxy selects the pods of this node itself, because it learns first when one of them ends. The pods of other nodes come from
EndpointSlices, which may contain loopback addresses on an embedded server with process pods; other servers refuse such addresses.

Source: Kubernetes pkg/proxy (the behaviour that is replaced), pkg/api/v1/endpoints (FindPort).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from kubeloop.kubelet.container_spec import DOMAIN
from kubeloop.tasks import Supervisor, end_tasks, wait_within
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from kubeloop.kubelet.pod_worker import PodWorker

_LOG = logging.getLogger("kubeloop.kubelet")

#: Seconds until the proxy retries an address and port at which it could not listen.
_RETRY = 5.0

#: Address and port.
SocketAddress = tuple[str, int]


@dataclass(frozen=True)
class ServicePort:
    """One port of one service."""

    namespace: str
    name: str
    port: str

    def __str__(self) -> str:
        return f"service {self.namespace}/{self.name}" + (f":{self.port}" if self.port else "")


@dataclass(frozen=True)
class PodHostPort:
    """A port of this machine that leads to a pod (``hostPort``): the pod's uid and name, where to listen, and the pod's own port."""

    uid: str
    pod: str
    listen: SocketAddress
    target: SocketAddress
    protocol: str = "TCP"

    def __str__(self) -> str:
        return f"pod {self.pod}"


def host_ports(pods: Iterable[tuple[JSONObject, str]], node_ip: str) -> list[PodHostPort]:
    """Return the host ports of pods that have not ended. Pods with ``hostNetwork`` have none: their programs listen themselves.

    Args:
        pods: Pods with their addresses.
        node_ip: The address at which to listen for ports without ``hostIP``.
    """
    result = []
    for pod, address in pods:
        metadata, spec = pod["metadata"], pod["spec"]
        if spec.get("hostNetwork") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
            for port in container.get("ports") or ():
                if port.get("hostPort"):
                    host = port.get("hostIP") or ""
                    listen = (node_ip if host in ("", "0.0.0.0", "::") else host, port["hostPort"])  # noqa: S104 - not listened on
                    name, protocol = f"{metadata['namespace']}/{metadata['name']}", port.get("protocol") or "TCP"
                    result.append(PodHostPort(metadata["uid"], name, listen, (address, port["containerPort"]), protocol))
    return result


def listening_places(services: Iterable[JSONObject], node_ip: str) -> dict[SocketAddress, ServicePort]:
    """Return the addresses and TCP ports at which to listen, with the service port of each.

    The addresses are cluster IPs that are loopback addresses, and the node's address for node ports.

    Args:
        services: All services.
        node_ip: The node's address.
    """
    result: dict[SocketAddress, ServicePort] = {}
    for service in services:
        spec, metadata = service.get("spec") or {}, service["metadata"]
        for port in spec.get("ports") or ():
            if (port.get("protocol") or "TCP") != "TCP":
                continue
            key = ServicePort(metadata["namespace"], metadata["name"], port.get("name") or "")
            for address in spec.get("clusterIPs") or [spec.get("clusterIP") or ""]:
                if is_loopback(address):
                    result[address, port["port"]] = key
            if port.get("nodePort"):
                result[node_ip, port["nodePort"]] = key
    return result


def backends(service: JSONObject, port_name: str, pods: Iterable[tuple[JSONObject, str]]) -> list[SocketAddress]:
    """Return the addresses and ports behind a port of a service: pods that its selector matches and that are ready and not being deleted.

    Args:
        service: The service; with ``publishNotReadyAddresses`` pods need not be ready.
        port_name: The port's name.
        pods: Pods with their addresses.
    """
    spec = service.get("spec") or {}
    selector: Mapping[str, str] = spec.get("selector") or {}
    port = next((one for one in spec.get("ports") or () if (one.get("name") or "") == port_name), None)
    if not selector or port is None:
        return []
    result = []
    for pod, address in pods:
        metadata, labels = pod["metadata"], pod["metadata"].get("labels") or {}
        if metadata.get("namespace") != service["metadata"]["namespace"]:
            continue
        if any(labels.get(key) != value for key, value in selector.items()) or metadata.get("deletionTimestamp"):
            continue
        if not spec.get("publishNotReadyAddresses") and not _is_ready(pod):
            continue
        number = _port_number(port.get("targetPort") or port["port"], pod)
        if number is not None:
            result.append((address, number))
    return result


def endpoint_places(slices: Iterable[JSONObject], port_name: str) -> list[SocketAddress]:
    """Return the addresses and ports of the ready endpoints for a port of a service, from its EndpointSlices.

    Args:
        slices: The slices of the service.
        port_name: The port's name.
    """
    result = []
    for one in slices:
        port = next((port.get("port") for port in one.get("ports") or () if (port.get("name") or "") == port_name), None)
        for endpoint in one.get("endpoints") or ():
            if port is not None and (endpoint.get("conditions") or {}).get("ready") is not False:
                result += [(address, port) for address in endpoint.get("addresses") or ()]
    return result


def all_backends(
    service: JSONObject, port_name: str, pods: Sequence[tuple[JSONObject, str]], slices: Iterable[JSONObject]
) -> list[SocketAddress]:
    """Return the addresses and ports behind a port of a service: pods of this node by the selector, others from EndpointSlices.

    Args:
        service: The service. Without a selector its EndpointSlices, which a user writes, may name pods of this node too.
        port_name: The port's name.
        pods: The pods of this node with their addresses.
        slices: The slices of the service.
    """
    local = {address for _, address in pods} if (service.get("spec") or {}).get("selector") else set()
    return backends(service, port_name, pods) + [place for place in endpoint_places(slices, port_name) if place[0] not in local]


def _is_ready(pod: JSONObject) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _port_number(target: Any, pod: JSONObject) -> int | None:
    if isinstance(target, int):
        return target
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or ():
            if port.get("name") == target:
                return int(port["containerPort"])
    return None


def is_loopback(address: str) -> bool:
    """Return whether a text is a loopback address; False if it is no IP address."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


# Names of services and their pods for /etc/hosts of containers, which replace cluster DNS where the kubelet does not serve it.
#
# Source: Kubernetes DNS-based service discovery specification (the names).


def service_hosts(services: Iterable[JSONObject], pods: Iterable[tuple[JSONObject, str]], namespace: str) -> list[str]:
    """Return the lines of a hosts file for services: cluster IPs, pods of headless services, and pods with a subdomain.

    Args:
        services: The services of all namespaces.
        pods: Pods with their addresses.
        namespace: The namespace of the containers, whose services also get their short names.

    Returns:
        Lines with an address and its names, longest name first.
    """
    known, lines = list(pods), []
    for service in sorted(services, key=lambda tree: (tree["metadata"]["namespace"], tree["metadata"]["name"])):
        metadata, spec = service["metadata"], service.get("spec") or {}
        names = _names(metadata["name"], metadata["namespace"], namespace)
        if is_loopback(spec.get("clusterIP") or ""):
            lines.append("\t".join([spec["clusterIP"], *names]))
        if spec.get("clusterIP") != "None" or not spec.get("ports"):
            continue
        ready = {place[0] for place in backends(service, spec["ports"][0].get("name") or "", known)}
        for pod, address in known:
            if address not in ready:
                continue
            lines.append("\t".join([address, *names]))
            if pod["spec"].get("subdomain") == metadata["name"] and pod["spec"].get("hostname"):
                host = f"{pod['spec']['hostname']}.{metadata['name']}"
                lines.append("\t".join([address, *_names(host, metadata["namespace"], namespace)]))
    return lines


def _names(name: str, owner: str, namespace: str) -> list[str]:
    result = [f"{name}.{owner}.svc.{DOMAIN}", f"{name}.{owner}.svc", f"{name}.{owner}"]
    return [*result, name] if owner == namespace else result


class ServiceProxy:
    """Listens at the addresses of services and forwards connections to their pods in round-robin order; serves host ports of pods.

    Args:
        services: Returns all services.
        workers: Returns the workers of the node's pods.
        slices: Returns the EndpointSlices of a service, by its namespace and name.
        node_ip: The address at which node ports are opened.
        api_server: The address and port to which the service ``default/kubernetes`` forwards.
        failed: Called with a port of a service or pod and the reason why it is not served.
    """

    def __init__(
        self,
        services: Callable[[], Iterable[JSONObject]],
        workers: Callable[[], Iterable[PodWorker]],
        slices: Callable[[str, str], Iterable[JSONObject]],
        node_ip: str,
        api_server: SocketAddress,
        failed: Callable[[ServicePort | PodHostPort, str], object],
    ) -> None:
        self._services = services
        self._workers = workers
        self._slices = slices
        self._node_ip = node_ip
        self._api_server = api_server
        self._failed = failed
        self._servers: dict[SocketAddress, tuple[ServicePort | PodHostPort, asyncio.Server]] = {}
        self._faults: dict[SocketAddress, ServicePort | PodHostPort] = {}
        self._unserved: set[PodHostPort] = set()
        self._changed = asyncio.Event()
        self._turn = 0
        self._connections: set[asyncio.Task[None]] = set()

    def notify(self) -> None:
        """Schedule an update of the listeners, because services or host ports changed."""
        self._changed.set()

    def serves(self, place: SocketAddress) -> bool:
        """Return whether the proxy listens at an address and port."""
        return place in self._servers

    def start(self, tasks: Supervisor) -> None:
        """Start the task that updates the listeners after changes of services, and retries failed listeners."""
        tasks.start(partial(self._follow, tasks), name="service-proxy")

    async def _follow(self, tasks: Supervisor) -> None:
        while True:
            self._changed.clear()
            await self.synchronise()
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await wait_within(tasks.clock, _RETRY if self._faults else None, changed)
            finally:
                await end_tasks(changed)

    async def synchronise(self) -> None:
        """Open and close listeners so that they match the services and the host ports of pods."""
        wanted: dict[SocketAddress, ServicePort | PodHostPort] = {**listening_places(self._services(), self._node_ip)}
        self._add_host_ports(wanted)
        for place in [place for place, (key, _) in self._servers.items() if wanted.get(place) != key]:
            _, server = self._servers.pop(place)
            server.close()
        for place, key in wanted.items():
            if place in self._servers:
                continue
            try:
                server = await asyncio.start_server(partial(self._accept, key), *place)
            except OSError as error:
                if self._faults.get(place) != key:
                    self._report(key, place, error)
                self._faults[place] = key
                continue
            self._faults.pop(place, None)
            self._servers[place] = (key, server)
        self._faults = {place: key for place, key in self._faults.items() if wanted.get(place) == key}

    def _add_host_ports(self, places: dict[SocketAddress, ServicePort | PodHostPort]) -> None:
        """Add the host ports of pods that no service or earlier pod uses, and report each of the others once."""
        unserved = {}
        for port in host_ports(((worker.tree, worker.ip) for worker in self._workers()), self._node_ip):
            if port.protocol != "TCP":
                unserved[port] = f"process pods have no host ports of {port.protocol}"
            elif (owner := places.setdefault(port.listen, port)) != port:
                unserved[port] = f"{owner} uses it"
        for port, reason in unserved.items():
            if port not in self._unserved:
                self._failed(port, f"cannot listen on {port.listen[0]}:{port.listen[1]}: {reason}")
        self._unserved = set(unserved)

    def _report(self, key: ServicePort | PodHostPort, place: SocketAddress, error: OSError) -> None:
        if error.errno == errno.EADDRINUSE and place[0] != self._node_ip and isinstance(key, ServicePort):
            _LOG.info("%s: another kubelet of this machine serves %s:%d", key, *place)
            return
        self._failed(key, f"cannot listen on {place[0]}:{place[1]}: {os.strerror(error.errno or 0).lower()}")

    def _accept(self, key: ServicePort | PodHostPort, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not a coroutine: Python 3.11 logs a traceback when the task that it makes of a coroutine is cancelled.
        task = asyncio.ensure_future(self._serve(key, reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, key: ServicePort | PodHostPort, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._forward(key, reader, writer)
        except OSError as error:
            _LOG.debug("%s: a connection ended: %s", key, error)
        except Exception:  # noqa: BLE001 - it may be any bug, and the others go on
            _LOG.exception("%s: a connection failed", key)
        finally:
            writer.close()

    async def _forward(self, key: ServicePort | PodHostPort, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for host, port in self._places(key):
            try:
                upstream = await asyncio.open_connection(host, port)
            except OSError:
                continue  # This pod may be ending or no longer ready: try the next one.
            break
        else:
            writer.transport.abort()
            return
        tasks = [asyncio.ensure_future(_copy(reader, upstream[1])), asyncio.ensure_future(_copy(upstream[0], writer))]
        try:
            await asyncio.gather(*tasks)
        finally:
            await end_tasks(*tasks, expected=(OSError,), logger=_LOG)
            upstream[1].close()

    def _places(self, key: ServicePort | PodHostPort) -> list[SocketAddress]:
        if isinstance(key, PodHostPort):
            return [key.target]
        if (key.namespace, key.name) == ("default", "kubernetes"):
            return [self._api_server]
        service = next(
            (one for one in self._services() if (one["metadata"]["namespace"], one["metadata"]["name"]) == (key.namespace, key.name)), None
        )
        if service is None:
            return []
        pods = [(worker.tree, worker.ip) for worker in self._workers()]
        found = all_backends(service, key.port, pods, self._slices(key.namespace, key.name))
        if not found:
            return []
        self._turn += 1
        start = self._turn % len(found)
        return found[start:] + found[:start]

    async def close(self) -> None:
        """Stop listening and end all connections."""
        for _, server in self._servers.values():
            server.close()
        self._servers.clear()
        await end_tasks(*self._connections, expected=(OSError,), logger=_LOG)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        writer.transport.abort()
        return
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()
