"""A server's history of one kind in memory, a cache that hears of it as late as a test wants, and writes of our own."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache.blobs.blob_store import BlobStore
from kubeloop.cache.blobs.head import Head, HeadReader, StringInterner
from kubeloop.cache.deltas import Removed, Replaced, Upserted, VersionBookmark
from kubeloop.cache.handlers.event import EventType
from kubeloop.cache.lister.readers import Readers
from kubeloop.cache.pipeline import apply
from kubeloop.cache.scope import InformerDefaults, InformerScope
from kubeloop.cache.store.index_sources import ByLabel, IndexSource, Sorted, make_index
from kubeloop.cache.store.store import Store
from kubeloop.cache.tasks import Progress
from kubeloop.client import ResourceMapping, Write
from kubeloop.meta import kind_info
from kubeloop.timing import FakeClock

JSON = dict[str, Any]
INFO = kind_info(ConfigMap)
MAPPING = ResourceMapping(INFO.gvr, INFO.gvk, True)
INDEXES: dict[str, IndexSource[ConfigMap]] = {"data": "data.x", "tier": ByLabel("tier"), "sorted": Sorted("data.x")}


def document(name: str, uid: str, version: str, labels: dict[str, str] | None = None, **data: str) -> JSON:
    metadata = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": version, "labels": labels or {}}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data}


@dataclass
class _WatchPosition:
    """The version that the watch has reached, as ``Readers`` needs it."""

    description: str = "configmaps"
    namespace: str | None = None
    version: str = ""
    moved: float = 0.0
    failure: Exception | None = None


@dataclass
class World:
    """The cache's side. Everything is a call of the test: nothing happens by itself."""

    labels: str | None = None
    field_selector: str | None = None
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.scope = InformerScope.for_kind(ConfigMap, label_selector=self.labels, field_selector=self.field_selector)
        self.store = Store()
        self.reader = HeadReader("v1", "ConfigMap", ("data.x",), BlobStore(), StringInterner(), self.scope.keep)
        defaults = InformerDefaults("test", self.clock, Progress(self.clock))
        self.feed = _WatchPosition()
        self.readers: Readers[ConfigMap] = Readers(
            self.scope, "configmaps", self.store, defaults, lambda: self.reader, lambda: self.feed.version
        )
        self.readers.watches([self.feed])
        self.readers.rebuild_overlay_heads(self.reader)
        for name, source in INDEXES.items():
            self.readers.add_index(partial(make_index, name, source, self.reader.attributes, self.readers.view.decode))
        self.lister = self.readers.lister
        self.overlay = self.readers.overlay

    # ---------------------------------------------------------------------------------------------------------------- the watch

    def head(self, obj: JSON) -> Head:
        raw = msgspec.json.encode(obj)
        return self.reader.head(self.reader.projection.object(raw), memoryview(raw), None)

    def changed(self, obj: JSON) -> None:
        self._apply(Upserted(self.head(obj)), obj["metadata"]["resourceVersion"])

    def removed(self, obj: JSON) -> None:
        self._apply(Removed(self.head(obj)), obj["metadata"]["resourceVersion"])

    def bookmark(self, version: str) -> None:
        self._apply(VersionBookmark(version), version)

    def listed(self, objects: list[JSON], version: str) -> None:
        self.readers.listed(self.feed, version)
        self._apply(Replaced(tuple(map(self.head, objects)), version), version)
        self.readers.replaced(self.feed, version)

    def _apply(self, delta: Upserted | Removed | VersionBookmark | Replaced, version: str) -> None:
        self.feed.version = version or self.feed.version
        for change in apply(self.store, delta):
            self.readers.record(change.head, deleted=change.type is EventType.DELETED)
        self.readers.applied()

    # --------------------------------------------------------------------------------------------------------------- own writes

    def wrote(self, obj: JSON, verb: Any = "update", sent: float | None = None) -> None:
        """``sent``: by the clock of ``feed.moved``, at 0 unless a test sets it."""
        metadata = obj["metadata"]
        raw = msgspec.json.encode(obj)
        self.readers.wrote(Write(MAPPING, verb, "default", metadata["name"], metadata["uid"], metadata["resourceVersion"], raw, sent))

    def deleted(self, name: str, uid: str = "", version: str = "") -> None:
        self.readers.wrote(Write(MAPPING, "delete", "default", name, uid, version, None))

    # ----------------------------------------------------------------------------------------------------------------- readers

    def shown(self) -> dict[str, tuple[str, str]]:
        """Name to uid and version, of everything that readers see; checks on the way that all kinds of question agree."""
        heads = self.lister.heads()
        assert len(self.lister) == len(heads)
        found = {head.name: (head.uid, head.resource_version) for head in heads}
        assert len(found) == len(heads), "no object is there twice"
        for head in heads:
            assert self.lister.head(head.name, "default") is head
        for index, path in (("data", "data.x"), ("tier", "metadata.labels.tier")):
            by_value: dict[str, set[str]] = {}
            for head in heads:
                value = head.value(path) if index == "data" else head.labels.get("tier")
                if value is not None or index == "data":
                    by_value.setdefault(value or "", set()).add(head.name)
            assert set(self.lister.index_values(index)) == by_value.keys()
            for value, names in by_value.items():
                assert {head.name for head in self.lister.heads_by_index(index, value)} == names
                if value:
                    assert {head.name for head in self.lister.heads(field_selector={path: value})} == names
        carrying = sorted((head.value("data.x"), head.name) for head in heads if head.value("data.x") is not None)
        for reverse in (False, True):
            ranged = [(head.value("data.x"), head.name) for head in self.lister.heads_in_range("sorted", reverse=reverse)]
            assert ranged == (carrying[::-1] if reverse else carrying)
            assert [(head.value("data.x"), head.name) for head in self.lister.heads_in_range("sorted", reverse=reverse, limit=2)] == ranged[
                :2
            ]
        return found

    def names(self) -> list[str]:
        """As ``name@version``."""
        return sorted(f"{name}@{version}" for name, (_, version) in self.shown().items())
