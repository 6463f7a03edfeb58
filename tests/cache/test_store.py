"""The store, its indexes and the delta queue, against a plain dict and by their sentences."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.cache.apply import apply
from kubeloop.cache.compression import Archive
from kubeloop.cache.delta_queue import Bookmark, Changed, Delta, DeltaQueue, Removed, Replaced
from kubeloop.cache.event import EventType
from kubeloop.cache.head import Head, HeadReader, Shared
from kubeloop.cache.index import Index, by_function, by_path
from kubeloop.cache.store import Store

READER = HeadReader("v1", "Pod", ("spec.nodeName", "spec.ports[*]"), Archive(), Shared())


def head(name: str, version: int, node: str | None = None, ports: list[int] | None = None, namespace: str = "ns", uid: str = "u") -> Head:
    spec: dict[str, Any] = {"nodeName": node, "ports": ports}
    metadata = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(version)}
    document = msgspec.json.encode({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec})
    return READER.head(READER.projection.object(document), memoryview(document), None)


def store() -> Store:
    return Store(
        [
            Index("node", "spec.nodeName", by_path(READER.attributes["spec.nodeName"])),
            Index("port", "spec.ports[*]", by_path(READER.attributes["spec.ports[*]"])),
            Index("name", None, by_function("name", lambda each: each.name)),
        ]
    )


Told = tuple[str, str, str | None, bool]


def applied(into: Store, *deltas: Delta) -> list[Told]:
    told: list[Told] = []

    def tell(kind: EventType, now: Head, old: Head | None, tombstone: bool = False, handler: object = None, /) -> None:
        shown = into.get(now.namespace, now.name)
        assert shown is None if kind == "deleted" else shown is not None, "the store shows a change before it is told"
        told.append((kind.value, f"{now.name}@{now.resource_version}", None if old is None else old.resource_version, tombstone))

    for delta in deltas:
        apply(into, delta, tell)
    return told


def test_nothing_is_merged_every_delta_comes_out_in_arrival_order() -> None:
    queue = DeltaQueue()
    deltas: list[Delta] = [Changed(head("a", 1)), Changed(head("b", 2)), Changed(head("a", 3)), Removed(head("a", 4)), Bookmark("9")]
    for delta in deltas:
        queue.push(delta)
    assert len(queue) == 5
    assert [queue.pop() for _ in range(5)] == deltas
    with pytest.raises(IndexError):
        queue.pop()


def test_a_deletion_of_an_object_that_nobody_knows_is_told() -> None:
    assert applied(store(), Removed(head("ghost", 4))) == [("deleted", "ghost@4", None, False)]


def test_a_replacement_deletes_what_the_list_lacks_also_what_only_waited_in_the_queue() -> None:
    told = applied(store(), Changed(head("a", 1)), Changed(head("queued", 2)), Replaced((head("a", 1),), "5"))
    assert told[-1] == ("deleted", "queued@2", "2", True)


def test_of_a_replacement_the_deletions_come_first_then_the_list_in_its_order() -> None:
    into = store()
    applied(into, Replaced((head("a", 1), head("b", 2), head("c", 3)), "3"))
    told = applied(into, Replaced((head("d", 9), head("c", 8), head("b", 2)), "9"))
    assert told == [("deleted", "a@1", "1", True), ("added", "d@9", None, False), ("updated", "c@8", "3", False)]
    assert into.version == "9"


def test_a_replacement_of_one_namespace_leaves_the_others_as_they_are() -> None:
    into = store()
    applied(into, Replaced((head("a", 1), head("b", 2, namespace="other")), "2"))
    told = applied(into, Replaced((head("c", 3), head("stray", 3, namespace="other")), "5", scope="ns"))
    assert told == [("deleted", "a@1", "1", True), ("added", "c@3", None, False)]
    assert [(each.namespace, each.name) for each in into.heads()] == [("other", "b"), ("ns", "c")]
    assert applied(into, Replaced((), "6", scope="empty")) == []


def test_after_a_deletion_a_replacement_makes_no_second_one() -> None:
    into = store()
    told = applied(into, Changed(head("a", 1)), Removed(head("a", 2)), Replaced((), "3"))
    assert [each[0] for each in told] == ["added", "deleted"]


def test_an_object_deleted_and_made_again_between_two_lists_is_one_update() -> None:
    into = store()
    applied(into, Replaced((head("a", 1, uid="first"),), "1"))
    assert applied(into, Replaced((head("a", 5, uid="second"),), "5")) == [("updated", "a@5", "1", False)]


def test_a_state_seen_twice_is_told_once() -> None:
    assert len(applied(store(), Changed(head("a", 1)), Changed(head("a", 1)))) == 1


def test_a_list_once_answered_does_not_change_and_holds_no_key_twice() -> None:
    into = store()
    into.put(head("a", 1))
    before = into.heads()
    into.put(head("a", 2))
    into.put(head("b", 3))
    into.remove("ns", "a")
    assert [each.resource_version for each in before] == ["1"]
    applied(into, Replaced((head("x", 4), head("x", 5)), "6"))
    assert [each.resource_version for each in into.heads()] == ["5"]


def test_a_list_path_indexes_each_item_once_and_an_empty_one_not_at_all() -> None:
    into = store()
    into.put(head("a", 1, ports=[80, 443, 80]))
    into.put(head("b", 2, ports=[80]))
    into.put(head("c", 3))
    assert [each.name for each in into.by_index("port", "80")] == ["a", "b"]
    assert into.index_values("port") == ["80", "443"]
    into.put(head("a", 4))
    assert into.index_values("port") == ["80"], "a value without objects is gone"


NAMES = st.sampled_from("abcd")
NODES = st.sampled_from([None, "n1", "n2"])
CHANGES = st.one_of(
    st.tuples(st.just("put"), NAMES, NODES),
    st.tuples(st.just("remove"), NAMES, st.none()),
    st.tuples(st.just("replace"), st.lists(st.tuples(NAMES, NODES), max_size=4, unique_by=lambda each: each[0]), st.none()),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(CHANGES, max_size=25))
def test_whatever_happens_the_store_equals_a_plain_dict_and_its_indexes_agree(changes: list[tuple[str, Any, str | None]]) -> None:
    into, model, alive = store(), dict[str, tuple[str, str | None]](), set[str]()
    for version, (kind, what, node) in enumerate(changes, start=1):
        if kind == "put":
            told = applied(into, Changed(head(what, version, node)))
            model[what] = (str(version), node)
        elif kind == "remove":
            told = applied(into, Removed(head(what, version)))
            model.pop(what, None)
        else:
            told = applied(into, Replaced(tuple(head(name, version, on) for name, on in what), str(version)))
            model = {name: (str(version), on) for name, on in what}
        for event, text, _, _ in told:
            name = text.partition("@")[0]
            if event == "added":
                assert name not in alive
                alive.add(name)
            elif event == "updated":
                assert name in alive
            else:
                alive.discard(name)
    assert alive == set(model)
    assert {each.name: each.resource_version for each in into.heads()} == {name: version for name, (version, _) in model.items()}
    assert len(into) == len(model)
    for value in ("n1", "n2", ""):
        expected = {name for name, (_, node) in model.items() if (node or "") == value}
        assert {each.name for each in into.by_index("node", value)} == expected
        assert (value in into.index_values("node")) == bool(expected)
    assert {each.name for name in model for each in into.by_index("name", name)} == set(model)


def document(number: int, namespace: str) -> bytes:
    common = random.Random(namespace).randbytes(2500).hex()
    return msgspec.json.encode({"metadata": {"name": f"o{number}", "namespace": namespace}, "common": common})


def test_what_is_packed_comes_out_as_it_was_with_and_without_dictionaries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeloop.cache.compression.HOLD_LISTING", 1 << 20)
    archive = Archive()
    documents = [document(number, namespace) for namespace in ("one", "two") for number in range(300)]
    archive.listing()
    packed = [archive.pack(each, "one" if number < 300 else "two") for number, each in enumerate(documents)]
    archive.settle()
    assert archive.dictionaries >= 2, "documents of another sort get a dictionary of their own"
    assert archive.held_bytes == 0
    assert [each.document() for each in packed] == documents
    assert sum(len(each.blob) for each in packed) < sum(map(len, documents)) / 3
    again = archive.pack(documents[0], "one", packed[0])
    assert again.codec is packed[0].codec, "an object keeps the dictionary that fits it"
    assert again.document() == documents[0]


def test_a_small_cache_keeps_its_documents_plain() -> None:
    archive = Archive()
    packed = archive.pack(b'{"a":1}')
    archive.settle()
    assert (archive.dictionaries, packed.blob) == (0, b'{"a":1}')


def test_large_documents_that_are_too_few_for_a_dictionary_are_compressed_without_one() -> None:
    archive = Archive()
    packed = [archive.pack(bytes(str(number), "ascii") * 400_000) for number in range(6)]
    archive.settle()
    assert sum(len(each.blob) for each in packed) < 10_000
    assert packed[5].document() == b"5" * 400_000


def test_label_sets_and_owners_are_shared_and_forgotten_when_unused() -> None:
    shared = Shared()
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
