"""Paths and queries that lead nowhere, or elsewhere than one thinks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.client import Client
from kubeloop.meta.errors import ApiError

pytestmark = pytest.mark.server

NOWHERE = "the server could not find the requested resource"
NOT_ALLOWED = "the server does not allow this method on the requested resource"
UNREADABLE = (
    "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct "
    '{ APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)


async def refused(client: Client, method: str, path: str, body: Any = None) -> tuple[int, str]:
    data = None if body is None else json.dumps(body).encode()
    with pytest.raises(ApiError) as refusal:
        await client.transport.request(method, path, body=data, headers={"Content-Type": "application/json"} if data else None)
    return refusal.value.status.code, refusal.value.status.message


@pytest.mark.parametrize(
    ("method", "path", "answered"),
    [
        pytest.param("GET", "/version/x", (404, NOWHERE), id="nothing is below the version"),
        pytest.param("GET", "/api/v1/bindings", (404, NOWHERE), id="a kind that is only created has no path across namespaces"),
        pytest.param("POST", "/api/v1/bindings", (404, NOWHERE), id="and not made there either"),
        pytest.param("POST", "/api/v1/pods", (405, NOT_ALLOWED), id="a kind that is listed across namespaces is created in one"),
        pytest.param("GET", "/api/v1/namespaces/default/pods//log", (400, "name must be provided"), id="a subresource is of an object"),
        pytest.param("GET", "/apis/apps/v1/namespaces/default/deployments//scale", (400, "name must be provided"), id="of any kind"),
        pytest.param(
            "GET",
            "/api/v1/namespaces/default/configmaps/a%25b",
            (400, "Name parameter invalid: \"a%b\": may not contain '%'"),
            id="a name could be part of a key",
        ),
        pytest.param(
            "DELETE",
            "/api/v1/namespaces/default/configmaps/%2e%2e",
            (400, "Name parameter invalid: \"..\": may not be '..'"),
            id="and leads to no other",
        ),
        pytest.param(
            "GET",
            "/api/v1/namespaces/default/configmaps/a%00b",
            (404, 'configmaps "a\\x00b" not found'),
            id="a name is quoted",
        ),
    ],
)
async def test_a_path_that_leads_nowhere_says_so(client: Client, method: str, path: str, answered: tuple[int, str]) -> None:
    assert await refused(client, method, path) == answered


async def test_a_watch_of_nothing_cannot_be_understood(client: Client) -> None:
    code, message = await refused(client, "GET", "/api/v1/watch")
    assert code == 500
    assert "unable to determine kind and namespace from url, /api/v1/watch" in message


async def test_a_list_of_one_name_has_no_further_page(client: Client) -> None:
    answer = await client.transport.request("GET", "/api/v1/namespaces?limit=1&fieldSelector=metadata.name%3Ddefault")
    found = json.loads(answer.body)
    assert [one["metadata"]["name"] for one in found["items"]] == ["default"]
    assert "continue" not in found["metadata"]


async def test_options_of_a_deletion_may_be_nothing_but_no_list(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps/none"
    assert await refused(client, "DELETE", path, []) == (400, UNREADABLE)
    with pytest.raises(ApiError) as refusal:
        await client.transport.request("DELETE", path, body=b"null", headers={"Content-Type": "application/json"})
    assert refusal.value.status.code == 404


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3/api/v1"])
async def test_documents_of_schemas_have_ranges(client: Client, path: str) -> None:
    assert (await client.transport.request("GET", path)).headers["Accept-Ranges"] == "bytes"
