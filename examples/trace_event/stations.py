"""The stations of one event (docs/architecture.md, the path of one event), and what each shows."""

from __future__ import annotations

from asyncio.sslproto import SSLProtocol
from typing import Any

from examples.trace_event.tracer import Saying, Station
from kubeloop.api.core.v1 import Pod
from kubeloop.cache.blobs.blob_store import BlobStore
from kubeloop.cache.blobs.head import HeadReader
from kubeloop.cache.blobs.retention import DocumentTrimmer
from kubeloop.cache.handlers.registration import Registration
from kubeloop.cache.lister.mutation_cache import MutationCache
from kubeloop.cache.lister.view import CacheView
from kubeloop.cache.pipeline import ReflectorTarget
from kubeloop.cache.store.store import Store
from kubeloop.client import Client
from kubeloop.codec.frames import FrameSplitter
from kubeloop.codec.projection import Projection
from kubeloop.http1.client_connection import ClientConnection
from kubeloop.workqueue import WorkQueue


def _socket(seen: dict[str, Any], _: Any) -> Saying:
    return seen["nbytes"], "from the kernel, still encrypted"


def _http(seen: dict[str, Any], _: Any) -> Saying:
    return len(seen["data"]), "of the watch's answer, an HTTP chunk"


def _frame(_: dict[str, Any], frames: Any) -> Saying:
    return (frames[-1].nbytes, "up to the newline: one frame, nothing copied") if frames else None


def _projection(seen: dict[str, Any], answer: Any) -> Saying:
    if answer is None:
        return None
    kind, projected, document = answer
    paths = ", ".join(seen["self"].paths)
    return document.nbytes, f"{kind} {projected.metadata.name}: one pass reads type, metadata and {paths}"


def _keep(seen: dict[str, Any], kept: Any) -> Saying:
    whole = len(seen["document"])
    left = (
        f"the {whole - len(kept):,} bytes of managedFields are left out" if len(kept) < whole else "there are no managedFields to leave out"
    )
    return len(kept), f"kept; {left}"


def _pack(seen: dict[str, Any], packed: Any) -> Saying:
    times = len(seen["document"]) / len(packed.blob)
    how = f"{times:.1f} times smaller: zstd with a dictionary of its neighbours" if times > 1 else "waiting for a dictionary"
    return len(packed.blob), f"at rest, {how}"


def _head(_: dict[str, Any], head: Any) -> Saying:
    return None, f"head of {head.namespace}/{head.name}, the only thing decoded"


def _reflector(seen: dict[str, Any], _: Any) -> Saying:
    return None, f"the watch is at version {seen['self'].version}: there it would resume"


def _queue(_seen: dict[str, Any], _: Any) -> Saying:
    return None, "a delta waits its turn, in order of arrival"


def _store(seen: dict[str, Any], old: Any) -> Saying:
    head = seen["head"]
    before = f"version {old.resource_version} -> {head.resource_version}" if old is not None else f"new, version {head.resource_version}"
    return None, f"{before}, {len(seen['self'].indexes)} indexes"


def _offered(seen: dict[str, Any], _: Any) -> Saying:
    return None, f"in the buffer of {seen['self'].name}: delivered after the store shows it"


def _added(seen: dict[str, Any], _: Any) -> Saying:
    return None, f"key {seen['item']} is dirty"


def _read(seen: dict[str, Any], obj: Any) -> Saying:
    return len(seen["head"].document()), f"unpacked and decoded: a {type(obj).__name__} of the caller's own"


def _written(_: dict[str, Any], answer: Any) -> Saying:
    # A coroutine also "returns" what it waits for, each time that it waits.
    return (None, f"the server stored version {answer.metadata.resource_version}") if isinstance(answer, Pod) else None


def _overlaid(seen: dict[str, Any], _: Any) -> Saying:
    return None, f"own write of version {seen['head'].resource_version}: listers show it before the watch does"


PATH = [
    Station("socket", "asyncio.sslproto", SSLProtocol.buffer_updated, "call", _socket),
    Station("HTTP", "http1.client_connection", ClientConnection.data_received, "call", _http),
    Station("frame", "codec.frames", FrameSplitter.feed, "return", _frame),
    Station("projection", "codec.projection", Projection.event, "return", _projection),
    Station("retention", "cache.blobs.retention", DocumentTrimmer.document, "return", _keep),
    Station("packing", "cache.blobs.blob_store", BlobStore.pack, "return", _pack),
    Station("head", "cache.blobs.head", HeadReader.head, "return", _head),
    Station("reflector", "cache.pipeline", ReflectorTarget.change, "return", _reflector),
    Station("queue", "cache.deltas", ReflectorTarget.flush, "call", _queue),
    Station("store", "cache.store.store", Store.put, "return", _store),
    Station("handler buffer", "cache.handlers.registration", Registration.offer, "return", _offered),
    Station("workqueue", "workqueue.queue", WorkQueue.add, "return", _added),
    Station("lister", "cache.lister.view", CacheView.decode, "return", _read),
    Station("own write", "cache.lister.overlay", MutationCache.stored, "return", _overlaid),
    Station("write", "client", Client.patch, "return", _written),
]
"""All but the program's own handler and reconciler, which it adds."""
