"""Server-side apply: creation, shared fields, removed fields, conflicts and errors, on both servers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.ownership.conftest import APPLY, JSON_PATCH, Managers, config_map

pytestmark = pytest.mark.server


def container(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, **more}


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": list(containers), **spec}}


async def test_applying_creates_a_missing_object_and_owns_only_the_applied_fields(managers: Managers) -> None:
    made = await managers.apply("one", "pods/p", pod(container("c", image="x")))
    assert made.status == 201
    assert made.owners == {
        "Apply one": [
            '.spec.containers[name="c"]',
            '.spec.containers[name="c"].image',
            '.spec.containers[name="c"].name',
        ]
    }
    assert made.body["spec"]["restartPolicy"] == "Always"


async def test_a_field_that_its_applier_no_longer_says_is_removed(managers: Managers) -> None:
    await managers.apply("one", "configmaps/a", config_map("a", {"k": "v", "l": "v"}, labels={"x": "y"}))
    after = await managers.apply("one", "configmaps/a", config_map("a", {"k": "v"}))
    assert (after.status, after.body["data"], after.body["metadata"].get("labels")) == (200, {"k": "v"}, None)


async def test_a_field_that_others_own_stays_when_one_of_them_gives_it_up(managers: Managers) -> None:
    await managers.apply("one", "configmaps/a", config_map("a", {"k": "v"}))
    await managers.apply("two", "configmaps/a", config_map("a", {"k": "v"}))
    after = await managers.apply("one", "configmaps/a", config_map("a"))
    assert (after.body["data"], after.owners) == ({"k": "v"}, {"Apply two": [".data.k"]})
    gone = await managers.apply("two", "configmaps/a", config_map("a"))
    assert ("data" in gone.body, gone.owners) == (False, {})


async def test_a_field_that_an_update_owns_too_stays_when_its_applier_gives_it_up(managers: Managers) -> None:
    await managers("POST", "configmaps?fieldManager=maker", config_map("a", {"k": "v"}))
    await managers.apply("one", "configmaps/a", config_map("a", {"k": "v"}))
    after = await managers.apply("one", "configmaps/a", config_map("a"))
    assert (after.body["data"], after.owners) == ({"k": "v"}, {"Update maker": [".data", ".data.k"]})


async def test_a_manager_that_joins_without_a_change_gets_no_time(managers: Managers) -> None:
    await managers.apply("one", "configmaps/a", config_map("a", {"k": "v"}))
    joined = await managers.apply("two", "configmaps/a", config_map("a", {"k": "v"}))
    assert {entry["manager"]: "time" in entry for entry in joined.entries} == {"one": True, "two": False}


async def test_applying_the_same_again_changes_nothing(managers: Managers) -> None:
    first = await managers.apply("one", "configmaps/a", config_map("a", {"k": "v"}))
    again = await managers.apply("one", "configmaps/a", config_map("a", {"k": "v"}))
    assert (again.version, again.entries) == (first.version, first.entries)


async def test_a_conflict_names_each_field_and_its_managers(managers: Managers) -> None:
    await managers("POST", "configmaps?fieldManager=maker", config_map("a", {"k": "v", "l": "v"}))
    await managers.apply("one", "configmaps/a", config_map("a", {"k": "v"}))
    refused = await managers.apply("two", "configmaps/a", config_map("a", {"k": "w", "l": "w"}))
    assert refused.status == 409
    assert refused.message == (
        'Apply failed with 3 conflicts: conflicts with "maker" using v1:\n- .data.k\n- .data.l\nconflicts with "one":\n- .data.k'
    )
    assert sorted(refused.causes) == [
        (".data.k", 'conflict with "maker" using v1'),
        (".data.k", 'conflict with "one"'),
        (".data.l", 'conflict with "maker" using v1'),
    ]


async def test_force_takes_fields_from_their_owners(managers: Managers) -> None:
    await managers.apply("one", "configmaps/a", config_map("a", {"k": "v", "l": "v"}))
    forced = await managers.apply("two", "configmaps/a", config_map("a", {"k": "w"}), force=True)
    assert forced.owners == {"Apply one": [".data.l"], "Apply two": [".data.k"]}


async def test_an_applied_field_that_an_update_changes_belongs_to_the_update(managers: Managers) -> None:
    await managers.apply("one", "configmaps/a", config_map("a", {"k": "v"}))
    changed = await managers.merge("two", "configmaps/a", {"data": {"k": "w"}})
    assert changed.owners == {"Update two": [".data.k"]}


async def test_one_manager_that_applies_and_updates_is_two(managers: Managers) -> None:
    await managers.apply("one", "configmaps/a", config_map("a", {"k": "v"}))
    await managers.merge("one", "configmaps/a", {"data": {"l": "v"}})
    after = await managers.apply("one", "configmaps/a", config_map("a", {"m": "v"}))
    assert (after.body["data"], after.owners) == (
        {"l": "v", "m": "v"},
        {"Apply one": [".data.m"], "Update one": [".data.l"]},
    )


async def test_items_of_a_list_are_distinguished_by_their_keys(managers: Managers) -> None:
    await managers.apply("one", "pods/p", pod(container("a", image="x"), container("b", image="x")))
    spec = {"tolerations": [{"key": "k", "operator": "Exists"}], "containers": [container("a", image="y")]}
    after = await managers.apply("two", "pods/p", {**pod(), "spec": spec}, force=True)
    assert [(one["name"], one["image"]) for one in after.body["spec"]["containers"]] == [("a", "y"), ("b", "x")]
    assert after.owners["Apply two"] == [
        ".spec.tolerations",
        '.spec.containers[name="a"]',
        '.spec.containers[name="a"].image',
        '.spec.containers[name="a"].name',
    ]


async def test_ports_without_a_protocol_are_those_of_tcp(managers: Managers) -> None:
    ports = [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]
    made = await managers.apply("one", "pods/p", pod(container("c", image="x", ports=ports)))
    paths = made.owners["Apply one"]
    assert '.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"]' in paths
    assert '.spec.containers[name="c"].ports[containerPort=80,protocol="UDP"].protocol' in paths


async def test_a_set_has_members_of_several_appliers(managers: Managers) -> None:
    await managers.apply("one", "configmaps/a", config_map("a", finalizers=["example.com/a"]))
    both = await managers.apply("two", "configmaps/a", config_map("a", finalizers=["example.com/b"]))
    assert both.body["metadata"]["finalizers"] == ["example.com/a", "example.com/b"]
    assert both.owners == {
        "Apply one": ['.metadata.finalizers[="example.com/a"]'],
        "Apply two": ['.metadata.finalizers[="example.com/b"]'],
    }
    after = await managers.apply("one", "configmaps/a", config_map("a"))
    assert after.body["metadata"]["finalizers"] == ["example.com/b"]
    await managers.apply("two", "configmaps/a", config_map("a"))


async def test_an_atomic_value_has_one_owner(managers: Managers) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}
    await managers.apply("one", "services/s", service)
    other = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"selector": {"c": "d"}}}
    refused = await managers.apply("two", "services/s", other)
    assert refused.causes == [(".spec.selector", 'conflict with "one"')]
    forced = await managers.apply("two", "services/s", other, force=True)
    assert forced.body["spec"]["selector"] == {"c": "d"}


async def test_a_dry_run_tells_what_would_be(managers: Managers) -> None:
    made = await managers.apply("one", "configmaps/a", config_map("a", {"k": "v"}), more="&dryRun=All")
    assert (made.status, made.owners) == (201, {"Apply one": [".data.k"]})
    assert (await managers("GET", "configmaps/a")).status == 404


async def test_yaml_may_be_applied(managers: Managers) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: 'yes'\n"
    made = await managers.apply("one", "configmaps/a", text)
    assert made.body["data"] == {"k": "yes"}


async def test_a_missing_object_has_no_status_to_apply(managers: Managers) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "status": {"hard": {"pods": "1"}}}
    assert (await managers.apply("one", "resourcequotas/q/status", quota)).status == 404


async def test_a_service_is_created_even_through_its_status(managers: Managers) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "labels": {"a": "b"}}, "spec": {"ports": [{"port": 80}]}}
    made = await managers.apply("one", "services/s/status", service)
    assert (made.status, made.owners) == (201, {"Apply one status": [".metadata.labels.a"]})


async def test_a_status_is_applied_through_its_path(managers: Managers) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
    await managers.apply("one", "resourcequotas/q", quota)
    applied = await managers.apply("two", "resourcequotas/q/status", {**quota, "status": {"used": {"pods": "0"}}})
    assert applied.owners == {"Apply one": [".spec.hard.pods"], "Apply two status": [".status.used.pods"]}


async def test_what_the_server_makes_of_a_configuration_is_not_a_conflict(managers: Managers) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}}
    made = await managers.apply("one", "secrets/s", secret)
    assert (made.body["data"], made.owners) == ({"k": "dg=="}, {"Apply one": [".stringData.k"]})


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        pytest.param({"kind": "ConfigMap", "metadata": {"name": "a"}}, 400, "invalid object type: /, Kind=ConfigMap", id="no version"),
        pytest.param(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}},
            400,
            "invalid object type: /v1, Kind=Secret",
            id="another kind",
        ),
        pytest.param(config_map("a", managedFields=[]), 400, "metadata.managedFields must be nil", id="managed fields, though none"),
        pytest.param(
            config_map("b"), 400, "the name of the object (b) does not match the name on the URL (a)", id="another name than the path's"
        ),
        pytest.param(
            config_map("a", namespace="elsewhere"),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
            id="another namespace than the path's",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "ConfigMap"},
            400,
            "the name of the object (a based on URL) was undeterminable: name must be provided",
            id="no name",
        ),
        pytest.param(
            {**config_map("a"), "junk": 1},
            500,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .junk: field not declared in schema",
            id="a field that the kind does not have",
        ),
        pytest.param(
            {**config_map("a"), "immutable": "x"},
            500,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .immutable: expected boolean, got &{x}",
            id="a value of another type",
        ),
        pytest.param(
            config_map("a", uid="00000000-0000-0000-0000-000000000009"),
            409,
            'Operation cannot be fulfilled on configmaps "a": uid mismatch: the provided object specified uid '
            "00000000-0000-0000-0000-000000000009, and no existing object was found",
            id="the uid of an object that is gone",
        ),
        pytest.param(
            b"[]",
            400,
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type "
            "map[string]interface {}",
            id="a list",
        ),
        pytest.param(
            b'{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "\\ud800"}}',
            400,
            "error decoding YAML: error converting YAML to JSON: yaml: ",
            id="half a surrogate pair",
        ),
        pytest.param(b"a: [b", 400, "error decoding YAML: error converting YAML to JSON: yaml: line 1: did not find", id="broken YAML"),
    ],
)
async def test_a_configuration_is_refused_that_has(managers: Managers, body: Any, status: int, message: str) -> None:
    answer = await managers.apply("one", "configmaps/a", body)
    assert answer.status == status
    assert answer.message.startswith(message)


async def test_keys_said_twice_are_an_error_a_warning_or_nothing(managers: Managers) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\ndata: {k: w}\n"
    strict = await managers.apply("one", "configmaps/a", text, more="&fieldValidation=Strict")
    assert strict.status == 400
    assert strict.message == (
        'error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 5: key "data" already set in map'
    )
    ignored = await managers.apply("one", "configmaps/a", text, more="&fieldValidation=Ignore")
    assert (ignored.status, ignored.warnings, ignored.body["data"]) == (201, (), {"k": "w"})
    warned = await managers.apply("one", "configmaps/a", text)
    assert warned.warnings == ('line 5: key "data" already set in map',)


async def test_an_apply_needs_a_manager(managers: Managers) -> None:
    refused = await managers("PATCH", "configmaps/a", config_map("a"), content=APPLY)
    assert (refused.status, refused.causes) == (422, [("fieldManager", "Required value: is required for apply patch")])


async def test_applying_is_not_said_in_cbor(managers: Managers) -> None:
    refused = await managers("PATCH", "configmaps/a?fieldManager=one", config_map("a"), content="application/apply-patch+cbor")
    assert refused.status == 415


async def test_fields_from_before_the_first_apply_are_not_taken_without_force(managers: Managers) -> None:
    await managers.apply("one", "configmaps/a", config_map("a", {"k": "v"}))
    await managers("PATCH", "configmaps/a", [{"op": "remove", "path": "/metadata/managedFields/0"}], content=JSON_PATCH)
    refused = await managers.apply("two", "configmaps/a", config_map("a", {"k": "w"}))
    assert refused.causes == [(".data.k", 'conflict with "before-first-apply" using v1')]
