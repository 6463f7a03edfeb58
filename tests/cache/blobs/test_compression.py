"""Documents at rest: decompression returns the original bytes, and shared parts are stored once."""

from __future__ import annotations

import random

import msgspec
import pytest

from kubeloop.cache.blobs.blob_store import BlobStore
from kubeloop.cache.blobs.head import StringInterner
from tests.cache.heads import READER


def document(number: int, namespace: str) -> bytes:
    common = random.Random(namespace).randbytes(2500).hex()
    return msgspec.json.encode({"metadata": {"name": f"o{number}", "namespace": namespace}, "common": common})


def test_decompression_returns_the_original_with_and_without_dictionaries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeloop.cache.blobs.blob_store.HOLD_LISTING", 1 << 20)
    archive = BlobStore()
    documents = [document(number, namespace) for namespace in ("one", "two") for number in range(300)]
    archive.begin_list()
    packed = [archive.pack(each, "one" if number < 300 else "two") for number, each in enumerate(documents)]
    archive.end_list()
    assert archive.dictionaries >= 2, "documents of another sort get their own dictionary"
    assert archive.held_bytes == 0
    assert [each.document() for each in packed] == documents
    assert sum(len(each.blob) for each in packed) < sum(map(len, documents)) / 3
    again = archive.pack(documents[0], "one", packed[0])
    assert again.codec is packed[0].codec, "an object keeps the dictionary that fits it"
    assert again.document() == documents[0]


def test_a_small_cache_keeps_its_documents_plain() -> None:
    archive = BlobStore()
    packed = archive.pack(b'{"a":1}')
    archive.end_list()
    assert (archive.dictionaries, packed.blob) == (0, b'{"a":1}')


def test_large_documents_that_are_too_few_for_a_dictionary_are_compressed_without_one() -> None:
    archive = BlobStore()
    packed = [archive.pack(bytes(str(number), "ascii") * 400_000) for number in range(6)]
    archive.end_list()
    assert sum(len(each.blob) for each in packed) < 10_000
    assert packed[5].document() == b"5" * 400_000


def test_label_sets_and_owners_are_shared_and_forgotten_when_unused() -> None:
    shared = StringInterner()
    first, second = shared.labels(msgspec.Raw(b'{"app":"web"}')), shared.labels(msgspec.Raw(b'{"app":"web"}'))
    assert first is second
    with pytest.raises(TypeError):
        first["app"] = "db"  # type: ignore[index]  # that is the point
    for number in range(5000):
        shared.labels(msgspec.Raw(b'{"pod":"%d"}' % number))
    assert shared.full
    shared.sweep([])
    assert not shared.full


def test_owners_are_read_from_a_head_without_its_document() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u9", "controller": True}
    document = msgspec.json.encode({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "ownerReferences": [owner]}})
    made = READER.head(READER.projection.object(document), memoryview(document), None)
    assert made.controller is not None
    assert (made.controller.kind, made.controller.uid, len(made.owner_references)) == ("ReplicaSet", "u9", 1)
    assert not made.deleting
