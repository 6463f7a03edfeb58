"""Requests that no ordinary client makes: slashes too many, patches of a collection, emptiness that only the body tells from nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeloop.client import Client
from kubeloop.meta.errors import ApiError, NotFound

pytestmark = pytest.mark.server

APPLY = "application/apply-patch+yaml"
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
UNKNOWN_FORMAT = (
    "the body of the request was in an unknown format - accepted media types include: "
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
)


@pytest.mark.parametrize(
    ("path", "exists"),
    [
        pytest.param("//", False, id="nothing is at two slashes"),
        pytest.param("//api/v1", False, id="nothing is below two slashes"),
        pytest.param("//version", False, id="nor are documents"),
        pytest.param("/apis//", False, id="no group has no name"),
        pytest.param("/apis//apps", False, id="nor has one before a group"),
        pytest.param("/api//", True, id="the core group is at the end of slashes"),
        pytest.param("/apis/apps//", True, id="so is a named one"),
        pytest.param("/version//", True, id="and a document"),
    ],
)
async def test_slashes_are_passed_over_only_at_the_end(client: Client, path: str, exists: bool) -> None:
    if exists:
        assert (await client.transport.request("GET", path)).status == 200
        return
    with pytest.raises(ApiError) as refused:
        await client.transport.request("GET", path)
    assert refused.value.status.code == 404
    assert "404 page not found" in refused.value.status.message


@pytest.fixture
async def widgets(client: Client, namespace: str) -> AsyncIterator[str]:
    """The path of a collection of custom objects."""
    group = f"{namespace}.example.com"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    definition = {
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    await client.transport.request("POST", DEFINITIONS, body=json.dumps(definition).encode())
    path = f"/apis/{group}/v1/namespaces/{namespace}/widgets"
    async with asyncio.timeout(20):
        while not await _is_served(client, path):
            await asyncio.sleep(0.05)
    yield path
    await client.transport.request("DELETE", f"{DEFINITIONS}/widgets.{group}")


async def _is_served(client: Client, path: str) -> bool:
    try:
        await client.transport.request("GET", path)
    except NotFound:
        return False
    return True


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        pytest.param(JSON, 415, UNKNOWN_FORMAT, id="of no kind of patch"),
        pytest.param(STRATEGIC, 415, UNKNOWN_FORMAT, id="of a kind that custom resources do not have"),
        pytest.param(MERGE, 400, "name must be provided", id="of a kind that they have"),
        pytest.param(APPLY, 400, "name must be provided", id="as apply"),
    ],
)
async def test_a_patch_of_a_custom_collection(client: Client, widgets: str, content: str, code: int, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        await client.transport.request("PATCH", widgets, body=b"{}", content_type=content, query={"fieldManager": "me"})
    assert (refused.value.status.code, refused.value.status.message) == (code, message)


@pytest.mark.parametrize(
    ("spec", "generation"),
    [
        pytest.param({"podSelector": {}}, 1, id="nothing changes"),
        pytest.param({"podSelector": {"matchLabels": {}}}, 2, id="an empty map is not none"),
        pytest.param({"podSelector": {"matchExpressions": []}}, 2, id="an empty list is not none"),
        pytest.param({"podSelector": {}, "ingress": []}, 2, id="no more is an empty list of rules"),
        pytest.param({"podSelector": {}, "policyTypes": []}, 1, id="but no policy types are the default ones"),
    ],
)
async def test_a_network_policys_generation(client: Client, namespace: str, spec: dict[str, Any], generation: int) -> None:
    path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
    policy = {"metadata": {"name": "one"}, "spec": {"podSelector": {}}}
    await client.transport.request("POST", path, body=json.dumps(policy).encode())
    answer = await client.transport.request("PUT", f"{path}/one", body=json.dumps(policy | {"spec": spec}).encode())
    assert json.loads(answer.body)["metadata"]["generation"] == generation
