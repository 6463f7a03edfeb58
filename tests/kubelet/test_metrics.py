"""The use of resources by process pods: kubectl top, and an autoscaler that scales by it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.autoscaling.v2 import HorizontalPodAutoscaler
from kubeloop.client import Client
from tests.kubectl.runner import Kubectl
from tests.kubelet.conftest import ProcessCluster
from tests.kubelet.test_process_pods import until

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(240)]
#: Seconds: measurements are taken every 10 s, autoscalers are synced every 15 s.
TIMEOUT = 150.0


async def test_an_autoscaler_scales_busy_process_pods_which_kubectl_top_shows(
    client: Client, cluster: ProcessCluster, tmp_path: Path
) -> None:
    container = {"name": "main", "image": "shell", "args": ["while true; do :; done"], "resources": {"requests": {"cpu": "10m"}}}
    template: dict[str, Any] = {
        "metadata": {"labels": {"app": "busy"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "busy"}}, "template": template}
    await client.create(Deployment.from_dict({"metadata": {"name": "busy"}, "spec": spec}))
    target = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "busy"}
    scaler = {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 2, "metrics": [target]}
    await client.create(HorizontalPodAutoscaler.from_dict({"metadata": {"name": "busy"}, "spec": scaler}))
    kubectl = Kubectl(cluster.kubeconfig, tmp_path, client.namespace or "")

    async def shown() -> bool:
        result = await asyncio.to_thread(kubectl.run, "top", "pods", "-l", "app=busy", "--containers", "--no-headers")
        words = result.out.split()
        return len(words) == 4 and words[1] == "main" and int(words[2].removesuffix("m")) > 0

    await until(shown, timeout=TIMEOUT)

    async def node_shown() -> bool:
        return (await asyncio.to_thread(kubectl.run, "top", "node", "kubeloop-node", "--no-headers")).out.startswith("kubeloop-node")

    await until(node_shown, timeout=TIMEOUT)
    await client.wait_for(Deployment, "busy", lambda deployment: deployment.spec.replicas == 2, timeout=TIMEOUT)
