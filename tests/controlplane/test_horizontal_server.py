"""Autoscalers over an API server, with metrics from real extension API servers; the same with our own controller and with upstream's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kubeloop.api.apiregistration.v1 import APIService
from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.autoscaling.v2 import HorizontalPodAutoscaler
from kubeloop.api.core.v1 import Pod, Service
from kubeloop.client import Client
from kubeloop.codec import to_dict
from kubeloop.meta import Quantity, Unstructured, format_time
from kubeloop.timing import SystemClock
from tests.apiserver.aggregation.extension import Extension, extension_server
from tests.controlplane.autoscaling import autoscaler, pod_metrics
from tests.controlplane.workloads import deployment, is_rolled_out, pod, read
from tests.kubectl.runner import Kubectl
from tests.servers import ServerUnderTest

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]

_LONG = 90.0


@asynccontextmanager
async def metrics_api(client: Client, group: str, version: str) -> AsyncIterator[Extension]:
    """Register an extension server for a metrics API until the block ends."""
    namespace, service = str(client.namespace), group.partition(".")[0]
    async with extension_server(group, f"{service}.{namespace}.svc", version=version) as extension:
        spec: dict[str, Any] = {"type": "ExternalName", "externalName": "127.0.0.1"}
        await client.create(read(Service, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": service}, "spec": spec}))
        spec = {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "caBundle": extension.bundle,
            "service": {"namespace": namespace, "name": service, "port": extension.port},
        }
        name = f"{version}.{group}"
        await client.create(
            read(APIService, {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name}, "spec": spec})
        )
        try:
            await client.wait_for(APIService, name, _is_available, timeout=_LONG)
            yield extension
        finally:
            await client.delete(APIService, name)


def _is_available(service: APIService) -> bool:
    return any(one.type == "Available" and one.status == "True" for one in service.status.conditions)


def answer(extension: Extension, path: str, document: Callable[[], dict[str, Any]]) -> None:
    async def script(_: web.BaseRequest) -> web.StreamResponse:
        return web.json_response(document())

    extension.scripts[f"{extension.path}/{path}"] = script


def now() -> str:
    return format_time(SystemClock().wall())


async def serve_cpu(client: Client, extension: Extension, usage: Callable[[], str]) -> None:
    """Serve the CPU usage of all pods of the namespace."""

    async def script(request: web.BaseRequest) -> web.StreamResponse:
        pods = await client.list(Pod, label_selector=request.query["labelSelector"])
        # A window of nothing: the pods of a test are younger than any other.
        items = [pod_metrics(one.metadata.name, {"cpu": usage()}, now()) | {"window": "0s"} for one in pods]
        return web.json_response({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items})

    extension.scripts[f"{extension.path}/namespaces/{client.namespace}/pods"] = script


def condition(autoscaler: HorizontalPodAutoscaler, kind: str) -> tuple[str, str, str]:
    found = next((one for one in autoscaler.status.conditions if one.type == kind), None)
    return (found.status, found.reason or "", found.message or "") if found is not None else ("", "", "")


def _is_limited_at_three(autoscaler: HorizontalPodAutoscaler) -> bool:
    return autoscaler.status.current_replicas == 3 and condition(autoscaler, "ScalingLimited")[0] == "True"


async def test_kubectl_shows_a_workload_that_grows_by_its_metrics(client: Client, bare_server: ServerUnderTest, tmp_path: Path) -> None:
    runner = Kubectl(Path(bare_server.kubeconfig), tmp_path, str(client.namespace))

    async def kubectl(*args: str) -> str:
        return await asyncio.to_thread(runner, *args)

    made = deployment("web", 1)
    made.spec.template.spec.containers[0].resources.requests = {"cpu": Quantity("100m")}
    await client.create(made)
    await client.wait_for(Deployment, "web", is_rolled_out, timeout=_LONG)
    assert (await kubectl("autoscale", "deployment", "web", "--min=1", "--max=3", "--cpu=50%")).endswith("web autoscaled\n")
    await client.wait_for(
        HorizontalPodAutoscaler, "web", lambda autoscaler: condition(autoscaler, "ScalingActive")[0] == "False", timeout=_LONG
    )
    row = (await kubectl("get", "hpa", "web")).splitlines()[1].split()
    assert row[:6] == ["web", "Deployment/web", "cpu:", "<unknown>/50%", "1", "3"]
    text = " ".join((await kubectl("describe", "hpa", "web")).split())
    message = "unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: the server could not find"
    start = "ScalingActive False FailedGetResourceMetric the HPA was unable to compute the replica count: failed to get cpu utilization"
    assert f"{start}: {message}" in text
    async with metrics_api(client, "metrics.k8s.io", "v1beta1") as extension:
        await serve_cpu(client, extension, lambda: "100m")
        await client.wait_for(Deployment, "web", lambda deployment: deployment.spec.replicas == 3, timeout=_LONG)
        await client.wait_for(HorizontalPodAutoscaler, "web", _is_limited_at_three, timeout=_LONG)
        row = (await kubectl("get", "hpa", "web")).splitlines()[1].split()
        assert row[2:7] == ["cpu:", "100%/50%", "1", "3", "3"]
        text = " ".join((await kubectl("describe", "hpa", "web")).split())
        assert "resource cpu on pods (as a percentage of request): 100% (100m) / 50%" in text
        assert "horizontal-pod-autoscaler New size: 2; reason: cpu resource utilization (percentage of request) above target" in text
        assert "ScalingLimited True TooManyReplicas the desired replica count is more than the maximum replica count" in text


CUSTOM = "custom.metrics.k8s.io"
EXTERNAL = "external.metrics.k8s.io"


async def test_custom_and_external_metrics_scale_workloads(client: Client) -> None:
    metrics: dict[str, dict[str, Any]] = {
        "pods": {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
        "object": {
            "type": "Object",
            "object": {
                "metric": {"name": "rps"},
                "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "front"},
                "target": {"type": "Value", "value": "10"},
            },
        },
        "external": {
            "type": "External",
            "external": {
                "metric": {"name": "queue", "selector": {"matchLabels": {"shop": "a"}}},
                "target": {"type": "AverageValue", "averageValue": "10"},
            },
        },
    }
    for name in metrics:
        await client.create(deployment(name, 1))
        await client.wait_for(Deployment, name, is_rolled_out, timeout=_LONG)
    (scaled,) = await client.list(Pod, label_selector="app=pods")
    place = f"namespaces/{client.namespace}"

    def values(*amounts: tuple[str, str]) -> dict[str, Any]:
        items = [
            {"describedObject": {"name": name}, "metric": {"name": "rps"}, "timestamp": now(), "value": value} for name, value in amounts
        ]
        return {"kind": "MetricValueList", "apiVersion": f"{CUSTOM}/v1beta2", "metadata": {}, "items": items}

    def series() -> dict[str, Any]:
        items = [{"metricName": "queue", "metricLabels": {"shop": "a"}, "timestamp": now(), "value": value} for value in ("12", "8")]
        return {"kind": "ExternalMetricValueList", "apiVersion": f"{EXTERNAL}/v1beta1", "metadata": {}, "items": items}

    async with metrics_api(client, CUSTOM, "v1beta2") as custom, metrics_api(client, EXTERNAL, "v1beta1") as external:
        answer(custom, f"{place}/pods/*/rps", lambda: values((scaled.metadata.name, "20")))
        answer(custom, f"{place}/services/front/rps", lambda: values(("front", "20")))
        answer(external, f"{place}/queue", series)
        for name, metric in metrics.items():
            await client.create(autoscaler(name, metric, maxReplicas=2))
        for name in metrics:
            await client.wait_for(Deployment, name, lambda deployment: deployment.spec.replicas == 2, timeout=_LONG)
        (asked, *_) = external.seen(f"{external.path}/{place}/queue")
        assert asked.query == "labelSelector=shop%3Da"
        found = {name: await client.get(HorizontalPodAutoscaler, name) for name in metrics}
    reasons = {name: condition(one, "ScalingActive") for name, one in found.items()}
    text = "the HPA was able to successfully calculate a replica count from "
    printed = "&LabelSelector{MatchLabels:map[string]string{shop: a,},MatchExpressions:[]LabelSelectorRequirement{},}"
    assert reasons == {
        "pods": ("True", "ValidMetricFound", f"{text}pods metric rps"),
        "object": ("True", "ValidMetricFound", f"{text}Service metric rps"),
        "external": ("True", "ValidMetricFound", f"{text}external metric queue({printed})"),
    }


async def test_a_custom_resource_is_scaled_through_its_scale_subresource(client: Client) -> None:
    group = f"{client.namespace}.example.com"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
    }
    names = {"plural": "shops", "singular": "shop", "kind": "Shop", "listKind": "ShopList"}
    definition_class = Unstructured.for_kind(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", plural="customresourcedefinitions", namespaced=False
    )
    definition = definition_class.from_dict(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"shops.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
        }
    )
    await client.create(definition)
    try:
        await client.wait_ready(definition_class, f"shops.{group}", timeout=_LONG)
        shops = Unstructured.for_kind(f"{group}/v1", "Shop", plural="shops", namespaced=True)
        document = {"apiVersion": f"{group}/v1", "kind": "Shop", "metadata": {"name": "web"}, "spec": {"replicas": 5}}
        await client.create(shops.from_dict(document))
        await client.patch(shops, "web", {"status": {"replicas": 5, "selector": "app=shop"}}, subresource="status")
        await client.create(pod("shop", {"app": "shop"}))
        await client.create(autoscaler(kind="Shop", api_version=f"{group}/v1", maxReplicas=4))
        found = await client.wait_for(
            HorizontalPodAutoscaler, "web", lambda autoscaler: autoscaler.status.desired_replicas == 4, timeout=_LONG
        )
        assert condition(found, "AbleToScale")[:2] == ("True", "SucceededRescale")
        assert (await client.get_scale(shops, "web")).spec.replicas == 4
        found = await client.wait_for(
            HorizontalPodAutoscaler,
            "web",
            lambda autoscaler: condition(autoscaler, "ScalingActive")[1] == "FailedGetResourceMetric",
            timeout=_LONG,
        )
        assert to_dict(found)["status"]["currentMetrics"] == [{"type": ""}]
    finally:
        await client.delete(definition_class, f"shops.{group}")
