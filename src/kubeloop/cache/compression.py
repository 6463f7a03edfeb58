"""Keeps documents small: zstd with dictionaries trained on the cache's own objects.

It holds documents until there is something to train on and compresses each once: nothing is compressed again later. Why this
policy, with figures: docs/decisions.md.
"""

from __future__ import annotations

import random
import sys

import msgspec

if sys.version_info >= (3, 14):  # pragma: no cover
    from compression import zstd
else:
    from backports import zstd

#: Documents held while a list comes in, in bytes; what the first dictionary can see of the list, and what a list needs beside its result.
HOLD_LISTING = 32 << 20
#: The same while watching: enough to train on.
HOLD_WATCHING = 2 << 20
#: Training on more samples takes longer (0.2 ms each) and gains nothing measurable.
SAMPLES = 256
DICTIONARY_SIZE = 110 << 10
#: Each dictionary takes about 300 KiB for as long as the cache lives.
MAX_DICTIONARIES = 8
#: A document that comes out this many times larger than the dictionary's own samples did is of another sort.
POOR = 1.75
#: After so many of them in a row the next ones are not tried.
STREAK = 16
LEVEL = 3

_OPTIONS = {
    int(zstd.CompressionParameter.compression_level): LEVEL,
    int(zstd.CompressionParameter.checksum_flag): 0,
    int(zstd.CompressionParameter.dict_id_flag): 0,
}


class Codec:
    """How one blob was made, and how to read it: plain bytes, zstd alone, or zstd with one dictionary."""

    __slots__ = ("_compressor", "_dictionary", "expected")

    def __init__(self, dictionary: zstd.ZstdDict | None) -> None:
        self._dictionary = None if dictionary is None else dictionary.as_digested_dict
        self._compressor = zstd.ZstdCompressor(options=_OPTIONS, zstd_dict=self._dictionary)
        #: Size of a blob as a share of its document, as the samples came out.
        self.expected = 1.0

    def compress(self, document: bytes | memoryview) -> bytes:
        # The answer has its exact size (unlike zstandard's, which pins the worst case): it can be kept as it is.
        return self._compressor.compress(document, zstd.ZstdCompressor.FLUSH_FRAME)

    def decompress(self, blob: bytes) -> bytes:
        return zstd.decompress(blob, zstd_dict=self._dictionary)

    def size(self, blob: bytes) -> int:
        """Bytes of the document, read off the blob's first bytes. Source: RFC 8878, section 3.1.1.1.4."""
        return zstd.get_frame_info(blob).decompressed_size or 0


class Plain(Codec):
    """Keeps the document as it is."""

    __slots__ = ()

    def __init__(self) -> None:
        self.expected = 1.0

    def compress(self, document: bytes | memoryview) -> bytes:
        return bytes(document)

    def decompress(self, blob: bytes) -> bytes:
        return blob

    def size(self, blob: bytes) -> int:
        return len(blob)


PLAIN = Plain()


class Packed(msgspec.Struct, gc=False):
    """A document at rest. Where it is kept it may be packed tighter later; what it unpacks to never changes."""

    codec: Codec
    blob: bytes

    def document(self) -> bytes:
        return self.codec.decompress(self.blob)


class Archive:
    """Packs the documents of one cache.

    Guarantees
        ``unpack(pack(document)) == document``. Documents held uncompressed never exceed the hold, plus one document.
        A document of an object seen before is packed with the dictionary that fitted its last state; one of a new object with that of
        its neighbour (lists come in namespace order, and the pods of a namespace resemble each other).

    Cost
        About 8 us for a Pod of 8 KB at one thirteenth of its size; 70 ms for each training. Reading about 13 us.
    """

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random(1)
        self._held: list[Packed] = []
        self._held_bytes = 0
        self._hold = HOLD_LISTING
        self._current: Codec | None = None
        self._codecs = 0
        self._by_namespace: dict[str, Codec] = {}
        self._waiting_namespaces: set[str] = set()
        self._poor = 0

    @property
    def dictionaries(self) -> int:
        return self._codecs

    @property
    def held_bytes(self) -> int:
        """Bytes of documents that wait, uncompressed, for a dictionary."""
        return self._held_bytes

    def pack(self, document: bytes | memoryview, namespace: str = "", before: Packed | None = None) -> Packed:
        if before is not None and before.codec is not PLAIN:
            return Packed(before.codec, before.codec.compress(document))
        if self._poor >= STREAK or self._current is None:
            return self._wait(document, namespace)
        codec = self._by_namespace.get(namespace) or self._current
        blob = codec.compress(document)
        if len(blob) > POOR * codec.expected * len(document) and self._codecs < MAX_DICTIONARIES:
            self._poor += 1
            return self._wait(document, namespace)
        self._poor = 0
        self._by_namespace[namespace] = codec
        return Packed(codec, blob)

    def listing(self) -> None:
        """A list begins: hold more, to see more of it before training."""
        self._hold = HOLD_LISTING

    def settle(self) -> None:
        """A list has ended: compress what waits, if it is enough to train on or fits a dictionary that is there."""
        self._hold = HOLD_WATCHING
        if len(self._held) >= SAMPLES or self._held_bytes > HOLD_WATCHING:
            self._train()
        elif self._current is not None:
            self._release(self._current)

    def _wait(self, document: bytes | memoryview, namespace: str) -> Packed:
        packed = Packed(PLAIN, bytes(document))
        self._held.append(packed)
        self._waiting_namespaces.add(namespace)
        self._held_bytes += len(document)
        if self._held_bytes > self._hold:
            self._train()
        return packed

    def _train(self) -> None:
        samples = [packed.blob for packed in self._rng.sample(self._held, min(SAMPLES, len(self._held)))]
        codec = _trained(samples) if self._codecs < MAX_DICTIONARIES else self._current
        codec = codec or Codec(None)
        codec.expected = sum(len(codec.compress(sample)) for sample in samples[:32]) / max(1, sum(map(len, samples[:32])))
        self._codecs += 1
        self._current = codec
        self._release(codec)

    def _release(self, codec: Codec) -> None:
        for packed in self._held:
            packed.blob = codec.compress(packed.blob)
            packed.codec = codec
        self._by_namespace.update(dict.fromkeys(self._waiting_namespaces, codec))
        self._waiting_namespaces.clear()
        self._held.clear()
        self._held_bytes = 0
        self._poor = 0


def _trained(samples: list[bytes]) -> Codec | None:
    """A dictionary needs about ten times its size of samples; too few, or too unlike each other, and there is none."""
    size = min(DICTIONARY_SIZE, sum(map(len, samples)) // 10)
    try:
        return Codec(zstd.train_dict(samples, size))
    except (zstd.ZstdError, ValueError):
        return None
