"""Creates in a namespace that is being deleted, on both servers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.meta import ApiError
from kubeloop.transport import Transport
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

MERGE = "application/merge-patch+json"


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        pytest.param({"name": "a"}, "a", id="by its name"),
        pytest.param({"generateName": "job-"}, "job-", id="by the prefix of a name that is yet to be generated"),
        pytest.param({}, "Unknown", id="as unknown when it has neither"),
    ],
)
async def test_the_refused_object_is_named(server: ServerUnderTest, namespace: str, metadata: dict[str, Any], named: str) -> None:
    configmaps = f"/api/v1/namespaces/{namespace}/configmaps"
    held = {"metadata": {"name": "held", "finalizers": ["kubeloop.example.com/held"]}}
    async with Transport(server.config) as transport:
        await transport.request("POST", configmaps, body=json.dumps(held).encode())
        await transport.request("DELETE", f"/api/v1/namespaces/{namespace}")
        try:
            with pytest.raises(ApiError) as caught:
                await transport.request("POST", configmaps, body=json.dumps({"metadata": metadata}).encode())
        finally:
            freed = b'{"metadata": {"finalizers": null}}'
            await transport.request("PATCH", f"{configmaps}/held", body=freed, content_type=MERGE)
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    assert caught.value.status.message == f'configmaps "{named}" is forbidden: {why}'
