"""Servers that are cancelled, or fail, at any moment of their start and stop leave nothing behind, and a second stop works."""

from __future__ import annotations

import asyncio
import inspect
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubeloop.apiserver.server import ApiServer, ServerOptions
from kubeloop.apiserver.storage import KeyValue, MemoryStorage, Range, Storage, StorageFailed, WriteOutcome
from kubeloop.apiserver.storage.sqlite import SqliteStorage
from kubeloop.meta import ConfigError
from kubeloop.pki import CertificateAuthority
from kubeloop.serving.answer import Answer
from kubeloop.serving.listener import Listener
from kubeloop.serving.request import Request
from tests.interruptions import Injected, Interruption, each_interruption, interrupt, nothing_left

INTERRUPTIONS = pytest.mark.parametrize("interruption", [pytest.param(how, id=how.value) for how in Interruption])
AUTHORITY = CertificateAuthority.create("lifecycle")


async def hang(request: Request) -> Answer:
    await asyncio.Event().wait()
    return Answer()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[asyncio.StreamWriter]:
    """A client whose request is never answered."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await writer.drain()
        yield writer
    finally:
        writer.transport.abort()


@INTERRUPTIONS
async def test_a_listener_whose_start_is_interrupted_closes_its_socket(interruption: Interruption) -> None:
    async def attempt(at: int) -> str:
        async with nothing_left():
            listener = Listener(hang, None)

            async def start() -> None:
                await listener.bind()
                await listener.serve()

            where = await interrupt(start(), at, interruption)
            await listener.close(grace=0)
            await listener.close(grace=0)
        return where

    await each_interruption(interruption, attempt)


@INTERRUPTIONS
async def test_a_listener_whose_close_is_interrupted_ends_every_connection(interruption: Interruption) -> None:
    async def attempt(at: int) -> str:
        async with nothing_left():
            listener = Listener(hang, None)
            await listener.bind()
            await listener.serve()
            async with connected(listener.port):
                while not listener._connections:
                    await asyncio.sleep(0.001)
                where = await interrupt(listener.close(grace=0.01), at, interruption)
        await listener.close(grace=0)
        return where

    assert await each_interruption(interruption, attempt) >= (0 if interruption is Interruption.FAIL else 2)


class SlowStorage(MemoryStorage):
    """Suspends in each operation, as storage on a disk does."""

    async def revision(self) -> int:
        await asyncio.sleep(0)
        return await super().revision()

    async def oldest(self) -> int:
        await asyncio.sleep(0)
        return await super().oldest()

    async def get(self, key: str, revision: int = 0) -> tuple[KeyValue | None, int]:
        await _may_fail()
        return await super().get(key, revision)

    async def range(self, start: str, end: str, *, revision: int = 0, limit: int = 0) -> Range:
        await _may_fail()
        return await super().range(start, end, revision=revision, limit=limit)

    async def write(self, key: str, value: bytes | None, *, expected: int, lease: int = 0) -> WriteOutcome:
        await _may_fail()
        return await super().write(key, value, expected=expected, lease=lease)


async def _may_fail() -> None:
    """Suspends at a future, which an interruption can let fail."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def succeed() -> None:
        if not future.done():
            future.set_result(None)

    asyncio.get_running_loop().call_soon(succeed)
    await future


def options() -> ServerOptions:
    return ServerOptions(authority=AUTHORITY, provision=False)


@INTERRUPTIONS
@pytest.mark.parametrize("persistent", [pytest.param(False, id="in memory"), pytest.param(True, id="on disk")])
async def test_a_server_whose_start_is_interrupted_has_closed_everything(
    interruption: Interruption, persistent: bool, tmp_path: Path
) -> None:
    async def attempt(at: int) -> str:
        storage: Storage = await SqliteStorage.open(tmp_path / str(at), synced=False) if persistent else SlowStorage()
        async with nothing_left():
            server = ApiServer(options(), storage)
            where = await interrupt(server.start(), at, interruption)
            if not where:
                await server.stop()
        await server.stop()
        with pytest.raises(ConfigError, match="make a new ApiServer"):
            await server.start()
        return where

    assert await each_interruption(interruption, attempt) > (0 if persistent else 20)


@asynccontextmanager
async def watching(server: ApiServer) -> AsyncIterator[None]:
    """A client that watches, over TLS."""
    context = ssl.create_default_context(cadata=server.authority.decode())
    identity = server.administrator()
    with tempfile.NamedTemporaryFile() as file:
        file.write(identity.certificate + identity.key)
        file.flush()
        context.load_cert_chain(file.name)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]), ssl=context)
    try:
        writer.write(b"GET /api/v1/configmaps?watch=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        yield
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("interruption", [pytest.param(how, id=how.value) for how in (Interruption.CANCEL, Interruption.CANCEL_LATE)])
async def test_a_server_whose_stop_is_interrupted_has_closed_everything(interruption: Interruption, tmp_path: Path) -> None:
    async def attempt(at: int) -> str:
        storage = await SqliteStorage.open(tmp_path / str(at), synced=True)
        async with nothing_left():
            server = ApiServer(options(), storage)
            await server.start()
            async with watching(server):
                where = await interrupt(server.stop(), at, interruption)
        await server.stop()
        return where

    assert await each_interruption(interruption, attempt) > 5


PARTS = (
    "_listener.close",
    "authentication.stop",
    "_schema_status.stop",
    "_aggregator.stop",
    "_definitions.stop",
    "_webhooks.stop",
    "_policies.stop",
    "compactor.stop",
    "tasks.stop",
    "cache.stop",
    "storage.close",
    "operation.stop",
)


@pytest.mark.parametrize("part", PARTS)
async def test_a_part_that_fails_to_stop_neither_skips_the_others_nor_leaves_storage_open(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = await SqliteStorage.open(tmp_path / "data", synced=True)
    async with nothing_left():
        server = ApiServer(options(), storage)
        await server.start()
        owner, method = part.split(".")
        target = getattr(server, owner)
        stop = getattr(target, method)

        async def fail(*arguments: object, **options: object) -> None:
            await stop(*arguments, **options)
            raise Injected(part)

        def fail_at_once() -> None:
            stop()
            raise Injected(part)

        monkeypatch.setattr(target, method, fail if inspect.iscoroutinefunction(stop) else fail_at_once, raising=True)
        with pytest.raises(Injected, match=part):
            await server.stop()
    await server.stop()
    with pytest.raises(StorageFailed):
        await storage.write("/registry/a", b"", expected=0)
