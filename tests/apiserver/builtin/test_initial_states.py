"""Initial states of kinds that users cannot change, as on a real API server 1.36."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import Api

_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
_SETS = "/apis/apps/v1/namespaces/default/daemonsets"
_COUNT = "deprecated.daemonset.template.generation"


async def test_the_condition_of_a_gated_pod_has_a_time(api: Api) -> None:
    spec = {"schedulingGates": [{"name": "example.com/g"}], "containers": [{"name": "c", "image": "x"}]}
    pod = (await api("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "p"}, "spec": spec})).body
    assert pod["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": pod["metadata"]["creationTimestamp"],
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
    ]


@pytest.mark.parametrize(
    ("subresource", "annotations"),
    [
        pytest.param("/status", None, id="an update of the status without annotations"),
        pytest.param("/status", {_COUNT: "9"}, id="an update of the status with another number"),
        pytest.param("", None, id="an update without annotations"),
        pytest.param("", {_COUNT: "9"}, id="an update with another number"),
    ],
)
async def test_a_daemon_set_keeps_the_generation_of_its_template(api: Api, subresource: str, annotations: dict[str, Any] | None) -> None:
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE}
    made = (await api("POST", _SETS, {"metadata": {"name": "d"}, "spec": spec})).body
    assert made["metadata"]["annotations"] == {_COUNT: "1"}
    made["metadata"]["annotations"] = annotations
    changed = (await api("PUT", f"{_SETS}/d{subresource}", made)).body
    assert changed["metadata"]["annotations"] == {_COUNT: "1"}
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "y"
    assert (await api("PUT", f"{_SETS}/d", changed)).body["metadata"]["annotations"] == {_COUNT: "2"}
