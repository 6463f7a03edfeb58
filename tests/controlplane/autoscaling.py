"""Autoscalers, and a metrics API by fake time, for the tests of the autoscaling controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubeloop.api.autoscaling.v2 import HorizontalPodAutoscaler
from kubeloop.meta import format_time
from kubeloop.serving.request import Request
from kubeloop.testing.calls import RecordedCall
from tests.controlplane.simulated import FakeTimeCluster
from tests.controlplane.workloads import read

#: 50 % of the requested CPU.
HALF_CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}


def autoscaler(
    name: str = "web", *metrics: dict[str, Any], kind: str = "Deployment", api_version: str = "apps/v1", **spec: Any
) -> HorizontalPodAutoscaler:
    """Return an autoscaler of the workload of its name; its metric is ``HALF_CPU`` unless ``metrics`` say otherwise."""
    target = {"apiVersion": api_version, "kind": kind, "name": name}
    chosen = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 10, "metrics": list(metrics or [HALF_CPU]), **spec}
    return read(
        HorizontalPodAutoscaler,
        {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}, "spec": chosen},
    )


def pod_metrics(name: str, usage: Mapping[str, str], timestamp: str, container: str = "c") -> dict[str, Any]:
    return {"metadata": {"name": name}, "timestamp": timestamp, "window": "15s", "containers": [{"name": container, "usage": usage}]}


async def serve_cpu(cluster: FakeTimeCluster, usage: Callable[[], int]) -> Callable[[], None]:
    """Serve ``metrics.k8s.io`` on a server by fake time: each pod uses ``usage()`` thousandths of a CPU.

    Returns:
        A function that takes the API away again.
    """

    async def answer(call: RecordedCall) -> dict[str, Any]:
        from kubeloop.api.core.v1 import Pod

        pods = await cluster.client.list(Pod, namespace=call.namespace, label_selector=call.query["labelSelector"][0])
        now = format_time(cluster.clock.wall())
        items = [pod_metrics(pod.metadata.name, {"cpu": f"{usage()}m"}, now) for pod in pods]
        return {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items}

    return cluster.faults.react(answer, matching=_is_metrics)


def _is_metrics(request: Request) -> bool:
    return request.path.startswith("/apis/metrics.k8s.io/")
