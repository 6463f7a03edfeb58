"""``python -m examples.database_backup.backup POD``: dump a PostgreSQL database that runs in a pod, and fetch the dump."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from kubeloop import Client, KubeloopError, run

DUMP = "/tmp/backup.sql"
READY = "database system is ready to accept connections"


class BackupFailed(KubeloopError):
    """The database is not ready, or the dump ended with an error; the text is what it printed."""


async def backup(client: Client, pod: str, to: Path) -> int:
    """Dumps the database of a pod into a file here.

    Args:
        client: The cluster; the pod is in its namespace.
        pod: Name of the pod.
        to: The file to write.

    Returns:
        The size of the dump in bytes.

    Raises:
        BackupFailed: The database is not ready, or the dump failed.
    """
    if READY not in await client.pods.logs(pod, tail=100):
        raise BackupFailed(f"{pod}: the database is not ready yet; try again later")
    done = await client.pods.exec(pod, ["pg_dump", "--file", DUMP, "shop"])
    if done.exit_code != 0:
        raise BackupFailed(f"{pod}: pg_dump ended with {done.exit_code}: {done.stderr.decode().strip()}")
    await client.pods.copy_from(pod, DUMP, to)
    return (await asyncio.to_thread(to.stat)).st_size


async def main(pod: str) -> None:
    async with Client.from_config() as client:
        size = await backup(client, pod, Path("backup.sql"))
        print(f"backup.sql: {size} bytes")


if __name__ == "__main__":
    run(main(*sys.argv[1:2] or ["db-0"]))
