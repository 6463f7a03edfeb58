"""Watches: events of one kind, resumed over any number of reconnects, each event once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import ALL_NAMESPACES, Client, WatchOptions
from kubeloop.meta import DeadlineError, DecodeError, Expired, Forbidden, ObjectMeta, PartialObject, Unauthorized, UntrustedCertificate
from kubeloop.testing import TlsTestServer
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport
from tests.faults import DROP, FaultServer, Received, Reply, frames, status


def config_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, labels={"app": "web"}), data=data)


@pytest.mark.server
class TestAgainstAServer:
    async def test_present_objects_come_first_then_changes(self, client: Client, namespace: str) -> None:
        await client.create(config_map("a"))
        seen: list[tuple[str, str]] = []
        async with asyncio.timeout(20), client.watch(ConfigMap, namespace=namespace, label_selector="app=web") as events:
            async for event in events:
                seen.append((event.type, event.object.metadata.name))
                if len(seen) == 1:
                    await client.create(config_map("b"))
                elif len(seen) == 2:
                    event.object.data["x"] = "1"
                    await client.update(event.object)
                elif len(seen) == 3:
                    await client.patch(ConfigMap, "a", {"metadata": {"labels": {"app": "db"}}})
                elif len(seen) == 4:
                    await client.delete(ConfigMap, "b")
                elif len(seen) == 5:
                    break
        assert seen == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a"), ("DELETED", "b")]

    async def test_from_a_version_on_only_changes_come(self, client: Client, namespace: str) -> None:
        await client.create(config_map("a"))
        listed = await client.list(ConfigMap, namespace=namespace, label_selector="app")
        await client.create(config_map("b"))
        watch = client.watch(ConfigMap, namespace=namespace, label_selector="app", resource_version=listed.resource_version)
        async with asyncio.timeout(20), watch as events:
            async for event in events:
                assert (event.type, event.object.metadata.name) == ("ADDED", "b")
                break

    async def test_a_watch_outlives_its_connections(self, client: Client, namespace: str) -> None:
        seen: list[str] = []

        async def write() -> None:
            for number in range(4):
                await client.create(config_map(f"m{number}"))
                await asyncio.sleep(0.4)

        async with (
            asyncio.timeout(30),
            client.watch(ConfigMap, namespace=namespace, label_selector="app", options=WatchOptions(timeout_seconds=1)) as events,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(write())
            async for event in events:
                seen.append(event.object.metadata.name)
                if len(seen) == 4:
                    break
        assert seen == ["m0", "m1", "m2", "m3"]

    async def test_waiting_ends_with_the_state_waited_for(self, client: Client, namespace: str) -> None:
        waiting = asyncio.create_task(client.wait_for(ConfigMap, "a", lambda obj: obj.data.get("x") == "2", timeout=20))
        await client.create(config_map("a", x="1"))
        await client.patch(ConfigMap, "a", {"data": {"x": "2"}})
        assert (await waiting).data == {"x": "2"}

    async def test_waiting_too_long_says_what_was_there(self, client: Client, namespace: str) -> None:
        with pytest.raises(DeadlineError, match=f'ConfigMap "a" in namespace "{namespace}": not as wanted within 0.3 s: it was not there'):
            await client.wait_for(ConfigMap, "a", lambda _: True, timeout=0.3)

    async def test_waiting_until_an_object_is_gone(self, client: Client, namespace: str) -> None:
        await client.wait_gone(ConfigMap, "never", timeout=20)
        held = config_map("a")
        held.metadata.finalizers = ["example.com/hold"]
        created = await client.create(held)
        await client.delete(created)
        gone = asyncio.create_task(client.wait_gone(ConfigMap, "a", timeout=20))
        await client.patch(ConfigMap, "a", {"metadata": {"finalizers": None}})
        await gone


def item(name: str, version: int) -> dict[str, Any]:
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "resourceVersion": str(version)}}


def bookmark(version: int) -> tuple[str, dict[str, Any]]:
    return "BOOKMARK", {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": str(version)}, "data": None}


def error(code: int, reason: str) -> tuple[str, dict[str, Any]]:
    return "ERROR", {"kind": "Status", "apiVersion": "v1", "metadata": {}, "code": code, "reason": reason, "message": reason.lower()}


def versions(server: FaultServer) -> list[str]:
    """The versions that watches asked to go on from."""
    return [part.partition("=")[2] for one in server.received for part in one.query.split("&") if part.startswith("resourceVersion=")]


async def collect(server: FaultServer, count: int, *, start: str = "1") -> list[str]:
    """The names of the first ``count`` events; time passes by itself."""
    clock = FakeClock()
    names: list[str] = []
    async with Client(Transport(server.config(), clock=clock), clock=clock) as client:

        async def read() -> None:
            async with client.watch(ConfigMap, resource_version=start, namespace=ALL_NAMESPACES) as events:
                async for event in events:
                    names.append(event.object.metadata.name)
                    if len(names) == count:
                        return

        reading = asyncio.create_task(read())
        async with asyncio.timeout(10):
            while not reading.done():
                await asyncio.sleep(0.001)
                await clock.advance(1)
        await reading
    return names


LAST = frames(("ADDED", item("z", 9)), end="hang")


@pytest.mark.parametrize(
    ("script", "resumed"),
    [
        pytest.param([frames(("ADDED", item("a", 5))), LAST], ["1", "5"], id="a watch that ends goes on from the last version seen"),
        pytest.param([frames(("ADDED", item("a", 5)), bookmark(7)), LAST], ["1", "7"], id="a bookmark counts as seen, and is no event"),
        pytest.param([frames(("ADDED", item("a", 5)), end="cut"), LAST], ["1", "5"], id="a connection that breaks is made again"),
        pytest.param([DROP, frames(("ADDED", item("a", 5))), LAST], ["1", "1", "5"], id="a connection that is dropped at once too"),
        pytest.param(
            [frames(("ADDED", item("a", 5)), error(500, "InternalError")), LAST], ["1", "5"], id="an internal error is waited out"
        ),
        pytest.param([status(503), frames(("ADDED", item("a", 5))), LAST], ["1", "1", "5"], id="a server that is not ready is waited for"),
        pytest.param([frames(("ADDED", item("a", 5)), error(429, "TooManyRequests")), LAST], ["1", "5"], id="a busy server is given time"),
    ],
)
async def test_after(script: list[Reply], resumed: list[str]) -> None:
    async with FaultServer(*script) as server:
        assert await collect(server, 2) == ["a", "z"]
    assert versions(server) == resumed


@pytest.mark.parametrize(
    ("reply", "raised"),
    [
        pytest.param(frames(error(410, "Expired")), Expired, id="an expired version as an event"),
        pytest.param(status(410, "Expired", "too old"), Expired, id="an expired version as an answer"),
        pytest.param(status(403, "Forbidden", "no"), Forbidden, id="a refusal"),
        pytest.param(frames(("ODD", item("a", 1))), DecodeError, id="an event of unknown type"),
        pytest.param(Reply(chunks=[b"oops\n"]), DecodeError, id="a frame that is no JSON"),
    ],
)
async def test_a_watch_ends_with(reply: Reply, raised: type[Exception]) -> None:
    async with FaultServer(reply) as server:
        with pytest.raises(raised):
            await collect(server, 1)
    assert len(server.received) == 1


@pytest.mark.parametrize("version", ["", "0"])
async def test_n178_a_watch_from_no_version_is_refused(version: str) -> None:
    async with FaultServer(LAST) as server, Client(Transport(server.config())) as client:
        with pytest.raises(ValueError, match="names no state to go on from"):
            client.watch(ConfigMap, resource_version=version, namespace=ALL_NAMESPACES)
    assert server.received == []


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(frames(("ADDED", item("a", 5)), error(504, "Timeout")), id="a timeout"),
        pytest.param(frames(("ADDED", item("a", 5)), error(500, "InternalError")), id="an internal error"),
        pytest.param(frames(("ADDED", item("a", 5)), error(0, "")), id="an error that does not say what it is"),
        pytest.param(frames(("ADDED", item("a", 5)), error(400, "BadRequest")), id="any error but a version that is gone"),
        pytest.param(frames(("ADDED", item("a", 5))), id="its end"),
    ],
)
async def test_n179_a_stream_is_opened_again_from_the_last_version_after(fault: Reply) -> None:
    async with FaultServer(fault, LAST) as server:
        assert await collect(server, 2) == ["a", "z"]
    assert versions(server) == ["1", "5"]


@pytest.mark.parametrize(
    ("reply", "raised"),
    [
        pytest.param(frames(error(410, "Expired")), Expired, id="a 410 event"),
        pytest.param(status(401, "Unauthorized", "no"), Unauthorized, id="a 401 at the start"),
        pytest.param(status(403, "Forbidden", "no"), Forbidden, id="a 403 at the start"),
        # client-go tries a 410 at the start again without an end: it cannot recover by itself.
        pytest.param(status(410, "Expired", "too old"), Expired, id="a 410 at the start"),
    ],
)
async def test_n180_a_watch_ends_with_its_error_on(reply: Reply, raised: type[Exception]) -> None:
    async with FaultServer(reply) as server:
        with pytest.raises(raised):
            await collect(server, 1)
    assert len(server.received) == 1


async def test_a_watch_that_ends_at_once_is_not_begun_again_without_a_pause() -> None:
    clock = FakeClock()
    async with FaultServer(Reply(chunks=[])) as server, Client(Transport(server.config(), clock=clock), clock=clock) as client:

        async def read() -> None:
            async with client.watch(ConfigMap, resource_version="1", namespace=ALL_NAMESPACES) as events:
                async for _ in events:
                    pass

        reading = asyncio.create_task(read())
        for _ in range(20):
            await asyncio.sleep(0.002)
        assert len(server.received) == 1
        await clock.advance(2)
        while len(server.received) < 2:
            await asyncio.sleep(0.001)
        reading.cancel()
        await asyncio.wait([reading])


async def test_objects_of_a_page_that_is_newer_than_the_first_are_not_delivered_twice() -> None:
    def answer(received: Received) -> Reply:
        if "watch=true" in received.query:
            replayed = frames(
                ("MODIFIED", item("a", 4)), ("ADDED", item("b", 5)), ("MODIFIED", item("b", 6)), ("MODIFIED", item("b", 9)), end="hang"
            )
            return replayed if "resourceVersion=3" in received.query else LAST
        if "continue=old" in received.query:
            return status(410, "Expired", "too old", metadata={"continue": "fresh"})
        more = "continue" not in received.query
        metadata = {"resourceVersion": "3", "continue": "old"} if more else {"resourceVersion": "7"}
        entry = item("a", 2) if more else item("b", 6)
        return Reply(body={"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": [entry]})

    async with (
        FaultServer(answer=answer) as server,
        Client(Transport(server.config())) as client,
        client.watch(ConfigMap, namespace=ALL_NAMESPACES) as events,
    ):
        seen = [(one.type, one.object.metadata.resource_version) for one in [await anext(aiter(events)) for _ in range(4)]]
    assert seen == [("ADDED", "2"), ("ADDED", "6"), ("MODIFIED", "4"), ("MODIFIED", "9")]


def forgetful(then: Reply) -> FaultServer:
    """The first watch is refused because its version is forgotten."""
    watches = 0

    def answer(received: Received) -> Reply:
        nonlocal watches
        if "watch=true" in received.query:
            watches += 1
            return frames(error(410, "Expired")) if watches == 1 else then
        return Reply(body={"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "3"}, "items": [item("a", 2)]})

    return FaultServer(answer=answer)


async def test_waiting_outlives_a_version_that_the_server_forgot() -> None:
    async with forgetful(frames(("MODIFIED", item("a", 9)), end="hang")) as server, Client(Transport(server.config())) as client:
        found = await client.wait_for(ConfigMap, "a", lambda obj: obj.metadata.resource_version == "9", timeout=10)
        assert found.metadata.name == "a"


async def test_waiting_for_the_end_outlives_it_too() -> None:
    async with forgetful(frames(("DELETED", item("a", 9)), end="hang")) as server, Client(Transport(server.config())) as client:
        await client.wait_gone(ConfigMap, "a", timeout=10)


async def test_an_untrusted_server_is_not_tried_again() -> None:
    async with FaultServer(LAST) as server, Client(Transport(server.config(ca=None))) as client:
        with pytest.raises(UntrustedCertificate):
            async for _ in client.list(ConfigMap, namespace=ALL_NAMESPACES):
                pass


async def test_frames_that_are_cut_anywhere_are_put_together() -> None:
    whole = b"".join(frames(("ADDED", item("a", 5)), ("MODIFIED", item("b", 6))).chunks or ())
    async with FaultServer(Reply(chunks=[whole[at : at + 7] for at in range(0, len(whole), 7)], end="hang")) as server:
        assert await collect(server, 2) == ["a", "b"]


async def test_leaving_the_block_frees_the_socket() -> None:
    async with FaultServer(LAST) as server:
        assert await collect(server, 1) == ["z"]
        async with asyncio.timeout(5):
            await server.gone.wait()


async def test_the_initial_state_comes_page_by_page_and_the_watch_goes_on_from_its_version() -> None:
    def answer(received: Received) -> Reply:
        if "watch=true" in received.query:
            return LAST
        more = "continue" not in received.query
        metadata = {"resourceVersion": "3", **({"continue": "t"} if more else {})}
        return Reply(body={"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": [item("a" if more else "b", 2)]})

    async with (
        FaultServer(answer=answer) as server,
        Client(Transport(server.config())) as client,
        client.watch(ConfigMap, namespace=ALL_NAMESPACES) as events,
    ):
        assert [(await anext(aiter(events))).object.metadata.name for _ in range(3)] == ["a", "b", "z"]
    assert versions(server) == ["3"]


async def test_bookmarks_and_a_time_limit_are_asked_for() -> None:
    async with FaultServer(LAST) as server:
        await collect(server, 1)
    query = dict(part.split("=") for part in server.received[0].query.split("&"))
    assert (query["watch"], query["allowWatchBookmarks"]) == ("true", "true")
    assert 300 <= int(query["timeoutSeconds"]) <= 600


async def test_a_watch_is_used_inside_its_block() -> None:
    async with FaultServer(LAST) as server, Client(Transport(server.config())) as client:
        with pytest.raises(RuntimeError, match="inside its block"):
            aiter(client.watch(ConfigMap, namespace=ALL_NAMESPACES))


class Forgetting:
    """Lists of these states one after the other; each watch but the last is refused because its version is forgotten."""

    def __init__(self, *states: list[dict[str, Any]], then: Reply = LAST, refusals: int = 0) -> None:
        self.states = list(states)
        self.lists = self.watches = 0
        self.refusals = refusals
        self.then = then

    def __call__(self, received: Received) -> Reply:
        if "watch=true" in received.query:
            self.watches += 1
            return frames(error(410, "Expired")) if self.watches < len(self.states) else self.then
        if self.lists and self.refusals:
            self.refusals -= 1
            return status(503)
        entries = self.states[self.lists]
        self.lists += 1
        metadata = {"resourceVersion": str(self.lists * 10)}
        return Reply(body={"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": entries})


def owned(name: str, version: int, uid: str = "u1") -> dict[str, Any]:
    entry = item(name, version)
    entry["metadata"]["uid"] = uid
    return entry


async def relisted(answer: Forgetting, count: int) -> list[tuple[str, str, str]]:
    """The first events of a watch that lists again."""
    clock = FakeClock()
    seen: list[tuple[str, str, str]] = []
    async with FaultServer(answer=answer) as server, Client(Transport(server.config(), clock=clock), clock=clock) as client:

        async def read() -> None:
            async with client.watch(ConfigMap, on_expired="relist", namespace=ALL_NAMESPACES) as events:
                async for event in events:
                    seen.append((event.type, event.object.metadata.name, event.object.metadata.resource_version))
                    if len(seen) == count:
                        return

        reading = asyncio.create_task(read())
        async with asyncio.timeout(20):
            while not reading.done():
                await asyncio.sleep(0.001)
                await clock.advance(1)
        await reading
    return seen


class TestListingAgain:
    async def test_n183_the_difference_is_delivered_and_a_vanished_object_is_deleted_with_its_last_known_state(self) -> None:
        before = [owned("a", 1), owned("b", 2), owned("c", 3), owned("d", 4, "u1")]
        after = [owned("a", 1), owned("b", 12), owned("d", 14, "u2"), owned("e", 15)]
        assert await relisted(Forgetting(before, after), 10) == [
            ("ADDED", "a", "1"),
            ("ADDED", "b", "2"),
            ("ADDED", "c", "3"),
            ("ADDED", "d", "4"),
            ("MODIFIED", "b", "12"),
            ("DELETED", "d", "4"),
            ("ADDED", "d", "14"),
            ("ADDED", "e", "15"),
            ("DELETED", "c", "3"),
            ("ADDED", "z", "9"),
        ]

    async def test_a_server_that_cannot_list_just_then_is_asked_again(self) -> None:
        assert await relisted(Forgetting([owned("a", 1)], [owned("a", 2)], refusals=3), 2) == [("ADDED", "a", "1"), ("MODIFIED", "a", "2")]

    async def test_a_server_that_forgets_at_once_is_asked_with_pauses(self) -> None:
        states = [[owned("a", number)] for number in range(1, 6)]
        assert len(await relisted(Forgetting(*states), 5)) == 5


async def test_n182_present_objects_count_before_anything_is_watched() -> None:
    def answer(received: Received) -> Reply:
        assert "watch=true" not in received.query
        metadata = {"resourceVersion": "3"}
        return Reply(body={"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": [item("a", 2)]})

    async with FaultServer(answer=answer) as server, Client(Transport(server.config())) as client:
        assert (await client.wait_created(ConfigMap, "a", timeout=10)).metadata.resource_version == "2"


async def test_only_metadata_is_requested_and_read() -> None:
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a", "resourceVersion": "5"}}
    async with (
        FaultServer(frames(("ADDED", partial), end="hang")) as server,
        Client(Transport(server.config())) as client,
        client.watch_metadata(ConfigMap, resource_version="1", namespace=ALL_NAMESPACES) as events,
    ):
        event = await anext(aiter(events))
    assert isinstance(event.object, PartialObject)
    assert event.object.metadata.name == "a"
    assert server.received[0].headers["accept"] == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(LAST, id="of a stream that says nothing more"),
        pytest.param(Reply(chunks=[b""], end="hang"), id="of a stream that never says anything"),
        pytest.param(DROP, id="of a server that takes no connection"),
    ],
)
async def test_a_watch_with_a_timeout_ends_by_itself(answer: Reply) -> None:
    async with (
        FaultServer(answer=lambda _: answer) as server,
        Client(Transport(server.config())) as client,
        asyncio.timeout(20),
        client.watch(ConfigMap, resource_version="1", timeout=0.1, namespace=ALL_NAMESPACES) as events,
    ):
        assert [event.object.metadata.name async for event in events] in ([], ["z"])


@pytest.mark.embedded
class TestAgainstAServerThatForgets:
    async def test_a_watch_lists_again_and_tells_what_it_missed(self, in_loop_server: TlsTestServer) -> None:
        faults = in_loop_server.faults
        async with Client(Transport(in_loop_server.config)) as client:
            await client.create(config_map("a"))
            await client.create(config_map("b"))
            seen: list[tuple[str, str]] = []
            async with (
                asyncio.timeout(30),
                client.watch(ConfigMap, label_selector="app=web", on_expired="relist", namespace=ALL_NAMESPACES) as events,
            ):
                async for event in events:
                    seen.append((event.type, event.object.metadata.name))
                    if len(seen) == 2:
                        await client.create(config_map("c"))
                    elif len(seen) == 3:
                        faults.expire_next(matching=lambda request: "watch=" in request.query_string)
                        let_go = faults.hold(matching=lambda request: request.method == "GET")
                        faults.cut_streams()
                        await client.delete(ConfigMap, "a")
                        await client.patch(ConfigMap, "b", {"data": {"x": "1"}})
                        let_go()
                    elif len(seen) == 5:
                        break
        assert seen == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c"), ("MODIFIED", "b"), ("DELETED", "a")]

    async def test_a_list_whose_snapshot_is_gone_is_requested_once_more_as_a_whole(self, in_loop_server: TlsTestServer) -> None:
        async with Client(Transport(in_loop_server.config)) as client:
            for name in ("a", "b", "c"):
                await client.create(config_map(name))
            pages = client.list(ConfigMap, label_selector="app=web", limit=2, namespace=ALL_NAMESPACES)
            in_loop_server.faults.expire_next(matching=lambda request: "continue" in request.query)
            assert [one.metadata.name for one in await pages] == ["a", "b", "c"]


async def test_the_timeout_of_a_watch_is_measured_by_the_clock_of_the_client() -> None:
    clock = FakeClock()
    async with (
        FaultServer(Reply(chunks=[b""], end="hang")) as server,
        Client(Transport(server.config(), clock=clock), clock=clock) as client,
        client.watch(ConfigMap, resource_version="1", timeout=600) as events,
    ):
        waiting = asyncio.ensure_future(anext(aiter(events), None))
        async with asyncio.timeout(10):
            while not server.received:
                await asyncio.sleep(0.001)
            await clock.advance(599)
            assert not waiting.done()
            await clock.advance(1)
            assert await waiting is None
