"""The documents of the last changes are at hand, within a limit, and are the same as unpacked."""

import random

import pytest

from kubeloop.cache.blobs.blob_store import BlobStore
from kubeloop.cache.blobs.compression import PLAIN, Codec, CompressedObject, RecentDocuments


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        pytest.param([10, 10], [0, 1], id="what fits is kept"),
        pytest.param([20, 20, 20, 20, 20, 20], [1, 2, 3, 4, 5], id="the oldest leaves first"),
        pytest.param([10, 90, 10], [0, 2], id="a document that would push out all others is not kept"),
        pytest.param([25, 25, 25, 25, 10], [1, 2, 3, 4], id="as many leave as must"),
    ],
)
def test_kept(sizes: list[int], kept: list[int]) -> None:
    recent = RecentDocuments(100)
    for number, size in enumerate(sizes):
        recent.put(b"%d" % number, bytes([number]) * size)
    assert [number for number in range(len(sizes)) if recent.get(b"%d" % number) is not None] == kept
    assert len(recent) == len(kept)


def test_the_same_blob_counts_once() -> None:
    recent = RecentDocuments(100)
    for _ in range(50):
        recent.put(b"blob", memoryview(b"x" * 20))
    assert recent.get(b"blob") == b"x" * 20
    assert len(recent) == 1


@pytest.mark.parametrize("limit", [pytest.param(0, id="not kept"), pytest.param(1 << 16, id="kept")])
def test_a_read_returns_the_packed_document(limit: int) -> None:
    archive = BlobStore(random.Random(1))
    archive.recent = RecentDocuments(limit) if limit else None
    codec = Codec(None)
    codec.expected = 0.9
    before = CompressedObject(codec, codec.compress(b'{"a": 0}' * 9))
    for number in range(20):
        document = b'{"a": %d}' % number * 9
        before = archive.pack(memoryview(document), "", before)
        assert before.codec is not PLAIN
        assert before.document() == document
    assert (archive.recent is not None and len(archive.recent) == 20) is bool(limit)
