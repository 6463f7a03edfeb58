"""CPU and memory usage of nodes and pods for the metrics server, read from ``/metrics/resource`` of the kubelet of each ready node.

Requests go through the API server (``nodes/proxy``). Source: kubernetes-sigs/metrics-server pkg/scraper, pkg/storage (rates from two
measurements, fresh containers); k8s.io/kubernetes pkg/kubelet/metrics/collectors/resource_metrics.go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from prometheus_client.parser import text_string_to_metric_families

from kubeloop.api.core.v1 import Node, Pod
from kubeloop.client import Client
from kubeloop.controlplane.metrics.documents import measured_metadata, quantities
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.meta import KubeloopError, NotFound, Selector, format_time
from kubeloop.types import JSONObject

_LOG = logging.getLogger("kubeloop.controlplane.metrics")
#: Seconds between two measurements (the shortest period of metrics-server), and seconds to wait for the response of a kubelet.
RESOLUTION, TIMEOUT = 10.0, 5.0
#: Maximum number of concurrent requests to kubelets.
_AT_ONCE = 16
#: Namespace, pod and container; empty for the node itself.
Key = tuple[str, str, str]
_NODE: Key = ("", "", "")
_CPU, _MEMORY, _START = "cpu_usage_seconds_total", "memory_working_set_bytes", "start_time_seconds"


@dataclass
class Sample:
    """A measurement of one container or node.

    ``at`` is its Unix time, ``cpu_seconds`` the CPU time, ``memory`` is in bytes, and ``started`` is the Unix time at which the container
    started; 0 if it is unknown.
    """

    at: float = 0.0
    cpu_seconds: float = 0.0
    memory: float = 0.0
    started: float = 0.0


@dataclass(frozen=True)
class Usage:
    """The CPUs and bytes of memory in use, the seconds (``window``) over which they were measured, and the Unix time of the end."""

    cpu: float
    memory: float
    window: float
    at: float


def parse_resource_metrics(text: str, now: float) -> dict[Key, Sample]:
    """Return the samples in a kubelet's ``/metrics/resource``, by namespace, pod and container.

    Args:
        text: The response.
        now: The Unix time of measurements without a timestamp.

    Raises:
        ValueError: The text is malformed.
        KeyError: A measurement of a container lacks a label.
    """
    result: dict[Key, Sample] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            scope, _, measure = sample.name.partition("_")
            if scope not in ("container", "node"):
                continue
            labels = sample.labels
            key = (labels["namespace"], labels["pod"], labels["container"]) if scope == "container" else _NODE
            entry = result.setdefault(key, Sample(now))
            if measure == _CPU:
                entry.cpu_seconds = sample.value
                entry.at = float(sample.timestamp) if sample.timestamp is not None else now
            elif measure == _MEMORY:
                entry.memory = sample.value
            elif measure == _START:
                entry.started = sample.value
    return result


@dataclass
class UsageHistory:
    """The last measurement of one kubelet, and the usage between it and the measurement before."""

    before: dict[Key, Sample] = field(default_factory=dict)
    usages: dict[Key, Usage] = field(default_factory=dict)

    def add(self, samples: Mapping[Key, Sample]) -> None:
        """Add a measurement and compute the usage since the previous one. The usage of a new or restarted container is since its start."""
        usages = {}
        for key, sample in samples.items():
            former = self.before.get(key)
            if former is None or former.started != sample.started or sample.cpu_seconds < former.cpu_seconds:
                former = Sample(sample.started) if sample.started else None
            elif sample.at <= former.at:
                if key in self.usages:
                    usages[key] = self.usages[key]
                continue
            if former is not None and sample.at > former.at:
                seconds = sample.at - former.at
                usages[key] = Usage((sample.cpu_seconds - former.cpu_seconds) / seconds, sample.memory, seconds, sample.at)
        self.before, self.usages = dict(samples), usages

    def containers(self, namespace: str, pod: str) -> Iterator[tuple[str, Usage]]:
        """Yield the containers of a pod with their usage.

        Args:
            namespace: The pod's namespace.
            pod: The pod's name.
        """
        for (owner, name, container), usage in self.usages.items():
            if (owner, name) == (namespace, pod) and container:
                yield container, usage


class KubeletUsage:
    """The ``UsageSource`` of a metrics server for nodes with kubelets.

    Args:
        resolution: Seconds between two measurements.
    """

    def __init__(self, resolution: float = RESOLUTION) -> None:
        self._resolution = resolution
        self._histories: dict[str, UsageHistory] = {}
        self._silent: set[str] = set()
        self._client: Client | None = None

    async def measure(self, client: Client) -> None:
        """Measure all ready nodes periodically until the call is cancelled."""
        self._client = client
        while True:
            try:
                names = [node.metadata.name async for node in client.list(Node) if _is_ready(node)]
            except KubeloopError as error:
                _LOG.warning("metrics: nodes cannot be listed: %s", error)
            else:
                for name in set(self._histories) - set(names):
                    del self._histories[name]
                limit = asyncio.Semaphore(_AT_ONCE)
                async with asyncio.TaskGroup() as group:
                    for name in names:
                        group.create_task(self._measure_node(client, name, limit))
            await client.clock.sleep(self._resolution)

    async def _measure_node(self, client: Client, name: str, limit: asyncio.Semaphore) -> None:
        try:
            async with limit:
                path = f"/api/v1/nodes/{name}/proxy/metrics/resource"
                response = await client.transport.request("GET", path, timeout=TIMEOUT)
            samples = parse_resource_metrics(response.body.decode(), client.clock.wall().timestamp())
        except (KubeloopError, ValueError, KeyError) as error:
            if name not in self._silent:
                _LOG.warning("metrics: the kubelet of node %s returned no metrics: %s", name, error)
            self._silent.add(name)
            self._histories.pop(name, None)
            return
        self._silent.discard(name)
        self._histories.setdefault(name, UsageHistory()).add(samples)

    async def pods(self, info: RequestInfo, labels: Selector) -> list[JSONObject]:
        """Return the PodMetrics for a request.

        Args:
            info: The request.
            labels: Selects pods if the request names none.
        """
        if self._client is None:
            return []
        result = []
        if info.verb == "get":
            try:
                pods = [await self._client.get_metadata(Pod, info.name, namespace=info.namespace)]
            except NotFound:
                return []
        else:
            listed = self._client.list_metadata(Pod, namespace=info.namespace or "*", label_selector=labels)
            pods = [pod async for pod in listed]
        for pod in pods:
            metadata = pod.metadata
            for history in self._histories.values():
                containers = list(history.containers(metadata.namespace, metadata.name))
                if containers:
                    tree: JSONObject = {"name": metadata.name, "labels": dict(metadata.labels)}
                    result.append(pod_usage(tree, metadata.namespace, containers))
        return result

    async def nodes(self, info: RequestInfo, labels: Selector) -> list[JSONObject]:
        """Return the NodeMetrics for a request.

        Args:
            info: The request.
            labels: Selects nodes if the request names none.
        """
        if self._client is None:
            return []
        if info.verb == "get":
            try:
                nodes = [await self._client.get_metadata(Node, info.name)]
            except NotFound:
                return []
        else:
            nodes = [node async for node in self._client.list_metadata(Node, label_selector=labels)]
        result = []
        for node in nodes:
            history = self._histories.get(node.metadata.name)
            if history is not None and (usage := history.usages.get(_NODE)) is not None:
                tree: JSONObject = {"name": node.metadata.name, "labels": dict(node.metadata.labels)}
                result.append({**_measurement(tree, usage), "usage": quantities({"cpu": usage.cpu, "memory": usage.memory})})
        return result


def pod_usage(metadata: JSONObject, namespace: str, containers: Iterable[tuple[str, Usage]]) -> JSONObject:
    """Return the PodMetrics of a pod.

    Args:
        metadata: Name and labels of the pod.
        namespace: Namespace of the pod.
        containers: Containers of the pod with their usage; time and window of the pod are those of the earliest measurement.
    """
    measured = list(containers)
    result = _measurement(metadata, min((usage for _, usage in measured), key=lambda usage: usage.at))
    result["metadata"]["namespace"] = namespace
    result["containers"] = [{"name": name, "usage": quantities({"cpu": usage.cpu, "memory": usage.memory})} for name, usage in measured]
    return result


def _measurement(metadata: JSONObject, usage: Usage) -> JSONObject:
    moment = datetime.fromtimestamp(usage.at, UTC).replace(microsecond=0)
    return {"metadata": measured_metadata(metadata, moment), "timestamp": format_time(moment), "window": f"{usage.window:.3f}s"}


def _is_ready(node: Node) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
