"""A server whose disk is full: the answers that its clients get, and that it goes on when there is room again."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.apiserver.storage.sqlite import SqliteStorage
from kubeloop.client import Client
from kubeloop.meta import InternalError, ObjectMeta
from kubeloop.testing import TlsTestServer
from kubeloop.transport import Transport


def config_map(name: str, size: int = 1) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data={"k": "v" * size})


async def test_writers_get_an_error_of_a_full_disk_readers_go_on_and_it_passes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with TlsTestServer(data=tmp_path / "data") as server, Client(Transport(server.config)) as client:
        await client.create(config_map("a"))
        assert isinstance(server.api.storage, SqliteStorage)
        connection = server.api.storage._ledger._connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")  # the nearest thing to a full disk that a test can have anywhere
        message = r"Internal error occurred: cannot write .*/store\.db: the disk is full; reads go on, and so do writes when there is room"
        for _ in range(3):
            with pytest.raises(InternalError, match=message):
                await client.create(config_map("b", 100_000))
        assert [one.metadata.name async for one in client.list(ConfigMap, namespace="default")] == ["a"]
        assert [one.message for one in caplog.records if "disk is full" in one.message] == [
            f"cannot write {tmp_path}/data/store.db: the disk is full; reads go on, and so do writes when there is room again"
        ]
        connection.execute("PRAGMA max_page_count = 1000000")
        await client.create(config_map("b", 100_000))


async def test_a_server_whose_store_is_broken_is_no_longer_ready(tmp_path: Path) -> None:
    async with TlsTestServer(data=tmp_path / "data") as server, Client(Transport(server.config)) as client:
        assert (await client.transport.request("GET", "/readyz/etcd")).body == b"ok"
        assert isinstance(server.api.storage, SqliteStorage)
        server.api.storage._ledger._connection.execute("PRAGMA query_only = ON")  # any fault but a full disk
        for _ in range(2):
            with pytest.raises(InternalError, match="readonly database; the server writes nothing more until it is started again"):
                await client.create(config_map("a"))
        for path in ("/readyz", "/livez/etcd"):
            with pytest.raises(InternalError):
                await client.transport.request("GET", path)
