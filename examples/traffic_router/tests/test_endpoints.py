"""The Router gets the ready addresses of a Service from the EndpointSlices of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from examples.traffic_router.endpoints import Address, ServiceAddresses
from kubeloop import Client, InformerFactory, ObjectMeta
from kubeloop.api.discovery.v1 import Endpoint, EndpointConditions, EndpointPort, EndpointSlice

pytestmark = pytest.mark.server


def _slice(name: str, service: str, ready: dict[str, bool | None], port: int | None = 8080) -> EndpointSlice:
    return EndpointSlice(
        metadata=ObjectMeta(name=name, labels={"kubernetes.io/service-name": service}),
        address_type="IPv4",
        endpoints=[Endpoint(addresses=[ip], conditions=EndpointConditions(ready=state)) for ip, state in ready.items()],
        ports=[EndpointPort(name="http", port=port, protocol="TCP")],
    )


class FollowedAddresses:
    """Addresses that follow the server of a test."""

    def __init__(self, client: Client, informers: InformerFactory) -> None:
        self._slices = informers.for_kind(EndpointSlice, namespace=client.namespace).lister
        self._addresses = ServiceAddresses(informers, client.namespace)

    async def read(self, service: str) -> Sequence[Address]:
        """Return the addresses of a Service with all changes so far."""
        await self._slices.wait_fresh()
        return self._addresses(service)


@pytest.fixture
async def addresses(client: Client) -> AsyncIterator[FollowedAddresses]:
    async with InformerFactory(client) as informers:
        found = FollowedAddresses(client, informers)
        await informers.wait_synced()
        yield found


async def test_ready_addresses_of_all_slices_of_the_service(client: Client, addresses: FollowedAddresses) -> None:
    await client.create(_slice("a", "web", {"10.0.0.3": True, "10.0.0.2": False}))
    await client.create(_slice("b", "web", {"10.0.0.1": None, "10.0.0.3": True}))
    await client.create(_slice("c", "other", {"10.0.0.9": True}))
    assert await addresses.read("web") == [("10.0.0.1", 8080), ("10.0.0.3", 8080)]


async def test_each_address_comes_first_in_its_turn(client: Client, addresses: FollowedAddresses) -> None:
    await client.create(_slice("a", "web", {f"10.0.0.{number}": True for number in (1, 2, 3)}))
    firsts = [(await addresses.read("web"))[0][0] for _ in range(4)]
    assert firsts == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.1"]


async def test_changes_of_slices_change_the_addresses(client: Client, addresses: FollowedAddresses) -> None:
    found = await client.create(_slice("a", "web", {"10.0.0.1": True}))
    assert await addresses.read("web") == [("10.0.0.1", 8080)]
    found.endpoints[0].addresses = ["10.0.0.2"]
    await client.update(found)
    assert await addresses.read("web") == [("10.0.0.2", 8080)]
    await client.delete(EndpointSlice, "a")
    assert await addresses.read("web") == []
