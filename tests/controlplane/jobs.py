"""Jobs and their pods for the tests of the Job controllers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from kubeloop.api.batch.v1 import Job
from kubeloop.api.core.v1 import Pod
from kubeloop.controlplane.workloads.job_backoff import BackoffRecord
from kubeloop.controlplane.workloads.job_indexes import FAILURES, INDEX
from kubeloop.controlplane.workloads.job_snapshot import TRACKING, JobSnapshot, take_snapshot
from tests.controlplane.workloads import read

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> str:
    """Return the wire form of the time that many seconds after ``NOW``."""
    return (NOW + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def job(name: str = "j", *, status: dict[str, Any] | None = None, annotations: dict[str, str] | None = None, **spec: Any) -> Job:
    """Return a Job as the server stores it.

    Args:
        name: Its name.
        status: Its status.
        annotations: The annotations of its pods.
        spec: Fields of the spec, by wire name.
    """
    template = {
        "metadata": {"annotations": annotations or {}},
        "spec": {
            "containers": [{"name": "c", "image": "x:1"}],
            "restartPolicy": spec.pop("restartPolicy", "Never"),
            "terminationGracePeriodSeconds": 1,
        },
    }
    document: dict[str, object] = {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"template": template, **spec},
        "status": status or {},
    }
    return read(Job, document)


def indexed(completions: int, parallelism: int = 2, **fields: Any) -> Job:
    """Return an indexed Job."""
    return job(completionMode="Indexed", completions=completions, parallelism=parallelism, **fields)


def pod(
    name: str,
    phase: str = "Running",
    *,
    index: int | None = None,
    failures: int = 0,
    tracked: bool = True,
    deleted: float | None = None,
    ready: bool = False,
    exit_code: int | None = None,
    finished: float = 0.0,
    restarts: int = 0,
    conditions: tuple[str, ...] = (),
) -> Pod:
    """Return a pod of a Job.

    Args:
        name: Its name, which is its uid too.
        phase: Its phase.
        index: Its completion index.
        failures: How many pods of the index failed before it.
        tracked: It has the finalizer.
        deleted: Seconds after ``NOW`` at which its deletion began.
        ready: The condition Ready is true.
        exit_code: The exit code of its container; None: the container has not ended.
        finished: Seconds after ``NOW`` at which its container ended.
        restarts: How often its container restarted.
        conditions: Types of further conditions that are true.
    """
    annotations = {} if index is None else {INDEX: str(index), FAILURES: str(failures)}
    metadata: dict[str, Any] = {"name": name, "namespace": "n", "uid": name, "annotations": annotations, "creationTimestamp": at(-100)}
    metadata |= {"finalizers": [TRACKING]} if tracked else {}
    metadata |= {"deletionTimestamp": at(deleted)} if deleted is not None else {}
    container: dict[str, Any] = {"name": "c", "restartCount": restarts, "state": {"running": {}}}
    if exit_code is not None:
        container["state"] = {"terminated": {"exitCode": exit_code, "finishedAt": at(finished)}}
    types = [*(("Ready",) if ready else ()), *conditions]
    status = {"phase": phase, "containerStatuses": [container], "conditions": [{"type": one, "status": "True"} for one in types]}
    return read(Pod, {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}, "status": status})


def failed(name: str, exit_code: int = 1, **fields: Any) -> Pod:
    return pod(name, "Failed", exit_code=exit_code, **fields)


def succeeded(name: str, **fields: Any) -> Pod:
    return pod(name, "Succeeded", exit_code=0, **fields)


def snapshot(job: Job, *pods: Pod, backoff: BackoffRecord | None = None) -> JobSnapshot:
    return take_snapshot(job, pods, backoff or BackoffRecord(), NOW)
