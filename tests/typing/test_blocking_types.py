"""The blocking client's types, as a user's type checker sees them; and the same calls run."""

from __future__ import annotations

from typing import assert_type

import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import ConfigMap, Pod
from kubeloop.blocking import (
    BlockingContext,
    BlockingIterator,
    Client,
    CreateOrUpdateResult,
    Event,
    ExecResult,
    ExecSession,
    Informer,
    InformerFactory,
    ListCall,
    Lister,
    Log,
    LogCall,
    LogLine,
    ObjectList,
    PortForward,
    Registration,
    Stream,
    StreamReader,
    StreamWriter,
    Subresource,
    Transport,
    Watch,
    retry_on_conflict,
)
from kubeloop.cache import InformerEvent
from kubeloop.meta import ObjectMeta, PartialObject, Unstructured
from kubeloop.transport import Response
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server


def test_a_program_as_its_author_and_the_type_checker_see_it(server: ServerUnderTest, namespace: str) -> None:
    with Client(Transport(server.config), namespace=namespace) as client:
        assert_type(client, Client)
        made = assert_type(client.create(ConfigMap(metadata=ObjectMeta(name="a"))), ConfigMap)
        assert_type(client.get(ConfigMap, "a"), ConfigMap)
        assert_type(client.get_metadata(ConfigMap, "a"), PartialObject)
        assert_type(client.get(Unstructured.for_kind("v1", "ConfigMap"), "a"), Unstructured)
        assert_type(client.patch(ConfigMap, "a", {"data": {"x": "1"}}), ConfigMap)
        assert_type(client.list(ConfigMap, namespace=namespace), ObjectList[ConfigMap])
        call = assert_type(client.list_stream(ConfigMap, namespace=namespace), ListCall[ConfigMap])
        assert_type([one for one in call], list[ConfigMap])  # noqa: C416 - the type of an item
        assert_type(call.pages(), BlockingIterator[ObjectList[ConfigMap]])
        assert_type(client.create_or_update(made, lambda obj: obj.data.clear()), CreateOrUpdateResult[ConfigMap])
        assert_type(client.subresource(ConfigMap, "a", "status"), Subresource)
        assert_type(client.transport.request("GET", "/version"), Response)
        assert_type(retry_on_conflict(lambda: client.get(ConfigMap, "a")), ConfigMap)
        with client.watch(ConfigMap, namespace=namespace, field_selector={"metadata.name": "a"}) as events:
            assert_type(events, Watch[ConfigMap])
            for event in events:
                assert_type(event, Event[ConfigMap])
                break


def test_informers(server: ServerUnderTest, namespace: str) -> None:
    def added(event: InformerEvent[ConfigMap]) -> None:
        assert_type(event.object, ConfigMap)

    with Client.from_config(server.kubeconfig) as client, InformerFactory(client) as informers:
        found = assert_type(informers.for_kind(ConfigMap, namespace=namespace), Informer[ConfigMap])
        assert_type(found.on_event(added=added), Registration[ConfigMap])
        assert_type(found.lister, Lister[ConfigMap])
        assert_type(found.kind, type[ConfigMap])
        informers.wait_synced()
        assert_type(found.lister.list(), list[ConfigMap])


def streams(client: Client, deployment: Deployment) -> None:
    """Checked, not run: they need a node."""
    assert_type(client.pods.logs("web-0"), str)
    assert_type(client.pods.logs_stream(deployment, follow=True), LogCall)
    with client.pods.logs_stream("web-0") as log:
        assert_type(log, Log)
        assert_type(next(log), str)
        assert_type(log.pod, Pod)
    with client.pods.merged_logs("deploy/web") as lines:
        assert_type(lines, BlockingIterator[LogLine])
    assert_type(client.pods.exec("web-0", ["ls"]), ExecResult)
    assert_type(client.pods.exec_stream("web-0", ["sh"], stdin=True), BlockingContext[ExecSession])
    with client.pods.port_forward("web-0", 8080) as forward:
        assert_type(forward, PortForward)
        assert_type(forward.connect(8080), tuple[StreamReader, StreamWriter])
    assert_type(client.pods.proxy("web-0", "/metrics"), Response)
    with client.pods.proxy_stream("web-0") as answer:
        assert_type(answer, Stream)
    with client.transport.stream("GET", "/") as opened:
        assert_type(opened.chunks(), BlockingIterator[bytes])
