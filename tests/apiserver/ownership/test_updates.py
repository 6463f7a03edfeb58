"""managedFields after creates, updates, patches and status writes, on both servers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.ownership.conftest import JSON_PATCH, Managers, Owners, config_map

pytestmark = pytest.mark.server


def owned_by(name: str, *fields: str) -> dict[str, Any]:
    """An entry as a client may write it."""
    return {
        "manager": name,
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {f"f:{field}": {} for field in fields}},
    }


async def test_the_creator_owns_the_fields_that_were_set_and_that_were_defaulted(managers: Managers) -> None:
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}
    made = await managers("POST", "services?fieldManager=maker", service)
    assert made.owners == {
        "Update maker": [
            ".spec.internalTrafficPolicy",
            ".spec.ports",
            ".spec.selector",
            ".spec.sessionAffinity",
            ".spec.type",
            '.spec.ports[port=80,protocol="TCP"]',
            '.spec.ports[port=80,protocol="TCP"].port',
            '.spec.ports[port=80,protocol="TCP"].protocol',
            '.spec.ports[port=80,protocol="TCP"].targetPort',
        ]
    }
    assert made.entries[0]["time"] == made.body["metadata"]["creationTimestamp"]


async def test_what_a_create_says_of_owners_is_taken_and_then_what_it_creates_is_its_own(managers: Managers) -> None:
    made = await managers("POST", "configmaps?fieldManager=maker", config_map("a", {"k": "v"}, managedFields=[owned_by("x", "k", "gone")]))
    assert made.owners == {"Update maker": [".data", ".data.k"], "Update x": [".data.gone"]}


async def test_an_update_owns_the_changed_fields_and_removed_fields_have_no_owner(managers: Managers) -> None:
    await managers("POST", "configmaps?fieldManager=one", config_map("a", {"k": "v", "l": "v"}, labels={"x": "1"}))
    changed = await managers("PUT", "configmaps/a?fieldManager=two", config_map("a", {"k": "w", "m": "v"}))
    assert changed.owners == {"Update one": [".data"], "Update two": [".data.k", ".data.m"]}


async def test_a_patch_that_changes_nothing_owns_nothing(managers: Managers) -> None:
    made = await managers("POST", "configmaps?fieldManager=one", config_map("a", {"k": "v"}))
    same = await managers.merge("two", "configmaps/a", {"data": {"k": "v"}})
    assert (same.owners, same.version) == (made.owners, made.version)


async def test_a_manager_that_changes_a_field_back_owns_it(managers: Managers) -> None:
    await managers("POST", "configmaps?fieldManager=one", config_map("a", {"k": "v"}))
    await managers.merge("two", "configmaps/a", {"data": {"k": "w"}})
    assert (await managers.merge("one", "configmaps/a", {"data": {"k": "v"}})).owners == {"Update one": [".data", ".data.k"]}


@pytest.mark.parametrize("empty", [[], [{}]], ids=["an empty list", "one empty entry"])
async def test_owners_are_forgotten_when_a_write_says_there_are_none(managers: Managers, empty: list[Any]) -> None:
    await managers("POST", "configmaps?fieldManager=one", config_map("a", {"k": "v"}))
    assert (await managers("PUT", "configmaps/a", config_map("a", {"k": "v"}, managedFields=empty))).entries == []
    # From then on no owner is recorded, until a manager applies.
    assert (await managers.merge("two", "configmaps/a", {"data": {"k": "w"}})).entries == []
    applied = await managers.apply("three", "configmaps/a", config_map("a", {"m": "v"}))
    assert applied.owners == {"Apply three": [".data.m"], "Update before-first-apply": [".data", ".data.k"]}


async def test_a_write_may_name_the_owners_of_fields(managers: Managers) -> None:
    await managers("POST", "configmaps?fieldManager=one", config_map("a", {"k": "v"}))
    said = await managers("PUT", "configmaps/a?fieldManager=two", config_map("a", {"k": "v", "l": "v"}, managedFields=[owned_by("x", "k")]))
    assert said.owners == {"Update two": [".data.l"], "Update x": [".data.k"]}


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"operation": "Bad"}, id="an unknown operation"),
        pytest.param({"apiVersion": ""}, id="no version"),
        pytest.param({"fieldsType": "FieldsV2"}, id="fields of another type"),
        pytest.param({"fieldsV1": {"x": {}}}, id="fields that are none"),
    ],
)
async def test_owners_that_cannot_be_read_are_ignored(managers: Managers, broken: dict[str, Any]) -> None:
    made = await managers("POST", "configmaps?fieldManager=one", config_map("a", {"k": "v"}))
    patch = [{"op": "replace", "path": "/metadata/managedFields", "value": [{**owned_by("x", "k"), **broken}]}]
    answer = await managers("PATCH", "configmaps/a", patch, content=JSON_PATCH)
    assert (answer.status, answer.owners) == (200, made.owners)


async def test_beyond_ten_managers_that_update_the_oldest_melt_into_one(managers: Managers) -> None:
    await managers("POST", "configmaps?fieldManager=m00", config_map("a", {"k00": "v"}))
    await managers.apply("applier", "configmaps/a", config_map("a", {"k00": "v"}))
    for number in range(1, 13):
        last = await managers.merge(f"m{number:02}", "configmaps/a", {"data": {f"k{number:02}": "v"}})
    names = [entry["manager"] for entry in last.entries]
    assert len(names) == 11  # ten updaters and one applier
    assert names[0] == "applier"
    assert ".data.k00" in last.owners["Update ancient-changes"]
    assert {f"m{number:02}" for number in range(5, 13)} <= set(names)


async def test_a_status_is_owned_by_the_writer_of_its_subresource(managers: Managers) -> None:
    await managers("POST", "resourcequotas?fieldManager=one", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
    quota = {"metadata": {"name": "q", "labels": {"x": "y"}}, "spec": {"hard": {"pods": "9"}}, "status": {"hard": {"pods": "1"}}}
    written = await managers("PUT", "resourcequotas/q/status?fieldManager=two", quota)
    assert written.owners == {
        "Update one": [".spec.hard", ".spec.hard.pods"],
        "Update two status": [".metadata.labels", ".metadata.labels.x", ".status.hard", ".status.hard.pods"],
    }


async def test_owners_sent_with_a_status_are_not_looked_at(managers: Managers) -> None:
    made = await managers("POST", "resourcequotas?fieldManager=one", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
    written = await managers.merge("two", "resourcequotas/q/status", {"metadata": {"managedFields": [owned_by("x", "k")]}})
    assert written.owners == made.owners


async def test_a_status_on_the_main_path_gets_no_owner(managers: Managers) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}, "status": {"hard": {"pods": "1"}}}
    made = await managers("POST", "resourcequotas?fieldManager=one", quota)
    assert made.owners == {"Update one": [".spec.hard", ".spec.hard.pods"]}


async def test_through_scale_only_replicas_are_owned(managers: Managers) -> None:
    controller = {
        "metadata": {"name": "r"},
        "spec": {"replicas": 1, "selector": {"a": "b"}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}},
    }
    controller["spec"]["template"]["spec"]["containers"] = [{"name": "c", "image": "x"}]  # type: ignore[index]
    made = await managers("POST", "replicationcontrollers?fieldManager=one", controller)
    assert ".spec.replicas" in made.owners["Update one"]
    assert (await managers.merge("two", "replicationcontrollers/r/scale", {"spec": {"replicas": 3}})).status == 200
    found = await managers("GET", "replicationcontrollers/r")
    assert ".spec.replicas" not in found.owners["Update one"]
    assert found.owners["Update two scale"] == [".spec.replicas"]
    refused = await managers.apply("three", "replicationcontrollers/r", {"apiVersion": "v1", "kind": "ReplicationController", **controller})
    assert refused.causes == [(".spec.replicas", 'conflict with "two" with subresource "scale" using v1')]


async def test_a_scale_may_be_applied(managers: Managers) -> None:
    spec = {"selector": {"a": "b"}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}
    await managers("POST", "replicationcontrollers?fieldManager=one", {"metadata": {"name": "r"}, "spec": spec})
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "r"}, "spec": {"replicas": 3}}
    refused = await managers.apply("two", "replicationcontrollers/r/scale", scale)
    assert refused.message == 'Apply failed with 1 conflict: conflict with "one" using autoscaling/v1: .spec.replicas'
    assert (await managers.apply("two", "replicationcontrollers/r/scale", scale, force=True)).body["spec"] == {"replicas": 3}
    found = await managers("GET", "replicationcontrollers/r")
    assert found.owners["Apply two scale"] == [".spec.replicas"]


@pytest.mark.parametrize(
    ("path", "body", "owned", "after"),
    [
        pytest.param(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles", {"rules": []}, [".rules"], {"Update two": [".rules"]}, id="no rules"
        ),
        pytest.param("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles", {"rules": None}, [], {}, id="rules that are null"),
        pytest.param("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles", {}, [], {}, id="nothing said of rules"),
        pytest.param(
            "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices",
            {"addressType": "IPv4", "endpoints": [], "ports": []},
            [".addressType", ".endpoints", ".ports"],
            {"Update one": [".addressType"], "Update two": [".endpoints", ".ports"]},
            id="no endpoints and no ports",
        ),
    ],
)
async def test_an_empty_list_is_owned_where_go_always_writes_the_list(
    managers: Managers, path: str, body: dict[str, Any], owned: list[str], after: Owners
) -> None:
    made = await managers("POST", f"{path}?fieldManager=one", {"metadata": {"name": "a"}, **body})
    assert made.owners == ({"Update one": owned} if owned else {})
    # The stored object has null, so each write that says "empty" changes it.
    again = await managers("PUT", f"{path}/a?fieldManager=two", {"metadata": {"name": "a"}, **body})
    assert again.owners == after
