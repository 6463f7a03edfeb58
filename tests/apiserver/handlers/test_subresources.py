"""scale, binding, eviction: recorded behaviour of kube-apiserver, over the wire."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import MERGE, PODS, TABLE, Api

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


async def deployment(api: Api) -> str:
    template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    await api.create("d", DEPLOYMENTS, spec={"replicas": 2, "selector": {"matchLabels": {"app": "d"}}, "template": template})
    return f"{DEPLOYMENTS}/d"


async def pod(api: Api, name: str = "p", phase: str = "") -> str:
    await api.create(name, PODS, metadata={"labels": {"app": "a"}}, spec={"containers": [{"name": "c", "image": "x"}]})
    if phase:
        ready = {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}
        await api("PATCH", f"{PODS}/{name}/status", {"status": ready}, content=MERGE)
    return f"{PODS}/{name}"


def binding(node: str, name: str = "p", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **more}, "target": {"kind": "Node", "name": node}}


async def test_scale_shows_and_changes_replicas(api: Api) -> None:
    path = await deployment(api)
    scale = (await api("GET", f"{path}/scale")).body
    assert (scale["kind"], scale["spec"], scale["status"]) == ("Scale", {"replicas": 2}, {"replicas": 0, "selector": "app=d"})
    scale["spec"]["replicas"] = 5
    assert (await api("PUT", f"{path}/scale", scale)).body["spec"] == {"replicas": 5}
    stale = await api("PUT", f"{path}/scale", scale)
    assert (stale.status, stale.body["reason"]) == (409, "Conflict")
    assert (await api("PATCH", f"{path}/scale", {"spec": {"replicas": 7}}, content=MERGE)).body["spec"] == {"replicas": 7}
    changed = (await api("GET", path)).body
    assert (changed["spec"]["replicas"], changed["metadata"]["generation"]) == (7, 3)


async def test_scale_refuses_another_name_and_negative_replicas(api: Api) -> None:
    path = await deployment(api)
    other = await api("PUT", f"{path}/scale", {"metadata": {"name": "other"}, "spec": {"replicas": 1}})
    assert (other.status, other.message) == (400, "the name of the object (other) does not match the name on the URL (d)")
    negative = await api("PATCH", f"{path}/scale", {"spec": {"replicas": -1}}, content=MERGE)
    assert (negative.status, "must be greater than or equal to 0" in negative.message) == (422, True)


async def test_scale_is_a_table_on_request(api: Api) -> None:
    table = (await api("GET", f"{await deployment(api)}/scale", accept=TABLE)).body
    assert [one["name"] for one in table["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    assert table["rows"][0]["cells"][:3] == ["d", 2, 0]


async def test_a_binding_assigns_a_pod_once(api: Api) -> None:
    path = await pod(api)
    assert (await api("POST", f"{path}/binding", binding("n1", annotations={"bound": "yes"}))).body["status"] == "Success"
    bound = (await api("GET", path)).body
    assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"]) == ("n1", {"bound": "yes"})
    assert ("PodScheduled", "True") in [(one["type"], one["status"]) for one in bound["status"]["conditions"]]
    again = await api("POST", f"{path}/binding", binding("n2"))
    assert (again.status, again.message) == (
        409, 'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"'
    )  # fmt: skip


async def test_a_binding_may_be_posted_beside_the_pods(api: Api) -> None:
    await pod(api)
    assert (await api("POST", "/api/v1/namespaces/default/bindings", binding("n1"))).status == 201
    assert (await api("POST", "/api/v1/namespaces/default/bindings", binding("n1", "missing"))).message == 'pods "missing" not found'


def eviction(name: str = "p", **options: Any) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}


async def test_an_eviction_deletes_a_pod_that_no_budget_protects(api: Api) -> None:
    path = await pod(api, phase="Running")
    assert (await api("POST", f"{path}/eviction", eviction("other"))).message == "name in URL does not match name in Eviction object"
    assert (await api("POST", f"{path}/eviction", eviction(dryRun=["All"]))).status == 201
    assert (await api("GET", path)).status == 200
    assert (await api("POST", f"{path}/eviction", eviction())).status == 201
    assert (await api("GET", path)).status == 404


@pytest.mark.parametrize(
    ("status", "message"),
    [
        pytest.param({}, "The disruption budget b is still being processed by the server.", id="was not observed yet"),
        pytest.param(
            {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1},
            "The disruption budget b needs 1 healthy pods and has 1 currently",
            id="has nothing left",
        ),
    ],
)
async def test_an_eviction_is_refused_when_the_budget(api: Api, status: dict[str, int], message: str) -> None:
    path = await pod(api, phase="Running")
    await api.create("b", BUDGETS, spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}})
    if status:
        await api("PATCH", f"{BUDGETS}/b/status", {"status": status}, content=MERGE)
    answer = await api("POST", f"{path}/eviction", eviction())
    assert (answer.status, answer.message) == (429, "Cannot evict pod as it would violate the pod's disruption budget.")
    assert answer.body["details"]["causes"][0]["message"] == message


async def test_an_eviction_within_the_budget_is_counted_and_tells_the_pod_why(api: Api) -> None:
    path = await pod(api, phase="Running")
    await api("POST", f"{path}/binding", binding("n1"))
    await api.create("b", BUDGETS, spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}})
    left = {"observedGeneration": 1, "currentHealthy": 2, "desiredHealthy": 1, "disruptionsAllowed": 1}
    await api("PATCH", f"{BUDGETS}/b/status", {"status": left}, content=MERGE)
    assert (await api("POST", f"{path}/eviction", eviction())).status == 201
    budget = (await api("GET", f"{BUDGETS}/b")).body["status"]
    assert (budget["disruptionsAllowed"], list(budget["disruptedPods"])) == (0, ["p"])
    gone = (await api("GET", path)).body
    assert gone["metadata"]["deletionTimestamp"]
    assert ("DisruptionTarget", "EvictionByEvictionAPI") in [(one["type"], one.get("reason")) for one in gone["status"]["conditions"]]
