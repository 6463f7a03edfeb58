"""Snapshots of a store: saved beside a server at work, restored where none is, checked both times."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeloop.apiserver.storage import Compacted
from kubeloop.apiserver.storage.sqlite import SqliteStorage
from kubeloop.apiserver.storage.sqlite.folder import restore, save
from kubeloop.meta import ConfigError


async def test_a_snapshot_of_a_store_in_use_holds_one_revision_of_it(tmp_path: Path) -> None:
    storage = await SqliteStorage.open(tmp_path / "a")
    for number in range(3):
        await storage.write(f"/a/{number}", b"x", expected=0)
    assert save(tmp_path / "a", tmp_path / "snapshot") == 4
    await storage.write("/a/later", b"x", expected=0)
    events = storage.events("/", 2)[0]
    await storage.close()
    assert stat.S_IMODE((tmp_path / "snapshot").stat().st_mode) == 0o600
    assert restore(tmp_path / "snapshot", tmp_path / "b") == 4
    restored = await SqliteStorage.open(tmp_path / "b")
    assert (await restored.revision(), restored.events("/", 2)[0]) == (4, events[:3])
    await restored.close()
    assert sorted(one.name for one in (tmp_path / "b").iterdir()) == ["lock", "store.db"]


async def test_a_snapshot_of_a_store_that_a_crash_left_holds_what_was_committed(tmp_path: Path) -> None:
    storage = await SqliteStorage.open(tmp_path / "a")
    await storage.write("/a/x", b"x", expected=0)
    (tmp_path / "crashed").mkdir()
    for one in ("store.db", "store.db-wal"):
        (tmp_path / "crashed" / one).write_bytes((tmp_path / "a" / one).read_bytes())
    await storage.close()
    assert save(tmp_path / "crashed", tmp_path / "snapshot") == 2


async def test_a_bumped_store_begins_later_without_history(tmp_path: Path) -> None:
    storage = await SqliteStorage.open(tmp_path / "a")
    first = (await storage.write("/a/x", b"1", expected=0)).revision
    await storage.write("/a/x", b"2", expected=first)
    gone = (await storage.write("/a/y", b"1", expected=0)).revision
    await storage.write("/a/y", None, expected=gone)
    await storage.close()
    save(tmp_path / "a", tmp_path / "snapshot")
    assert restore(tmp_path / "snapshot", tmp_path / "b", bump=1000) == 1005
    restored = await SqliteStorage.open(tmp_path / "b")
    assert [(kv.key, kv.value) for kv in (await restored.range("/", "0")).items] == [("/a/x", b"2")]
    with pytest.raises(Compacted):
        await restored.range("/", "0", revision=gone)
    assert (await restored.write("/a/z", b"", expected=0)).revision == 1006
    await restored.close()


async def test_what_cannot_be_saved_or_restored_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    storage = await SqliteStorage.open(tmp_path / "a")
    for number in range(12):
        await storage.write(f"/a/{number}", b"v" * 1200, expected=0)
    await storage.close()
    save(tmp_path / "a", tmp_path / "good")
    content = bytearray((tmp_path / "good").read_bytes())
    content[content.index(b"v" * 1200)] ^= 1
    (tmp_path / "bad").write_bytes(content)
    (tmp_path / "other").write_text("my notes")
    (tmp_path / "empty").mkdir()
    cases: list[tuple[Callable[[], int], str]] = [
        (lambda: save(tmp_path / "empty", tmp_path / "s"), r"/empty holds no store; name the folder that a server was given with --data"),
        (lambda: save(tmp_path / "a", tmp_path / "none" / "s"), r"cannot write .*/none/s: there is no folder .*/none"),
        (lambda: restore(tmp_path / "none", tmp_path / "b"), r"/none: no such file; name one that snapshot save wrote"),
        (lambda: restore(tmp_path / "other", tmp_path / "b"), r"/other is damaged: file is not a database; use an older snapshot"),
        (
            lambda: restore(tmp_path / "bad", tmp_path / "b"),
            r"/bad is damaged: the checksum of revision \d+ \(/a/\d+\) is wrong; use an older",
        ),
        (
            lambda: restore(tmp_path / "good", tmp_path / "other"),
            r"/other cannot be used for a store: File exists; name a folder on a local disk",
        ),
        (lambda: restore(tmp_path / "good", tmp_path / "a"), r"/a holds a store already, which is left as it is; name an empty folder"),
    ]
    for work, message in cases:
        with pytest.raises(ConfigError, match=message):
            work()
    assert not (tmp_path / "b").exists(), "a folder that was made for it is gone again"
    assert not (tmp_path / "s").exists()


async def test_a_store_in_use_is_not_restored_over(tmp_path: Path) -> None:
    storage = await SqliteStorage.open(tmp_path / "a")
    save(tmp_path / "a", tmp_path / "good")
    with pytest.raises(ConfigError, match="is in use by another server"):
        restore(tmp_path / "good", tmp_path / "a")
    await storage.close()
