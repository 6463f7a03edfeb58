"""Codecs: how a document is stored, as plain bytes or as a zstd frame with a dictionary trained on the cache's own objects."""

from __future__ import annotations

import sys

import msgspec

if sys.version_info >= (3, 14):  # pragma: no cover
    from compression import zstd
else:
    from backports import zstd

DICTIONARY_SIZE = 110 << 10
#: A new dictionary must make of its samples less than this share of what the present one does, or it is not taken.
GAIN = 0.8
#: A document that comes out this many times larger than the dictionary's own samples did is of another sort.
POOR = 1.75
LEVEL = 3
#: Tables that the compressor searches, as powers of two entries. Of level 3 itself they are six times as large, and a program that does
#: anything else between two events has them in its processor's cache no more: then that costs twice the time, for 2 % of the size.
TABLE_LOG = 14

_ALONE = {
    int(zstd.CompressionParameter.compression_level): LEVEL,
    int(zstd.CompressionParameter.checksum_flag): 0,
    int(zstd.CompressionParameter.dict_id_flag): 0,
}
_WITH_DICTIONARY = _ALONE | {int(zstd.CompressionParameter.hash_log): TABLE_LOG, int(zstd.CompressionParameter.chain_log): TABLE_LOG}


class RecentDocuments:
    """Cache of unpacked documents, by blob, without the oldest. ``limit`` in bytes; a document of more than a quarter of it is not cached.

    Written by one thread, read from any.
    """

    __slots__ = ("_bytes", "_documents", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0
        self._documents: dict[bytes, bytes] = {}

    def put(self, blob: bytes, document: bytes | memoryview) -> None:
        size = len(document)
        if 4 * size > self._limit or blob in self._documents:
            return
        documents = self._documents
        documents[blob] = bytes(document)
        self._bytes += size
        while self._bytes > self._limit:
            self._bytes -= len(documents.pop(next(iter(documents))))

    def get(self, blob: bytes) -> bytes | None:
        return self._documents.get(blob)

    def __len__(self) -> int:
        return len(self._documents)


class Codec:
    """How one blob was made, and how to read it: plain bytes, zstd alone, or zstd with one dictionary."""

    __slots__ = ("__weakref__", "_compressor", "_dictionary", "limit", "recent", "retired")

    #: What was packed last, in its archive; None: that is not kept.
    recent: RecentDocuments | None

    def __init__(self, dictionary: zstd.ZstdDict | None) -> None:
        if dictionary is None:
            self._dictionary = None
            self._compressor = zstd.ZstdCompressor(options=_ALONE)
        else:
            self._dictionary = dictionary.as_digested_dict
            # Not digested: that would be with the level's own tables. The compressor digests it once, for itself.
            self._compressor = zstd.ZstdCompressor(options=_WITH_DICTIONARY, zstd_dict=dictionary.as_undigested_dict)
        self.recent = None
        #: A blob that is a larger share of its document than this is a misfit.
        self.limit = POOR
        #: Nothing is packed with it any more.
        self.retired = False

    @property
    def expected(self) -> float:
        """Size of a blob as a share of its document, as the samples came out."""
        return self.limit / POOR

    @expected.setter
    def expected(self, share: float) -> None:
        self.limit = POOR * share

    @classmethod
    def of(cls, content: bytes | None, expected: float) -> Codec:
        """Return the codec for a saved dictionary (None: without one).

        ``expected``: the expected ratio of compressed to raw size.

        Raises:
            ValueError: that is no dictionary.
        """
        try:
            codec = cls(None if content is None else zstd.ZstdDict(content))
        except (zstd.ZstdError, ValueError) as error:
            raise ValueError(f"not a dictionary: {error}") from None
        codec.expected = expected
        return codec

    @property
    def content(self) -> bytes | None:
        """The dictionary; None if it works without."""
        return None if self._dictionary is None else bytes(self._dictionary[0].dict_content)

    def compress(self, document: bytes | memoryview) -> bytes:
        # The answer has its exact size (unlike zstandard's, which pins the worst case): it can be kept as it is.
        return self._compressor.compress(document, zstd.ZstdCompressor.FLUSH_FRAME)

    def decompress(self, blob: bytes) -> bytes:
        if self.recent is not None and (document := self.recent.get(blob)) is not None:
            return document
        # Every blob is one frame, so zstd.decompress, which looks for more, would only cost another microsecond.
        return zstd.ZstdDecompressor(zstd_dict=self._dictionary).decompress(blob)

    def size(self, blob: bytes) -> int:
        """Bytes of the document, read off the blob's first bytes. Source: RFC 8878, section 3.1.1.1.4."""
        return zstd.get_frame_info(blob).decompressed_size or 0


class RawObject(Codec):
    """Keeps the document as it is."""

    __slots__ = ()

    def __init__(self) -> None:
        self.limit, self.retired, self.recent = POOR, False, None

    def compress(self, document: bytes | memoryview) -> bytes:
        return bytes(document)

    def decompress(self, blob: bytes) -> bytes:
        return blob

    def size(self, blob: bytes) -> int:
        return len(blob)


PLAIN = RawObject()


class CompressedObject(msgspec.Struct, gc=False):
    """A stored document. It may be packed more tightly later; its content never changes."""

    codec: Codec
    blob: bytes

    def document(self) -> bytes:
        # Read from any thread while it is packed tighter: the codec is set before the blob, and only a document begins with a brace.
        blob = self.blob
        return blob if blob[:1] == b"{" else self.codec.decompress(blob)


def better(new: Codec, current: Codec | None, samples: list[bytes]) -> Codec:
    if current is None:
        return new
    some = samples[:32]
    present = sum(len(current.compress(sample)) for sample in some)
    return new if new.expected * sum(map(len, some)) < GAIN * present else current


def trained(samples: list[bytes]) -> Codec:
    """A dictionary needs about ten times its size of samples; too few, or too unlike each other, and there is none: zstd alone."""
    size = min(DICTIONARY_SIZE, sum(map(len, samples)) // 10)
    try:
        codec = Codec(zstd.train_dict(samples, size))
    except (zstd.ZstdError, ValueError):
        codec = Codec(None)
    codec.expected = sum(len(codec.compress(sample)) for sample in samples[:32]) / max(1, sum(map(len, samples[:32])))
    return codec
