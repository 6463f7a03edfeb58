"""BlobStore: compresses the documents of one cache, and decides when to train a dictionary and which dictionary to use.

It holds documents uncompressed until they are enough to train a dictionary on. It compresses each document once, unless its dictionary
retires. Training runs in a thread and held documents are compressed in slices, so neither blocks the event loop. Why: docs/decisions.md.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Protocol, TypeVar

from kubeloop.cache.blobs.compression import PLAIN, Codec, CompressedObject, RecentDocuments, better, trained

#: Maximum bytes of documents held during a list: the sample for the first dictionary, and the temporary memory of a list.
HOLD_LISTING = 20 << 20
#: Maximum bytes of documents held during a watch: enough to train on.
HOLD_WATCHING = 2 << 20
#: Training on more samples takes longer (0.2 ms each) and gains nothing measurable.
SAMPLES = 256
#: Maximum number of dictionaries in use. Each takes about 300 KiB, and they compete for the processor's cache: eight cost 8 us per event.
MAX_DICTIONARIES = 3
#: A dictionary retires only if at most this share of the documents uses it: recompressing more documents costs more than it saves.
SPARE = 0.03
#: Number of documents that are sampled to count the use of each dictionary.
CENSUS = 10_000
#: Number of misfits between a training that gained nothing and the next training; four times as many each time.
PATIENCE = 1024
#: A changed object is a misfit only above this many times ``Codec.limit``, because its new identifiers and times compress badly.
POOR_UPDATE = 2.0
#: After so many misfits in a row, the next documents are held without trying the dictionary.
STREAK = 16
#: Number of held documents that are compressed in one slice, about 2 ms.
SLICE = 256
#: Number of documents recompressed in one slice after their dictionary retired, and number checked for it: about 3 ms.
MOVE = 128
LOOK = 4096


class PackedHolder(Protocol):
    """An object that refers to a compressed document, such as a head."""

    @property
    def packed(self) -> CompressedObject:
        """The compressed document."""

    def replace_packed(self, packed: CompressedObject) -> None:
        """Replace the stored form of the same document."""


class BlobStore:
    """Compresses the documents of one cache.

    Guarantees
        ``unpack(pack(document)) == document``. The held, uncompressed documents exceed the limit at most by the documents that arrive while
        a dictionary is trained, about 0.1 s. A new state of a known object is compressed with the dictionary of its last state. A new
        object is compressed with the dictionary of the preceding object, because lists are in namespace order and the pods of a namespace
        resemble each other. When new documents no longer fit the dictionaries, as after a rollout, a dictionary is trained on them. Each
        training that gains nothing quadruples the time to the next one. At most ``MAX_DICTIONARIES`` are in use. A retiring dictionary is
        freed after its documents have been recompressed in slices.

    Cost
        About 8 us for a Pod of 8 KB at one thirteenth of its size; each training takes 70 ms in a thread. Reading takes about 13 us.
    """

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random(1)
        self._held: deque[CompressedObject] = deque()
        self._held_bytes = 0
        self._hold = HOLD_LISTING
        self._listing = False
        self._current: Codec | None = None
        self._live: list[Codec] = []
        self._by_namespace: dict[str, Codec] = {}
        self._waiting_namespaces: set[str] = set()
        self._poor = 0
        self._training = False
        #: Held documents of objects that have changed since then: many states of one object are a poor sample.
        self._superseded = 0
        self._patience = PATIENCE
        self._ignored = 0
        #: Returns the objects of the cache. If it is None, no dictionary ever retires.
        self.population: Callable[[], Iterable[PackedHolder]] | None = None
        self._moving: Iterator[PackedHolder] | None = None
        #: The uncompressed documents of the last changes; None if they are not cached.
        self.recent: RecentDocuments | None = None
        #: Number of held documents that are still to be compressed. Documents that arrive meanwhile wait for the next dictionary.
        self._releasing = 0

    @property
    def dictionaries(self) -> int:
        return len(self._live) + (self._moving is not None)

    @property
    def held_bytes(self) -> int:
        """Bytes of documents that are held uncompressed until a dictionary is trained."""
        return self._held_bytes

    def pack(self, document: bytes | memoryview, namespace: str = "", before: CompressedObject | None = None) -> CompressedObject:
        if before is not None:
            codec = before.codec
            if codec is PLAIN:
                self._superseded += 1
            elif not codec.retired:
                blob = codec.compress(document)
                # A document that fits as well as its last state is no misfit: only changed documents justify a new dictionary.
                if len(blob) <= POOR_UPDATE * codec.limit * len(document) or 2 * len(blob) <= 3 * len(before.blob):
                    if self.recent is not None:
                        codec.recent = self.recent
                        self.recent.put(blob, document)
                    return CompressedObject(codec, blob)
        if self._current is None or (self._poor >= STREAK and not self._ignored):
            return self._wait(document, namespace)
        codec = self._by_namespace.get(namespace) or self._best([document])
        blob = codec.compress(document)
        if len(blob) <= codec.limit * len(document):
            self._poor = 0
            self._by_namespace[namespace] = codec
            return CompressedObject(codec, blob)
        self._poor += 1
        if self._ignored:
            self._ignored -= 1
            # The best dictionary is not searched again for each of the following documents.
            self._by_namespace[namespace] = codec
            return CompressedObject(codec, blob)
        return self._wait(document, namespace)

    def adopt(self, codecs: Iterable[Codec]) -> None:
        """Register the dictionaries of documents that were restored from a saved state."""
        for codec in codecs:
            if codec is not PLAIN:
                self._live.append(codec)
                self._current = codec

    def begin_list(self) -> None:
        """Begin a list: collect more documents before training a dictionary."""
        self._hold = HOLD_LISTING
        self._listing = True

    def end_list(self) -> None:
        """End a list: compress the held documents if there are enough of them to train on, or if a dictionary exists.

        The memory that the list needed temporarily is then returned to the operating system.
        """
        self._hold = HOLD_WATCHING
        self._listing = False
        if self._releasing or self._training:
            return  # the end of the training or of the release does the rest
        if len(self._held) >= SAMPLES or self._held_bytes > HOLD_WATCHING:
            self._train()
        elif self._held and self._current is not None:
            self._release()
        elif self._current is not None:
            in_thread(give_back_memory, lambda _: None)

    def _wait(self, document: bytes | memoryview, namespace: str) -> CompressedObject:
        packed = CompressedObject(PLAIN, bytes(document))
        self._held.append(packed)
        self._waiting_namespaces.add(namespace)
        self._held_bytes += len(document)
        if self._held_bytes > self._hold and not self._releasing:
            self._train()
        return packed

    def _train(self) -> None:
        if self._training:
            return
        self._training = True
        held, current = list(self._held), self._current
        samples = [packed.blob for packed in self._rng.sample(held, min(SAMPLES, len(held)))]
        population = len(held) - self._superseded
        if current is not None:
            current = self._best(samples[:16])
            if not self._may_grow() or population < SAMPLES // 4:
                self._trained(current)
                return
        in_thread(lambda: better(trained(samples), current, samples), self._trained)

    def _best(self, samples: Sequence[bytes | memoryview]) -> Codec:
        """Return the dictionary that compresses these samples best."""
        assert self._current is not None
        return min(self._live, key=lambda codec: sum(len(codec.compress(sample)) for sample in samples), default=self._current)

    def _may_grow(self) -> bool:
        return self._moving is None and (len(self._live) < MAX_DICTIONARIES or self._spare() is not None)

    def _spare(self) -> Codec | None:
        """Return the oldest dictionary that hardly any document uses; None if all are in use or the use is unknown.

        The use is unknown while a list is read, because its objects are not in the cache yet.
        """
        if self.population is None or self._listing:
            return None
        used = Counter(id(holder.packed.codec) for holder in islice(self.population(), CENSUS))
        return next((codec for codec in self._live if used[id(codec)] <= SPARE * used.total()), None)

    def _trained(self, codec: Codec) -> None:
        self._training = False
        if codec in self._live or codec is self._current:
            self._ignored = self._patience
            self._patience *= 4
            self._current = codec
        else:
            self._patience = PATIENCE
            retiring = self._spare() if len(self._live) >= MAX_DICTIONARIES else None
            if retiring is not None:
                self._live.remove(retiring)
            self._live.append(codec)
            self._current = codec
            if retiring is not None:
                self._retire(retiring)
        self._release()

    def _retire(self, codec: Codec) -> None:
        assert self.population is not None
        codec.retired = True
        self._by_namespace = {name: other for name, other in self._by_namespace.items() if other is not codec}
        self._moving = iter(self.population())
        in_slices(self._move_some)

    def _move_some(self) -> bool:
        """Recompress a few documents of a retired dictionary; return whether more are left."""
        current = self._current
        assert self._moving is not None
        assert current is not None
        looked = moved = 0
        for holder in islice(self._moving, LOOK):
            looked += 1
            packed = holder.packed
            if packed.codec.retired:
                # One new value in the place of the old one, so that readers in other threads have one or the other.
                holder.replace_packed(CompressedObject(current, current.compress(packed.document())))
                moved += 1
                if moved == MOVE:
                    return True
        if looked < LOOK:
            self._moving = None
        return looked == LOOK

    def _release(self) -> None:
        assert self._current is not None
        self._by_namespace.update(dict.fromkeys(self._waiting_namespaces, self._current))
        self._waiting_namespaces.clear()
        self._poor = self._superseded = 0
        self._releasing = len(self._held)
        in_slices(self._release_some)

    def _release_some(self) -> bool:
        held, codec = self._held, self._current
        assert codec is not None
        for _ in range(min(SLICE, self._releasing)):
            packed = held.popleft()
            self._held_bytes -= len(packed.blob)
            blob = codec.compress(packed.blob)
            packed.codec = codec
            packed.blob = blob
        self._releasing = left = max(0, self._releasing - SLICE)
        if not left and self._hold == HOLD_WATCHING:
            self.end_list()
        return left > 0


# Work that would block the event loop runs in a thread or in slices. Without a running loop it runs immediately.

T = TypeVar("T")


def in_thread(work: Callable[[], T], done: Callable[[T], None]) -> None:
    """Run ``work`` in a thread and call ``done`` with its result on the event loop. Without a running loop, call both immediately.

    ``work`` must not raise, and should release the interpreter's lock.

    Not guaranteed
        That ``done`` is called: the loop may end first.
    """
    loop = _loop()
    if loop is None:
        done(work())
        return

    def run() -> None:
        answer = work()
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(done, answer)

    threading.Thread(target=run, name="kubeloop aside").start()


def in_slices(some: Callable[[], bool]) -> None:
    """Call ``some`` until it returns False, and let other tasks run between the calls. The first call is made immediately."""
    loop = _loop()
    while some():
        if loop is not None:
            loop.call_soon(in_slices, some)
            return


def give_back_memory() -> None:
    """Return free memory of this process to the operating system, if the C library can (malloc_trim(3)). Takes some milliseconds."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
