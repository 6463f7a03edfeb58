"""Documents at rest when objects change: rollouts, many of them, unique objects, and an object that changes all the time."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterator

import msgspec
import pytest

from kubeloop.cache.blobs.blob_store import MAX_DICTIONARIES, BlobStore
from kubeloop.cache.blobs.compression import PLAIN, Codec, CompressedObject


class Held:
    """What a store has of an object, as far as the archive knows."""

    def __init__(self, packed: CompressedObject) -> None:
        self.packed = packed

    def replace_packed(self, packed: CompressedObject) -> None:
        self.packed = packed


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeloop.cache.blobs.blob_store.HOLD_LISTING", 256 << 10)
    monkeypatch.setattr("kubeloop.cache.blobs.blob_store.HOLD_WATCHING", 256 << 10)
    monkeypatch.setattr("kubeloop.cache.blobs.compression.DICTIONARY_SIZE", 16 << 10)


def document(number: int, generation: int) -> bytes:
    """Objects of a generation have much in common, and nothing with those of another."""
    common = random.Random(generation).randbytes(800).hex()
    return msgspec.json.encode({"metadata": {"name": f"o{number}", "uid": f"{number * 7919:032x}"}, "common": common})


def roll_out(archive: BlobStore, there: dict[int, Held], generation: int, size: int = 400) -> Iterator[bytes]:
    for number in range(size):
        wanted = document(number, generation)
        before = there.get(number)
        there[number] = Held(archive.pack(wanted, "ns", before.packed if before else None))
        yield wanted


def listed(archive: BlobStore) -> dict[int, Held]:
    there: dict[int, Held] = {}
    archive.population = lambda: list(there.values())
    archive.begin_list()
    for _ in roll_out(archive, there, 0):
        pass
    archive.end_list()
    return there


def stored(there: dict[int, Held]) -> int:
    return sum(len(held.packed.blob) for held in there.values())


def test_after_a_rollout_a_dictionary_is_trained_on_the_new_objects_and_documents_are_as_small_as_before() -> None:
    archive = BlobStore()
    there = listed(archive)
    before = stored(there)
    assert archive.dictionaries == 1
    for _ in range(2):
        wanted = list(roll_out(archive, there, 1))
    archive.end_list()
    assert archive.dictionaries == 2
    assert stored(there) < 1.5 * before
    assert [held.packed.document() for held in there.values()] == wanted


def test_over_many_rollouts_dictionaries_retire_and_are_freed_and_untouched_documents_are_compressed_again() -> None:
    archive = BlobStore()
    there = listed(archive)
    untouched = Held(archive.pack(document(9999, 0), "ns"))
    there[9999] = untouched
    first = weakref.ref(untouched.packed.codec)
    for generation in range(1, 3 * MAX_DICTIONARIES):
        for _ in range(2):
            wanted = list(roll_out(archive, there, generation))
        assert archive.dictionaries <= MAX_DICTIONARIES + 1
    archive.end_list()
    gc.collect()
    assert first() is None, "the first dictionary is no longer in memory"
    assert untouched.packed.document() == document(9999, 0)
    assert [there[number].packed.document() for number in range(400)] == wanted
    assert not any(held.packed.codec.retired for held in there.values())


def test_objects_like_no_other_train_no_dictionary_after_the_first_attempt_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = BlobStore()
    there = listed(archive)
    trained: list[Codec] = []
    train = BlobStore._trained

    def count(self: BlobStore, codec: Codec) -> None:
        trained.append(codec)
        train(self, codec)

    monkeypatch.setattr(BlobStore, "_trained", count)
    rng = random.Random(3)
    documents = [b'{"a":"' + rng.randbytes(500).hex().encode() + b'"}' for _ in range(6000)]
    packed = [archive.pack(each, "ns") for each in documents]
    assert archive.dictionaries == 1
    assert 1 <= len(trained) <= 4
    assert archive.held_bytes <= (256 << 10) + 2000
    assert [each.document() for each in packed] == documents
    assert stored(there)


def test_one_object_that_changes_all_the_time_and_is_like_no_other_trains_no_dictionary_for_itself() -> None:
    archive = BlobStore()
    there = listed(archive)
    held = there[0]
    for number in range(2000):
        held.packed = archive.pack(b'{"a":"' + random.Random(7).randbytes(500).hex().encode() + b'%d"}' % number, "ns", held.packed)
    assert archive.dictionaries == 1
    assert archive.held_bytes <= (256 << 10) + 2000


def test_a_codec_is_made_again_from_what_it_says_of_itself() -> None:
    archive = BlobStore()
    codec = listed(archive)[0].packed.codec
    again = Codec.of(codec.content, codec.expected)
    assert again.decompress(codec.compress(b'{"a":1}')) == b'{"a":1}'
    assert again.expected == pytest.approx(codec.expected)
    assert Codec.of(None, 1.0).content is None
    assert not PLAIN.retired
    with pytest.raises(ValueError, match="not a dictionary"):
        Codec.of(b"x", 1.0)
