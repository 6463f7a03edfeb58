"""Deleting a collection by pages, on both servers."""

from __future__ import annotations

import json

import pytest

from kubeloop.transport import Transport
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server


async def test_deleting_a_page_of_a_collection_tells_where_the_next_begins_and_how_many_are_left(
    server: ServerUnderTest, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with Transport(server.config) as transport:
        for name in ("a1", "a2", "a3", "a4", "a5"):
            await transport.request("POST", path, body=json.dumps({"metadata": {"name": name, "labels": {"mine": "yes"}}}).encode())
        first = json.loads((await transport.request("DELETE", path, query={"limit": "2", "dryRun": "All"})).body)
        chosen = json.loads((await transport.request("DELETE", path, query={"limit": "2", "labelSelector": "mine=yes"})).body)
        query = {"limit": "9", "labelSelector": "mine=yes", "continue": chosen["metadata"]["continue"]}
        rest = json.loads((await transport.request("DELETE", path, query=query)).body)
    assert first["metadata"]["continue"]
    assert first["metadata"]["remainingItemCount"] >= 3
    assert "remainingItemCount" not in chosen["metadata"]
    assert [len(chosen["items"]), len(rest["items"])] == [2, 3]
    assert "continue" not in rest["metadata"]
