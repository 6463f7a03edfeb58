"""``ProcessKubelet``: a node whose pods run as processes of this machine, against any API server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from kubeloop.api.core.v1 import Pod, Service
from kubeloop.cache import InformerFactory
from kubeloop.client import Client
from kubeloop.client.mapper import ALL_NAMESPACES
from kubeloop.config import ClusterConfig
from kubeloop.controller.events import EventRecorder
from kubeloop.kubelet.access import EndpointAccessReviewer
from kubeloop.kubelet.addresses import AddressPool, claim_pod_range
from kubeloop.kubelet.cgroups import Cgroups, CgroupsUnavailable
from kubeloop.kubelet.cluster_view import ClusterView
from kubeloop.kubelet.container_creation import NodeServices
from kubeloop.kubelet.container_spec import PORT_CONFLICT, has_port_conflict
from kubeloop.kubelet.containers import pod_subject
from kubeloop.kubelet.credentials import node_config, serving_pair
from kubeloop.kubelet.dns_server import DnsServer, DnsUnavailable
from kubeloop.kubelet.environment import service_variables
from kubeloop.kubelet.health import KubeletHealth
from kubeloop.kubelet.image_store import ImageStore
from kubeloop.kubelet.images import ImageMap, ImagePuller
from kubeloop.kubelet.node import MachineFacts, NodeRegistration, allocatable
from kubeloop.kubelet.node_folder import FolderLock, container_prefix, remove_stale_folders
from kubeloop.kubelet.pod_worker import PodWorker
from kubeloop.kubelet.resolver_config import ResolverConfig, pod_resolver_config, read_machine_config
from kubeloop.kubelet.runtime import Isolation, ProcessRuntime, detect_isolation, end_leftovers
from kubeloop.kubelet.server import KubeletEndpoint
from kubeloop.kubelet.service_proxy import PodHostPort, ServicePort, ServiceProxy, host_ports, service_hosts
from kubeloop.kubelet.usage import ContainerUsage, ProcessTable, ProcessUsage, machine_usage, resource_metrics, stats_summary
from kubeloop.kubelet.volumes import ObjectReader, VolumeManager
from kubeloop.meta import ConfigError, ObjectMeta, Quantity
from kubeloop.tasks import Supervisor
from kubeloop.timing import Clock
from kubeloop.transport import Transport
from kubeloop.types import JSONObject

_LOG = logging.getLogger("kubeloop.kubelet")
#: Seconds between two measurements of memory and volume limits.
_MEASURE = 1.0
#: Seconds for which changes are collected before the hosts files of pods are written.
_HOSTS_DELAY = 0.2
#: The limits of each kind of isolation, which the kubelet logs when it starts.
WARNINGS = {
    Isolation.NAMESPACES: (
        "containers are processes of root in mount, PID, UTS and IPC namespaces: they read this machine's files, share its network "
        "and users, and are not a boundary against hostile programs"
    ),
    Isolation.USER_NAMESPACES: (
        "containers are processes of your user in user, mount, PID, UTS and IPC namespaces: they read your files and share this machine's "
        "network, and are not a boundary against hostile programs"
    ),
    Isolation.NONE: (
        "containers are processes of your user without namespaces: they read and write your files and see all processes; volumes stand "
        "below $KUBELOOP_ROOT instead of at their mount paths"
    ),
}


@dataclass(frozen=True)
class KubeletOptions:
    """The settings of a kubelet.

    ``folder`` stores its state. ``isolation`` None selects the strongest isolation that the kernel grants. ``self_approval`` lets the user
    of the configuration approve the serving certificate. ``anonymous`` serves the endpoint to every client. ``dns`` is ``on`` (cluster DNS
    is required), ``auto`` (it is served if possible) or ``off``; ``cgroups`` has the same values. ``sync_frequency`` is in seconds.
    """

    name: str
    folder: Path
    image_map: Path | None = None
    address: str = "127.0.0.1"
    port: int = 0
    pod_cidr: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    sync_frequency: float = 10.0
    isolation: Isolation | None = None
    self_approval: bool = True
    anonymous: bool = False
    service_proxy: bool = True
    dns: str = "auto"
    cgroups: str = "auto"


class ProcessKubelet:
    """Runs the pods of one node as processes.

    Guarantees:
        When ``run`` ends, no process of a container is left. When the kubelet is killed, the kernel kills the processes of containers, and
        the next kubelet with the same folder kills processes that escaped.

    Not guaranteed:
        Isolation between containers and this machine, see docs/process-pods.md.

    Args:
        config: How to reach the API server, as the node or as a user that may request the node's certificate.
        options: The settings.
        lock: The lock of the folder, if the caller holds it already.
    """

    def __init__(self, config: ClusterConfig, options: KubeletOptions, lock: FolderLock | None = None) -> None:
        # Absolute, because launchers have another working directory.
        self.options = options = replace(options, folder=options.folder.absolute())
        self._lock = lock
        self._config = config
        self._images = ImageMap(options.image_map)
        self._store = ImageStore(options.folder)
        self._addresses: AddressPool
        self._workers: dict[str, PodWorker] = {}
        self._pods: Supervisor | None = None
        self._proxy: ServiceProxy | None = None
        self._changed = asyncio.Event()
        self._view: ClusterView | None = None
        self._node: NodeServices | None = None
        self._used: dict[str, tuple[float, float]] = {}
        self._rates: dict[str, float] = {}
        self._health: KubeletHealth | None = None
        self._machine_resolver = ResolverConfig()
        self._dns_address = ""
        self._cgroups: Cgroups | None = None

    @property
    def healthy(self) -> bool:
        """Whether the node runs and all of its background tasks are healthy, including the workers of pods."""
        return self._health is not None and self._health.healthy

    async def run(self, ready: Callable[[], object] | None = None) -> None:
        """Run the node until the call is cancelled.

        Args:
            ready: Called once, when the node is registered and its pods are known.

        Raises:
            ConfigError: The folder or the range of addresses is in use, the folder cannot be written, a port is in use, or cluster DNS is
                required and cannot run.
            KubeloopError: The server refuses a request or cannot be reached.
        """
        options = self.options
        async with AsyncExitStack() as stack:
            lock = self._lock
            if lock is None:
                lock = FolderLock.acquire(options.folder)
                stack.callback(lock.release)
            await asyncio.to_thread(remove_stale_folders, end_leftovers)
            self._addresses = AddressPool(stack.enter_context(claim_pod_range(options.pod_cidr, options.name)).network)
            await asyncio.to_thread(self._store.remove_partial)
            prefix = container_prefix(options.folder, options.name)
            lock.write_prefix(prefix)
            if ended := await asyncio.to_thread(end_leftovers, prefix):
                _LOG.warning("ended %d processes that containers of an earlier kubelet left", ended)
            isolation = options.isolation
            if isolation is None:
                isolation = await asyncio.to_thread(detect_isolation, options.folder)
            _LOG.warning("process pods of node %s (isolation %s): %s", options.name, isolation.value, WARNINGS[isolation])
            self._cgroups = await asyncio.to_thread(self._open_cgroups, prefix)
            if self._cgroups is not None:
                stack.push_async_callback(asyncio.to_thread, self._cgroups.close)
            config = await node_config(self._config, options.name, options.folder / "pki")
            client = await stack.enter_async_context(Client(Transport(config)))
            tasks = await stack.enter_async_context(Supervisor(client.clock, _LOG))
            self._health = KubeletHealth(tasks)
            endpoint = await self._serve(client, ProcessRuntime(isolation), self._health, stack)
            facts = await asyncio.to_thread(MachineFacts.read, options.folder, options.name, options.address)
            events = await stack.enter_async_context(EventRecorder(client, "kubelet"))
            self._node = self._services_of_node(client, tasks, events, ProcessRuntime(isolation), facts, prefix)
            registration = NodeRegistration(client, options.name, facts, options.address, lambda: endpoint.port, options.labels)
            node = await registration.register()
            informers = await stack.enter_async_context(InformerFactory(client))
            self._pods = await stack.enter_async_context(tasks.child())
            services = ClusterView.watch_services(informers)
            self._view = view = ClusterView(services, lambda: [(worker.tree, worker.ip) for worker in self.workers()])
            pods = informers.for_kind(Pod, namespace=ALL_NAMESPACES, field_selector=f"spec.nodeName={options.name}")
            await services.wait_synced()
            await view.open_slices(self._config, stack)
            await self._start_dns(view, client.clock, stack)
            if options.service_proxy:
                self._proxy = await self._start_proxy(view, tasks, events, stack)
            services.on_event(added=self._services_changed, updated=self._services_changed, deleted=self._services_changed, name="services")
            await pods.wait_synced()
            await asyncio.to_thread(self._remove_old_pods, {pod.metadata.uid for pod in pods.lister.each()})
            pods.on_event(
                added=lambda event: self._update(event.object),
                updated=lambda event: self._update(event.object),
                deleted=lambda event: self._removed(event.object),
                name="kubelet",
            )
            tasks.start(registration.heartbeat, name="node-heartbeat")
            tasks.start(self._measure, name="container-usage")
            tasks.start(self._write_hosts, name="hosts-files")
            events.normal(node, "Starting", "Starting kubelet.")
            if ready is not None:
                ready()
            await asyncio.Event().wait()

    # ----------------------------------------------------------------------------------------------------------------------- start

    async def _serve(self, client: Client, runtime: ProcessRuntime, health: KubeletHealth, stack: AsyncExitStack) -> KubeletEndpoint:
        options = self.options
        approver = await stack.enter_async_context(Client(Transport(self._config))) if options.self_approval else None
        pair = await serving_pair(client, approver, options.name, [options.address])
        access = None if options.anonymous else EndpointAccessReviewer(client, options.name)
        endpoint = KubeletEndpoint(self, runtime, client.clock, access, health)
        authority = self._config.ca.read() if self._config.ca is not None else b""
        stack.push_async_callback(endpoint.close)
        await endpoint.start(pair, authority, options.address, options.port)
        return endpoint

    def _services_of_node(
        self, client: Client, tasks: Supervisor, events: EventRecorder, runtime: ProcessRuntime, facts: MachineFacts, prefix: str
    ) -> NodeServices:
        options, reader = self.options, ObjectReader(client)
        return NodeServices(
            client,
            client.clock,
            tasks,
            events,
            runtime,
            ImagePuller(self._images, client.clock, self._store),
            reader,
            VolumeManager(options.folder, reader, client.clock.wall),
            self._addresses,
            options.folder,
            prefix,
            options.address,
            allocatable(facts),
            self._variables,
            self._hosts,
            self._resolver,
            options.sync_frequency,
            self._cgroups,
        )

    async def _start_proxy(self, view: ClusterView, tasks: Supervisor, events: EventRecorder, stack: AsyncExitStack) -> ServiceProxy:
        def failed(port: ServicePort | PodHostPort, text: str) -> None:
            _LOG.warning("%s: %s", port, text)
            if isinstance(port, ServicePort):
                events.warning(Service(metadata=ObjectMeta(name=port.name, namespace=port.namespace)), "FailedToListen", text)
            elif worker := self._workers.get(port.uid):
                events.warning(worker.pod, "FailedToListen", text)

        proxy = ServiceProxy(view.services, self._workers.values, view.slices, self.options.address, self._api_server(), failed)
        stack.push_async_callback(proxy.close)
        await proxy.synchronise()
        proxy.start(tasks)
        return proxy

    async def _start_dns(self, view: ClusterView, clock: Clock, stack: AsyncExitStack) -> None:
        """Start the DNS server, if the options and this machine allow it; otherwise the hosts files of pods list the names of services.

        Raises:
            DnsUnavailable: The options require the server, and it cannot run.
        """
        self._machine_resolver = await asyncio.to_thread(read_machine_config)
        if self.options.dns == "off":
            return
        try:
            server = DnsServer(view, self._machine_resolver.resolvers(), clock)
            stack.push_async_callback(server.close)
            await server.start(self._addresses.network)
        except DnsUnavailable as error:
            if self.options.dns == "on":
                raise
            _LOG.warning("%s; /etc/hosts of containers has the names of services instead", error)
            return
        self._addresses.reserve(server.address)
        self._dns_address = server.address
        _LOG.info("cluster DNS of node %s serves %s", self.options.name, server.address)

    def _resolver(self, pod: JSONObject) -> tuple[ResolverConfig, list[str]]:
        return pod_resolver_config(pod, self._machine_resolver, self._dns_address)

    def _api_server(self) -> tuple[str, int]:
        parts = urlsplit(self._config.server)
        return parts.hostname or "127.0.0.1", parts.port or 443

    def _variables(self, namespace: str) -> dict[str, str]:
        """Return the environment variables of services, with the API server's real address if the proxy does not serve its cluster IP."""
        result = service_variables(self._view.services() if self._view is not None else (), namespace)
        place = (result.get("KUBERNETES_SERVICE_HOST", ""), int(result.get("KUBERNETES_SERVICE_PORT", "0")))
        if self._proxy is None or not self._proxy.serves(place):
            host, port = self._api_server()
            result |= {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port), "KUBERNETES_SERVICE_PORT_HTTPS": str(port)}
        return result

    def _hosts(self, namespace: str) -> list[str]:
        if self._dns_address:
            return []
        services = self._view.services() if self._view is not None else ()
        return service_hosts(services, [(worker.tree, worker.ip) for worker in self.workers()], namespace)

    async def _write_hosts(self) -> None:
        """Update the hosts files of the pods whenever services or pods change, until the call is cancelled."""
        assert self._node is not None
        while True:
            await self._changed.wait()
            await self._node.clock.sleep(_HOSTS_DELAY)
            self._changed.clear()
            for worker in self.workers():
                worker.write_hosts()

    def _open_cgroups(self, prefix: str) -> Cgroups | None:
        """Create the kubelet's cgroups where it may; log what enforces the limits of containers.

        Raises:
            ConfigError: The options require cgroups.
        """
        fault = "--cgroups off"
        if self.options.cgroups != "off":
            try:
                result = Cgroups.open(prefix)
            except CgroupsUnavailable as error:
                fault = str(error)
                if self.options.cgroups == "on":
                    raise ConfigError(f"--cgroups on: {fault}; run the kubelet as root, or in a cgroup that your user may write") from None
            else:
                text = "node %s: the kernel enforces CPU and memory limits of containers (cgroups of version %d in %s)"
                _LOG.info(text, self.options.name, result.version, next(iter(result.folders.values())))
                return result
        text = "node %s: without cgroups (%s) CPU limits of containers are ignored, and the kubelet measures their memory each second"
        _LOG.warning(text, self.options.name, fault)
        return None

    def _remove_old_pods(self, uids: set[str]) -> None:
        assert self._node is not None
        for uid in self._node.volumes.known_pods():
            if uid not in uids:
                self._node.volumes.unmount(uid)
        for path in (self.options.folder / "logs").glob("*_*_*"):
            if path.name.rpartition("_")[2] not in uids:
                shutil.rmtree(path, ignore_errors=True)

    # ------------------------------------------------------------------------------------------------------------------------ pods

    def _services_changed(self, _: object) -> None:
        self._changed.set()
        if self._proxy is not None:
            self._proxy.notify()

    def _update(self, pod: Pod) -> None:
        self._changed.set()
        uid = pod.metadata.uid
        if uid in self._workers:
            self._workers[uid].update(pod)
            self._host_ports_changed(self._workers[uid])
            return
        assert self._node is not None
        assert self._pods is not None
        others = [other.tree for other in self.workers()]
        worker = self._workers[uid] = PodWorker(pod, self._node)
        if pod.status.start_time is None and has_port_conflict(worker.tree, others):
            worker.reject(*PORT_CONFLICT)
        self._host_ports_changed(worker)
        self._pods.start(partial(self._run_worker, worker), name="pod-worker", subject=pod_subject(worker.tree))

    async def _run_worker(self, worker: PodWorker) -> None:
        await worker.run()
        uid = worker.uid
        self._workers.pop(uid, None)
        self._host_ports_changed(worker)
        self._addresses.release(uid)
        if self._node is not None:
            self._node.puller.forget(uid)

    def _host_ports_changed(self, worker: PodWorker) -> None:
        """Update the listeners of the proxy if a pod, which began, changed or ended, has host ports."""
        if self._proxy is not None and host_ports([({**worker.tree, "status": {}}, worker.ip)], self.options.address):
            self._proxy.notify()

    def _removed(self, pod: Pod) -> None:
        if worker := self._workers.get(pod.metadata.uid):
            worker.removed()

    def worker(self, namespace: str, name: str) -> PodWorker | None:
        """Return the worker of a pod, the newest one if a pod of that name was replaced, or None."""
        found = [one for one in self._workers.values() if (one.pod.metadata.namespace, one.pod.metadata.name) == (namespace, name)]
        return found[-1] if found else None

    def workers(self) -> Iterable[PodWorker]:
        return list(self._workers.values())

    # ----------------------------------------------------------------------------------------------------------------------- usage

    async def _measure(self) -> None:
        """Every second, kill containers above their memory limit, and evict pods whose emptyDir volumes exceed their size limit."""
        assert self._node is not None
        while True:
            await self._node.clock.sleep(_MEASURE)
            limits = {
                (worker.uid, name): limit
                for worker in self.workers()
                for name, running in worker.running.items()
                if running.cgroup is None and (limit := ((running.container.get("resources") or {}).get("limits") or {}).get("memory"))
            }
            if limits:
                table = await asyncio.to_thread(ProcessTable.read)
                for worker in self.workers():
                    for name, running in list(worker.running.items()):
                        text = limits.get((worker.uid, name))
                        if text and running.process.pid and table.tree(running.process.pid).memory_bytes > Quantity(text).value():
                            running.out_of_memory = True
                            running.process.kill()
            await self._check_volumes()

    async def _check_volumes(self) -> None:
        for worker in self.workers():
            for volume in worker.tree["spec"].get("volumes") or ():
                limit = (volume.get("emptyDir") or {}).get("sizeLimit")
                path = worker.volumes.paths.get(volume["name"])
                if limit and path is not None and await asyncio.to_thread(_size, path) > Quantity(limit).value():
                    worker.evict("Evicted", f'Usage of EmptyDir volume "{volume["name"]}" exceeds the limit "{limit}". ')

    def _usages(self) -> tuple[ProcessUsage, list[ContainerUsage]]:
        machine, result = machine_usage(), []
        containers = [running for worker in self.workers() for running in worker.running.values()]
        table = ProcessTable.read() if any(running.cgroup is None for running in containers) else ProcessTable({})
        for worker in self.workers():
            metadata = worker.pod.metadata
            for name, running in worker.running.items():
                usage = running.cgroup.usage() if running.cgroup is not None else table.tree(running.process.pid)
                started = running.run.started_at
                result.append(ContainerUsage(metadata.namespace, metadata.name, metadata.uid, name, started, usage))
        self._compute_rates({"": machine, **{f"{one.uid}/{one.container}": one.usage for one in result}})
        return machine, result

    def _compute_rates(self, usages: Mapping[str, ProcessUsage]) -> None:
        """Compute the CPUs in use for each key since the previous measurement, if that is at least a second old."""
        assert self._node is not None
        now = self._node.clock.now()
        for key, usage in usages.items():
            before = self._used.get(key)
            if before is None:
                self._used[key] = (now, usage.cpu_seconds)
            elif now - before[0] >= 1.0:
                self._rates[key] = max(0.0, usage.cpu_seconds - before[1]) / (now - before[0])
                self._used[key] = (now, usage.cpu_seconds)
        for key in set(self._used) - set(usages):
            self._used.pop(key)
            self._rates.pop(key, None)

    def summary(self) -> JSONObject:
        """Measure the node and its containers, and return the document of /stats/summary."""
        assert self._node is not None
        machine, containers = self._usages()
        return stats_summary(self.options.name, machine, containers, self._rates, self._node.clock.wall())

    def metrics(self) -> str:
        """Measure the node and its containers, and return the text of /metrics/resource."""
        assert self._node is not None
        machine, containers = self._usages()
        return resource_metrics(machine, containers, self._node.clock.wall())


def _size(path: Path) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(folder, name).lstat().st_blocks * 512
    return total
