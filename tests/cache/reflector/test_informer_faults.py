"""What an informer does when the server misbehaves: requests it makes, states it shows, events it tells."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kubeloop.api.core.v1 import ConfigMap, Secret
from kubeloop.cache import InformerFactory
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.config import Pem
from kubeloop.meta import DeadlineError, Forbidden, Unauthorized, UntrustedCertificate
from kubeloop.pki import CertificateAuthority
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport
from tests.cache.informing import informed, paused
from tests.cache.source import Source, serve, status, until
from tests.faults import FaultServer, Reply


async def test_the_first_list_is_at_version_0_with_limit_500_and_the_watch_asks_for_bookmarks_at_the_lists_version_A1(
    source: Source, api: Client, clock: FakeClock
) -> None:
    source.put("a")
    async with informed(api, clock):
        await until(lambda: source.watches == 1)
    assert source.asked("list", "resourceVersion", "limit") == [("0", "500")]
    assert source.asked("watch", "resourceVersion", "allowWatchBookmarks") == [("11", "true")]
    assert 300 <= int(source.asked("watch", "timeoutSeconds")[0]) <= 600


async def test_a_relist_that_expires_lists_at_once_at_the_newest_A3(source: Source, api: Client, clock: FakeClock) -> None:
    source.put("a")
    async with informed(api, clock) as (maps, _):
        await until(lambda: source.watches == 1)
        source.list_faults = [status(410, "Expired")]
        source.error_event(status(410, "Expired"))
        await paused(source, clock)
        assert source.asked("list", "resourceVersion") == ["0"], "the round's back-off comes first"
        await clock.advance(2)
        await until(lambda: source.watches == 1)
        assert source.asked("list", "resourceVersion") == ["0", "11", ""]
        assert maps.lister.get("a", "default") is not None


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(status(504, "Timeout", "Too large resource version: 11, current: 9"), id="by its message"),
        pytest.param(status(504, "Timeout", "timed out", [{"message": "Too large resource version"}]), id="by a cause's message"),
        pytest.param(status(504, "Timeout", "timed out", [{"reason": "ResourceVersionTooLarge"}]), id="by a cause's reason"),
    ],
)
async def test_too_large_a_version_is_recognised_A5(source: Source, api: Client, clock: FakeClock, refusal: dict[str, object]) -> None:
    source.put("a")
    async with informed(api, clock):
        await until(lambda: source.watches == 1)
        source.list_faults = [refusal]
        source.error_event(status(500, "InternalError"))
        await paused(source, clock)
        await clock.advance(2)
        await until(lambda: len(source.asked("list", "limit")) == 3)
    assert source.asked("list", "resourceVersion") == ["0", "11", ""]


async def test_a_page_that_expires_midway_is_followed_by_one_full_list_A4(source: Source, api: Client, clock: FakeClock) -> None:
    for name in "abcdef":
        source.put(name)
    source.page = 2
    source.list_faults = [None, status(410, "Expired", "continue token expired")]
    async with informed(api, clock) as (_, seen):
        pass
    asked = source.asked("list", "resourceVersion", "limit", "continue")
    assert asked[:3] == [("0", "500", ""), ("", "500", "2"), ("0", "", "")]
    assert seen.lines == [f"ADDED {name}" for name in "abcdef"], "nothing of the broken list is delivered twice"


async def test_a_list_in_pages_arrives_as_one_replacement_A8_A9(source: Source, api: Client, clock: FakeClock) -> None:
    for number in range(10):
        source.put(f"m{number}")
    async with informed(api, clock, page_size=4) as (maps, seen):
        assert len(maps.lister) == 10
    assert source.asked("list", "limit", "continue") == [("4", ""), ("4", "4"), ("4", "8")]
    assert all(event.initial for event in seen.events)


async def test_a_watch_closed_by_the_server_is_opened_again_from_the_last_version_without_a_list_B23(
    source: Source, api: Client, clock: FakeClock
) -> None:
    async with informed(api, clock) as (_, seen):
        await until(lambda: source.watches == 1)
        source.put("a")
        await until(lambda: seen.events)
        source.close_watches()
        await until(lambda: source.asked("watch", "resourceVersion") == ["10", "11"])
        assert source.asked("list", "limit") == ["500"]
        assert clock.waiting == 1, "only the new watch's own timeout is pending"


async def test_a_bookmark_moves_the_version_and_is_no_event_B27(source: Source, api: Client, clock: FakeClock) -> None:
    async with informed(api, clock) as (maps, seen):
        await until(lambda: source.watches == 1)
        source.version = 40
        source.bookmark()
        await until(lambda: maps.resource_version == "40")
        source.close_watches()
        await until(lambda: source.asked("watch", "resourceVersion") == ["10", "40"])
        assert not seen.events


async def test_a_refused_connection_watches_again_after_a_pause_at_the_same_version_B15(clock: FakeClock) -> None:
    source = Source()
    source.put("a")
    runner = await serve(source)
    port = int(source.url.rpartition(":")[2])
    async with source.client() as client, informed(client, clock) as (maps, seen):
        await until(lambda: source.watches == 1)
        source.put("b")
        await until(lambda: len(seen.events) == 2)
        source.reset_watches()
        await runner.cleanup()
        await until(lambda: maps.failure is not None and clock.waiting)
        assert maps.lister.get("a", "default") is not None, "the cache goes on answering"
        source.put("c")
        runner = await serve(source, port)
        async with asyncio.timeout(5):
            while len(seen.events) < 3:
                await clock.advance(1)
                await asyncio.sleep(0.002)
        assert source.asked("list", "limit") == ["500"]
        assert source.asked("check", "resourceVersion") == ["12"], "a restarted server gets a request for its version, not another list"
        assert set(source.asked("watch", "resourceVersion")) == {"11", "12"}
        assert maps.failure is None
    await runner.cleanup()


async def test_a_restarted_server_that_forgot_everything_is_listed_again(source: Source, api: Client, clock: FakeClock) -> None:
    source.put("a")
    async with informed(api, clock) as (maps, seen):
        await until(lambda: source.watches == 1)
        source.objects.clear()
        source.events.clear()
        source.version = 2
        source.put("b")
        source.events.clear()
        too_large = status(504, "Timeout", "Too large resource version: 11, current: 3")
        source.list_faults = [too_large]
        source.reset_watches()
        await paused(source, clock)
        await clock.advance(2)
        await until(lambda: len(seen.events) == 3)
        assert seen.lines[1:] == ["DELETED a (tombstone)", "ADDED b"]
        assert source.asked("list", "resourceVersion") == ["0", "11", ""]
        assert maps.resource_version == "3"
        assert [head.name for head in maps.lister.heads()] == ["b"]


async def test_429_when_opening_the_watch_watches_again_after_a_pause_B16(source: Source, api: Client, clock: FakeClock) -> None:
    source.watch_faults = [status(429, "TooManyRequests")] * 4
    async with informed(api, clock):
        async with asyncio.timeout(5):
            while not source.watches:
                await clock.advance(1)
                await asyncio.sleep(0.002)
    assert (len(source.asked("list", "limit")), len(source.asked("watch", "limit"))) == (1, 5)


async def test_any_other_error_when_opening_the_watch_lists_again_at_the_last_version_B17(
    source: Source, api: Client, clock: FakeClock
) -> None:
    source.watch_faults = [status(500, "InternalError")]
    async with informed(api, clock):
        await paused(source, clock)
        await clock.advance(2)
        await until(lambda: source.watches == 1)
    assert source.asked("list", "resourceVersion") == ["0", "10"]


async def test_410_when_opening_the_watch_again_keeps_the_cache_and_lists_at_the_last_version_B18(
    source: Source, api: Client, clock: FakeClock
) -> None:
    source.put("a")
    async with informed(api, clock) as (maps, seen):
        await until(lambda: source.watches == 1)
        source.put("b", hide=True)
        source.compact()
        source.close_watches()
        # closing at once and without an event counts as an error, so the list comes after the back-off
        await paused(source, clock)
        assert len(maps.lister) == 1
        await clock.advance(2)
        await until(lambda: len(seen.events) == 2)
        assert source.asked("list", "resourceVersion") == ["0", "11"]


async def test_an_object_that_vanished_while_the_watch_was_down_is_delivered_as_a_tombstone_first_B20(
    source: Source, api: Client, clock: FakeClock
) -> None:
    source.put("a", k="1")
    source.put("b")
    async with informed(api, clock) as (maps, seen):
        await until(lambda: source.watches == 1)
        source.delete("a", hide=True)
        source.put("b", hide=True, changed="yes")
        source.put("c", hide=True)
        source.error_event(status(500, "InternalError"))
        await paused(source, clock)
        await clock.advance(2)
        await until(lambda: len(seen.events) == 5)
        assert seen.lines[2:] == ["DELETED a (tombstone)", "MODIFIED b", "ADDED c"]
        assert seen.events[2].object.data == {"k": "1"}, "with the last state known"
        assert not any(event.initial for event in seen.events[2:])
        assert {head.name for head in maps.lister.heads()} == {"b", "c"}


async def test_an_object_deleted_and_made_again_between_two_lists_is_one_update_with_another_uid_X1(
    source: Source, api: Client, clock: FakeClock
) -> None:
    source.put("a")
    async with informed(api, clock) as (_, seen):
        await until(lambda: source.watches == 1)
        source.delete("a", hide=True)
        source.put("a", hide=True)
        source.error_event(status(500, "InternalError"))
        await paused(source, clock)
        await clock.advance(2)
        await until(lambda: len(seen.events) == 2)
        event = seen.events[1]
        assert event.type == "MODIFIED"
        assert event.old is not None
        assert event.old.uid != event.head.uid


async def test_a_stream_that_outlives_its_timeout_by_5_seconds_is_abandoned_and_resumed_T239(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with informed(api, clock):
        await until(lambda: source.watches == 1)
        seconds = int(source.asked("watch", "timeoutSeconds")[0])
        await clock.advance(seconds + 4)
        assert len(source.asked("watch", "limit")) == 1
        await clock.advance(1)
        await until(lambda: len(source.asked("watch", "limit")) == 2)
        assert source.asked("list", "limit") == ["500"]
        assert f"the watch outlived its {seconds} s: abandoned; watching again at once" in caplog.text


async def test_a_connection_that_breaks_is_resumed_from_the_last_event(source: Source, api: Client, clock: FakeClock) -> None:
    async with informed(api, clock) as (maps, seen):
        await until(lambda: source.watches == 1)
        source.put("a")
        await until(lambda: seen.events)
        source.reset_watches()
        source.put("b")
        await until(lambda: len(seen.events) == 2)
        assert source.asked("watch", "resourceVersion") == ["10", "11"]
        assert maps.reconnects == 1


async def test_frames_of_another_shape_are_read_all_the_same(source: Source, api: Client, clock: FakeClock) -> None:
    source.spaced = True
    source.put("a", k="1")
    async with informed(api, clock) as (maps, seen):
        await until(lambda: source.watches == 1)
        source.put("a", k="2")
        await until(lambda: len(seen.events) == 2)
        found = maps.lister.get("a", "default")
        assert found is not None
        assert found.data == {"k": "2"}


async def test_an_object_of_another_kind_is_skipped_and_does_not_move_the_version(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with informed(api, clock) as (maps, seen):
        await until(lambda: source.watches == 1)
        source.send(
            {
                "type": "ADDED",
                "object": {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "t", "resourceVersion": "99"}},
            }
        )
        source.put("a")
        await until(lambda: seen.events)
        assert seen.lines == ["ADDED a"]
        assert maps.resource_version == "11"
        assert "skipped an object of meta.k8s.io/v1, Kind=Table" in caplog.text


async def test_a_frame_that_is_no_json_ends_the_watch_with_a_list(source: Source, api: Client, clock: FakeClock) -> None:
    async with informed(api, clock) as (_, seen):
        await until(lambda: source.watches == 1)
        source.send(b"<html>\n")
        await paused(source, clock)
        source.put("a")
        await clock.advance(2)
        await until(lambda: seen.events)
        assert source.asked("list", "resourceVersion") == ["0", "10"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(status(401, "Unauthorized"), Unauthorized, id="401"),
        pytest.param(status(403, "Forbidden", 'configmaps is forbidden: User "x" cannot list'), Forbidden, id="403"),
    ],
)
async def test_waiting_ends_at_once_with(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture, answer: dict[str, object], error: type[Exception]
) -> None:
    source.list_faults = [answer] * 3
    async with InformerFactory(api, clock=clock) as informers:
        informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        with pytest.raises(error):
            await informers.wait_synced()
        await until(lambda: "configmaps in all namespaces: cannot list" in caplog.text)
        async with asyncio.timeout(5):
            while not source.watches:
                await clock.advance(1)
                await asyncio.sleep(0.002)
        await informers.wait_synced(1)  # permissions may be granted later


async def test_waiting_ends_at_once_with_an_untrusted_certificate(clock: FakeClock) -> None:
    other = Pem(data=CertificateAuthority.create("other").certificate, field="certificate-authority-data")
    async with (
        FaultServer(Reply()) as server,
        Client(Transport(server.config(ca=other))) as client,
        InformerFactory(client, clock=clock) as informers,
    ):
        informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        with pytest.raises(UntrustedCertificate, match="certificate signed by unknown authority"):
            await informers.wait_synced()


async def test_the_deadline_names_each_unsynced_informer_and_its_last_reason(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with InformerFactory(api, clock=clock) as informers:
        informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        secrets = informers.for_kind(Secret, namespace="shop")
        await until(lambda: secrets.failure is not None)
        waiting = asyncio.create_task(informers.wait_synced(30))
        await asyncio.sleep(0)
        await clock.advance(31)
        with pytest.raises(DeadlineError, match=r'after 30 s: not synced: secrets in namespace "shop" \(NotFound: .*\)$'):
            await waiting


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "11"}}, id="a bookmark"),
        pytest.param({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "99"}}, id="something unknown"),
    ],
)
async def test_watches_are_opened_ever_more_slowly_when_each_is_closed_after(
    source: Source, api: Client, clock: FakeClock, frame: dict[str, object]
) -> None:
    source.put("a")
    source.short = {"type": "BOOKMARK", "object": frame}
    async with informed(api, clock) as (maps, _):
        for _ in range(60):
            await clock.advance(0.5)
            await asyncio.sleep(0.002)
        assert 3 <= len(source.asked("watch", "resourceVersion")) <= 7, "in half a minute"
        assert maps.resource_version == "11"
