"""Events on both servers: series, combined events, spam, limits of length, and objects and namespaces that go."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kubeloop.api.core.v1 import ConfigMap, Event, Namespace, Node
from kubeloop.api.events.v1 import Event as SeriesEvent
from kubeloop.client import Client
from kubeloop.controller import EventRecorder
from kubeloop.controller.events import CoreEvents, SeriesEvents
from kubeloop.meta import NotFound, ObjectMeta, Resource
from kubeloop.testing import TlsTestServer
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport

E = TypeVar("E", Event, SeriesEvent)


async def about(client: Client, name: str = "c") -> ConfigMap:
    return await client.create(ConfigMap(metadata=ObjectMeta(name=name)))


async def events(client: Client, kind: type[E]) -> list[E]:
    return [event async for event in client.list(kind, namespace=client.namespace)]


@pytest.mark.server
async def test_j138_repetition_is_a_series_that_is_sent_to_the_server_twice(client: Client) -> None:
    obj = await about(client)
    async with EventRecorder(client, "tester", sinks=[SeriesEvents()], flush=60) as recorder:
        for _ in range(6):
            recorder.normal(obj, "Synced", "all is well")
    (event,) = await events(client, SeriesEvent)
    assert event.series is not None
    assert event.series.count == 6
    assert event.series.last_observed_time is not None
    assert (recorder.sent, recorder.dropped) == (3, 0)
    assert (event.deprecated_count, event.deprecated_first_timestamp) == (None, None)


@pytest.mark.server
async def test_an_event_names_its_controller_object_related_object_action_and_part(client: Client) -> None:
    obj, other = await about(client), await about(client, "other")
    async with EventRecorder(client, "example.com/tester", sinks=[SeriesEvents(), CoreEvents()], flush=60) as recorder:
        recorder.warning(obj, "Failed", "no", action="Binding", related=other, field_path="data.x", annotations={"example.com/a": "b"})
    found = await events(client, SeriesEvent)
    (event,) = [each for each in found if each.event_time is not None]
    assert (event.type, event.reason, event.action, event.note) == ("Warning", "Failed", "Binding", "no")
    assert event.reporting_controller == "example.com/tester"
    assert (event.reporting_instance or "").startswith("example.com/tester-")
    assert (event.regarding.name, event.regarding.uid, event.regarding.field_path) == ("c", obj.metadata.uid, "data.x")
    assert event.related is not None
    assert (event.related.kind, event.related.name, event.related.namespace) == ("ConfigMap", "other", client.namespace)
    assert event.metadata.annotations == {"example.com/a": "b"}
    (core,) = [each for each in await events(client, Event) if each.event_time is None]
    assert core.related is not None
    assert (core.action, core.related.name, core.involved_object.field_path) == ("Binding", "other", "data.x")
    assert core.reporting_instance == core.source.host != ""


@pytest.mark.server
async def test_j137_several_sinks_each_have_their_own_memory(client: Client) -> None:
    obj = await about(client)
    async with EventRecorder(client, "tester", sinks=[CoreEvents(), SeriesEvents(), CoreEvents()], flush=60) as recorder:
        recorder.normal(obj, "Synced", "x")
        recorder.normal(obj, "Synced", "x")
    found = await events(client, Event)
    assert sorted((each.count or 0, each.series.count if each.series else 0) for each in found) == [(0, 2), (2, 0), (2, 0)]


@pytest.mark.server
async def test_j132_the_tenth_of_similar_events_and_those_after_it_are_one(client: Client) -> None:
    obj = await about(client)
    async with EventRecorder(client, "tester", flush=60) as recorder:
        for number in range(12):
            recorder.normal(obj, "Changed", f"change {number}")
    found = {each.message: each.count for each in await events(client, Event)}
    assert found == {**{f"change {number}": 1 for number in range(9)}, "(combined from similar events): change 11": 3}


@pytest.mark.server
async def test_j133_of_30_events_about_an_object_25_pass_and_5_are_counted_as_dropped(client: Client) -> None:
    obj = await about(client)
    registry = CollectorRegistry()
    async with EventRecorder(client, "tester", flush=60) as recorder:
        recorder.metrics(registry)
        for _ in range(30):
            recorder.normal(obj, "Changed", "again")
    (event,) = await events(client, Event)
    assert (event.count, recorder.sent, recorder.dropped) == (25, 25, 5)
    shown = generate_latest(registry).decode()
    assert 'kubeloop_events_dropped_total{api="v1",component="tester",reason="spam"} 5.0' in shown
    assert 'kubeloop_events_sent_total{api="v1",component="tester"} 25.0' in shown
    assert 'kubeloop_events_recorded_total{api="v1",component="tester"} 30.0' in shown


@pytest.mark.server
@pytest.mark.parametrize("sink", [CoreEvents(), SeriesEvents()], ids=["core/v1", "events.k8s.io/v1"])
async def test_a_text_that_is_too_long_is_cut_to_the_servers_limit(client: Client, sink: CoreEvents | SeriesEvents) -> None:
    obj = await about(client, "c" * 253)
    async with EventRecorder(client, "tester", sinks=[sink], flush=60) as recorder:
        recorder.normal(obj, "R" * 500, "ä" * 5000, action="A" * 500)
    (event,) = await events(client, SeriesEvent)
    assert [len((text or "").encode()) for text in (event.reason, event.action, event.note)] == [128, 128, 1024]
    assert event.regarding.name == "c" * 253
    assert recorder.dropped == 0


@pytest.mark.server
async def test_an_object_that_is_gone_may_still_have_events(client: Client) -> None:
    obj = await about(client)
    await client.delete(obj)
    async with EventRecorder(client, "tester", sinks=[CoreEvents(), SeriesEvents()], flush=60) as recorder:
        recorder.warning(obj, "Gone", "it is gone")
    assert (recorder.sent, recorder.dropped) == (2, 0)


@pytest.mark.server
async def test_in_a_namespace_that_is_being_deleted_events_are_dropped_quietly(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    name = f"{client.namespace}-ending"
    await client.create(Namespace(metadata=ObjectMeta(name=name)))
    held = await client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace=name, finalizers=["example.com/hold"])))
    await client.delete(Namespace, name)
    async with EventRecorder(client, "tester", sinks=[CoreEvents(), SeriesEvents()], flush=60) as recorder:
        recorder.normal(held, "Ending", "it ends")
    assert (recorder.sent, recorder.dropped) == (0, 2)
    assert "is dropped" not in caplog.text
    await client.patch(ConfigMap, "c", {"metadata": {"finalizers": None}}, namespace=name)


@pytest.mark.server
async def test_j137_a_series_about_a_cluster_scoped_object_lives_in_default(client: Client) -> None:
    node = Node(metadata=ObjectMeta(name=f"node-{client.namespace}", uid="u"))
    async with EventRecorder(client, "tester", sinks=[SeriesEvents()], flush=60) as recorder:
        recorder.normal(node, "Seen", "hello")
        recorder.normal(node, "Seen", "hello")
    (event,) = [each async for each in client.list(SeriesEvent, namespace="default") if each.regarding.name == node.metadata.name]
    assert event.series is not None
    assert event.series.count == 2
    await client.delete(event)


@pytest.mark.server
@pytest.mark.parametrize("sink", [CoreEvents(), SeriesEvents()], ids=["core/v1", "events.k8s.io/v1"])
async def test_j139_the_same_event_from_many_threads_at_once_is_one_event(client: Client, sink: CoreEvents | SeriesEvents) -> None:
    obj = await about(client)
    async with EventRecorder(client, "tester", sinks=[sink], flush=60) as recorder:
        await asyncio.gather(*(asyncio.to_thread(recorder.normal, obj, "Synced", "x") for _ in range(20)))
    (event,) = await events(client, SeriesEvent)
    assert (event.series.count if event.series else event.deprecated_count) == 20


@pytest.mark.embedded
@pytest.mark.parametrize(
    ("sink", "count"), [(CoreEvents(), 2), (SeriesEvents(), 2)], ids=["J135: core/v1", "J139: events.k8s.io/v1, where it is tried again"]
)
async def test_a_patch_that_finds_no_event_creates_it(in_loop_server: TlsTestServer, sink: CoreEvents | SeriesEvents, count: int) -> None:
    """The patch is answered with 404 once, although the event is there: so the create meets it."""
    clock = FakeClock()
    async with (
        Client(Transport(in_loop_server.config)) as client,
        EventRecorder(client, "tester", sinks=[sink], clock=clock, flush=60) as recorder,
    ):
        obj = ConfigMap(metadata=ObjectMeta(name="c", namespace="default", uid="u"))
        recorder.normal(obj, "Synced", "x")
        async with asyncio.timeout(60):
            while not recorder.sent:
                await asyncio.sleep(0.001)
        in_loop_server.faults.refuse(NotFound, matching=lambda request: request.method == "PATCH")
        recorder.normal(obj, "Synced", "x")
        async with asyncio.timeout(60):
            while recorder.sent < count:
                # Only a pause between two tries is waited for: the series' own timer is minutes away.
                if (clock.next_due or 60) <= 10:
                    await clock.advance(10)
                await asyncio.sleep(0.001)
        (event,) = [each async for each in client.list(SeriesEvent, namespace="default")]
        assert (event.series.count if event.series else event.deprecated_count) == 2
        assert recorder.dropped == 0


async def test_nothing_that_cannot_be_an_event_raises(in_loop_server: TlsTestServer) -> None:
    async with Client(Transport(in_loop_server.config)) as client:
        recorder = EventRecorder(client, "tester", flush=60)
        obj = ConfigMap(metadata=ObjectMeta(name="c", namespace="default"))
        wrong: list[tuple[Resource | None, str, str]] = [
            (obj, "Error", "R"),
            (obj, "Normal", ""),
            (ConfigMap(), "Normal", "R"),
            (None, "Normal", "R"),
        ]
        for each, kind, reason in wrong:
            recorder.event(each, kind, reason, "m")  # type: ignore[arg-type]  # wrong on purpose
        assert dict(recorder.counts)[""].dropped == {"invalid": 4}
        assert recorder.dropped == 4


async def test_a_component_that_events_k8s_io_would_refuse_is_refused_at_once(in_loop_server: TlsTestServer) -> None:
    async with Client(Transport(in_loop_server.config)) as client:
        with pytest.raises(ValueError, match='"my controller" cannot be the reporting controller of an event'):
            EventRecorder(client, "my controller", sinks=[SeriesEvents()], flush=60)


async def test_metrics_of_recorders_are_added_up_and_stay_after_their_end(in_loop_server: TlsTestServer) -> None:
    registry = CollectorRegistry()
    async with Client(Transport(in_loop_server.config)) as client:
        obj = ConfigMap(metadata=ObjectMeta(name="c", namespace="default"))
        for _ in range(2):
            async with EventRecorder(client, "tester", flush=60) as recorder:
                recorder.metrics(registry)
                recorder.metrics(registry)
                recorder.normal(obj, "R", "m")
                assert 'kubeloop_events_waiting{component="tester"}' in generate_latest(registry).decode()
    shown = generate_latest(registry).decode()
    assert 'kubeloop_events_sent_total{api="v1",component="tester"} 2.0' in shown
    assert 'kubeloop_events_waiting{component="tester"}' not in shown
