"""Heads for tests of the store: pods with only the indexed fields."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import msgspec

from kubeloop.cache.blobs.blob_store import BlobStore
from kubeloop.cache.blobs.head import Head, HeadReader, StringInterner
from kubeloop.cache.store.index_sources import IndexSource, make_index
from kubeloop.cache.store.store import Store
from kubeloop.codec import decode
from kubeloop.meta import Unstructured

READER = HeadReader("v1", "Pod", ("spec.nodeName", "spec.ports[*]", "spec.rank"), BlobStore(), StringInterner())
rank_of = attrgetter(READER.attributes["spec.rank"])


def head(
    name: str, version: int | str = 1, namespace: str = "ns", labels: dict[str, str] | None = None, uid: str = "u", **spec: Any
) -> Head:
    """``node``, ``ports`` and ``rank`` are in its spec."""
    metadata = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(version), "labels": labels}
    named = {"nodeName": spec.get("node"), "ports": spec.get("ports"), "rank": spec.get("rank")}
    document = msgspec.json.encode({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": named})
    return READER.head(READER.projection.object(document), memoryview(document), None)


def store(**indexes: IndexSource[Unstructured]) -> Store:
    return Store(
        make_index(name, source, READER.attributes, lambda head: decode(Unstructured, head.document(), checked=True))
        for name, source in indexes.items()
    )
