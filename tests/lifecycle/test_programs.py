"""Clients, informers and managers that are cancelled, or fail, at any moment of their start and stop leave nothing behind."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InformerFactory, InformerStopped
from kubeloop.client import Client
from kubeloop.controller import Controller, Manager, ManagerError, Result
from kubeloop.controller.election import LeaseConfig
from kubeloop.controller.manager.endpoints import Endpoints
from kubeloop.controller.sharding import ShardConfig
from kubeloop.controller.webhooks import Register, Webhooks, WebhookServer
from kubeloop.controller.webhooks.tls import ServingCertificate
from kubeloop.meta import ConfigError, ObjectMeta
from kubeloop.pki import CertificateAuthority
from kubeloop.testing import LocalCluster, TlsTestServer
from kubeloop.timing import Clock
from kubeloop.transport import Transport
from tests.interruptions import Interruption, each_interruption, interrupt, nothing_left

pytestmark = pytest.mark.embedded

INTERRUPTIONS = pytest.mark.parametrize("interruption", [pytest.param(how, id=how.value) for how in Interruption])


#: A Lease that an interrupted manager has not given back must not delay the next one.
NUMBERS = itertools.count()


def client_of(server: TlsTestServer) -> Client:
    return Client(Transport(server.config), namespace="default")


@INTERRUPTIONS
async def test_a_client_whose_request_or_close_is_interrupted_leaves_no_socket(
    interruption: Interruption, in_loop_server: TlsTestServer
) -> None:
    async def attempt(at: int) -> str:
        async with nothing_left():
            client = client_of(in_loop_server)

            async def use() -> None:
                await client.list(ConfigMap)
                await client.close()

            where = await interrupt(use(), at, interruption)
            await client.close()
            await client.close()
        return where

    assert await each_interruption(interruption, attempt) > 1


@INTERRUPTIONS
@pytest.mark.parametrize("persistent", [pytest.param(False, id="in memory"), pytest.param(True, id="with a folder")])
async def test_informers_that_are_interrupted_leave_nothing_and_are_not_started_again(
    interruption: Interruption, persistent: bool, in_loop_server: TlsTestServer, tmp_path: Path
) -> None:
    async def attempt(at: int) -> str:
        async with nothing_left():
            client = client_of(in_loop_server)
            informers = InformerFactory(client, persist=tmp_path / "state" if persistent else None)
            maps = informers.for_kind(ConfigMap)
            maps.on_event(added=lambda _: None, name="test")

            async def run() -> None:
                async with informers:
                    await informers.wait_synced()

            where = await interrupt(run(), at, interruption)
            await informers.__aexit__(None, None, None)
            with pytest.raises(InformerStopped, match="create new ones"):
                await informers.__aenter__()
            await client.close()
        return where

    assert await each_interruption(interruption, attempt) > (0 if interruption is Interruption.FAIL else 1)


async def test_informers_that_are_cancelled_while_a_handler_ends_wait_for_the_handler(in_loop_server: TlsTestServer) -> None:
    called, ended = asyncio.Event(), asyncio.Event()

    async def slow(_: object) -> None:
        called.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            ended.set()

    async with nothing_left(), client_of(in_loop_server) as client:
        await client.create(ConfigMap(metadata=ObjectMeta(name="slow")))
        informers = InformerFactory(client)
        informers.for_kind(ConfigMap, namespace="default").on_event(added=slow, name="slow")
        await informers.__aenter__()
        async with asyncio.timeout(10):
            await called.wait()
        ending = asyncio.ensure_future(informers.__aexit__(None, None, None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        assert ended.is_set()


class Idle(Controller[ConfigMap], name="idle"):
    async def reconcile(self, obj: ConfigMap) -> Result | None:
        return None


def plain(client: Client) -> Manager:
    return Manager(client, [Idle()], endpoints=Endpoints(health="127.0.0.1:0", metrics="127.0.0.1:0"))


def elected(client: Client) -> Manager:
    return Manager(client, [Idle()], leader_election=LeaseConfig(f"idle-{next(NUMBERS)}", namespace="default"))


def sharded(client: Client) -> Manager:
    return Manager(client, [Idle()], sharding=ShardConfig(f"idle-{next(NUMBERS)}", namespace="default"))


AUTHORITY = CertificateAuthority.create("lifecycle")

KINDS = pytest.mark.parametrize(
    "make",
    [pytest.param(plain, id="with endpoints"), pytest.param(elected, id="with leader election"), pytest.param(sharded, id="with sharding")],
)


@KINDS
@INTERRUPTIONS
async def test_a_manager_whose_start_is_interrupted_leaves_nothing(
    interruption: Interruption, make: Callable[[Client], Manager], in_loop_server: TlsTestServer
) -> None:
    async def attempt(at: int) -> str:
        async with nothing_left():
            client = client_of(in_loop_server)
            manager = make(client)
            where = await interrupt(manager.start(), at, interruption, inside=(manager, "_start"))
            await manager.stop()
            assert manager.phase == "stopped", where
            with pytest.raises(ManagerError, match="make a new one"):
                await manager.start()
            await client.close()
        return where

    count = await each_interruption(interruption, attempt)
    assert count > 1 or make is not plain


@KINDS
@INTERRUPTIONS
async def test_a_manager_whose_stop_is_interrupted_leaves_nothing(
    interruption: Interruption, make: Callable[[Client], Manager], in_loop_server: TlsTestServer
) -> None:
    async def attempt(at: int) -> str:
        async with nothing_left():
            client = client_of(in_loop_server)
            manager = make(client)
            await manager.start()
            await manager.wait_leading()
            where = await interrupt(manager.stop(), at, interruption)
            await manager.stop()
            assert manager.phase == "stopped"
            await client.close()
        return where

    assert await each_interruption(interruption, attempt) > 0


@pytest.mark.parametrize("interruption", [pytest.param(how, id=how.value) for how in (Interruption.CANCEL, Interruption.CANCEL_LATE)])
async def test_a_local_cluster_whose_start_or_stop_is_cancelled_ends_its_process_and_starts_again(interruption: Interruption) -> None:
    async with nothing_left():
        cluster = LocalCluster(controllers=False)
        assert await interrupt(cluster.start(), 1, interruption)
        assert "does not run" in repr(cluster)
        await cluster.start()
        folder = cluster.kubeconfig.parent
        await cluster.client.list(ConfigMap)
        with pytest.raises(ConfigError, match="runs already"):
            await cluster.start()
        assert await interrupt(cluster.stop(), 1, interruption)
        assert not folder.exists()
        await cluster.stop()


class Certificates:
    """Certificates that are never renewed."""

    async def open(self, client: Client | None, clock: Clock) -> ServingCertificate:
        issued = AUTHORITY.issue("lifecycle", ip_addresses=("127.0.0.1",), server=True)
        return ServingCertificate(issued.certificate, issued.key, AUTHORITY.certificate)

    async def watch(self, changed: Callable[[ServingCertificate], object]) -> None:
        await asyncio.Event().wait()


def hooks() -> Webhooks:
    made = Webhooks()

    @made.validating(ConfigMap)
    def accept(obj: ConfigMap) -> None:
        """Accepts all."""

    return made


@INTERRUPTIONS
async def test_a_webhook_server_whose_start_or_stop_is_interrupted_leaves_nothing(
    interruption: Interruption, in_loop_server: TlsTestServer
) -> None:
    async def attempt(at: int) -> str:
        async with nothing_left():
            client = client_of(in_loop_server)
            server = WebhookServer(
                hooks(), Certificates(), client=client, port=0, register=Register("lifecycle", temporary=True), registry=CollectorRegistry()
            )

            async def serve() -> None:
                async with server:
                    pass

            where = await interrupt(serve(), at, interruption)
            await server.__aexit__(None, None, None)
            await client.close()
        return where

    await each_interruption(interruption, attempt)
