"""Jobs and CronJobs on a server, with our controllers or with the real kube-controller-manager, and by kubectl."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeloop.api.batch.v1 import CronJob, Job
from kubeloop.api.core.v1 import Event, Pod
from kubeloop.client import Client
from kubeloop.controlplane.simulation.annotations import EXIT_CODE, RUN_SECONDS
from tests.controlplane.cron_jobs import cron_job
from tests.controlplane.jobs import job
from tests.kubectl.runner import Kubectl
from tests.servers import ServerUnderTest

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

_LONG = 90.0


def work(annotations: dict[str, str], **spec: Any) -> Job:
    """Return a Job to be created, whose pods behave as the annotations say."""
    made = job(annotations=annotations, **spec)
    made.metadata.uid = ""
    return made


def has(kind: str) -> Any:
    """Return a condition of a wait: the Job has a condition of this type."""
    return lambda job: any(condition.type == kind and condition.status == "True" for condition in job.status.conditions)


async def test_a_job_is_complete_when_its_pods_succeeded(client: Client) -> None:
    await client.create(work({RUN_SECONDS: "5"}, completions=2, parallelism=2))
    await client.wait_for(Job, "j", lambda job: job.status.active == 2, timeout=_LONG)
    for pod in await client.list(Pod, namespace=client.namespace, label_selector="batch.kubernetes.io/job-name=j"):
        assert pod.metadata.finalizers == ["batch.kubernetes.io/job-tracking"]
    done = await client.wait_for(Job, "j", lambda job: job.status.completion_time is not None, timeout=_LONG)
    assert (done.status.succeeded, done.status.active, done.status.failed) == (2, None, None)
    assert [(one.type, one.status, one.reason) for one in done.status.conditions] == [
        ("SuccessCriteriaMet", "True", "CompletionsReached"),
        ("Complete", "True", "CompletionsReached"),
    ]
    assert [pod.metadata.finalizers for pod in await client.list(Pod, namespace=client.namespace)] == [[], []]


async def test_a_job_fails_when_its_pods_failed_too_often_and_takes_them_along_when_it_is_deleted(client: Client) -> None:
    await client.create(work({EXIT_CODE: "1"}, backoffLimit=0))
    failed = await client.wait_for(Job, "j", has("Failed"), timeout=_LONG)
    assert [(one.reason, one.message) for one in failed.status.conditions if one.type == "Failed"] == [
        ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    ]
    (pod,) = await client.list(Pod, namespace=client.namespace)
    await client.delete(Job, "j", propagation_policy="Background")
    await client.wait_gone(Pod, pod.metadata.name, timeout=_LONG)


async def test_each_index_is_completed_once(client: Client) -> None:
    await client.create(work({}, completionMode="Indexed", completions=3, parallelism=3))
    done = await client.wait_for(Job, "j", has("Complete"), timeout=_LONG)
    assert (done.status.completed_indexes, done.status.succeeded) == ("0-2", 3)
    pods = await client.list(Pod, namespace=client.namespace)
    assert sorted(pod.spec.hostname or "" for pod in pods) == ["j-0", "j-1", "j-2"]


async def test_an_exit_code_fails_the_job_at_once(client: Client) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    await client.create(work({EXIT_CODE: "42"}, backoffLimit=6, podFailurePolicy={"rules": [rule]}))
    failed = await client.wait_for(Job, "j", has("Failed"), timeout=_LONG)
    (pod,) = await client.list(Pod, namespace=client.namespace)
    expected = f"Container c for pod {client.namespace}/{pod.metadata.name} failed with exit code 42 matching FailJob rule at index 0"
    assert {(one.type, one.reason, one.message) for one in failed.status.conditions} == {
        ("FailureTarget", "PodFailurePolicy", expected),
        ("Failed", "PodFailurePolicy", expected),
    }


async def test_a_suspended_job_gives_its_pods_up_and_gets_new_ones(client: Client) -> None:
    await client.create(work({RUN_SECONDS: "forever"}))
    first = await client.wait_for(Job, "j", lambda job: job.status.active == 1, timeout=_LONG)
    await client.patch(Job, "j", {"spec": {"suspend": True}})
    suspended = await client.wait_for(Job, "j", has("Suspended"), timeout=_LONG)
    assert first.status.start_time is not None
    assert (suspended.status.start_time, suspended.status.failed) == (None, None)
    await client.patch(Job, "j", {"spec": {"suspend": False}})
    await client.wait_for(Job, "j", lambda job: job.status.active == 1 and job.status.start_time is not None, timeout=_LONG)


async def test_a_cron_job_runs_its_jobs_and_a_finished_job_is_deleted_after_its_time_to_live(client: Client) -> None:
    made = cron_job(schedule="@every 1s", concurrencyPolicy="Forbid")
    made.spec.job_template.spec.ttl_seconds_after_finished = 1
    await client.create(made)
    done = await client.wait_for(CronJob, "c", lambda cron_job: cron_job.status.last_successful_time is not None, timeout=_LONG)
    assert done.status.last_schedule_time is not None
    reasons = {one.reason for one in await client.list(Event, namespace=client.namespace) if one.involved_object.kind == "CronJob"}
    assert reasons >= {"SuccessfulCreate", "SawCompletedJob"}
    await client.patch(CronJob, "c", {"spec": {"suspend": True}})
    async with asyncio.timeout(_LONG):
        while await client.list(Job, namespace=client.namespace):
            await asyncio.sleep(0.1)


async def test_kubectl_creates_a_job_from_a_cron_job_and_waits_for_it(client: Client, bare_server: ServerUnderTest, tmp_path: Path) -> None:
    kubectl = Kubectl(Path(bare_server.kubeconfig), tmp_path, str(client.namespace))

    async def run(*arguments: str) -> str:
        return await asyncio.to_thread(kubectl, *arguments)

    await client.create(cron_job(schedule="0 0 1 1 *"))
    assert await run("create", "job", "now", "--from=cronjob/c") == "job.batch/now created\n"
    assert await run("wait", "--for=condition=complete", "job/now", "--timeout=60s") == "job.batch/now condition met\n"
    await client.wait_for(CronJob, "c", lambda cron_job: cron_job.status.last_successful_time is not None, timeout=_LONG)
    shown = await run("get", "cronjobs,jobs", "--no-headers")
    (cron, one) = shown.splitlines()
    assert cron.split()[:8] == ["cronjob.batch/c", "0", "0", "1", "1", "*", "<none>", "False"]
    assert one.split()[:3] == ["job.batch/now", "Complete", "1/1"]
    assert "Completed" in await run("events", "--for", "job/now")
