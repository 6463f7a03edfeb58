"""A caller that is cancelled while it ends background work of a part is cancelled: the part does not take it for the end of its work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import kubeloop.cli.watch
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.apiserver.aggregation.aggregator import Aggregator
from kubeloop.apiserver.aggregation.api_services import RegisteredService
from kubeloop.apiserver.aggregation.availability import Probe
from kubeloop.apiserver.crd.controller import DefinitionController
from kubeloop.apiserver.ownership import Owners
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.server.bootstrap import builtin_registry
from kubeloop.apiserver.server.compaction import Compactor
from kubeloop.apiserver.storage import MemoryStorage
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.apiserver.store.reader import Reader
from kubeloop.controller.manager.endpoints import Address
from kubeloop.controller.manager.http_endpoints import HttpEndpoint
from kubeloop.controller.webhooks import Webhooks, WebhookServer
from kubeloop.controller.webhooks.tls import ServingCertificate
from kubeloop.pki import CertificateAuthority
from kubeloop.reverseproxy.egress_policy import EgressPolicy
from kubeloop.reverseproxy.identity import ProxyIdentity
from kubeloop.schema import builtin
from kubeloop.serving.listener import Listener
from kubeloop.tasks import SupervisedTask, Supervisor
from kubeloop.tasks.supervisor import Work
from kubeloop.timing import Backoff, FakeClock, SystemClock

#: Ends a part. ``Stubborn.ending`` is set when that has begun.
End = Callable[[], Awaitable[object]]


class Stubborn:
    """Work that takes its time to end when it is cancelled."""

    def __init__(self) -> None:
        self.ending = asyncio.Event()
        self.release = asyncio.Event()

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.ending.set()
            await self.release.wait()


class StubbornSupervisor(Supervisor):
    """Runs stubborn work in the place of what it is given."""

    def __init__(self, work: Stubborn) -> None:
        super().__init__(FakeClock(), logging.getLogger("tests.tasks"))
        self._work = work

    def start(self, work: Work, *, name: str, restart: Backoff | None = None, subject: str = "") -> SupervisedTask:
        return super().start(self._work.run, name=name, restart=restart)


class StubbornStorage(MemoryStorage):
    """Its watch takes its time to end."""

    def __init__(self, work: Stubborn) -> None:
        super().__init__(FakeClock())
        self._work = work

    def watch(self, prefix: str, start_revision: int) -> Any:
        @asynccontextmanager
        async def watching() -> AsyncIterator[Any]:
            async def batches() -> AsyncIterator[Any]:
                await self._work.run()
                yield []

            yield batches()

        return watching()


class StubbornCertificates:
    """Its renewal takes its time to end."""

    def __init__(self, work: Stubborn) -> None:
        self._work = work

    async def open(self, client: object, clock: object) -> ServingCertificate:
        authority = CertificateAuthority.create("test")
        issued = authority.issue("test", ip_addresses=("127.0.0.1",), server=True)
        return ServingCertificate(issued.certificate, issued.key, authority.certificate)

    async def watch(self, changed: object) -> None:
        await self._work.run()


class Store:
    """The parts of a server that its controllers need."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.storage = MemoryStorage(self.clock)
        self.cache = WatchCache(self.storage)
        self.objects = Objects(self.storage)
        self.registry = builtin_registry(builtin(), self.clock)
        self.owners = Owners(self.registry, self.clock)


async def end_definitions(work: Stubborn) -> End:
    store = Store()
    keeper = DefinitionController(store.objects, store.cache, store.registry, store.clock, lambda *_: asyncio.sleep(0))
    await keeper.start(StubbornSupervisor(work))
    return keeper.stop


async def end_aggregator(work: Stubborn) -> End:
    store = Store()
    parts = store.registry, store.objects, store.owners, store.cache, store.clock
    aggregator = Aggregator(*parts, ProxyIdentity(), EgressPolicy())
    await aggregator.start(StubbornSupervisor(work))
    return aggregator.stop


async def end_probe(work: Stubborn) -> End:
    store = Store()
    service = RegisteredService("v1.a.example.com", "a.example.com", "v1", 1, 1, None)
    probe = Probe(service, None, None, None, store.clock)  # type: ignore[arg-type]  # none of them is called
    probe.start(StubbornSupervisor(work))
    return probe.stop


async def end_compactor(work: Stubborn) -> End:
    store = Store()
    compactor = Compactor(store.storage, store.cache, store.clock)
    compactor.start(StubbornSupervisor(work))
    return compactor.stop


async def end_watch_cache(work: Stubborn) -> End:
    cache = WatchCache(StubbornStorage(work))
    await cache.start()
    return cache.stop


async def end_webhook_server(work: Stubborn) -> End:
    hooks = Webhooks()
    hooks.validating(ConfigMap)(lambda obj: None)
    server = WebhookServer(hooks, StubbornCertificates(work), port=0, clock=SystemClock())
    await server.__aenter__()
    return lambda: server.__aexit__(None, None, None)


async def end_site(work: Stubborn) -> End:
    site = HttpEndpoint("health", Address("127.0.0.1", 0), (), SystemClock(), certificate=StubbornCertificates(work))
    await site.__aenter__()
    return lambda: site.__aexit__(None, None, None)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(end_definitions, id="the controller of CustomResourceDefinitions"),
        pytest.param(end_aggregator, id="the controllers of APIServices"),
        pytest.param(end_probe, id="the probe of an APIService"),
        pytest.param(end_compactor, id="the compaction"),
        pytest.param(end_watch_cache, id="the watch cache"),
        pytest.param(end_webhook_server, id="a webhook server"),
        pytest.param(end_site, id="an address of a manager"),
    ],
)
async def test_a_caller_that_is_cancelled_while_it_stops_is_cancelled(make: Callable[[Stubborn], Awaitable[End]]) -> None:
    work = Stubborn()
    end = await make(work)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ending = asyncio.ensure_future(end())
    await asyncio.wait_for(work.ending.wait(), 5)
    ending.cancel()
    work.release.set()
    with pytest.raises(asyncio.CancelledError):
        await ending


async def test_a_connection_that_is_cancelled_while_its_stream_ends_is_cancelled() -> None:
    work = Stubborn()
    listener = Listener(lambda _: pytest.fail("no request comes"), None)
    streaming = asyncio.ensure_future(listener._until_end(work.run()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(listener.close())  # cancels the stream
    await work.ending.wait()
    streaming.cancel()
    work.release.set()
    with pytest.raises(asyncio.CancelledError):
        await streaming
    await closing


async def test_a_stream_that_its_listener_ends_is_no_cancellation_of_its_connection() -> None:
    work = Stubborn()
    work.release.set()
    listener = Listener(lambda _: pytest.fail("no request comes"), None)
    streaming = asyncio.ensure_future(listener._until_end(work.run()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await listener.close()
    assert await streaming is None  # type: ignore[func-returns-value]


async def test_kubeloop_watch_that_is_cancelled_while_it_ends_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Stubborn()

    async def watch(target: object, kubeconfig: Path | None, context: str | None, ended: Any) -> None:
        ended.end()
        await work.run()

    monkeypatch.setattr(kubeloop.cli.watch, "_watch", watch)
    running = asyncio.ensure_future(kubeloop.cli.watch._run(None, None, None))  # type: ignore[arg-type]  # not looked at
    await work.ending.wait()
    running.cancel()
    work.release.set()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_read_that_is_cancelled_while_it_waits_for_a_version_is_cancelled_and_not_too_early() -> None:
    store = Store()
    reader = Reader(store.objects, store.cache, store.clock)
    reading = asyncio.ensure_future(reader.at_least(1000))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
