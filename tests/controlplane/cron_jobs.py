"""CronJobs for the tests of their controller."""

from __future__ import annotations

from typing import Any

from kubeloop.api.batch.v1 import CronJob
from tests.controlplane.workloads import read


def cron_job(name: str = "c", schedule: str = "*/2 * * * *", **spec: Any) -> CronJob:
    """Return a CronJob whose Jobs have one pod.

    Args:
        name: Its name.
        schedule: Its schedule.
        spec: Further fields of the spec, by wire name; None: absent.
    """
    pod = {"containers": [{"name": "c", "image": "x:1"}], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    fields = {field: value for field, value in spec.items() if value is not None}
    template = {"spec": {"template": {"spec": pod}}}
    return read(CronJob, {"metadata": {"name": name}, "spec": {"schedule": schedule, "jobTemplate": template, **fields}})
