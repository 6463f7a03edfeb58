"""BlobStore: compresses the documents of one cache, and decides when to train a dictionary and which one to use.

It holds documents until there is something to train on and compresses each once, unless its dictionary retires. Training runs in a
thread, and held documents are compressed in slices: neither blocks the event loop. Why this policy: docs/decisions.md.
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

#: Documents held while a list comes in, in bytes; what the first dictionary can see of the list, and what a list needs beside its result.
HOLD_LISTING = 20 << 20
#: The same while watching: enough to train on.
HOLD_WATCHING = 2 << 20
#: Training on more samples takes longer (0.2 ms each) and gains nothing measurable.
SAMPLES = 256
#: Each dictionary takes about 300 KiB, and those in use compete for the processor's cache: eight cost 8 us more an event.
#: Another one replaces a dictionary that is hardly used.
MAX_DICTIONARIES = 3
#: A dictionary that more than this share of the cache uses does not retire: recompressing so many documents costs more than it saves.
SPARE = 0.03
#: Documents that are looked at to see which ones that are.
CENSUS = 10_000
#: After a training in vain so many misfits are let pass before the next one; four times as many each time.
PATIENCE = 1024
#: ``POOR`` for an update of an object that the dictionary fitted: the new state has new identifiers and times in it.
POOR_UPDATE = 2.0
#: After so many of them in a row the next ones are not tried.
STREAK = 16
#: Documents that were held are compressed so many at a time, about 2 ms.
SLICE = 256
#: Documents of a retired dictionary that are recompressed at a time, and documents that are checked for that: about 3 ms.
MOVE = 128
LOOK = 4096


class Holder(Protocol):
    """An object that refers to a packed document: a head."""

    @property
    def packed(self) -> CompressedObject:
        """The document."""

    def packed_anew(self, packed: CompressedObject) -> None:
        """The same document, packed otherwise."""


class BlobStore:
    """Packs the documents of one cache.

    Guarantees
        ``unpack(pack(document)) == document``. Documents held uncompressed never exceed the hold by more than what comes while a
        dictionary is trained, about 0.1 s.
        A document of an object seen before is packed with the dictionary that fitted its last state; one of a new object with that of
        its neighbour (lists come in namespace order, and the pods of a namespace resemble each other).
        When what comes no longer fits, as after a rollout, a dictionary is trained on it; if that was in vain, seldomer and seldomer.
        At most ``MAX_DICTIONARIES``, and a retiring one, whose documents are recompressed in slices before it is freed.

    Cost
        About 8 us for a Pod of 8 KB at one thirteenth of its size; 70 ms of a thread for each training. Reading about 13 us.
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
        #: Held documents of objects that have changed since: one object that changes often is no population.
        self._superseded = 0
        self._patience = PATIENCE
        self._ignored = 0
        #: Returns the objects of the cache; None: unknown, and then no dictionary ever retires.
        self.population: Callable[[], Iterable[Holder]] | None = None
        self._moving: Iterator[Holder] | None = None
        #: The documents of the last changes; None: they are not kept.
        self.recent: RecentDocuments | None = None
        #: How many of those held are still to be compressed; what comes meanwhile waits for the next dictionary.
        self._releasing = 0

    @property
    def dictionaries(self) -> int:
        return len(self._live) + (self._moving is not None)

    @property
    def held_bytes(self) -> int:
        """Bytes of documents that wait, uncompressed, for a dictionary."""
        return self._held_bytes

    def pack(self, document: bytes | memoryview, namespace: str = "", before: CompressedObject | None = None) -> CompressedObject:
        if before is not None:
            codec = before.codec
            if codec is PLAIN:
                self._superseded += 1
            elif not codec.retired:
                blob = codec.compress(document)
                # What fits no worse than its last state did is no sign of a change: only that would be worth a dictionary.
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
            # The best of them is not looked for again for each of its neighbours.
            self._by_namespace[namespace] = codec
            return CompressedObject(codec, blob)
        return self._wait(document, namespace)

    def adopt(self, codecs: Iterable[Codec]) -> None:
        """Documents that were packed with these, by an archive of the past, are in the cache."""
        for codec in codecs:
            if codec is not PLAIN:
                self._live.append(codec)
                self._current = codec

    def listing(self) -> None:
        """Begin a list: collect more documents before training a dictionary."""
        self._hold = HOLD_LISTING
        self._listing = True

    def settle(self) -> None:
        """End a list: compress the waiting documents if they are enough to train on, or fit an existing dictionary.

        What the list needed beside its result is then given back to the system.
        """
        self._hold = HOLD_WATCHING
        self._listing = False
        if self._releasing or self._training:
            return  # it is done when they are
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
        """Return the oldest dictionary that hardly any document uses; None if all are in use, or the use is unknown.

        So while a list comes in: what it brings is not in the cache yet.
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
                holder.packed_anew(CompressedObject(current, current.compress(packed.document())))
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
            self.settle()
        return left > 0


# Work that would block the event loop: in a thread, or in slices between other tasks. Without a running loop it is done at once.

T = TypeVar("T")


def in_thread(work: Callable[[], T], done: Callable[[T], None]) -> None:
    """Run ``work`` in a thread and call ``done`` with its result on the event loop. For work that releases the interpreter's lock.

    Not guaranteed
        That ``done`` is called: the loop may end first. ``work`` must not raise.
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
    """Call ``some`` until it returns False, with other tasks in between. The first call is made at once."""
    loop = _loop()
    while some():
        if loop is not None:
            loop.call_soon(in_slices, some)
            return


def give_back_memory() -> None:
    """Return free memory of this process to the system, where the C library can (malloc_trim(3)). Takes some milliseconds."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
