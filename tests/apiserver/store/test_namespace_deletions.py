"""Namespaces are deleted in a special way: the fate of dependents is decided at once."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeloop.meta import ApiError, NotFound
from kubeloop.transport import Transport
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server


class Namespace:
    """One of the test's own."""

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport = transport
        self.path = f"/api/v1/namespaces/{name}"
        self.name = name

    async def ask(self, method: str, path: str = "", body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        sent = b"" if body is None else json.dumps(body).encode()
        answer = await self._transport.request(method, self.path + path, body=sent)
        return answer.status, json.loads(answer.body)

    async def delete(self, **options: Any) -> tuple[int, dict[str, Any]]:
        return await self.ask("DELETE", "", {"kind": "DeleteOptions", "apiVersion": "v1", **options})

    async def let_go(self) -> None:
        """What the namespace controller does at the end, where there is one."""
        with contextlib.suppress(NotFound):
            await self.ask("PUT", "/finalize", {"metadata": {"name": self.name}, "spec": {"finalizers": []}})


@pytest.fixture
async def mine(server: ServerUnderTest) -> AsyncIterator[Namespace]:
    async with Transport(server.config) as transport:
        name = f"going-{uuid.uuid4().hex[:8]}"
        body = json.dumps({"metadata": {"name": name}}).encode()
        await transport.request("POST", "/api/v1/namespaces", body=body)
        yield Namespace(transport, name)


@pytest.mark.parametrize(
    ("options", "finalizers", "status"),
    [
        pytest.param({"propagationPolicy": "Foreground"}, ["foregroundDeletion"], 200, id="in the foreground"),
        pytest.param({"propagationPolicy": "Orphan"}, ["orphan"], 200, id="leaving orphans"),
        pytest.param({"propagationPolicy": "Background"}, None, 200, id="in the background"),
        pytest.param({"orphanDependents": True}, ["orphan"], 200, id="leaving orphans, said in the old way"),
        pytest.param({"orphanDependents": False}, ["foregroundDeletion"], 202, id="leaving none, said in the old way, is accepted"),
    ],
)
async def test_what_becomes_of_dependents_is_a_finalizer(mine: Namespace, options: dict[str, Any], finalizers: Any, status: int) -> None:
    tried, shown = await mine.ask("DELETE", "?dryRun=All&propagationPolicy=Foreground")
    assert (tried, shown["metadata"]["finalizers"]) == (200, ["foregroundDeletion"])
    answered, marked = await mine.delete(**options)
    assert (answered, marked["metadata"].get("finalizers")) == (status, finalizers)
    await mine.let_go()


@pytest.mark.parametrize("precondition", ["uid", "resourceVersion"])
async def test_failed_preconditions_of_namespaces_have_a_special_message(mine: Namespace, precondition: str) -> None:
    with pytest.raises(ApiError) as caught:
        await mine.delete(preconditions={precondition: "1"})
    metadata = (await mine.ask("GET"))[1]["metadata"]
    said = {"uid": "UID", "resourceVersion": "ResourceVersion"}[precondition]
    why = f"Precondition failed: {said} in precondition: 1, {said} in object meta: {metadata[precondition]}"
    assert caught.value.status.message == f'Operation cannot be fulfilled on namespaces "{mine.name}": {why}'
    assert caught.value.status.code == 409
    await mine.delete()
    await mine.let_go()
