"""The backup against a scripted pod: what the program runs, reads and copies, without a database and without a node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from examples.database_backup.backup import DUMP, READY, BackupFailed, backup
from kubeloop import Client
from kubeloop.testing import LocalCluster, ScriptedKubelet, Terminal

pytestmark = pytest.mark.embedded


@pytest.fixture
async def client(local_cluster: LocalCluster) -> AsyncIterator[Client]:
    async with Client.from_config(local_cluster.kubeconfig) as made:
        yield made


@pytest.fixture
async def kubelet(client: Client) -> AsyncIterator[ScriptedKubelet]:
    async with ScriptedKubelet(client) as kubelet:
        await kubelet.run_pod("db-0")
        yield kubelet


async def test_a_dump_is_made_and_fetched(client: Client, kubelet: ScriptedKubelet, tmp_path: Path) -> None:
    async def pg_dump(command: list[str], terminal: Terminal) -> int:
        file = kubelet.files("db-0") / DUMP.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"-- {command[-1]}\n" * 1000)
        await terminal.print("pg_dump: dumping contents\n", "stderr")
        return 0

    kubelet.on_logs("db-0", ["starting PostgreSQL", READY])
    kubelet.on_exec("db-0", ["pg_dump", "--file", DUMP, "shop"], run=pg_dump)
    assert await backup(client, "db-0", tmp_path / "backup.sql") == 8000
    assert (tmp_path / "backup.sql").read_text().startswith("-- shop\n")


async def test_a_database_that_still_starts_is_left_alone(client: Client, kubelet: ScriptedKubelet, tmp_path: Path) -> None:
    kubelet.on_logs("db-0", ["starting PostgreSQL"])
    with pytest.raises(BackupFailed, match="not ready yet"):
        await backup(client, "db-0", tmp_path / "backup.sql")
    assert not [request for request in kubelet.requests if request.path.startswith("/exec/")]


async def test_the_error_of_a_failed_dump_is_shown(client: Client, kubelet: ScriptedKubelet, tmp_path: Path) -> None:
    kubelet.on_logs("db-0", [READY])
    kubelet.on_exec("db-0", stderr='database "shop" does not exist\n', exit_code=1)
    with pytest.raises(BackupFailed, match='pg_dump ended with 1: database "shop" does not exist'):
        await backup(client, "db-0", tmp_path / "backup.sql")
