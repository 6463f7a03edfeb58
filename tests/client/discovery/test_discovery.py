"""Discovery in both forms, and the mapping of kinds and names to resources."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.api.core.v1 import Pod
from kubeloop.client import Client, Mapper
from kubeloop.client.discovery import discover
from kubeloop.meta import ApiError, DecodeError, GroupVersion, GroupVersionKind, UnknownKind, Unstructured
from kubeloop.transport import Transport
from tests.faults import FaultServer, Received, Reply, status


@pytest.mark.server
class TestAgainstAServer:
    async def test_resources_are_found_with_their_subresources(self, client: Client) -> None:
        found = await client.mapper.resource_of(GroupVersionKind("apps", "v1", "Deployment"))
        assert (found.gvr.resource, found.namespaced, found.singular, found.short_names) == ("deployments", True, "deployment", ("deploy",))
        assert set(found.subresources) == {"scale", "status"}
        assert "watch" in found.verbs

    @pytest.mark.parametrize("name", ["pods", "pod", "Pod", "po", "deploy", "deployments.apps", "deployments.v1.apps", "ns"])
    async def test_resources_are_found_by_the_names_people_use(self, client: Client, name: str) -> None:
        assert (await client.mapper.find(name)).gvr.resource in {"pods", "deployments", "namespaces"}

    async def test_an_unknown_name_is_an_error_with_similar_names(self, client: Client) -> None:
        with pytest.raises(UnknownKind, match=r'serves no resource "deploymnts"; did you mean deployments'):
            await client.mapper.find("deploymnts")

    async def test_both_forms_say_the_same(self, client: Client) -> None:
        aggregated = await discover(client.transport)

        class Legacy(Transport):
            async def request(self, method: str, path: str, **options: Any) -> Any:
                return await super().request(method, path, **{**options, "accept": "application/json"})

        async with Legacy(client.transport.config) as transport:
            legacy = await discover(transport)

        def shown(mapping: Any) -> set[tuple[Any, ...]]:
            return {
                (
                    one.gvr,
                    one.gvk,
                    one.namespaced,
                    one.singular,
                    one.short_names,
                    one.categories,
                    frozenset(one.verbs),
                    frozenset(one.subresources),
                )
                for one in mapping.resources
            }

        assert shown(aggregated) == shown(legacy)


def resources(*entries: tuple[str, str, bool]) -> Reply:
    return Reply(
        body={
            "kind": "APIResourceList",
            "resources": [{"name": name, "kind": kind, "namespaced": yes, "verbs": ["get"]} for name, kind, yes in entries],
        }
    )


def legacy(received: Received) -> Reply:
    """A server of old: no aggregated discovery, one extension that is down."""
    groups = [
        {
            "name": "apps",
            "versions": [{"groupVersion": "apps/v1beta1"}, {"groupVersion": "apps/v1"}],
            "preferredVersion": {"groupVersion": "apps/v1"},
        },
        {"name": "down.io", "versions": [{"groupVersion": "down.io/v1"}]},
    ]
    answers = {
        "/api": Reply(body={"kind": "APIVersions", "versions": ["v1"]}),
        "/apis": Reply(body={"kind": "APIGroupList", "groups": groups}),
        "/api/v1": resources(("pods", "Pod", True), ("pods/log", "Pod", True), ("nodes", "Node", False)),
        "/apis/apps/v1": resources(("deployments", "Deployment", True), ("deployments/scale", "Scale", True)),
        "/apis/apps/v1beta1": resources(("deployments", "Deployment", True)),
        "/apis/down.io/v1": status(503, "ServiceUnavailable", "down"),
    }
    return answers[received.path]


async def test_an_old_server_gets_a_request_for_one_group_version_after_the_other() -> None:
    async with FaultServer(answer=legacy) as server, Transport(server.config()) as transport:
        found = await discover(transport)
    by_name = {(one.gvr.version, one.gvr.resource): one for one in found.resources}
    assert by_name["v1", "pods"].subresources == ("log",)
    assert by_name["v1", "deployments"].subresources == ("scale",)
    assert not by_name["v1", "nodes"].namespaced
    assert found.failed == (GroupVersion("down.io", "v1"),)


async def test_a_name_means_the_preferred_version() -> None:
    async with FaultServer(answer=legacy) as server, Transport(server.config()) as transport:
        mapper = Mapper(transport)
        assert (await mapper.find("deployments")).gvr.version == "v1"
        assert (await mapper.find("deployments.v1beta1.apps")).gvr.version == "v1beta1"


async def test_a_kind_whose_server_is_down_has_its_own_error() -> None:
    async with FaultServer(answer=legacy) as server, Transport(server.config()) as transport:
        with pytest.raises(UnknownKind, match=r"the server behind down.io/v1 does not answer at the moment"):
            await Mapper(transport).resource_of(GroupVersionKind("down.io", "v1", "Thing"))


async def test_typed_kinds_need_no_discovery() -> None:
    async with FaultServer(Reply()) as server, Transport(server.config()) as transport:
        assert (await Mapper(transport).mapping(Pod)).path("n", "p") == "/api/v1/namespaces/n/pods/p"
    assert server.received == []


async def test_what_was_asked_once_is_remembered_and_asked_again_for_an_unknown_kind() -> None:
    installed = False

    def answer(received: Received) -> Reply:
        if received.path == "/api/v1" and installed:
            return resources(("widgets", "Widget", True))
        return legacy(received)

    async with FaultServer(answer=answer) as server, Transport(server.config()) as transport:
        mapper = Mapper(transport)
        asked = [mapper.mapping(Unstructured.for_kind("v1", kind)) for kind in ("Pod", "Node", "Pod")]
        await asyncio.gather(*asked)
        once = len(server.received)
        with pytest.raises(UnknownKind):
            await mapper.mapping(Unstructured.for_kind("v1", "Widget"))
        assert len(server.received) == 2 * once
        installed = True
        assert (await mapper.mapping(Unstructured.for_kind("v1", "Widget"))).path("n") == "/api/v1/namespaces/n/widgets"


async def test_a_missing_core_group_is_tolerated_and_missing_groups_are_not() -> None:
    empty = Reply(body={"kind": "APIGroupList", "groups": []})
    async with (
        FaultServer(answer=lambda request: Reply(404) if request.path == "/api" else empty) as server,
        Transport(server.config()) as transport,
    ):
        assert (await discover(transport)).resources == ()
    async with (
        FaultServer(answer=lambda request: Reply(404) if request.path == "/apis" else legacy(request)) as server,
        Transport(server.config()) as transport,
    ):
        with pytest.raises(ApiError):
            await discover(transport)


async def test_a_server_that_is_no_kubernetes_says_so() -> None:
    async with FaultServer(Reply(body=b"<html>")) as server, Transport(server.config()) as transport:
        with pytest.raises(DecodeError, match="is the server's address that of a Kubernetes API"):
            await discover(transport)
