"""What only a storage in a file must do: come back as it was, keep other processes out, and name the faults of its file."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from kubeloop.apiserver.storage import Compacted, StorageEvent, StorageFailed
from kubeloop.apiserver.storage.sqlite import SqliteStorage, StoreDamaged, journal
from kubeloop.apiserver.storage.sqlite.folder import save_snapshot
from kubeloop.meta import ConfigError
from kubeloop.timing import Clock, FakeClock


@asynccontextmanager
async def opened(folder: Path, clock: Clock | None = None) -> AsyncIterator[SqliteStorage]:
    storage = await SqliteStorage.open(folder, clock or FakeClock())
    try:
        yield storage
    finally:
        await storage.close()


async def fill(folder: Path, keys: int = 3, size: int = 1) -> None:
    async with opened(folder) as storage:
        for number in range(keys):
            await storage.write(f"/a/{number}", b"v" * size, expected=0)


def everything(storage: SqliteStorage, start: int) -> list[StorageEvent]:
    return storage.events("/", start)[0]


async def test_content_history_and_revision_come_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        first = (await storage.write("/a/x", b"1", expected=0)).revision
        await storage.write("/a/x", b"2", expected=first)
        gone = (await storage.write("/a/y", b"", expected=0)).revision
        await storage.write("/a/y", None, expected=gone)
        before = everything(storage, 2), await storage.range("/", "0"), await storage.range("/", "0", revision=gone)
    async with opened(tmp_path) as storage:
        assert (everything(storage, 2), await storage.range("/", "0"), await storage.range("/", "0", revision=gone)) == before
        assert await storage.revision() == 5


async def test_compacted_revisions_stay_so_and_the_rest_comes_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        first = (await storage.write("/a/x", b"1", expected=0)).revision
        second = (await storage.write("/a/x", b"2", expected=first)).revision
        await storage.write("/a/x", b"3", expected=second)
        await storage.compact(second)
        before = everything(storage, second + 1), await storage.range("/", "0", revision=second)
    async with opened(tmp_path) as storage:
        assert (everything(storage, second + 1), await storage.range("/", "0", revision=second)) == before
        with pytest.raises(Compacted):
            await storage.range("/", "0", revision=first)


async def test_a_revision_is_not_given_again_when_all_its_records_are_compacted(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        first = (await storage.write("/a/x", b"1", expected=0)).revision
        last = (await storage.write("/a/x", None, expected=first)).revision
        await storage.compact(last)
    async with opened(tmp_path) as storage:
        assert (await storage.write("/a/x", b"1", expected=0)).revision == last + 1


async def test_a_compaction_frees_the_room_of_what_it_makes_worthless(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        revision = 0
        for _ in range(20):
            revision = (await storage.write("/a/x", b"x", expected=revision)).revision
        await storage.write("/a/y", b"", expected=0)
        await storage.compact(revision)
    assert [row[0] for row in rows(tmp_path)] == [revision, revision + 1]


async def test_a_compaction_that_broke_off_is_finished_when_the_store_is_opened(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        revision = 0
        for _ in range(5):
            revision = (await storage.write("/a/x", b"x", expected=revision)).revision
        await storage.write("/a/y", b"", expected=0)
        last = (await storage.write("/a/y", None, expected=revision + 1)).revision
        remove, storage._ledger.remove = storage._ledger.remove, lambda revisions: None  # type: ignore[method-assign]  # as if it ended here
        await storage.compact(last)
        del remove
    assert len(rows(tmp_path)) == 7
    async with opened(tmp_path) as storage:
        assert [kv.key for kv in (await storage.range("/", "0")).items] == ["/a/x"]
        assert (await storage.write("/a/z", b"", expected=0)).revision == last + 1
    assert [row[0] for row in rows(tmp_path)] == [revision, last + 1]


async def test_leases_end_at_their_time_also_while_the_server_was_down(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path, clock) as storage:
        for name, seconds in (("soon", 10), ("late", 60)):
            await storage.write(f"/a/{name}", b"", expected=0, lease=await storage.grant(seconds))
        kept = await storage.write("/a/kept", b"", expected=0, lease=await storage.grant(10))
        await storage.write("/a/kept", b"", expected=kept.revision)
    await clock.advance(30)
    async with opened(tmp_path, clock) as storage:
        await clock.advance(0)
        assert clock.next_due == pytest.approx(30, abs=0.001), "the later lease has half of its time left"
        await ends(storage, "/a/soon")
        assert [kv.key for kv in (await storage.range("/", "0")).items] == ["/a/kept", "/a/late"]
        await clock.advance(31)
        await ends(storage, "/a/late")
        assert [kv.key for kv in (await storage.range("/", "0")).items] == ["/a/kept"]


async def test_a_key_whose_lease_ends_while_its_write_waits_for_the_file_is_deleted_after_the_write(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path, clock) as storage:
        lease = await storage.grant(10)
        async with storage._file:  # as during a compaction
            writing = asyncio.create_task(storage.write("/a/x", b"", expected=0, lease=lease))
            await clock.advance(11)
        assert (await writing).succeeded
        await ends(storage, "/a/x")
        assert await storage.range("/", "0") == ([], 3, 0, False)


@pytest.mark.parametrize(
    ("synced", "mode", "calls"),
    [
        pytest.param(True, 2, 2, id="a synced store has its file and its folder on disk, and each commit calls fsync"),
        pytest.param(False, 0, 0, id="a store that is not synced never waits for the disk"),
    ],
)
async def test_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: bool, mode: int, calls: int) -> None:
    files: list[int] = []
    monkeypatch.setattr(os, "fsync", files.append)
    storage = await SqliteStorage.open(tmp_path, FakeClock(), synced=synced)
    try:
        assert len(files) == calls
        assert storage._ledger._connection.execute("PRAGMA synchronous").fetchone() == (mode,)
    finally:
        await storage.close()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        pytest.param(0, "its file system cannot hold a write-ahead log; name a folder on a local disk", id="for a new store"),
        pytest.param(1, "cannot open .*: unable to open database file", id="for a store that was copied there"),
    ],
)
async def test_a_file_system_without_shared_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: int, message: str
) -> None:
    if keys:
        await fill(tmp_path, keys)
    connect = sqlite3.connect

    def without_shared_memory(name: str, *, uri: bool = False, **options: Any) -> sqlite3.Connection:
        made: sqlite3.Connection = connect(f"{name}&vfs=unix-dotfile" if uri else name, uri=uri, **options)
        return made

    monkeypatch.setattr(sqlite3, "connect", without_shared_memory)
    with pytest.raises(ConfigError, match=message):
        await SqliteStorage.open(tmp_path, FakeClock())


async def ends(storage: SqliteStorage, key: str) -> None:
    async with asyncio.timeout(5), storage.watch(key, 2) as stream:
        async for batch in stream:
            if any(event.value is None for event in batch):
                return


async def test_nothing_shows_before_it_is_on_disk(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        seen: list[tuple[int, int]] = []
        commit = storage._ledger.commit

        def watched() -> None:
            seen.append((storage._history.revision, len(rows(tmp_path))))
            commit()
            seen.append((storage._history.revision, len(rows(tmp_path))))

        storage._ledger.commit = watched  # type: ignore[method-assign]  # to look in between
        await asyncio.gather(*(storage.write(f"/a/{number}", b"", expected=0) for number in range(3)))
        assert seen == [(1, 0), (1, 3)]
        assert await storage.revision() == 4


async def test_its_files_are_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    async with opened(folder) as storage:
        await storage.write("/a/x", b"secret", expected=0)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()} == {0o600}
    assert sorted(one.name for one in folder.iterdir()) == ["lock", "store.db"]


async def test_a_second_server_is_refused_with_the_process_id_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("12345678901234\n")  # of a server that ended
    async with opened(tmp_path):
        with pytest.raises(ConfigError, match=rf"is in use by another server \(process {os.getpid()}\); end that one, or name another"):
            await SqliteStorage.open(tmp_path)
    async with opened(tmp_path):
        """Free again."""


def test_a_lock_ends_with_its_process_however_that_ends(tmp_path: Path) -> None:
    code = (
        "import asyncio, os, signal, sys; from pathlib import Path; from kubeloop.apiserver.storage.sqlite import SqliteStorage;"
        "asyncio.run(SqliteStorage.open(Path(sys.argv[1]))); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    asyncio.run(fill(tmp_path))


def rows(folder: Path) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(folder / "store.db")) as connection:
        return connection.execute("SELECT revision, key FROM changes ORDER BY revision").fetchall()


def sql(text: str) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(text)

    return run


def flip(needle: bytes) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[content.index(needle) + len(needle) // 2] ^= 1
        path.write_bytes(content)

    return run


def lose(path: Path) -> None:
    path.with_name("store.db-wal").write_bytes(b"")
    path.unlink()


DAMAGE = [
    pytest.param(flip(b"v" * 600), r"the checksum of revision \d \(/a/\d\) is wrong", id="a byte of a value"),
    pytest.param(sql("UPDATE changes SET key = '/b/x' WHERE revision = 3"), r"the checksum of revision 3 \(/b/x\) is wrong", id="a key"),
    pytest.param(sql("UPDATE changes SET value = 7 WHERE revision = 3"), "the record of revision 3 is of another type", id="a type"),
    pytest.param(sql("DELETE FROM changes WHERE revision = 3"), "revision 3 is missing", id="a record that is gone"),
    pytest.param(sql("DELETE FROM changes WHERE revision BETWEEN 3 AND 5"), "revisions 3 to 5 are missing", id="records that are gone"),
    pytest.param(sql("UPDATE numbers SET number = 4"), "the checksum of the oldest revision is wrong", id="the oldest revision"),
    pytest.param(sql("DROP TABLE numbers"), "no such table: numbers", id="a table that is gone"),
    pytest.param(lambda path: os.truncate(path, 0), "it is empty", id="an empty file"),
    pytest.param(lambda path: os.truncate(path, 8192), "malformed|page", id="a file that is cut off"),
    pytest.param(lambda path: path.write_bytes(b"x" * 8192), "file is not a database", id="something else"),
    pytest.param(
        lambda path: path.write_bytes(path.read_bytes()[:8192] + bytes(8192) + path.read_bytes()[16384:]),
        ": (Tree 2 page|Page) 2:",
        id="a page of zeros",
    ),
    pytest.param(lose, "it is missing, though store.db-wal is there", id="a file that is gone"),
]


@pytest.mark.parametrize(("harm", "message"), DAMAGE)
async def test_damage_is_named_and_nothing_is_served(tmp_path: Path, harm: Callable[[Path], object], message: str) -> None:
    await fill(tmp_path, keys=12, size=1200)
    path = tmp_path / "store.db"
    harm(path)
    for _ in range(2):  # nothing is repaired in silence
        with pytest.raises(StoreDamaged, match=message) as fault:
            await SqliteStorage.open(tmp_path)
        assert str(fault.value).startswith(f"{path} is damaged: ")
        assert str(fault.value).endswith("; restore a snapshot into another folder, or move this one away to start empty")
        assert not path.with_name("store.db-shm").exists(), "SQLite has closed the file, although the error is still alive"


async def crashed(folder: Path, into: Path) -> Path:
    """A store as ``kill -9`` leaves it, with twenty transactions in its log; the log."""
    async with opened(folder) as storage:
        for number in range(20):
            await storage.write(f"/a/{number}", b"v" * 600, expected=0)
        for one in ("store.db", "store.db-wal"):
            (into / one).write_bytes((folder / one).read_bytes())
    return into / "store.db-wal"


@pytest.mark.parametrize(
    ("at", "message"),
    [
        pytest.param(0.5, r"its write-ahead log is broken after frame \d+, and \d+ transactions come after", id="a byte in the middle"),
        pytest.param(0, "the head of its write-ahead log is wrong", id="a byte of its head"),
    ],
)
async def test_a_damaged_log_is_named_before_sqlite_drops_what_comes_after(tmp_path: Path, at: float, message: str) -> None:
    (tmp_path / "crashed").mkdir()
    log = await crashed(tmp_path / "data", tmp_path / "crashed")
    content = bytearray(log.read_bytes())
    content[int(len(content) * at) + 20] ^= 1
    log.write_bytes(content)
    for _ in range(2):  # and stays as it is
        with pytest.raises(StoreDamaged, match=message):
            await SqliteStorage.open(tmp_path / "crashed")
        with pytest.raises(ConfigError, match=message):
            save_snapshot(tmp_path / "crashed", tmp_path / "snapshot")
        assert log.read_bytes() == content


@pytest.mark.parametrize(
    "tear",
    [
        pytest.param(lambda content: content[:-1], id="without its last byte"),
        pytest.param(lambda content: content[:-5000], id="without most of it"),
        pytest.param(lambda content: content[:-1] + bytes([content[-1] ^ 1]), id="with another last byte"),
    ],
)
async def test_a_last_transaction_that_was_torn_was_never_acknowledged(tmp_path: Path, tear: Callable[[bytes], bytes]) -> None:
    (tmp_path / "crashed").mkdir()
    log = await crashed(tmp_path / "data", tmp_path / "crashed")
    log.write_bytes(tear(log.read_bytes()))
    async with opened(tmp_path / "crashed") as storage:
        assert await storage.revision() == 20
    assert sorted(one.name for one in log.parent.iterdir()) == ["lock", "store.db"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            "PRAGMA user_version = 2", "has format 2, and this kubeloop knows formats up to 1; use a newer one", id="a newer format"
        ),
        pytest.param("PRAGMA application_id = 1", "is not a store of kubeloop; name another folder", id="a database of another program"),
    ],
)
async def test_what_it_does_not_know_is_left_alone(tmp_path: Path, change: str, message: str) -> None:
    await fill(tmp_path)
    sql(change)(tmp_path / "store.db")
    content = (tmp_path / "store.db").read_bytes()
    with pytest.raises(ConfigError, match=message) as refused:
        await SqliteStorage.open(tmp_path)
    assert (tmp_path / "store.db").read_bytes() == content
    assert sorted(one.name for one in tmp_path.iterdir()) == ["lock", "store.db"], f"SQLite has not closed the file after: {refused}"


async def test_a_store_of_an_older_format_is_converted_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(tmp_path)
    monkeypatch.setattr(journal, "_FORMATS", (*journal._FORMATS, "CREATE TABLE later (name TEXT)"))
    for _ in range(2):  # once
        async with opened(tmp_path) as storage:
            assert storage._ledger._connection.execute("PRAGMA user_version").fetchone() == (2,)
            assert storage._ledger._connection.execute("SELECT * FROM later").fetchall() == []
            assert len((await storage.range("/", "0")).items) == 3


async def test_a_full_disk_refuses_writes_keeps_reads_and_recovers(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        first = (await storage.write("/a/x", b"1", expected=0)).revision
        connection = storage._ledger._connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        results = await asyncio.gather(
            storage.write("/a/big", b"x" * 100_000, expected=0), storage.write("/a/x", b"2", expected=first), return_exceptions=True
        )
        for one in results:
            assert isinstance(one, StorageFailed)
            assert f"cannot write {tmp_path / 'store.db'}: the disk is full; reads go on" in str(one)
        assert await storage.revision() == first
        assert [kv.value for kv in (await storage.range("/", "0")).items] == [b"1"]
        connection.execute("PRAGMA max_page_count = 1000000")
        assert (await storage.write("/a/x", b"2", expected=first)).revision == first + 1
    async with opened(tmp_path) as storage:
        assert await storage.revision() == first + 1


async def test_a_lease_that_ends_while_the_disk_is_full_is_tried_again(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path, clock) as storage:
        await storage.write("/a/x", b"1", expected=0, lease=await storage.grant(10))
        stage = storage._ledger.stage
        failed = asyncio.Event()

        def full(records: object) -> None:
            failed.set()
            raise StorageFailed("full")

        storage._ledger.stage = full  # type: ignore[method-assign]  # a disk that is full for a while
        await clock.advance(11)
        await failed.wait()
        for _ in range(3):
            await asyncio.sleep(0)
        assert await storage.revision() == 2
        storage._ledger.stage = stage  # type: ignore[method-assign]
        await clock.advance(61)
        await ends(storage, "/a/x")


async def test_after_a_fault_of_the_disk_nothing_is_written_until_it_is_opened_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        first = (await storage.write("/a/x", b"1", expected=0)).revision
        connection = storage._ledger._connection
        connection.execute("PRAGMA query_only = ON")
        for _ in range(2):
            with pytest.raises(StorageFailed, match="readonly database; the server writes nothing more until it is started again"):
                await storage.write("/a/y", b"1", expected=0)
            connection.execute("PRAGMA query_only = OFF")
        assert [kv.value for kv in (await storage.range("/", "0")).items] == [b"1"]
        assert "readonly database" in storage.fault
    async with opened(tmp_path) as storage:
        assert (await storage.write("/a/y", b"1", expected=0)).revision == first + 1
        assert storage.fault == ""


async def test_transactions_under_way_at_closing_are_finished_and_none_comes_after(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        writing = [asyncio.ensure_future(storage.write(f"/a/{number}", b"", expected=0)) for number in range(3)]
        await asyncio.sleep(0)
        await storage.close()
        assert [one.revision for one in await asyncio.gather(*writing)] == [2, 3, 4]
        with pytest.raises(StorageFailed, match="it is closed"):
            await storage.write("/a/x", b"", expected=0)
    assert len(rows(tmp_path)) == 3


async def test_a_write_that_waits_for_another_when_the_store_is_closed_is_finished(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        committed, commit = threading.Event(), storage._ledger.commit

        def slow() -> None:
            committed.wait(5)
            commit()

        storage._ledger.commit = slow  # type: ignore[method-assign]  # a disk that is slow
        writing = []
        for key in ("/a/x", "/a/y"):
            writing.append(asyncio.create_task(storage.write(key, b"", expected=0)))
            for _ in range(3):
                await asyncio.sleep(0)
        closing = asyncio.create_task(storage.close())
        for _ in range(3):
            await asyncio.sleep(0)
        committed.set()
        assert [one.revision for one in await asyncio.gather(*writing)] == [2, 3]
        await closing


async def test_a_writer_whose_transaction_is_cancelled_stops_waiting(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        committed, commit = threading.Event(), storage._ledger.commit

        def slow() -> None:
            committed.wait(5)
            commit()

        storage._ledger.commit = slow  # type: ignore[method-assign]  # a disk that is slow
        writing = asyncio.create_task(storage.write("/a/x", b"", expected=0))
        await asyncio.sleep(0)
        flushing = storage._flushing
        assert flushing is not None
        await asyncio.sleep(0)
        flushing.cancel()
        committed.set()
        await asyncio.wait({writing, flushing}, timeout=5)
        assert (writing.cancelled(), flushing.cancelled()) == (True, True)


async def test_a_compaction_whose_caller_goes_away_leaves_the_file_to_others_only_when_it_is_done(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        revision = 0
        for _ in range(5):
            revision = (await storage.write("/a/x", b"x", expected=revision)).revision
        for at in range(3, 6):
            compacting = asyncio.create_task(storage.compact(at))
            for _ in range(at):
                await asyncio.sleep(0)
            compacting.cancel()
            writing = asyncio.create_task(storage.write(f"/a/{at}", b"", expected=0))
            await asyncio.wait({compacting, writing})
            assert (await writing).succeeded
        assert storage.fault == ""
    async with opened(tmp_path) as storage:
        assert [kv.key for kv in (await storage.range("/", "0")).items] == ["/a/3", "/a/4", "/a/5", "/a/x"]
