"""Writes that no ordinary client makes: options in unusual places, patches of wrong types, owners in no version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.client import Client
from kubeloop.meta.errors import ApiError

pytestmark = pytest.mark.server

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
GENERIC = "the server rejected our request due to an error in our request"


def config_map(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"a": "b"}}


class Maps:
    """ConfigMaps of the test's namespace, by raw requests."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"

    async def send(self, method: str, rest: str = "", body: Any = None, content: str = "application/json") -> dict[str, Any]:
        data = None if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        headers = {"Content-Type": content} if data is not None else None
        answer = await self._client.transport.request(method, self.path + rest, body=data, headers=headers)
        found: dict[str, Any] = json.loads(answer.body)
        return found

    async def refused(self, method: str, rest: str = "", body: Any = None, content: str = "application/json") -> tuple[int, str, str]:
        with pytest.raises(ApiError) as refusal:
            await self.send(method, rest, body, content)
        status = refusal.value.status
        return status.code, status.reason, status.message


@pytest.fixture
async def maps(client: Client, namespace: str) -> Maps:
    found = Maps(client, namespace)
    await found.send("POST", body=config_map("one"))
    return found


@pytest.mark.parametrize(
    ("patch", "refused"),
    [
        pytest.param([{"op": 1}], (422, "Invalid", GENERIC), id="an operation that is no text is none"),
        pytest.param([{"op": "add", "path": 1, "value": "x"}], (422, "Invalid", GENERIC), id="nor is such a path"),
        pytest.param(
            [1], (400, "BadRequest", "json: cannot unmarshal number into Go value of type jsonpatch.Operation"), id="items are maps"
        ),
        pytest.param({}, (400, "BadRequest", "json: cannot unmarshal object into Go value of type jsonpatch.Patch"), id="in a list"),
        pytest.param("x", (400, "BadRequest", "invalid character 'x' looking for beginning of value"), id="of JSON"),
    ],
)
async def test_without_validation_a_patch_is_judged_when_it_is_applied(maps: Maps, patch: Any, refused: tuple[int, str, str]) -> None:
    assert await maps.refused("PATCH", "/one?fieldValidation=Ignore", patch, JSON_PATCH) == refused


async def test_without_validation_a_merge_patch_that_is_no_json_is_none(maps: Maps) -> None:
    assert await maps.refused("PATCH", "/one?fieldValidation=Ignore", "{", MERGE) == (400, "BadRequest", "Invalid JSON Patch")


async def test_a_json_patch_has_so_many_operations(maps: Maps) -> None:
    many = [{"op": "add", "path": "/data/b", "value": "x"}] * 10_001
    message = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    assert await maps.refused("PATCH", "/one", many, JSON_PATCH) == (413, "RequestEntityTooLarge", message)


async def test_an_owner_entry_with_an_invalid_version_removes_all_owners(maps: Maps) -> None:
    entry = {"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}}
    two = await maps.send("POST", body=config_map("two", managedFields=[{**entry, "apiVersion": "a/b/c"}]))
    assert "managedFields" not in two["metadata"]
    three = await maps.send("POST", body=config_map("three", managedFields=[{**entry, "apiVersion": "a.example.com/v1"}]))
    assert [one["manager"] for one in three["metadata"]["managedFields"]] != ["m"]


async def test_a_link_of_a_request_comes_back_from_a_dry_run_only(maps: Maps) -> None:
    sent = config_map("one", selfLink="/x")
    assert (await maps.send("PUT", "/one?dryRun=All", sent))["metadata"]["selfLink"] == "/x"
    assert "selfLink" not in (await maps.send("PUT", "/one", sent))["metadata"]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        pytest.param("uid=x", "UID", id="by uid"),
        pytest.param("resourceVersion=1", "ResourceVersion", id="by version"),
        pytest.param("resourceVersion=0", "ResourceVersion", id="even the version that means any elsewhere"),
    ],
)
async def test_a_query_may_hold_preconditions_of_a_deletion(maps: Maps, query: str, name: str) -> None:
    code, reason, message = await maps.refused("DELETE", f"/one?{query}")
    assert (code, reason) == (409, "Conflict")
    assert message.startswith(
        f'Operation cannot be fulfilled on ConfigMap "one": the {name} in the precondition ({query.partition("=")[2]}) does'
    )
    assert (await maps.send("DELETE", "/one", {}))["status"] == "Success"


async def test_so_may_that_of_a_collection(maps: Maps) -> None:
    made = await maps.send("POST", body=config_map("two", labels={"odd": "yes"}))
    # What version 0 finds is what a real server's cache holds, which may be a moment behind.
    await maps.send("GET", f"?resourceVersion={made['metadata']['resourceVersion']}&resourceVersionMatch=NotOlderThan")
    code, reason, message = await maps.refused("DELETE", "?labelSelector=odd&resourceVersion=0")
    assert (code, reason) == (409, "Conflict")
    assert 'on ConfigMap "two"' in message


async def test_a_collection_is_deleted_by_pages_so_that_a_version_is_that_version(maps: Maps) -> None:
    known = await maps.send("POST", body=config_map("two", labels={"odd": "yes"}))
    await maps.send("POST", body=config_map("three", labels={"odd": "yes"}))
    version = known["metadata"]["resourceVersion"]
    await maps.send("DELETE", f"?labelSelector=odd&resourceVersion={version}")
    assert [one["metadata"]["name"] for one in (await maps.send("GET", "?labelSelector=odd"))["items"]] == ["three"]
