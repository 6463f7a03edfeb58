"""Where the time of one event goes: each station of its path alone, in one process, over the replay server's frames.

Not a measurement against anybody: it tells what to make faster. Stations after the first include nothing of those before them.
"""

from __future__ import annotations

import array
import asyncio
import gc
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from kubeloop.api.core.v1 import Pod
from kubeloop.cache.blobs.blob_store import BlobStore
from kubeloop.cache.blobs.head import Head, HeadReader, StringInterner
from kubeloop.cache.blobs.retention import LEAN
from kubeloop.cache.store.index import Index, by_path
from kubeloop.cache.store.store import Store
from kubeloop.codec.decoding import decode
from kubeloop.codec.frames import FrameSplitter
from kubeloop.http1.client_connection import ClientConnection

T = TypeVar("T")
_EVENTS = 10_000
#: What a read of the socket brings of a busy watch.
_READ = 64 << 10


def _frames(data: Path) -> list[bytes]:
    offsets = array.array("Q")
    offsets.frombytes((data / "events.json.off").read_bytes())
    count = min(_EVENTS, len(offsets) - 1)
    packed = (data / "events.json.bin").read_bytes()[: offsets[count]]
    return [packed[offsets[at] : offsets[at + 1]] for at in range(count)]


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    """Microseconds of CPU per event, best of three, and what the last one made."""
    best = float("inf")
    for _ in range(3):
        gc.collect()
        began = time.process_time()
        made = work()
        best = min(best, time.process_time() - began)
    return best / _EVENTS * 1e6, made


class _Socket(asyncio.Transport):
    """Takes a request, and gives nothing back by itself."""

    def write(self, data: object) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def _transport(body: bytes) -> list[bytes]:
    wire = ClientConnection()
    wire.connection_made(_Socket())
    exchange = asyncio.ensure_future(wire.exchange("GET", b"GET / HTTP/1.1\r\n\r\n", None))
    await asyncio.sleep(0)
    wire.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    await exchange
    chunks: list[bytes] = []
    for at in range(0, len(body), _READ):
        wire.data_received(body[at : at + _READ])
        chunks.append(await wire.chunk())
    return chunks


def _cut(chunks: Iterable[bytes]) -> list[memoryview]:
    cutter = FrameSplitter()
    return [frame for chunk in chunks for frame in cutter.feed(chunk)]


def stations(data: Path) -> dict[str, float]:
    """Microseconds of CPU per event, by station."""
    frames = _frames(data)
    body = b"".join(b"%x\r\n%b\r\n" % (len(frame), frame) for frame in frames)
    found: dict[str, float] = {}
    found["HTTP chunks"], chunks = _timed(lambda: asyncio.run(_transport(body)))
    found["cutting frames"], cut = _timed(lambda: _cut(chunks))
    archive = BlobStore()
    reader = HeadReader("v1", "Pod", ("spec.nodeName",), archive, StringInterner(), LEAN)
    read = reader.projection.event
    found["one pass: type, head, paths"], events = _timed(lambda: [read(frame) for frame in cut])
    keep = reader.keeper.document
    found["leaving managedFields out"], kept = _timed(lambda: [keep(projected, document) for _, projected, document in events])
    first = [reader.head(projected, document, None) for _, projected, document in events]
    archive.end_list()
    documents = [bytes(document) for document in kept]

    def pack() -> list[Any]:
        return [archive.pack(document, head.namespace, head._packed) for document, head in zip(documents, first, strict=True)]

    found["packing"], _ = _timed(pack)

    def heads() -> list[Head]:
        return [reader.head(projected, document, head) for (_, projected, document), head in zip(events, first, strict=True)]

    whole, made = _timed(heads)
    found["head, the rest of it"] = whole - found["packing"] - found["leaving managedFields out"]

    def put() -> Store:
        store = Store([Index("node", "spec.nodeName", by_path(reader.attributes["spec.nodeName"]))])
        for head in made:
            store.put(head)
        return store

    found["store and index"], _ = _timed(put)
    blobs = [head.document() for head in made[:1000]]
    found["(reading: unpacking)"] = _each(made[:1000], Head.document)
    found["(reading: a typed Pod)"] = _each(blobs, lambda document: decode(Pod, document))
    return found


def _each(items: list[T], work: Callable[[T], object]) -> float:
    costs = []
    for _ in range(3):
        began = time.process_time()
        for item in items:
            work(item)
        costs.append((time.process_time() - began) / len(items) * 1e6)
    return statistics.median(costs)


def show(console: Console, data: Path) -> None:
    table = Table(title=f"one event, {_EVENTS:,} times, station by station")
    table.add_column("station")
    table.add_column("CPU, us", justify="right")
    found = stations(data)
    for name, cost in found.items():
        table.add_row(name, f"{cost:.2f}")
    table.add_row("[bold]path of an event", f"[bold]{sum(cost for name, cost in found.items() if not name.startswith('(')):.2f}")
    console.print(table)
