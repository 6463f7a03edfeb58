"""Events: a count instead of repetition (behaviour J131), and a recorder that never gets in the way (J134-J137)."""

import asyncio

import pytest

from kubeloop.api.core.v1 import ConfigMap, Event, Node
from kubeloop.client import Client
from kubeloop.controller import EventRecorder
from kubeloop.controller.events import QUEUE
from kubeloop.meta import Forbidden, ObjectMeta, Status
from kubeloop.testing import TlsTestServer
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport


async def recorded(recorder: EventRecorder, sent: int = 0, dropped: int = 0) -> None:
    async with asyncio.timeout(60):
        while recorder.sent < sent or recorder.dropped < dropped:
            await asyncio.sleep(0.001)


async def about(client: Client) -> ConfigMap:
    return await client.create(ConfigMap(metadata=ObjectMeta(name="c")))


@pytest.mark.server
async def test_the_same_event_again_patches_the_first_with_a_higher_count_instead_of_creating_one(client: Client) -> None:
    obj = await about(client)
    async with EventRecorder(client, "tester", flush=60) as recorder:
        for _ in range(3):
            recorder.normal(obj, "Synced", "all is well")
        await recorded(recorder, sent=3)
    (event,) = [one for one in await client.list(Event, namespace=client.namespace) if one.involved_object.name == "c"]
    assert (event.count, event.type, event.reason, event.message) == (3, "Normal", "Synced", "all is well")
    assert event.metadata.name.startswith("c.")
    involved = event.involved_object
    assert (involved.kind, involved.api_version, involved.namespace, involved.uid) == (
        "ConfigMap",
        "v1",
        client.namespace,
        obj.metadata.uid,
    )
    assert event.source is not None
    assert (event.source.component, event.reporting_component) == ("tester", "tester")
    assert event.first_timestamp is not None
    assert event.last_timestamp is not None
    assert event.first_timestamp <= event.last_timestamp


@pytest.mark.server
async def test_another_message_or_reason_is_another_event(client: Client) -> None:
    obj = await about(client)
    async with EventRecorder(client, "tester", flush=60) as recorder:
        recorder.normal(obj, "Synced", "one")
        recorder.normal(obj, "Synced", "two")
        recorder.warning(obj, "Failed", "two")
        await recorded(recorder, sent=3)
    events = [one for one in await client.list(Event, namespace=client.namespace) if one.involved_object.name == "c"]
    assert sorted((one.reason, one.message, one.type, one.count) for one in events) == [
        ("Failed", "two", "Warning", 1),
        ("Synced", "one", "Normal", 1),
        ("Synced", "two", "Normal", 1),
    ]


@pytest.mark.server
async def test_an_event_that_is_gone_when_it_is_to_be_patched_is_created_again_with_its_count(client: Client) -> None:
    obj = await about(client)
    async with EventRecorder(client, "tester", flush=60) as recorder:
        recorder.normal(obj, "Synced", "again")
        await recorded(recorder, sent=1)
        await client.delete_collection(Event)
        recorder.normal(obj, "Synced", "again")
        await recorded(recorder, sent=2)
    (event,) = [one for one in await client.list(Event, namespace=client.namespace) if one.involved_object.name == "c"]
    assert event.count == 2


@pytest.mark.server
async def test_an_event_of_a_cluster_scoped_object_goes_to_namespace_default(client: Client) -> None:
    node = Node(metadata=ObjectMeta(name=f"node-{client.namespace}", uid="u"))
    async with EventRecorder(client, "tester", flush=60) as recorder:
        recorder.normal(node, "Seen", "hello")
        await recorded(recorder, sent=1)
    (event,) = [one for one in await client.list(Event, namespace="default") if one.involved_object.name == node.metadata.name]
    await client.delete(event)


@pytest.mark.embedded
async def test_what_the_server_refuses_is_dropped_at_once_and_the_next_event_is_sent(in_loop_server: TlsTestServer) -> None:
    refused = Forbidden(Status(reason="Forbidden", code=403, message="no events here"))
    in_loop_server.faults.refuse(refused, matching=lambda request: request.path.endswith("/events"))
    async with Client(Transport(in_loop_server.config)) as client, EventRecorder(client, "tester", clock=FakeClock(), flush=60) as recorder:
        obj = ConfigMap(metadata=ObjectMeta(name="c", namespace="default", uid="u"))
        recorder.normal(obj, "Lost", "lost")
        recorder.normal(obj, "Kept", "kept")
        await recorded(recorder, sent=1, dropped=1)
        assert [one.reason for one in await client.list(Event, namespace="default")] == ["Kept"]


@pytest.mark.embedded
async def test_an_event_without_an_answer_is_tried_again_after_a_pause(in_loop_server: TlsTestServer) -> None:
    clock = FakeClock()
    config = in_loop_server.config
    async with Client(Transport(config)) as client, EventRecorder(client, "tester", clock=clock, flush=0.01) as recorder:
        await in_loop_server.api.stop()
        recorder.normal(ConfigMap(metadata=ObjectMeta(name="c", namespace="default")), "Lost", "lost")
        async with asyncio.timeout(60):
            while not clock.waiting:
                await asyncio.sleep(0.001)
        assert (recorder.sent, recorder.dropped) == (0, 0)
        for _ in range(15):
            async with asyncio.timeout(60):
                while not clock.waiting and not recorder.dropped:
                    await asyncio.sleep(0.001)
            await clock.advance(10)
        assert recorder.dropped == 1


async def test_a_full_queue_drops_and_neither_blocks_nor_raises(in_loop_server: TlsTestServer) -> None:
    async with Client(Transport(in_loop_server.config)) as client:
        recorder = EventRecorder(client, "tester", flush=60)
        obj = ConfigMap(metadata=ObjectMeta(name="c", namespace="default"))
        for number in range(QUEUE + 5):
            recorder.normal(obj, "Many", f"{number}")
        assert recorder.dropped == 5


async def test_events_may_be_recorded_from_another_thread(in_loop_server: TlsTestServer) -> None:
    async with Client(Transport(in_loop_server.config)) as client, EventRecorder(client, "tester", flush=60) as recorder:
        await asyncio.to_thread(recorder.normal, ConfigMap(metadata=ObjectMeta(name="c", namespace="default")), "Far", "from a thread")
        await recorded(recorder, sent=1)


async def test_leaving_the_recorder_sends_what_waits_and_later_events_are_dropped(in_loop_server: TlsTestServer) -> None:
    obj = ConfigMap(metadata=ObjectMeta(name="c", namespace="default"))
    async with Client(Transport(in_loop_server.config)) as client:
        async with EventRecorder(client, "tester", flush=60) as recorder:
            for number in range(20):
                recorder.normal(obj, "Last", f"{number}")
        assert recorder.sent == 20
        recorder.normal(obj, "Late", "too late")
        assert recorder.dropped == 1
