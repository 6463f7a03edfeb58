"""The server's side of the truth: every write in the order in which it was carried out, read from the storage itself.

Nothing that the soak breaks stands between: no connection, no watch, no restart.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from kubeloop.apiserver.storage import MemoryStorage, Storage, StorageEvent
from tests.soak.controllers.kinds import GROUP, KINDS
from tests.soak.controllers.replica import NAME

#: Seconds between two readings. The storage keeps what happens in between.
_EVERY = 0.05

_LEASE = f"/registry/coordination.k8s.io/leases/default/{NAME}"
_CHILDREN = "/registry/core/configmaps/"
_THINGS = f"/registry/{GROUP}/"


class _Owner(msgspec.Struct):
    uid: str = ""
    controller: bool = False


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    name: str = ""
    namespace: str = ""
    generation: int = 0
    owner_references: list[_Owner] = msgspec.field(default_factory=list)


class _Spec(msgspec.Struct, rename="camel"):
    value: int | None = None
    holder_identity: str | None = None
    lease_transitions: int | None = None


class _Status(msgspec.Struct, frozen=True):
    value: int | None = None
    generation: int | None = None
    by: str = ""
    term: int | None = None


class _Stored(msgspec.Struct):
    kind: str = ""
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)
    data: dict[str, str] = msgspec.field(default_factory=dict)


_DECODER = msgspec.json.Decoder(_Stored)


@dataclass(slots=True)
class _Known:
    """One object with its child."""

    name: str
    value: int | None = None
    generation: int = 0
    status: _Status = field(default_factory=_Status)
    children: dict[str, dict[str, str]] = field(default_factory=dict)


class History:
    """``follow`` as a task. ``violations``: what must never be written; ``unsettled``: how many objects are not as they are to be."""

    def __init__(self, storage: Callable[[], Storage], *, elected: bool) -> None:
        self._storage = storage
        self._elected = elected
        self._revision = 1
        self._known: dict[str, _Known] = {}
        self._orphans: dict[str, dict[str, dict[str, str]]] = {}
        self._unsettled: set[str] = set()
        self._term = 0
        self.violations: list[str] = []
        #: Writes of each replica.
        self.writes: Counter[str] = Counter()
        #: The holder of the lease by the server's word, and how often that changed.
        self.holder = ""
        self.holders: list[str] = []

    async def follow(self) -> None:
        while True:
            self.read()
            await asyncio.sleep(_EVERY)

    def read(self) -> None:
        """All that has happened up to now."""
        storage = self._storage()
        assert isinstance(storage, MemoryStorage)
        events, self._revision = storage.events("/registry/", self._revision)
        for event in events:
            self._take(event)

    @property
    def objects(self) -> int:
        return len(self._known)

    @property
    def unsettled(self) -> int:
        return len(self._unsettled)

    def wrong(self, expected: dict[str, int]) -> list[str]:
        """The differences from the final state, by the values last written (``KIND/NAMESPACE/NAME``)."""
        found = [f"{self._known[uid].name}: {self._amiss(self._known[uid])}" for uid in sorted(self._unsettled)]
        at_server = {known.name: known.value for known in self._known.values()}
        found += [
            f"{name}: {value} was written last, but {at_server.get(name)} is there"
            for name, value in expected.items()
            if at_server.get(name) != value
        ]
        return found

    def _take(self, event: StorageEvent) -> None:
        if event.key == _LEASE:
            self._lease(event)
        elif event.key.startswith(_THINGS):
            if event.value is not None:
                self._thing(event.revision, _DECODER.decode(event.value))
        elif event.key.startswith(_CHILDREN):
            self._child(event)

    def _lease(self, event: StorageEvent) -> None:
        holder = (_DECODER.decode(event.value).spec.holder_identity or "") if event.value is not None else ""
        if holder != self.holder:
            self.holder = holder
            if holder:
                self.holders.append(holder)

    def _thing(self, revision: int, stored: _Stored) -> None:
        metadata = stored.metadata
        if stored.kind not in _NAMES:
            return
        known = self._known.get(metadata.uid)
        if known is None:
            known = self._known[metadata.uid] = _Known(f"{stored.kind}/{metadata.namespace}/{metadata.name}")
            known.children = self._orphans.pop(metadata.uid, {})
        before, now = known.status, stored.status
        known.value, known.generation = stored.spec.value, metadata.generation
        if now != before:
            known.status = now
            self._wrote(revision, now.by, known.name)
            if (now.generation or 0) < (before.generation or 0):
                self._violation(
                    revision, f"{now.by} put the status of {known.name} back from generation {before.generation} to {now.generation}"
                )
            if self._elected:
                if (now.term or 0) < self._term:
                    self._violation(revision, f"{now.by} wrote {known.name} in term {now.term}, after a write of term {self._term}")
                self._term = max(self._term, now.term or 0)
        self._look(metadata.uid, known)

    def _child(self, event: StorageEvent) -> None:
        source = event.value if event.value is not None else event.previous.value if event.previous is not None else b"{}"
        stored = _DECODER.decode(source)
        owner = next((one.uid for one in stored.metadata.owner_references if one.controller), None)
        if owner is None:
            return
        known = self._known.get(owner)
        children = known.children if known is not None else self._orphans.setdefault(owner, {})
        name = known.name if known is not None else owner
        before = children.get(stored.metadata.uid)
        if event.value is None:
            children.pop(stored.metadata.uid, None)
        else:
            children[stored.metadata.uid] = stored.data
            by = stored.data.get("by", "")
            self._wrote(event.revision, by, name)
            if before is None and len(children) > 1:
                self._violation(event.revision, f"{by} made another child of {name}: now it has {len(children)}")
            was, now = int((before or {}).get("generation", 0)), int(stored.data.get("generation", 0))
            if now < was:
                self._violation(event.revision, f"{by} put the child of {name} back from generation {was} to {now}")
        if known is not None:
            self._look(owner, known)

    def _wrote(self, revision: int, by: str, name: str) -> None:
        self.writes[by] += 1
        if self._elected and by != self.holder:
            self._violation(revision, f"{by} wrote {name} while the lease was held by {self.holder or 'no replica'}")

    def _violation(self, revision: int, message: str) -> None:
        self.violations.append(f"revision {revision}: {message}")

    def _look(self, uid: str, known: _Known) -> None:
        if self._amiss(known):
            self._unsettled.add(uid)
        else:
            self._unsettled.discard(uid)

    @staticmethod
    def _amiss(known: _Known) -> str:
        """Empty if it is reconciled to its last state."""
        if known.status.generation != known.generation or known.status.value != known.value:
            return f"generation {known.generation} has value {known.value}, the status says {known.status}"
        children = list(known.children.values())
        if len(children) != 1:
            return f"has {len(children)} children"
        if children[0].get("value") != str(known.value) or children[0].get("generation") != str(known.generation):
            return f"value is {known.value}, its child is {children[0]}"
        return ""


_NAMES = frozenset(kind.__name__ for kind in KINDS)
