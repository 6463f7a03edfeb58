"""The resourceVersion that a new object names, which no new object has; the same on both servers."""

from __future__ import annotations

import json

import pytest

from kubeloop.meta import ApiError
from kubeloop.transport import Transport
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server


async def test_a_new_object_must_not_name_a_version(server: ServerUnderTest, namespace: str) -> None:
    body = json.dumps({"metadata": {"name": "a", "resourceVersion": "5"}}).encode()
    async with Transport(server.config) as transport:
        with pytest.raises(ApiError) as caught:
            await transport.request("POST", f"/api/v1/namespaces/{namespace}/configmaps", body=body)
    assert (caught.value.status.code, caught.value.status.message) == (500, "resourceVersion should not be set on objects to be created")


@pytest.mark.parametrize("version", ["0", "00", "x", "-1", "1.5", "99999999999999999999"])
async def test_an_invalid_version_of_a_new_object_is_ignored(server: ServerUnderTest, namespace: str, version: str) -> None:
    body = json.dumps({"metadata": {"generateName": "a-", "resourceVersion": version}}).encode()
    async with Transport(server.config) as transport:
        answer = await transport.request("POST", f"/api/v1/namespaces/{namespace}/configmaps", body=body)
    assert answer.status == 201
    assert json.loads(answer.body)["metadata"]["resourceVersion"] != version


@pytest.mark.parametrize("version", ["5", "x"])
async def test_a_dry_run_gives_back_the_version_that_was_sent(server: ServerUnderTest, namespace: str, version: str) -> None:
    body = json.dumps({"metadata": {"name": "a", "resourceVersion": version}}).encode()
    async with Transport(server.config) as transport:
        answer = await transport.request("POST", f"/api/v1/namespaces/{namespace}/configmaps", query={"dryRun": "All"}, body=body)
    assert answer.status == 201
    assert json.loads(answer.body)["metadata"]["resourceVersion"] == version


async def test_an_update_that_creates_takes_any_version_for_none(server: ServerUnderTest, namespace: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/a"
    body = json.dumps({"metadata": {"name": "a", "resourceVersion": "5"}}).encode()
    async with Transport(server.config) as transport:
        tried = await transport.request("PUT", path, query={"dryRun": "All"}, body=body)
        answer = await transport.request("PUT", path, body=body)
    assert (tried.status, json.loads(tried.body)["metadata"]["resourceVersion"]) == (201, "5")
    assert answer.status == 201
    assert json.loads(answer.body)["metadata"]["resourceVersion"] != "5"


async def test_an_update_that_creates_must_not_name_an_invalid_version(server: ServerUnderTest, namespace: str) -> None:
    body = json.dumps({"metadata": {"name": "a", "resourceVersion": "x"}}).encode()
    async with Transport(server.config) as transport:
        with pytest.raises(ApiError) as caught:
            await transport.request("PUT", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/a", body=body)
    assert (caught.value.status.code, caught.value.status.message) == (500, 'strconv.ParseUint: parsing "x": invalid syntax')
