"""Pages, as client-go's pager asks for them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import ApiError, Expired, Forbidden
from kubeloop.transport import Transport
from tests.faults import FaultServer, Received, Reply, status


def page(number: int, *, last: bool = False) -> Reply:
    metadata = {"resourceVersion": "9"} | ({} if last else {"continue": f"t{number}"})
    items = [{"metadata": {"name": f"m{number}"}}]
    return Reply(body={"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items})


def queries(server: FaultServer) -> list[str]:
    return [one.query for one in server.received]


class Pages(FaultServer):
    """As many pages as there are; a full list; ``fault`` is the answer to the page of that number."""

    def __init__(self, count: int, faults: dict[int, Reply] | None = None) -> None:
        self.count = count
        self.faults = faults or {}
        super().__init__(answer=self.page)

    def page(self, received: Received) -> Reply:
        query = dict(part.split("=") for part in received.query.split("&") if part)
        if "limit" not in query:
            return page(0, last=True)
        number = int(query["continue"].removeprefix("t")) if "continue" in query else 0
        return self.faults.get(number) or page(number + 1, last=number + 1 == self.count)


EXPIRED = status(410, "Expired", "too old")


async def test_n175_pages_are_of_500_and_the_version_is_said_on_the_first_only() -> None:
    async with Pages(3) as server, Client(Transport(server.config())) as client:
        found = await client.list(ConfigMap, resource_version="7", resource_version_match="NotOlderThan", namespace=ALL_NAMESPACES)
    assert [one.metadata.name for one in found] == ["m1", "m2", "m3"]
    first = "limit=500&resourceVersion=7&resourceVersionMatch=NotOlderThan"
    assert queries(server) == [first, "limit=500&continue=t1", "limit=500&continue=t2"]


async def test_n175_a_token_that_expired_starts_one_full_list_at_the_version_that_was_asked_for() -> None:
    async with Pages(3, {1: EXPIRED}) as server, Client(Transport(server.config())) as client:
        found = await client.list(ConfigMap, resource_version="7", resource_version_match="Exact", namespace=ALL_NAMESPACES)
    assert [one.metadata.name for one in found] == ["m0"]
    first = "limit=500&resourceVersion=7&resourceVersionMatch=Exact"
    assert queries(server) == [first, "limit=500&continue=t1", "resourceVersion=7&resourceVersionMatch=Exact"]


async def test_n175_an_expired_version_on_the_first_page_is_the_error() -> None:
    async with Pages(3, {0: EXPIRED}) as server, Client(Transport(server.config())) as client:
        with pytest.raises(Expired):
            await client.list(ConfigMap, resource_version="7", resource_version_match="Exact", namespace=ALL_NAMESPACES)
    assert len(server.received) == 1


@pytest.mark.parametrize("number", [pytest.param(0, id="on the first page"), pytest.param(1, id="on a later one")])
async def test_n175_any_other_error_is_returned(number: int) -> None:
    async with Pages(3, {number: status(403, "Forbidden", "no")}) as server, Client(Transport(server.config())) as client:
        with pytest.raises(Forbidden):
            await client.list(ConfigMap, namespace=ALL_NAMESPACES)
    assert len(server.received) == number + 1


class Reader:
    """Takes pages one by one, and lets the pager run ahead in between."""

    def __init__(self, call: Any, server: FaultServer, prefetch: int) -> None:
        self.pages = call.pages(prefetch=prefetch)
        self.server = server

    async def take(self) -> str:
        found = await anext(self.pages)
        return str(found[0].metadata.name)

    async def settled(self, requests: int) -> int:
        """How many requests there were, once as many as expected have come and the loop had time for more."""
        async with asyncio.timeout(20):
            while len(self.server.received) < requests:
                await asyncio.sleep(0.001)
        for _ in range(50):
            await asyncio.sleep(0)
        return len(self.server.received)


async def test_n176_at_most_as_many_pages_are_asked_for_ahead_as_the_buffer_holds() -> None:
    async with Pages(20) as server, Client(Transport(server.config())) as client:
        reader = Reader(client.list(ConfigMap, namespace=ALL_NAMESPACES), server, prefetch=3)
        async with aclosing(reader.pages):
            assert await reader.take() == "m1"
            assert await reader.settled(4) == 4
            assert await reader.take() == "m2"
            assert await reader.settled(5) == 5


async def test_n176_without_a_buffer_a_page_is_requested_when_it_is_needed() -> None:
    async with Pages(20) as server, Client(Transport(server.config())) as client:
        reader = Reader(client.list(ConfigMap, namespace=ALL_NAMESPACES), server, prefetch=0)
        async with aclosing(reader.pages):
            assert [await reader.take() for _ in range(3)] == ["m1", "m2", "m3"]
            assert await reader.settled(3) == 3


@pytest.mark.parametrize("prefetch", [0, 10])
async def test_n176_all_pages_come_in_order_and_an_error_after_those_before_it(prefetch: int) -> None:
    async with Pages(15) as server, Client(Transport(server.config())) as client:
        names = [found[0].metadata.name async for found in client.list(ConfigMap, namespace=ALL_NAMESPACES).pages(prefetch=prefetch)]
    assert names == [f"m{number}" for number in range(1, 16)]
    async with Pages(15, {7: status(403, "Forbidden", "no")}) as server, Client(Transport(server.config())) as client:
        pages = client.list(ConfigMap, namespace=ALL_NAMESPACES).pages(prefetch=prefetch)
        assert [(await anext(pages))[0].metadata.name for _ in range(7)] == names[:7]
        with pytest.raises(ApiError):
            await anext(pages)


@pytest.mark.parametrize("prefetch", [0, 10])
async def test_n176_leaving_early_stops_the_pager(prefetch: int) -> None:
    before = asyncio.all_tasks()
    async with Pages(1000) as server, Client(Transport(server.config())) as client:
        async with aclosing(client.list(ConfigMap, namespace=ALL_NAMESPACES).pages(prefetch=prefetch)) as pages:
            async for _ in pages:
                break
        asked = len(server.received)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(server.received) <= asked + 1
    assert asyncio.all_tasks() == before
