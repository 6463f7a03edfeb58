"""Creates, updates, patches and dry runs over the wire."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.apiserver.conftest import CONFIGMAPS, JSON_PATCH, MERGE, STRATEGIC, Api

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def deployment(name: str, replicas: int = 1) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
        },
    }


async def test_a_created_object_has_what_the_server_gives(api: Api) -> None:
    metadata = (await api.create("a", metadata={"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "selfLink": "/x"})).body[
        "metadata"
    ]
    assert metadata["namespace"] == "default"
    assert metadata["uid"] != "mine"
    assert metadata["creationTimestamp"] > "2025"
    assert int(metadata["resourceVersion"]) > 1
    assert "selfLink" not in metadata


async def test_generated_names_begin_with_the_prefix_and_differ(api: Api) -> None:
    names = {(await api("POST", CONFIGMAPS, {"metadata": {"generateName": "gen-"}})).body["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("gen-") and len(name) == 9 for name in names)


async def test_what_exists_is_not_created_again(api: Api) -> None:
    await api.create("a")
    answer = await api("POST", CONFIGMAPS, {"metadata": {"name": "a"}})
    assert (answer.status, answer.body["reason"], answer.message) == (409, "AlreadyExists", 'configmaps "a" already exists')


async def test_a_new_object_must_not_name_a_version(api: Api) -> None:
    answer = await api("POST", CONFIGMAPS, {"metadata": {"name": "a", "resourceVersion": "5"}})
    assert (answer.status, answer.message) == (500, "resourceVersion should not be set on objects to be created")


async def test_an_update_of_an_old_version_conflicts(api: Api) -> None:
    first = await api.create("a")
    assert (
        await api("PUT", f"{CONFIGMAPS}/a", {"metadata": {"name": "a", "resourceVersion": first.version}, "data": {"k": "1"}})
    ).status == 200
    answer = await api("PUT", f"{CONFIGMAPS}/a", {"metadata": {"name": "a", "resourceVersion": first.version}, "data": {"k": "2"}})
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to the latest version '
        "and try again"
    )


async def test_an_update_that_changes_nothing_keeps_the_version(api: Api) -> None:
    first = await api.create("a", data={"k": "v"})
    assert (await api("PUT", f"{CONFIGMAPS}/a", {"metadata": {"name": "a"}, "data": {"k": "v"}})).version == first.version
    assert (await api("PATCH", f"{CONFIGMAPS}/a", {"data": {"k": "v"}}, content=MERGE)).version == first.version


async def test_an_update_of_what_does_not_exist_is_not_found_except_for_kinds_that_updates_create(api: Api) -> None:
    assert (await api("PUT", f"{CONFIGMAPS}/a", {"metadata": {"name": "a"}})).message == 'configmaps "a" not found'
    created = await api("PUT", f"{LEASES}/a", {"metadata": {"name": "a"}})
    assert (created.status, created.body["kind"]) == (201, "Lease")


async def test_kinds_that_are_never_overwritten_blindly_want_a_version(api: Api) -> None:
    await api.create("a", LEASES)
    answer = await api("PUT", f"{LEASES}/a", {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}})
    assert answer.status == 422
    assert answer.message.endswith('"a" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update')


@pytest.mark.parametrize(
    ("patch", "status", "message"),
    [
        pytest.param({"metadata": {"name": "b"}}, 400, "the name of the object (b) does not match the name on the URL (a)", id="the name"),
        pytest.param(
            {"metadata": {"namespace": "b"}},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
            id="the namespace",
        ),
        pytest.param(
            {"metadata": {"uid": "b"}}, 422, 'ConfigMap "a" is invalid: metadata.uid: Invalid value: "b": field is immutable', id="the uid"
        ),
    ],
)
async def test_a_patch_cannot_change(api: Api, patch: dict[str, Any], status: int, message: str) -> None:
    await api.create("a")
    answer = await api("PATCH", f"{CONFIGMAPS}/a", patch, content=MERGE)
    assert (answer.status, answer.message) == (status, message)


async def test_an_update_cannot_change_when_the_object_was_created(api: Api) -> None:
    created = (await api.create("a")).body["metadata"]["creationTimestamp"]
    changed = await api("PATCH", f"{CONFIGMAPS}/a", {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}}, content=MERGE)
    assert changed.body["metadata"]["creationTimestamp"] == created


async def test_the_three_kinds_of_patches_apply(api: Api) -> None:
    await api("POST", DEPLOYMENTS, deployment("d"))
    path = f"{DEPLOYMENTS}/d"
    await api("PATCH", path, [{"op": "replace", "path": "/spec/replicas", "value": 3}], content=JSON_PATCH)
    await api("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, content=MERGE)
    patched = await api(
        "PATCH", path, {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "y"}]}}}}, content=STRATEGIC
    )
    assert patched.status == 200
    spec = patched.body["spec"]
    assert (spec["replicas"], patched.body["metadata"]["labels"]) == (3, {"a": "b"})
    assert [one["name"] for one in spec["template"]["spec"]["containers"]] == ["side", "c"]


async def test_a_patch_meets_a_concurrent_write_and_applies_to_its_result(api: Api) -> None:
    await api.create("a")
    patches = [api("PATCH", f"{CONFIGMAPS}/a", {"data": {f"k{number}": "v"}}, content=MERGE) for number in range(10)]
    assert {answer.status for answer in await asyncio.gather(*patches)} == {200}
    assert len((await api("GET", f"{CONFIGMAPS}/a")).body["data"]) == 10


async def test_a_patch_that_names_an_old_version_conflicts(api: Api) -> None:
    first = await api.create("a")
    await api("PATCH", f"{CONFIGMAPS}/a", {"data": {"k": "v"}}, content=MERGE)
    answer = await api("PATCH", f"{CONFIGMAPS}/a", {"metadata": {"resourceVersion": first.version}, "data": {"k": "w"}}, content=MERGE)
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")


async def test_generation_grows_with_the_spec_and_not_with_metadata_or_status(api: Api) -> None:
    await api("POST", DEPLOYMENTS, deployment("d"))
    path = f"{DEPLOYMENTS}/d"

    async def generation(patch: dict[str, Any], sub: str = "") -> int:
        answer = await api("PATCH", path + sub, patch, content=MERGE)
        assert answer.status == 200, answer.text
        found: int = answer.body["metadata"]["generation"]
        return found

    assert await generation({"metadata": {"labels": {"a": "b"}}}) == 1
    assert await generation({"spec": {"replicas": 5}}) == 2
    assert await generation({"status": {"replicas": 4}}, "/status") == 2


async def test_status_changes_only_through_its_subresource(api: Api) -> None:
    await api("POST", DEPLOYMENTS, {**deployment("d"), "status": {"replicas": 9}})
    path = f"{DEPLOYMENTS}/d"
    assert "replicas" not in (await api("PATCH", path, {"status": {"replicas": 9}}, content=MERGE)).body["status"]
    changed = (await api("PATCH", f"{path}/status", {"status": {"replicas": 4}, "spec": {"replicas": 8}}, content=MERGE)).body
    assert (changed["status"]["replicas"], changed["spec"]["replicas"]) == (4, 1)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_dry_run_answers_as_if_and_stores_nothing(api: Api, method: str) -> None:
    before = await api.create("a", data={"k": "v"})
    path = CONFIGMAPS if method == "POST" else f"{CONFIGMAPS}/a"
    body = {"metadata": {"name": "b" if method == "POST" else "a"}, "data": {"k": "w"}}
    answer = await api(method, f"{path}?dryRun=All", None if method == "DELETE" else body, content=MERGE if method == "PATCH" else "")
    assert answer.status == (201 if method == "POST" else 200)
    if method != "DELETE":
        assert answer.body["data"] == {"k": "w"}
    listed = (await api("GET", CONFIGMAPS)).body["items"]
    assert [(one["metadata"]["name"], one["metadata"]["resourceVersion"], one["data"]) for one in listed] == [
        ("a", before.version, {"k": "v"})
    ]


@pytest.mark.parametrize(
    ("validation", "status", "warnings"),
    [
        pytest.param("Strict", 400, [], id="an error when strict"),
        pytest.param("Warn", 201, ['299 - "unknown field \\"dta\\""'], id="a warning when it is to warn"),
        pytest.param("", 201, ['299 - "unknown field \\"dta\\""'], id="a warning by default"),
        pytest.param("Ignore", 201, [], id="dropped in silence when it is to ignore"),
    ],
)
async def test_an_unknown_field_is(api: Api, validation: str, status: int, warnings: list[str]) -> None:
    query = f"?fieldValidation={validation}" if validation else ""
    answer = await api("POST", f"{CONFIGMAPS}{query}", {"metadata": {"name": "a"}, "dta": {"a": "b"}})
    assert (answer.status, answer.warnings) == (status, warnings)
    assert "dta" not in (answer.body if status == 201 else {})


async def test_a_yaml_body_is_read_and_a_yaml_answer_given(api: Api) -> None:
    answer = await api("POST", CONFIGMAPS, "metadata: {name: a}\ndata: {k: v}\n", content="application/yaml", accept="application/yaml")
    assert answer.status == 201
    assert answer.headers["Content-Type"] == "application/yaml"
    assert "data:\n  k: v\n" in answer.text


async def test_content_needs_a_namespace_that_exists_and_does_not_end(api: Api) -> None:
    missing = await api("POST", "/api/v1/namespaces/nosuch/configmaps", {"metadata": {"name": "a"}})
    assert (missing.status, missing.message) == (404, 'namespaces "nosuch" not found')
    await api.create("short", "/api/v1/namespaces")
    assert (await api("DELETE", "/api/v1/namespaces/short")).body["status"]["phase"] == "Terminating"
    late = await api("POST", "/api/v1/namespaces/short/configmaps", {"metadata": {"name": "a"}})
    assert (late.status, late.body["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    gone = await api("PUT", "/api/v1/namespaces/short/finalize", {"metadata": {"name": "short"}, "spec": {"finalizers": []}})
    assert gone.status == 200
    assert (await api("GET", "/api/v1/namespaces/short")).status == 404
