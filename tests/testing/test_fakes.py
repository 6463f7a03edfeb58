"""Behaviours of fakes (P193-P197), faults in one line each, and the record of what was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap, Namespace, NamespaceCondition, Pod
from kubeloop.client import ALL_NAMESPACES, Client, Event
from kubeloop.meta import (
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    InternalError,
    Invalid,
    NotFound,
    ObjectMeta,
    Status,
    TooManyRequests,
    TransportError,
    Unstructured,
)
from kubeloop.testing import HandlerServer, RecordedCall, TlsTestServer, on
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport

pytestmark = pytest.mark.embedded


Server = HandlerServer | TlsTestServer


@pytest.fixture(params=[HandlerServer, TlsTestServer], ids=["without a socket", "over TLS"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    """The same words for the same things, whatever is between client and server."""
    async with request.param() as found:
        yield found


@pytest.fixture
def client(server: Server) -> Client:
    return server.client()


def config_map(name: str, namespace: str = "default", **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace), data=data)


async def version(client: Client) -> str:
    """Of now: what comes after it comes as an event."""
    return (await client.list(ConfigMap, namespace=ALL_NAMESPACES)).resource_version


async def names(events: AsyncIterator[Event[Any]], count: int) -> list[str]:
    return [f"{event.type} {event.object.metadata.name}" for event in [await anext(events) for _ in range(count)]]


class TestBehaviours:
    async def test_p193_a_watch_of_a_namespace_gets_events_of_it_only_and_one_of_all_gets_all(self, client: Client) -> None:
        now = await version(client)
        async with (
            client.watch(ConfigMap, namespace="default", resource_version=now) as of_one,
            client.watch(ConfigMap, resource_version=now, namespace=ALL_NAMESPACES) as of_all,
        ):
            await client.create(config_map("a", "kube-public"))
            await client.create(config_map("b"))
            assert await names(aiter(of_one), 1) == ["ADDED b"]
            assert await names(aiter(of_all), 2) == ["ADDED a", "ADDED b"]

    async def test_p193_several_watches_each_get_all_their_events(self, client: Client) -> None:
        now = await version(client)
        async with (
            client.watch(ConfigMap, resource_version=now, namespace=ALL_NAMESPACES) as one,
            client.watch(ConfigMap, resource_version=now, namespace=ALL_NAMESPACES) as other,
        ):
            made = await client.create(config_map("a"))
            made.data["key"] = "value"
            await client.update(made)
            await client.delete(ConfigMap, "a")
            expected = ["ADDED a", "MODIFIED a", "DELETED a"]
            assert [await names(aiter(one), 3), await names(aiter(other), 3)] == [expected, expected]

    async def test_p194_a_stopped_watch_neither_blocks_nor_fails_later_writes(self, client: Client) -> None:
        async with client.watch(ConfigMap, namespace=ALL_NAMESPACES) as events:
            await client.create(config_map("a"))
            await anext(aiter(events))
        assert (await client.create(config_map("b"))).metadata.uid

    async def test_p195_reactors_run_in_order_and_the_first_that_handles_wins(self, server: Server, client: Client) -> None:
        seen = []

        def passes(call: RecordedCall) -> None:
            seen.append(f"passes {call.verb}")

        server.faults.react(passes)
        let_go = server.faults.react(lambda _: config_map("made-up"), matching=on("get", ConfigMap))
        server.faults.react(lambda _: seen.append("never asked"), matching=on("get", ConfigMap))
        assert (await client.get(ConfigMap, "a")).metadata.name == "made-up"
        assert seen == ["passes get"]
        server.faults.react(lambda _: config_map("before-all"), matching=on("get", ConfigMap), first=True)
        assert (await client.get(ConfigMap, "a")).metadata.name == "before-all"
        assert seen == ["passes get"]
        let_go()

    async def test_p195_a_reactor_sees_what_was_sent_and_the_change_it_makes_is_answered(self, server: Server, client: Client) -> None:
        async def changed(call: RecordedCall) -> dict[str, Any]:
            call.body["data"]["by"] = "reactor"
            return dict(call.body)

        server.faults.react(changed, matching=on("create", "configmaps"))
        assert (await client.create(config_map("a", key="value"))).data == {"key": "value", "by": "reactor"}
        with pytest.raises(NotFound):  # the server itself never saw it
            await client.get(ConfigMap, "a")

    async def test_p195_objects_are_copied_in_and_out(self, client: Client) -> None:
        mine = config_map("a", key="value")
        made = await client.create(mine)
        mine.data["key"] = made.data["key"] = "changed here alone"
        assert (await client.get(ConfigMap, "a")).data == {"key": "value"}

    async def test_p196_apply_creates_and_two_managers_conflict_without_force(self, client: Client) -> None:
        made = await client.apply(config_map("a", key="one"), field_manager="first")
        assert [one.manager for one in made.metadata.managed_fields] == ["first"]
        with pytest.raises(Conflict, match='conflict with "first"'):
            await client.apply(config_map("a", key="two"), field_manager="second")
        forced = await client.apply(config_map("a", key="two"), field_manager="second", force=True)
        assert forced.data == {"key": "two"}
        shared = await client.apply(config_map("a", key="two", other="mine"), field_manager="second")
        assert "first" not in {one.manager for one in shared.metadata.managed_fields if one.manager}

    async def test_s231_a_stale_version_is_a_conflict_and_status_is_written_through_its_subresource_only(self, client: Client) -> None:
        first = await client.create(Namespace(metadata=ObjectMeta(name="a")))
        first.metadata.labels["x"] = "1"
        first.status.phase = "Terminating"
        written = await client.update(first)
        assert (written.metadata.labels["x"], written.status.phase) == ("1", "Active")
        with pytest.raises(Conflict):
            await client.patch(Namespace, "a", {"metadata": {"resourceVersion": "1", "labels": {"x": "2"}}})
        assert (await client.get(Namespace, "a")).metadata.labels["x"] == "1"
        written.status.conditions = [NamespaceCondition(type="Odd", status="True")]
        apart = await client.update_status(written)
        assert [one.type for one in apart.status.conditions] == ["Odd"]

    async def test_s231_a_finalizer_delays_a_deletion_and_no_update_sets_the_time_of_it(self, client: Client) -> None:
        held = config_map("held")
        held.metadata.finalizers = ["example.com/hold"]
        await client.create(held)
        with pytest.raises(Invalid, match=r"metadata\.deletionTimestamp: .*field is immutable"):
            await client.patch(ConfigMap, "held", {"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}}, namespace="default")
        assert (await client.get(ConfigMap, "held", namespace="default")).metadata.deletion_timestamp is None
        await client.delete(ConfigMap, "held", namespace="default")
        dying = await client.get(ConfigMap, "held", namespace="default")
        assert dying.metadata.deletion_timestamp is not None
        await client.patch(ConfigMap, "held", {"metadata": {"finalizers": None}}, namespace="default")
        with pytest.raises(NotFound):
            await client.get(ConfigMap, "held", namespace="default")

    async def test_p197_versions_rise_and_a_dropped_watch_a_hidden_change_and_a_reset_are_a_line_each(
        self, server: Server, client: Client
    ) -> None:
        made = [await client.create(config_map(name)) for name in "abc"]
        versions = [int(one.metadata.resource_version) for one in made]
        assert versions == sorted(set(versions))
        async with client.watch(ConfigMap, resource_version=str(versions[0]), namespace=ALL_NAMESPACES) as events:
            reader = aiter(events)
            assert await names(reader, 2) == ["ADDED b", "ADDED c"]
            async with server.faults.hidden_changes(matching=on("watch", ConfigMap)):
                await client.create(config_map("hidden"))
            await client.create(config_map("seen"))
            assert await names(reader, 1) == ["ADDED seen"]
            assert "hidden" in {one.metadata.name async for one in client.list(ConfigMap, namespace=ALL_NAMESPACES)}
            assert server.faults.cut_streams() == 1
        await server.restart(forget=True)
        assert int((await client.create(config_map("a"))).metadata.resource_version) <= versions[-1]


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        pytest.param(on(), {"get pods", "update pods/status", "list nodes"}, id="all, subresources too"),
        pytest.param(on("get"), {"get pods"}, id="a verb"),
        pytest.param(on("*", Pod), {"get pods"}, id="a class, without its subresources"),
        pytest.param(on("*", "pods"), {"get pods"}, id="a plural, without its subresources"),
        pytest.param(on("*", "pods/*"), {"get pods", "update pods/status"}, id="a resource and its subresources"),
        pytest.param(on("update", "*/status"), {"update pods/status"}, id="a subresource of any"),
        pytest.param(on("*", "*", "shop"), {"get pods", "update pods/status"}, id="a namespace"),
        pytest.param(on("*", "*", "*", "b"), {"update pods/status"}, id="a name"),
    ],
)
async def test_p195_which_requests_a_reactor_covers(server: Server, pattern: Any, covered: set[str]) -> None:
    caught: set[str] = set()

    def catch(call: RecordedCall) -> NotFound:
        subresource = f"/{call.subresource}" if call.subresource else ""
        caught.add(f"{call.verb} {call.resource.resource}{subresource}")
        return NotFound(status_of_nothing)

    server.faults.react(catch, matching=pattern)
    async with server.transport() as transport:
        for method, path in (
            ("GET", "/api/v1/namespaces/shop/pods/a"),
            ("PUT", "/api/v1/namespaces/shop/pods/b/status"),
            ("GET", "/api/v1/nodes"),
        ):
            await ignored(transport, method, path)
    assert caught == covered


def test_a_class_without_a_plural_is_named_otherwise() -> None:
    with pytest.raises(ValueError, match=r'Widget does not say its plural: name it instead, as "pods"'):
        on("get", Unstructured.for_kind("example.com/v1", "Widget"))


class TestFaults:
    @pytest.mark.parametrize("error", [Conflict, Forbidden, InternalError, NotFound])
    async def test_a_refusal_is_a_line(self, server: Server, client: Client, error: type[ApiError]) -> None:
        server.faults.refuse(error, matching=on("create", ConfigMap))
        with pytest.raises(error, match="refused by a test"):
            await client.create(config_map("a"))
        await client.create(config_map("a"))

    async def test_429_is_waited_out_as_long_as_it_says(self) -> None:
        clock = FakeClock()
        async with HandlerServer(clock=clock) as server:
            server.faults.refuse_too_many(7, matching=on("list", ConfigMap))
            listing = asyncio.ensure_future(server.client().list(ConfigMap, namespace=ALL_NAMESPACES))
            while clock.next_due != 7:
                await asyncio.sleep(0)
            await clock.advance(7)
            await listing
            assert [call.verb for call in server.faults.calls] == ["list", "list"]

    async def test_429_without_end_is_raised(self, server: Server) -> None:
        server.faults.refuse_too_many(1, times=100)
        async with server.transport() as transport:
            with pytest.raises(TooManyRequests) as refused:
                async with transport.stream("GET", "/api/v1/pods", retry=False):
                    pass
        assert refused.value.retry_after == 1

    async def test_a_delay_passes_by_the_servers_clock(self) -> None:
        clock = FakeClock()
        async with HandlerServer(clock=clock) as server:
            server.faults.delay(30, matching=on("list", ConfigMap))
            listing = asyncio.ensure_future(server.client().list(ConfigMap, namespace=ALL_NAMESPACES))
            while clock.next_due != 30:
                await asyncio.sleep(0)
            assert not listing.done()
            await clock.advance(30)
            await listing

    async def test_a_stream_is_cut_after_so_many_events(self, server: Server) -> None:
        server.faults.cut_stream(after=2, matching=on("watch", ConfigMap))
        client = server.client()
        for name in "abc":
            await client.create(config_map(name))
        lines = 0
        async with server.transport() as transport, transport.stream("GET", "/api/v1/configmaps", query={"watch": True}) as stream:

            async def count() -> None:
                nonlocal lines
                async for chunk in stream.chunks():
                    lines += chunk.count(b"\n")

            with pytest.raises(TransportError):
                await count()
        assert lines == 2

    async def test_an_expired_stream_says_so_in_it(self, server: Server, client: Client) -> None:
        made = await client.create(config_map("a"))
        async with client.watch(ConfigMap, resource_version=made.metadata.resource_version, namespace=ALL_NAMESPACES) as events:
            reading = asyncio.ensure_future(anext(aiter(events)))
            while not server.faults.expire_streams():
                await asyncio.sleep(0)
            with pytest.raises(Expired):
                await reading

    async def test_an_answer_that_breaks_off_is_no_answer(self, server: Server, client: Client) -> None:
        let_go = server.faults.break_answers(matching=on("create"))
        with pytest.raises(TransportError):
            await client.create(config_map("a"))
        let_go()
        await client.create(config_map("a"))

    async def test_an_answer_may_be_lost_after_all_was_done(self, server: Server, client: Client) -> None:
        server.faults.lose_answers(matching=on("create"))
        with pytest.raises(TransportError):
            await client.create(config_map("a"))
        assert (await client.get(ConfigMap, "a")).metadata.name == "a"
        await client.create(config_map("b"))


class TestRecord:
    async def test_what_was_asked_can_be_compared(self, server: Server, client: Client) -> None:
        await client.create(config_map("a", key="value"))
        await client.get(ConfigMap, "a")
        await client.patch(ConfigMap, "a", {"data": {"key": "new"}})
        await client.delete(ConfigMap, "a")
        create, get, patch, delete = server.faults.calls
        assert get == RecordedCall("get", "ConfigMap", "default", "a")
        assert patch == RecordedCall("patch", "ConfigMap", "default", "a", body={"data": {"key": "new"}})
        assert (create.verb, create.kind, create.body["data"]) == ("create", "ConfigMap", {"key": "value"})
        assert (delete.verb, delete.name) == ("delete", "a")
        assert [call.verb for call in server.faults.writes] == ["create", "patch", "delete"]
        assert patch.content_type == "application/merge-patch+json"

    async def test_refused_requests_are_recorded_and_discovery_only_as_a_line(self, server: Server, client: Client) -> None:
        server.faults.refuse(Forbidden, times=2)
        with pytest.raises(Forbidden):
            await client.get(Pod, "a")
        with pytest.raises(Forbidden):
            await client.mapper.find("pods")
        assert server.faults.calls == [RecordedCall("get", "Pod", "default", "a")]
        assert server.faults.requests[0] == "GET /api/v1/namespaces/default/pods/a"
        assert {"GET /api", "GET /apis"} & set(server.faults.requests)


async def ignored(transport: Transport, method: str, path: str) -> None:
    try:
        await transport.request(method, path, body=b"{}" if method == "PUT" else None)
    except ApiError:
        return


status_of_nothing = Status(code=404, reason="NotFound", message="nothing")
