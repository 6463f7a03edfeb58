"""Informers against the embedded server when it fails: streams cut, versions expired, the server restarted."""

from __future__ import annotations

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InformerEvent, InformerFactory
from kubeloop.client import Client
from kubeloop.meta import ObjectMeta
from kubeloop.testing import TlsTestServer
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport
from tests.cache.source import until

pytestmark = pytest.mark.embedded


class Seen:
    def __init__(self) -> None:
        self.events: list[InformerEvent[ConfigMap]] = []

    def __call__(self, event: InformerEvent[ConfigMap]) -> None:
        self.events.append(event)

    @property
    def lines(self) -> list[str]:
        return [f"{event.type.value} {event.key.name}{' (tombstone)' if event.tombstone else ''}" for event in self.events]


def config_map(name: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"))


def lists(server: TlsTestServer) -> list[str]:
    """Without the question for one object that asks whether the server still knows its history (deviations, B15)."""
    asked = [request for request in server.faults.requests if request.startswith("GET") and "configmaps" in request]
    return [request for request in asked if "watch=" not in request and "limit=1&" not in request]


def streams(server: TlsTestServer) -> list[str]:
    """The versions at which everything was asked for as a stream."""
    asked = [request for request in server.faults.requests if "configmaps" in request and "sendInitialEvents=true" in request]
    return [request.partition("resourceVersion=")[2].partition("&")[0] for request in asked]


async def test_a_stream_cut_in_the_middle_is_resumed_without_a_list_and_without_a_gap(in_loop_server: TlsTestServer) -> None:
    seen = Seen()
    async with Client(Transport(in_loop_server.config)) as client, InformerFactory(client) as informers:
        maps = informers.for_kind(ConfigMap, namespace="default")
        maps.on_event(added=seen, updated=seen, deleted=seen)
        await informers.wait_synced(10)
        await client.create(config_map("a"))
        await until(lambda: "ADDED a" in seen.lines)
        await until(in_loop_server.faults.cut_streams)
        await client.create(config_map("b"))
        await client.delete(ConfigMap, "a", namespace="default")
        await until(lambda: seen.lines[-2:] == ["ADDED b", "DELETED a"])
        assert lists(in_loop_server) == []
        assert streams(in_loop_server) == [""]
        assert maps.reconnects == 1


async def test_a_version_that_expired_is_listed_again_and_vanished_objects_are_delivered(in_loop_server: TlsTestServer) -> None:
    seen, clock = Seen(), FakeClock()
    async with Client(Transport(in_loop_server.config)) as client, InformerFactory(client, clock=clock) as informers:
        await client.create(config_map("a"))
        maps = informers.for_kind(ConfigMap, namespace="default")
        maps.on_event(added=seen, updated=seen, deleted=seen)
        await informers.wait_synced(10)
        await until(in_loop_server.faults.expire_streams)
        await until(lambda: clock.waiting == 1 and not maps._runner.feeds[0].listwatch.watching)
        await client.delete(ConfigMap, "a", namespace="default")
        await client.create(config_map("b"))
        in_loop_server.faults.expire_next(matching=lambda request: request.path.endswith("configmaps"))
        await clock.advance(2)
        await until(lambda: "ADDED b" in seen.lines)
        assert seen.lines[-2:] == ["DELETED a (tombstone)", "ADDED b"]
        first, second, third = streams(in_loop_server)
        assert first == ""
        assert int(second) > 0, "first at the last version seen"
        assert third == "", "which is refused, so at once at the newest"
