"""Failures of the server's background tasks: logged once, counted, shown by /readyz, and tried again; and a stop that closes everything."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeloop.apiserver.registry.resource_controller import ResourceController, Sync
from kubeloop.apiserver.server import ApiServer, ServerOptions
from kubeloop.apiserver.storage import KeyValue, MemoryStorage
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.tasks import Supervisor
from kubeloop.timing import FakeClock
from tests.apiserver.conftest import running_api
from tests.apiserver.crd.test_controller import definition

pytestmark = pytest.mark.embedded

PREFIX = "/registry/core/configmaps/"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Synced:
    """A sync that notes what it was called with, and fails for the names in ``broken``."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bytes | None]] = []
        self.broken: set[str] = set()

    async def __call__(self, key: str, kv: KeyValue | None) -> None:
        name = key.removeprefix(PREFIX)
        if name in self.broken:
            raise ValueError(f"{name} is broken")
        self.calls.append((name, None if kv is None else kv.value))


class Bench:
    """Storage and a controller, without a server around them."""

    def __init__(self, sync: Sync) -> None:
        self.clock = FakeClock()
        self.storage = MemoryStorage(self.clock)
        self.cache = WatchCache(self.storage)
        self.tasks = Supervisor(self.clock, logging.getLogger("tests.controller"))
        self.controller = ResourceController("test-controller", PREFIX, self.storage, self.cache, sync)
        self._revisions: dict[str, int] = {}

    async def write(self, name: str, value: bytes | None) -> None:
        written = await self.storage.write(PREFIX + name, value, expected=self._revisions.get(name, 0))
        assert written.succeeded
        self._revisions[name] = 0 if value is None else written.revision
        await self.clock.advance(0)

    def healthy(self) -> bool:
        return self.tasks.healthy("test-controller")


@asynccontextmanager
async def bench(sync: Sync, **stored: bytes) -> AsyncIterator[Bench]:
    made = Bench(sync)
    await made.cache.start()
    for name, value in stored.items():
        await made.write(name, value)
    await made.controller.start(made.tasks)
    yield made
    await made.controller.stop()
    assert made.clock.waiting == 0
    await made.cache.stop()


async def test_stored_objects_are_synced_at_the_start_and_changes_follow_in_order() -> None:
    synced = Synced()
    async with bench(synced, a=b"1") as made:
        await made.write("b", b"1")
        await made.write("a", b"2")
        await made.write("b", None)
    assert synced.calls == [("a", b"1"), ("b", b"1"), ("a", b"2"), ("b", None)]


async def test_an_object_that_cannot_be_synced_stops_no_other_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    synced = Synced()
    synced.broken = {"a"}
    async with bench(synced, a=b"1", b=b"1") as made:
        await made.write("c", b"1")
        assert synced.calls == [("b", b"1"), ("c", b"1")]
        assert not made.healthy()
        synced.broken.clear()
        await made.clock.advance(1)
        assert synced.calls[2:] == [("a", b"1")]
        assert made.healthy()
        assert made.tasks.failures == {"test-controller": 1}
    [record] = [one for one in caplog.records if one.name == "tests.controller"]
    assert record.getMessage() == "test-controller: a failed (ValueError); retrying"
    assert record.exc_info is not None


async def test_an_object_that_stays_broken_is_tried_again_ever_more_slowly() -> None:
    synced = Synced()
    synced.broken = {"a"}
    async with bench(synced, a=b"1") as made:
        await made.clock.advance(300)
        assert 10 <= made.tasks.failures["test-controller"] <= 20


async def test_a_change_of_a_broken_object_is_synced_at_once() -> None:
    synced = Synced()
    synced.broken = {"a"}
    async with bench(synced, a=b"1") as made:
        synced.broken.clear()
        await made.write("a", b"2")
        assert synced.calls == [("a", b"2")]
        assert made.healthy()
        await made.clock.advance(60)
        assert synced.calls == [("a", b"2")]


async def test_a_watch_that_was_cut_is_followed_by_a_list_that_shows_what_went_meanwhile() -> None:
    synced = Synced()
    async with bench(synced, a=b"1", b=b"1") as made:
        await made.clock.advance(0)
        made.cache.end(PREFIX)
        await made.clock.advance(0)
        assert not made.healthy()
        await made.write("a", None)
        await made.write("c", b"1")
        await made.clock.advance(1)
        assert synced.calls[2:] == [("b", b"1"), ("c", b"1"), ("a", None)]
        assert made.healthy()


