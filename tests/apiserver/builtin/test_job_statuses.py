"""What the status of a job may become: a table that a Kubernetes 1.36 API server answered.

``job_statuses.json`` holds, by sentence, what a job's spec says, its status before, its new status and the causes of a refusal.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from kubeloop.meta import Invalid
from kubeloop.transport import Transport
from tests.apiserver.builtin.write_pipeline import create, update
from tests.servers import ServerUnderTest

_CASES: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "job_statuses.json").read_text())
_JOBS = "/apis/batch/v1/namespaces/{}/jobs"
_POD = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}


def _job(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    # Another controller manages it: none writes the status meanwhile.
    return {"metadata": {"name": name}, "spec": {"managedBy": "example.com/test", "template": _POD, **spec}}


@pytest.mark.parametrize("name", _CASES)
def test_status(name: str) -> None:
    path, case = _JOBS.format("n"), _CASES[name]
    old = create(path, _job("a", case["spec"])).obj
    if case["before"] is not None:
        first = update(path, {**copy.deepcopy(old), "status": case["before"]}, old, "status")
        assert first.causes == []
        old = first.obj
    found = update(path, {**copy.deepcopy(old), "status": case["status"]}, old, "status")
    assert sorted(map(list, found.causes)) == case["causes"]


@pytest.mark.server
async def test_statuses_on_the_wire(server: ServerUnderTest, namespace: str) -> None:
    path, found = _JOBS.format(namespace), {}
    async with Transport(server.config) as transport:
        for number, (name, case) in enumerate(_CASES.items()):
            where = f"{path}/a{number}/status"
            made = await transport.request("POST", path, body=json.dumps(_job(f"a{number}", case["spec"])).encode())
            job = json.loads(made.body)
            if case["before"] is not None:
                job = json.loads((await transport.request("PUT", where, body=json.dumps({**job, "status": case["before"]}).encode())).body)
            found[name] = await _causes(transport, where, {**job, "status": case["status"]})
    assert found == {name: case["causes"] for name, case in _CASES.items()}


async def _causes(transport: Transport, path: str, job: dict[str, Any]) -> list[list[str]]:
    try:
        await transport.request("PUT", path, query={"dryRun": "All"}, body=json.dumps(job).encode())
    except Invalid as refused:
        causes = refused.status.details.causes if refused.status.details else []
        return sorted([cause.field, cause.message, cause.reason] for cause in causes)
    return []
