"""Storage against a model: whatever is done in whatever order, each revision shows exactly what the model held at it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kubeloop.apiserver.storage import Compacted, MemoryStorage
from kubeloop.apiserver.storage.sqlite import SqliteStorage

T = TypeVar("T")

KEYS = st.sampled_from([f"/{prefix}/{name}" for prefix in "ab" for name in "wxyz"])


def done(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


class StorageModel(RuleBasedStateMachine):
    """``states`` holds the whole content at each revision, ``changed`` the revision of each key's last change."""

    def __init__(self) -> None:
        super().__init__()
        self.storage: MemoryStorage | SqliteStorage = MemoryStorage()
        self.states: list[dict[str, bytes]] = [{}, {}]
        self.changed: dict[str, int] = {}
        self.oldest = 1

    def push(self, state: dict[str, bytes]) -> None:
        self.states.append(state)

    @property
    def now(self) -> dict[str, bytes]:
        return self.states[-1]

    @rule(key=KEYS, value=st.binary(max_size=2))
    def write(self, key: str, value: bytes) -> None:
        written = done(self.storage.write(key, value, expected=self.changed.get(key, 0)))
        assert written.succeeded
        self.push({**self.now, key: value})
        self.changed[key] = written.revision

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        present = key in self.now
        assert done(self.storage.write(key, None, expected=self.changed.get(key, 0))).succeeded
        if present:
            self.push({name: value for name, value in self.now.items() if name != key})
            del self.changed[key]

    @rule(key=KEYS, off=st.integers(1, 3))
    def write_at_the_wrong_revision(self, key: str, off: int) -> None:
        assert not done(self.storage.write(key, b"no", expected=self.changed.get(key, 0) + off)).succeeded

    @rule(back=st.integers(0, 4))
    def compact(self, back: int) -> None:
        at = len(self.states) - 1 - back
        if at > self.oldest:
            done(self.storage.compact(at))
            self.oldest = at

    @rule(back=st.integers(0, 6), limit=st.integers(0, 3))
    def range_at_a_revision(self, back: int, limit: int) -> None:
        at = max(len(self.states) - 1 - back, 1)
        try:
            found = done(self.storage.range("/a/", "/a0", revision=at, limit=limit))
        except Compacted:
            assert at < self.oldest
            return
        assert at >= self.oldest
        wanted = sorted((key, value) for key, value in self.states[at].items() if key.startswith("/a/"))
        assert [(kv.key, kv.value) for kv in found.items] == (wanted[:limit] if limit else wanted)
        assert (found.total, found.more) == (len(wanted), bool(limit) and len(wanted) > limit)

    @rule(back=st.integers(0, 6))
    def history_since_a_revision(self, back: int) -> None:
        at = max(len(self.states) - 1 - back, self.oldest)
        events, following = self.storage.events("/", at + 1)
        assert following == len(self.states)
        content = dict(self.states[at])
        for event in events:
            assert (event.previous.value if event.previous else None) == content.get(event.key)
            if event.value is None:
                del content[event.key]
            else:
                content[event.key] = event.value
            assert content == self.states[event.revision]
        assert content == self.now

    @invariant()
    def the_newest_state_is_the_model(self) -> None:
        found = done(self.storage.range("/", "0"))
        assert {kv.key: kv.value for kv in found.items} == self.now
        assert {kv.key: kv.mod_revision for kv in found.items} == self.changed
        assert found.revision == len(self.states) - 1


class SqliteModel(StorageModel):
    """The same in a file, which may be closed and opened again at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.storage = done(SqliteStorage.open(Path(self.folder.name)))

    @rule(keys=st.lists(KEYS, unique=True))
    def write_at_once(self, keys: list[str]) -> None:
        async def write() -> None:
            await asyncio.gather(*(self.storage.write(key, b"+", expected=self.changed.get(key, 0)) for key in keys))

        done(write())
        for key in keys:
            self.push({**self.now, key: b"+"})
            self.changed[key] = len(self.states) - 1

    @rule()
    def open_again(self) -> None:
        done(self.storage.close())
        self.storage = done(SqliteStorage.open(Path(self.folder.name)))

    def teardown(self) -> None:
        done(self.storage.close())
        self.folder.cleanup()


TestStorageModel = StorageModel.TestCase
TestStorageModel.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestSqliteModel = SqliteModel.TestCase
TestSqliteModel.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