async def test_readyz_and_metrics_show_a_definition_that_the_server_cannot_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    import kubeloop.apiserver.crd.served

    works = kubeloop.apiserver.crd.served.served_resources

    def broken(crd: dict[str, Any], *arguments: Any) -> Any:
        if crd["metadata"]["name"].startswith("objs"):
            raise RuntimeError("a defect of the server")
        return works(crd, *arguments)

    async def until(condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(10):
            while not await condition():
                await asyncio.sleep(0)

    clock = FakeClock()
    async with running_api(clock) as api:

        async def serves(plural: str) -> bool:
            return (await api("GET", f"/apis/kl.example.com/v1/{plural}")).status == 200

        async def ready() -> bool:
            return (await api("GET", "/readyz/crd-controller")).status == 200

        async def unready() -> bool:
            return not await ready()

        assert await ready()
        monkeypatch.setattr(kubeloop.apiserver.crd.served, "served_resources", broken)
        for plural, kind in (("objs", "Obj"), ("others", "Other")):
            crd = {key: value for key, value in definition(plural, kind).items() if key != "status"}
            crd["metadata"] = {"name": f"{plural}.kl.example.com"}
            assert (await api("POST", DEFINITIONS, crd)).status == 201
        await until(lambda: serves("others"))
        await until(unready)
        assert not await serves("objs")
        assert "[-]crd-controller failed" in (await api("GET", "/readyz")).text
        assert 'kubeloop_background_task_failures_total{task="crd-controller"} 0' not in (await api("GET", "/metrics")).text
        assert 'kubeloop_background_task_failures_total{task="compaction"} 0' in (await api("GET", "/metrics")).text
        monkeypatch.undo()
        await clock.advance(60)
        await until(lambda: serves("objs"))
        await until(ready)


class FailingParts:
    """A server some of whose parts fail to close."""

    def __init__(self) -> None:
        self.storage = MemoryStorage(FakeClock())
        self.closed = False
        self.server = ApiServer(ServerOptions(listen=False, provision=False), self.storage)
        close = self.storage.close

        async def noted() -> None:
            self.closed = True
            await close()

        self.storage.close = noted  # type: ignore[method-assign]

    def break_(self, *parts: str) -> None:
        for part in parts:

            async def fails(part: str = part) -> None:
                raise OSError(f"{part} cannot be closed")

            getattr(self.server, part).stop = fails


async def test_a_stop_that_meets_errors_closes_everything_else_and_raises_all_of_them() -> None:
    parts = FailingParts()
    await parts.server.start()
    parts.break_("authentication", "compactor")
    with pytest.raises(ExceptionGroup) as caught:
        await parts.server.stop()
    assert [str(error) for error in caught.value.exceptions] == ["authentication cannot be closed", "compactor cannot be closed"]
    assert parts.closed
    await parts.server.stop()  # a second one does nothing


async def test_a_stop_that_is_cancelled_closes_everything_else() -> None:
    parts = FailingParts()
    await parts.server.start()

    async def waits() -> None:
        await asyncio.Event().wait()

    parts.server.authentication.stop = waits  # type: ignore[method-assign]
    stopping = asyncio.ensure_future(parts.server.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert parts.closed


async def test_a_start_that_fails_half_way_closes_what_was_started() -> None:
    parts = FailingParts()

    async def fails() -> None:
        raise OSError("the last step fails")

    parts.server._aggregator.start = lambda tasks: fails()  # type: ignore[method-assign,assignment,misc]
    before = asyncio.all_tasks()
    with pytest.raises(OSError, match="the last step fails"):
        await parts.server.start()
    assert parts.closed
    assert asyncio.all_tasks() == before


async def test_a_start_that_is_cancelled_closes_what_was_started() -> None:
    parts = FailingParts()
    begun = asyncio.Event()

    async def waits(tasks: Supervisor) -> None:
        begun.set()
        await asyncio.Event().wait()

    parts.server._aggregator.start = waits  # type: ignore[method-assign,assignment]
    before = asyncio.all_tasks()
    starting = asyncio.ensure_future(parts.server.start())
    await begun.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert parts.closed
    assert asyncio.all_tasks() == before


async def test_a_write_that_a_defect_breaks_is_refused_and_the_next_one_is_stored(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    from kubeloop.apiserver.storage import StorageFailed
    from kubeloop.apiserver.storage.sqlite import SqliteStorage

    storage = await SqliteStorage.open(tmp_path)
    stage = storage._ledger.stage

    def broken(records: Any) -> None:
        raise RuntimeError("a defect")

    storage._ledger.stage = broken  # type: ignore[method-assign]
    with pytest.raises(StorageFailed, match="RuntimeError: a defect"):
        await storage.write("/registry/core/configmaps/default/a", b"{}", expected=0)
    storage._ledger.stage = stage  # type: ignore[method-assign]
    assert (await storage.write("/registry/core/configmaps/default/a", b"{}", expected=0)).succeeded
    await storage.close()
    assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_trust_that_cannot_be_written_makes_the_server_unready_and_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    server = ApiServer(ServerOptions(listen=False, clock=clock))
    await server.start()
    try:
        publish, tries = server.authentication._publish, 0

        async def fails_twice(proxy: bytes, name: str) -> None:
            nonlocal tries
            tries += 1
            if tries <= 2:
                raise RuntimeError("a defect of the server")
            await publish(proxy, name)

        monkeypatch.setattr(server.authentication, "_publish", fails_twice)
        for listener in server.authentication.authorities._listeners:
            listener()
        await clock.advance(0)
        name = "cluster-authentication-trust"
        assert (tries, server.tasks.healthy(name), server.tasks.failures[name]) == (1, False, 1)
        await clock.advance(2)
        assert (tries, server.tasks.healthy(name), server.tasks.failures[name]) == (3, True, 2)
    finally:
        await server.stop()
