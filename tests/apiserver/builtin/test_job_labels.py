"""Labels of new jobs, as on a real server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.client import Client

pytestmark = pytest.mark.server

GENERATED = ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")


@pytest.mark.parametrize(
    ("of_job", "of_template", "expected"),
    [
        pytest.param(None, {"a": "b"}, {"a": "b", **dict.fromkeys(GENERATED, "")}, id="a job without labels has all those of its template"),
        pytest.param(None, None, dict.fromkeys(GENERATED, ""), id="be they the generated ones alone"),
        pytest.param({"a": "b"}, {"a": "b"}, {"a": "b"}, id="a job that has labels keeps them, also where they are alike"),
        pytest.param({"x": "y"}, {"a": "b"}, {"x": "y"}, id="and where they are not"),
    ],
)
async def test_labels(
    client: Client, namespace: str, of_job: dict[str, str] | None, of_template: dict[str, str] | None, expected: dict[str, str]
) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    template: dict[str, Any] = {"metadata": {"labels": of_template}, "spec": pod}
    body = {"metadata": {"name": "j", "labels": of_job}, "spec": {"template": template, "suspend": True}}
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    headers = {"Content-Type": "application/json"}
    made = json.loads((await client.transport.request("POST", path, body=json.dumps(body).encode(), headers=headers)).body)
    labels = made["metadata"]["labels"]
    assert {name: "" if name in GENERATED else value for name, value in labels.items()} == expected
    assert made["spec"]["template"]["metadata"]["labels"].keys() >= set(GENERATED)
