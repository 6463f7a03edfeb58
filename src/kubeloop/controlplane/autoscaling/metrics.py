"""Reads metrics from ``metrics.k8s.io``, ``custom.metrics.k8s.io`` and ``external.metrics.k8s.io``, if an extension server serves them.

Errors have the texts of upstream's clients, because conditions and events quote them.
Source: Kubernetes pkg/controller/podautoscaler/metrics/client.go; k8s.io/metrics pkg/client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar
from urllib.parse import quote

import msgspec

from kubeloop.api.autoscaling.v2 import CrossVersionObjectReference
from kubeloop.client import Client
from kubeloop.controlplane.autoscaling.replica_calculator import MetricError, PodMetric
from kubeloop.meta import ApiError, KubeloopError, LabelSelector, Quantity, Selector, parse_time, selector_from

T = TypeVar("T")

#: Seconds that a measurement covers if the custom metrics API does not give a window.
_DEFAULT_WINDOW = 60.0
_CUSTOM = "custom.metrics.k8s.io"
_CUSTOM_VERSIONS = ("v1beta2", "v1beta1")
_EXTERNAL = "external.metrics.k8s.io"
_RESOURCE = "metrics.k8s.io"
_GENERIC = {
    404: "the server could not find the requested resource",
    503: "the server is currently unable to handle the request",
}
_DURATION = re.compile(r"([0-9]*\.?[0-9]+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class _ObjectName(msgspec.Struct):
    name: str = ""


class _ContainerUsage(msgspec.Struct):
    name: str = ""
    usage: dict[str, str] = {}


class _PodUsage(msgspec.Struct):
    metadata: _ObjectName = msgspec.field(default_factory=_ObjectName)
    timestamp: str = ""
    window: str = ""
    containers: list[_ContainerUsage] = []


class _PodUsages(msgspec.Struct):
    items: list[_PodUsage] = []


class _CustomValue(msgspec.Struct, rename="camel"):
    described_object: _ObjectName = msgspec.field(default_factory=_ObjectName)
    timestamp: str = ""
    window_seconds: int | None = None
    value: str = "0"


class _CustomValues(msgspec.Struct):
    items: list[_CustomValue] = []


class _ExternalValue(msgspec.Struct):
    value: str = "0"


class _ExternalValues(msgspec.Struct):
    items: list[_ExternalValue] = []


class MetricsReader:
    """Reads the metrics that autoscalers name. Values are in thousandths of the metric's unit."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def resource(self, resource: str, namespace: str, selector: Selector, container: str = "") -> dict[str, PodMetric]:
        """Return the usage of a resource by pod name. Pods without usage of the resource are left out.

        Args:
            resource: A resource such as ``cpu``.
            namespace: Namespace of the pods.
            selector: Selects the pods.
            container: Count only this container. Empty: all containers.

        Raises:
            MetricError: The metric does not exist, or its API is not served.
        """
        failure = "unable to fetch metrics from resource metrics API"
        path = f"/apis/{_RESOURCE}/v1beta1/namespaces/{namespace}/pods"
        usages = await self._read(_PodUsages, path, {"labelSelector": str(selector)}, f"pods.{_RESOURCE}", failure)
        if not usages.items:
            raise MetricError("no metrics returned from resource metrics API")
        result = {}
        for pod in usages.items:
            chosen = [one for one in pod.containers if container in ("", one.name)]
            if chosen and all(resource in one.usage for one in chosen):
                total = sum(Quantity(one.usage[resource]).milli_value() for one in chosen)
                result[pod.metadata.name] = PodMetric(total, _time(pod.timestamp), _seconds(pod.window))
        return result

    async def pods(self, metric: str, namespace: str, selector: Selector, metric_selector: LabelSelector | None) -> dict[str, PodMetric]:
        """Return a custom metric by pod name.

        Args:
            metric: Name of the metric.
            namespace: Namespace of the pods.
            selector: Selects the pods.
            metric_selector: Selects among the series of the metric. None: all.

        Raises:
            MetricError: The metric does not exist, or its API is not served.
        """
        query = {"labelSelector": str(selector), "metricLabelSelector": _text(metric_selector)}
        values = await self._custom(f"namespaces/{namespace}/pods/*/{quote(metric, safe='')}", query, f"pods.{_CUSTOM} *")
        if not values:
            raise MetricError("no metrics returned from custom metrics API")
        return {
            one.described_object.name: PodMetric(
                Quantity(one.value).milli_value(),
                _time(one.timestamp),
                _DEFAULT_WINDOW if one.window_seconds is None else float(one.window_seconds),
            )
            for one in values
        }

    async def object(
        self, metric: str, namespace: str, reference: CrossVersionObjectReference, metric_selector: LabelSelector | None
    ) -> int:
        """Return a custom metric of one object.

        Args:
            metric: Name of the metric.
            namespace: Namespace of the object. If ``reference`` is a Namespace, the metric of this namespace is returned.
            reference: The object.
            metric_selector: Selects among the series of the metric. None: all.

        Raises:
            MetricError: The metric does not exist, or its API is not served.
        """
        query = {"metricLabelSelector": _text(metric_selector)}
        group = (reference.api_version or "").rpartition("/")[0]
        if (group, reference.kind) == ("", "Namespace"):
            path, resource = f"namespaces/{namespace}/metrics/{quote(metric, safe='')}", f"metrics.{_CUSTOM} {metric}"
        else:
            await self._custom_version()  # A missing API is reported before a missing kind.
            name = await self._resource_name(group, reference.kind)
            path = f"namespaces/{namespace}/{name}/{reference.name}/{quote(metric, safe='')}"
            resource = f"{name}.{_CUSTOM} {reference.name}"
        values = await self._custom(path, query, resource)
        if len(values) != 1:
            text = f"the custom metrics API server returned {len(values)} results when we asked for exactly one"
            raise MetricError(f"unable to fetch metrics from custom metrics API: {text}")
        return Quantity(values[0].value).milli_value()

    async def external(self, metric: str, namespace: str, metric_selector: LabelSelector | None) -> list[int]:
        """Return the values of all series of an external metric that ``metric_selector`` selects; None selects all.

        Raises:
            MetricError: The metric does not exist, or its API is not served.
        """
        path = f"/apis/{_EXTERNAL}/v1beta1/namespaces/{namespace}/{quote(metric, safe='')}"
        failure = "unable to fetch metrics from external metrics API"
        values = await self._read(_ExternalValues, path, {"labelSelector": _text(metric_selector)}, f"{metric}.{_EXTERNAL}", failure)
        if not values.items:
            raise MetricError("no metrics returned from external metrics API")
        return [Quantity(one.value).milli_value() for one in values.items]

    async def _custom(self, path: str, query: Mapping[str, str], resource: str) -> list[_CustomValue]:
        version = await self._custom_version()
        failure = "unable to fetch metrics from custom metrics API"
        return (await self._read(_CustomValues, f"/apis/{_CUSTOM}/{version}/{path}", query, resource, failure)).items

    async def _custom_version(self) -> str:
        failure = "unable to fetch metrics from custom metrics API"
        try:
            answer = await self._client.transport.request("GET", "/apis")
        except KubeloopError as error:
            raise MetricError(f"{failure}: {_message(error, '')}") from error
        groups = msgspec.json.decode(answer.body, type=_Groups).groups
        group = next((one for one in groups if one.name == _CUSTOM), None)
        if group is None:
            raise MetricError(f"{failure}: no custom metrics API ({_CUSTOM}) registered")
        served = [group.preferred_version.version, *(one.version for one in group.versions)]
        version = next((one for one in served if one in _CUSTOM_VERSIONS), None)
        if version is None:
            raise MetricError(f"{failure}: no known available metric versions found")
        return version

    async def _resource_name(self, group: str, kind: str) -> str:
        for one in await self._client.mapper.resources():
            if (one.gvk.group, one.gvk.kind) == (group, kind):
                return str(one.gvr.group_resource)
        qualified = f"{kind}.{group}" if group else kind
        text = f'unable to map kind {qualified} to resource: no matches for kind "{kind}" in group "{group}"'
        raise MetricError(f"unable to fetch metrics from custom metrics API: {text}")

    async def _read(self, model: type[T], path: str, query: Mapping[str, str], resource: str, failure: str) -> T:
        sent = {name: value for name, value in query.items() if value}
        try:
            answer = await self._client.transport.request("GET", path, query=sent)
            return msgspec.json.decode(answer.body, type=model)
        except KubeloopError as error:
            raise MetricError(f"{failure}: {_message(error, resource)}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            raise MetricError(f"{failure}: {error}") from error


class _Version(msgspec.Struct):
    version: str = ""


class _Group(msgspec.Struct, rename="camel"):
    name: str = ""
    versions: list[_Version] = []
    preferred_version: _Version = msgspec.field(default_factory=_Version)


class _Groups(msgspec.Struct):
    groups: list[_Group] = []


def _message(error: KubeloopError, resource: str) -> str:
    """Return the text of upstream's client for an error; a 404 or 503 whose Status has no details gets a generic text."""
    if not isinstance(error, ApiError):
        return str(error)
    if error.status.details is None and error.code in _GENERIC:
        return f"{_GENERIC[error.code]} (get {resource})"
    return error.status.message


def _text(selector: LabelSelector | None) -> str:
    return str(selector_from(selector)) if selector is not None else ""


def _time(text: str) -> datetime:
    return parse_time(text)


def _seconds(text: str) -> float:
    return sum(float(amount) * _SECONDS[unit] for amount, unit in _DURATION.findall(text))
