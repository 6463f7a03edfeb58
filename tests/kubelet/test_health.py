"""Failures of the tasks of a node, the workers of pods among them: restarted, and shown by readiness and metrics."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from kubeloop.api.core.v1 import Pod
from kubeloop.client import Client
from kubeloop.kubelet.health import KubeletHealth
from kubeloop.kubelet.pod_worker import PodWorker
from kubeloop.tasks import Supervisor
from kubeloop.timing import FakeClock
from tests.kubelet.conftest import ProcessCluster, inner_kubelet, processes
from tests.kubelet.test_kills import last_end, marked_pod, restarted
from tests.kubelet.test_process_pods import is_ready, until, wait
from tests.kubelet.test_proxies import read

pytestmark = pytest.mark.timeout(120)


async def test_readiness_names_the_tasks_that_fail_and_metrics_count_them() -> None:
    clock = FakeClock()
    async with Supervisor(clock, logging.getLogger("tests.kubelet")) as tasks:
        health, runs = KubeletHealth(tasks), 0

        async def work() -> None:
            nonlocal runs
            runs += 1
            if runs == 1:
                raise ValueError("broken")
            await asyncio.Event().wait()

        tasks.start(asyncio.Event().wait, name="node-heartbeat")  # type: ignore[arg-type]  # it never returns
        tasks.child().start(work, name="pod-worker", subject="web")
        await clock.advance(0)
        assert health.report() == "[+]node-heartbeat ok\n[-]pod-worker failed\nreadyz check failed\n"
        lines = health.metrics(2, 3).splitlines()
        for line in (
            "kubelet_running_pods 2",
            'kubelet_running_containers{container_state="running"} 3',
            'kubeloop_background_task_failures_total{task="pod-worker"} 1',
            'kubernetes_healthcheck{name="node-heartbeat"} 1',
            'kubernetes_healthcheck{name="pod-worker"} 0',
        ):
            assert line in lines
        await clock.advance(10)
        await clock.advance(10)
        assert (health.healthy, health.report()) == (True, "ok")
        assert health.report(verbose=True).endswith("readyz check passed\n")
        assert 'kubeloop_background_task_restarts_total{task="pod-worker"} 1' in health.metrics(0, 0)


@pytest.mark.embedded
async def test_a_pod_whose_worker_fails_is_restarted_and_the_failure_is_shown(
    client: Client, cluster: ProcessCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, sync = f"mark-{os.getpid()}-{client.namespace}", PodWorker._sync_pod
    faults: list[str] = []

    async def fail(worker: PodWorker) -> None:
        if faults:
            raise RuntimeError(faults[0])
        await sync(worker)

    monkeypatch.setattr(PodWorker, "_sync_pod", fail)
    async with inner_kubelet(cluster, "inner-health", tmp_path) as node:
        await client.create(marked_pod("web", mark, node="inner-health"))
        await wait(client, "web", is_ready)
        assert node.healthy
        faults.append("a defect")
        await client.patch(Pod, "web", {"metadata": {"labels": {"changed": "true"}}})
        await until(lambda: not node.healthy, timeout=40)
        metrics = await read(client, "/api/v1/nodes/inner-health/proxy/metrics")
        assert 'kubernetes_healthcheck{name="pod-worker"} 0' in metrics
        faults.clear()
        assert last_end(await wait(client, "web", restarted(1))) == ("Error", 137)
        await until(lambda: node.healthy, timeout=60)
        await client.delete(Pod, "web")
        await client.wait_gone(Pod, "web", timeout=30)
    assert not processes(mark)
