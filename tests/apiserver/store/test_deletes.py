"""Deletions over the wire: finalizers, grace, preconditions, propagation, collections."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import CONFIGMAPS, JSON_PATCH, MERGE, PODS, Api, Reply

REPLICASETS = "/apis/apps/v1/namespaces/default/replicasets"
UID = "00000000-0000-0000-0000-000000000001"


async def replicaset(api: Api, name: str) -> Reply:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    return await api.create(name, REPLICASETS, spec={"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template})


async def pod(api: Api, name: str, node: str = "", **spec: Any) -> Reply:
    spec = {"containers": [{"name": "c", "image": "x"}], **({"nodeName": node} if node else {}), **spec}
    return await api.create(name, PODS, spec=spec)


async def test_a_completed_deletion_answers_with_the_deleted_object(api: Api) -> None:
    uid = (await api.create("a")).body["metadata"]["uid"]
    answer = await api("DELETE", f"{CONFIGMAPS}/a")
    assert (answer.status, answer.body["status"]) == (200, "Success")
    assert answer.body["details"] == {"name": "a", "kind": "configmaps", "uid": uid}
    assert (await api("GET", f"{CONFIGMAPS}/a")).message == 'configmaps "a" not found'


async def test_finalizers_hold_an_object_until_the_last_of_them_is_gone(api: Api) -> None:
    await api.create("a", metadata={"finalizers": ["example.com/x", "example.com/y"]})
    marked = (await api("DELETE", f"{CONFIGMAPS}/a")).body["metadata"]
    assert marked["deletionTimestamp"]
    assert marked["deletionGracePeriodSeconds"] == 0
    again = (await api("DELETE", f"{CONFIGMAPS}/a")).body["metadata"]
    assert again["resourceVersion"] == marked["resourceVersion"]
    added = await api(
        "PATCH", f"{CONFIGMAPS}/a", [{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/z"}], content=JSON_PATCH
    )
    assert (added.status, "no new finalizers can be added" in added.message) == (422, True)
    assert (await api("POST", CONFIGMAPS, {"metadata": {"name": "a"}})).message == 'object is being deleted: configmaps "a" already exists'
    await api("PATCH", f"{CONFIGMAPS}/a", {"metadata": {"finalizers": ["example.com/y"]}}, content=MERGE)
    assert (await api("GET", f"{CONFIGMAPS}/a")).status == 200
    last = await api("PATCH", f"{CONFIGMAPS}/a", {"metadata": {"finalizers": None}}, content=MERGE)
    assert (last.status, "finalizers" in last.body["metadata"]) == (200, False)
    assert (await api("GET", f"{CONFIGMAPS}/a")).status == 404


@pytest.mark.parametrize(
    ("preconditions", "why"),
    [
        pytest.param({"uid": UID}, f"the UID in the precondition ({UID}) does not match the UID in record", id="another uid"),
        pytest.param(
            {"resourceVersion": "1"},
            "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record",
            id="another version",
        ),
    ],
)
async def test_a_deletion_is_refused_whose_precondition_names(api: Api, preconditions: dict[str, str], why: str) -> None:
    await api.create("a")
    answer = await api("DELETE", f"{CONFIGMAPS}/a", {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions})
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert why in answer.message
    assert (await api("GET", f"{CONFIGMAPS}/a")).status == 200


@pytest.mark.parametrize(
    ("query", "finalizers"),
    [
        pytest.param("?propagationPolicy=Foreground", ["foregroundDeletion"], id="foreground"),
        pytest.param("?propagationPolicy=Orphan", ["orphan"], id="orphan"),
        pytest.param("?orphanDependents=true", ["orphan"], id="orphan in the old way"),
    ],
)
async def test_a_propagation_that_others_carry_out_leaves_its_finalizer(api: Api, query: str, finalizers: list[str]) -> None:
    await replicaset(api, "r")
    marked = (await api("DELETE", f"{REPLICASETS}/r{query}")).body["metadata"]
    assert (marked["finalizers"], marked["generation"]) == (finalizers, 2)
    await api("PATCH", f"{REPLICASETS}/r", {"metadata": {"finalizers": None}}, content=MERGE)
    assert (await api("GET", f"{REPLICASETS}/r")).status == 404


async def test_background_propagation_is_done_at_once(api: Api) -> None:
    await replicaset(api, "r")
    assert (await api("DELETE", f"{REPLICASETS}/r?propagationPolicy=Background")).body["status"] == "Success"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        pytest.param(
            "propagationPolicy=Sideways", 'supported values: "Foreground", "Background", "Orphan", "nil"', id="a policy that does not exist"
        ),
        pytest.param(
            "propagationPolicy=Orphan&orphanDependents=true",
            "orphanDependents and deletionPropagation cannot be both set",
            id="two ways at once",
        ),
    ],
)
async def test_options_are_invalid_that_name(api: Api, query: str, message: str) -> None:
    await api.create("a")
    answer = await api("DELETE", f"{CONFIGMAPS}/a?{query}")
    assert answer.status == 422
    assert message in answer.message


async def test_a_pod_that_never_ran_goes_at_once(api: Api) -> None:
    await pod(api, "p")
    answer = await api("DELETE", f"{PODS}/p")
    assert (answer.body["kind"], answer.body["metadata"]["deletionGracePeriodSeconds"]) == ("Pod", 0)
    assert (await api("GET", f"{PODS}/p")).status == 404


async def test_a_pod_on_a_node_gets_its_grace_which_can_only_become_shorter(api: Api) -> None:
    await pod(api, "p", "n1")

    async def grace(query: str = "") -> int:
        found: int = (await api("DELETE", f"{PODS}/p{query}")).body["metadata"]["deletionGracePeriodSeconds"]
        return found

    assert [await grace(), await grace("?gracePeriodSeconds=5"), await grace("?gracePeriodSeconds=60")] == [30, 5, 5]
    assert (await api("GET", f"{PODS}/p")).body["metadata"]["generation"] == 2
    assert await grace("?gracePeriodSeconds=0") == 0
    assert (await api("GET", f"{PODS}/p")).status == 404


async def test_a_collection_is_deleted_by_its_selection(api: Api) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        await api.create(name, metadata={"labels": {"l": label}})
    deleted = await api("DELETE", f"{CONFIGMAPS}?labelSelector=l=x")
    assert [one["metadata"]["name"] for one in deleted.body["items"]] == ["a", "b"]
    assert [one["metadata"]["name"] for one in (await api("GET", CONFIGMAPS)).body["items"]] == ["c"]
    assert len((await api("DELETE", f"{CONFIGMAPS}?dryRun=All")).body["items"]) == 1
    assert len((await api("GET", CONFIGMAPS)).body["items"]) == 1


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_the_systems_namespaces_stay(api: Api, name: str) -> None:
    answer = await api("DELETE", f"/api/v1/namespaces/{name}")
    assert (answer.status, answer.message) == (403, f'namespaces "{name}" is forbidden: this namespace may not be deleted')


async def test_a_body_of_another_kind_is_refused(api: Api) -> None:
    await api.create("a")
    answer = await api("DELETE", f"{CONFIGMAPS}/a", {"kind": "ConfigMap", "apiVersion": "v1"})
    assert (answer.status, answer.message) == (
        400,
        'no kind "ConfigMap" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"',
    )


async def test_a_namespace_that_nothing_holds_terminates_before_it_goes(api: Api) -> None:
    path = "/api/v1/namespaces/going"
    await api("POST", "/api/v1/namespaces", {"metadata": {"name": "going"}})
    await api("PUT", f"{path}/finalize", {"metadata": {"name": "going"}, "spec": {"finalizers": []}})
    held = await api("DELETE", f"{path}?propagationPolicy=Foreground")
    assert (held.status, held.body["metadata"]["finalizers"]) == (200, ["foregroundDeletion"])
    assert (await api("GET", path)).body["status"]["phase"] == "Terminating"
    await api("DELETE", path)
    assert (await api("GET", path)).status == 200
    await api("DELETE", f"{path}?propagationPolicy=Background")
    assert (await api("GET", path)).status == 404
