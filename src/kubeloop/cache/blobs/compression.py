"""Codecs: how a document is stored, as plain bytes or as a zstd frame with a dictionary trained on the cache's own objects."""

from __future__ import annotations

import sys

import msgspec

if sys.version_info >= (3, 14):  # pragma: no cover
    from compression import zstd
else:
    from backports import zstd

DICTIONARY_SIZE = 110 << 10
#: A new dictionary is used only if it compresses its samples to less than this share of their size under the present one.
GAIN = 0.8
#: A document is a misfit if its compression ratio is this many times worse than that of the dictionary's own samples.
POOR = 1.75
LEVEL = 3
#: Size of the compressor's search tables: two to this power entries. The default tables of level 3 are six times as large. They drop out of
#: the processor's cache when the program does other work between two events. Compression then takes twice as long and saves 2 % more.
TABLE_LOG = 14

_ALONE = {
    int(zstd.CompressionParameter.compression_level): LEVEL,
    int(zstd.CompressionParameter.checksum_flag): 0,
    int(zstd.CompressionParameter.dict_id_flag): 0,
}
_WITH_DICTIONARY = _ALONE | {int(zstd.CompressionParameter.hash_log): TABLE_LOG, int(zstd.CompressionParameter.chain_log): TABLE_LOG}


class RecentDocuments:
    """Cache of the documents that were compressed last, by blob, so that readers need not decompress them.

    ``limit`` is in bytes; a document larger than a quarter of it is not cached. One thread may write; any thread may read.
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
    """Compresses and decompresses documents with one method: plain bytes, zstd alone, or zstd with one dictionary."""

    __slots__ = ("__weakref__", "_compressor", "_dictionary", "limit", "recent", "retired")

    #: The documents compressed last in the blob store; None if they are not cached.
    recent: RecentDocuments | None

    def __init__(self, dictionary: zstd.ZstdDict | None) -> None:
        if dictionary is None:
            self._dictionary = None
            self._compressor = zstd.ZstdCompressor(options=_ALONE)
        else:
            self._dictionary = dictionary.as_digested_dict
            # Not digested: that would use the level's own tables. The compressor digests it once itself.
            self._compressor = zstd.ZstdCompressor(options=_WITH_DICTIONARY, zstd_dict=dictionary.as_undigested_dict)
        self.recent = None
        #: A blob that is a larger share of its document than this is a misfit.
        self.limit = POOR
        #: True if no new document is compressed with it.
        self.retired = False

    @property
    def expected(self) -> float:
        """The expected ratio of compressed to raw size, as measured on the samples."""
        return self.limit / POOR

    @expected.setter
    def expected(self, share: float) -> None:
        self.limit = POOR * share

    @classmethod
    def of(cls, content: bytes | None, expected: float) -> Codec:
        """Return the codec for a saved dictionary, or for zstd without a dictionary if ``content`` is None.

        ``expected``: the expected ratio of compressed to raw size.

        Raises:
            ValueError: ``content`` is not a dictionary.
        """
        try:
            codec = cls(None if content is None else zstd.ZstdDict(content))
        except (zstd.ZstdError, ValueError) as error:
            raise ValueError(f"not a dictionary: {error}") from None
        codec.expected = expected
        return codec

    @property
    def content(self) -> bytes | None:
        """The compression dictionary, or None if the codec uses none."""
        return None if self._dictionary is None else bytes(self._dictionary[0].dict_content)

    def compress(self, document: bytes | memoryview) -> bytes:
        # The result has its exact size (that of the zstandard package has the worst-case size), so it can be stored as it is.
        return self._compressor.compress(document, zstd.ZstdCompressor.FLUSH_FRAME)

    def decompress(self, blob: bytes) -> bytes:
        if self.recent is not None and (document := self.recent.get(blob)) is not None:
            return document
        # Every blob is one frame; zstd.decompress also searches for further frames, which takes another microsecond.
        return zstd.ZstdDecompressor(zstd_dict=self._dictionary).decompress(blob)

    def size(self, blob: bytes) -> int:
        """Return the size of the document in bytes, read from the header of the blob. Source: RFC 8878, section 3.1.1.1.4."""
        return zstd.get_frame_info(blob).decompressed_size or 0


class RawObject(Codec):
    """Codec that stores the document unchanged."""

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
    """A stored document. Its compressed form may be replaced by a smaller one later; its content never changes."""

    codec: Codec
    blob: bytes

    def document(self) -> bytes:
        # Other threads may read during the replacement: the codec is set before the blob, and only a raw document begins with a brace.
        blob = self.blob
        return blob if blob[:1] == b"{" else self.codec.decompress(blob)


def better(new: Codec, current: Codec | None, samples: list[bytes]) -> Codec:
    if current is None:
        return new
    some = samples[:32]
    present = sum(len(current.compress(sample)) for sample in some)
    return new if new.expected * sum(map(len, some)) < GAIN * present else current


def trained(samples: list[bytes]) -> Codec:
    """Return a codec with a dictionary trained on the samples, or zstd alone if training fails.

    Training needs samples of about ten times the dictionary's size, and fails if the samples are too few or too different.
    """
    size = min(DICTIONARY_SIZE, sum(map(len, samples)) // 10)
    try:
        codec = Codec(zstd.train_dict(samples, size))
    except (zstd.ZstdError, ValueError):
        codec = Codec(None)
    codec.expected = sum(len(codec.compress(sample)) for sample in samples[:32]) / max(1, sum(map(len, samples[:32])))
    return codec
