"""Which namespace a request names: the one given, else the object's own, else the client's; all of them only when the call says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from kubeloop.api.core.v1 import ConfigMap, Node
from kubeloop.cache import InformerFactory
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import Resource, Unstructured
from kubeloop.transport import Transport
from tests.faults import FaultServer, Reply

LIST = Reply(body={"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "5"}, "items": []})
UNKNOWN_SCOPE = Unstructured.for_kind("v1", "ConfigMap")

Ask = Callable[[Client], Awaitable[object]]


@pytest.mark.parametrize(
    ("ask", "path"),
    [
        pytest.param(lambda client: client.list(ConfigMap), "namespaces/shop/configmaps", id="a list without a namespace"),
        pytest.param(lambda client: client.list(ConfigMap, namespace="bank"), "namespaces/bank/configmaps", id="a list of a namespace"),
        pytest.param(lambda client: client.list(ConfigMap, namespace=ALL_NAMESPACES), "configmaps", id="a list of all namespaces"),
        pytest.param(lambda client: client.list_metadata(ConfigMap), "namespaces/shop/configmaps", id="metadata without a namespace"),
        pytest.param(lambda client: client.list_page(ConfigMap), "namespaces/shop/configmaps", id="a page of a list"),
        pytest.param(lambda client: client.list(Node), "nodes", id="a cluster-scoped kind has no namespace"),
        pytest.param(lambda client: client.list(Node, namespace=ALL_NAMESPACES), "nodes", id="nor has it all of them"),
        pytest.param(lambda client: client.in_namespace("bank").list(ConfigMap), "namespaces/bank/configmaps", id="of a view"),
    ],
)
async def test_the_namespace_of_a_list(ask: Ask, path: str) -> None:
    async with FaultServer(LIST) as server, Client(Transport(server.config()), namespace="shop") as client:
        await ask(client)
        assert server.received[0].path == f"/api/v1/{path}"


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        pytest.param(lambda client: client.list(ConfigMap, namespace=""), r"leave it out for the client's namespace \"shop\", or write "
                     "namespace=ALL_NAMESPACES", id="an empty namespace of a list"),
        pytest.param(lambda client: client.get(ConfigMap, "a", namespace=ALL_NAMESPACES), "names no single namespace", id="one object"),
        pytest.param(lambda client: client.delete_collection(ConfigMap, namespace=ALL_NAMESPACES), "names no single namespace",
                     id="a deletion of many"),
        pytest.param(lambda client: client.in_namespace("bank").list(ConfigMap, namespace=ALL_NAMESPACES), "ALL_NAMESPACES is not that of "
                     'this client, which is for "bank" only', id="a view of one namespace"),
    ],
)  # fmt: skip
async def test_a_namespace_that_cannot_be_is_refused_before_anything_is_sent(ask: Ask, message: str) -> None:
    async with FaultServer(LIST) as server, Client(Transport(server.config()), namespace="shop") as client:
        with pytest.raises(ValueError, match=message):
            await ask(client)
        assert server.received == []


@pytest.mark.parametrize(
    ("kind", "namespace", "objects"),
    [
        pytest.param(ConfigMap, None, 'configmaps in namespace "shop"', id="the client's, where none is given"),
        pytest.param(ConfigMap, "bank", 'configmaps in namespace "bank"', id="the one given"),
        pytest.param(ConfigMap, ALL_NAMESPACES, "configmaps in all namespaces", id="all, where the call says so"),
        pytest.param(UNKNOWN_SCOPE, ALL_NAMESPACES, "ConfigMap objects in all namespaces", id="all, of a kind that discovery tells"),
        pytest.param(Node, None, "nodes in all namespaces", id="of a cluster-scoped kind all objects"),
    ],
)
async def test_the_namespace_of_an_informer(kind: type[Resource], namespace: str | None, objects: str) -> None:
    async with FaultServer(LIST) as server, Client(Transport(server.config()), namespace="shop") as client:
        informers = InformerFactory(client)
        assert informers.for_kind(kind, namespace=namespace).description == objects
        assert informers.metadata(kind, namespace=namespace).description == f"metadata of {objects}"


async def test_an_informer_of_a_kind_that_discovery_tells_needs_a_namespace() -> None:
    async with FaultServer(LIST) as server, Client(Transport(server.config()), namespace="shop") as client:
        with pytest.raises(ValueError, match=r"give namespace=\.\.\., ALL_NAMESPACES for all of them"):
            InformerFactory(client).for_kind(UNKNOWN_SCOPE)
