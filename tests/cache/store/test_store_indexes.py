"""Indexes of every sort: by path, by label, by function, sorted; what they find, in which order, and what they forget."""

from __future__ import annotations

import gc
import random
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.cache import ByLabel, Sorted, UnknownIndex
from kubeloop.cache.blobs.head import Head
from kubeloop.cache.store.index import FEW, Index, Postings
from kubeloop.cache.store.sorted_index import BUCKET
from kubeloop.meta import Unstructured
from tests.cache.heads import head, rank_of, store


def names(heads: list[Head]) -> list[str]:
    return [each.name for each in heads]


# ------------------------------------------------------------------------------------------------------------------ by label


def test_a_label_index_finds_by_the_value_of_one_label_and_leaves_out_who_lacks_it() -> None:
    into = store(team=ByLabel("team"))
    for name, labels in (("a", {"team": "red"}), ("b", {"team": ""}), ("c", {"app": "red"}), ("d", None), ("e", {"team": "red"})):
        into.put(head(name, labels=labels))
    assert names(into.by_index("team", "red")) == ["a", "e"]
    assert names(into.by_index("team", "")) == ["b"], "an empty label is a value, a missing one is none"
    into.put(head("a", 2, labels={"team": "blue"}))
    into.remove("ns", "e")
    assert into.index_values("team") == ["", "blue"], "a value with no object left is gone [G92]"


# -------------------------------------------------------------------------------------------------------------------- sorted


def ranks(heads: list[Head]) -> list[Any]:
    return [rank_of(each) for each in heads]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param({}, [1, 2, 2, 3, 5], id="without bounds everything is found, in order"),
        pytest.param({"low": 2}, [2, 2, 3, 5], id="the low bound is in the range"),
        pytest.param({"high": 3}, [1, 2, 2], id="the high bound is not"),
        pytest.param({"low": 2, "high": 5}, [2, 2, 3], id="both bounds"),
        pytest.param({"low": 2.5, "high": 3.5}, [3], id="bounds need not be values"),
        pytest.param({"low": 9}, [], id="above all values there is nothing"),
        pytest.param({"low": 4, "high": 2}, [], id="a low bound above the high one leaves nothing"),
        pytest.param({"reverse": True}, [5, 3, 2, 2, 1], id="reversed from the highest down"),
        pytest.param({"reverse": True, "high": 5, "limit": 2}, [3, 2], id="reversed below a bound, the first two"),
        pytest.param({"limit": 2}, [1, 2], id="at most so many"),
        pytest.param({"limit": 0}, [], id="none, if none are wanted"),
    ],
)
def test_a_range(query: dict[str, Any], expected: list[int]) -> None:
    into = store(rank=Sorted("spec.rank"))
    for number, rank in enumerate([5, 2, 3, 1, 2]):
        into.put(head(f"pod-{number}", rank=rank))
    into.put(head("without"))
    assert ranks(into.range("rank", **query)) == expected


def test_equal_values_are_in_the_order_of_namespace_and_name() -> None:
    into = store(rank=Sorted("spec.rank"))
    for name, namespace in (("b", "y"), ("a", "z"), ("c", "x"), ("a", "y")):
        into.put(head(name, namespace=namespace, rank=1))
    assert [(each.namespace, each.name) for each in into.range("rank")] == [("x", "c"), ("y", "a"), ("y", "b"), ("z", "a")]


def test_booleans_numbers_and_texts_are_apart_and_lists_and_maps_are_not_there() -> None:
    into = store(rank=Sorted("spec.rank"))
    for number, rank in enumerate(["b", 2, True, 1.5, "a", {"x": 1}, None, 1, False]):
        into.put(head(f"pod-{number}", rank=rank))
    assert ranks(into.range("rank")) == [False, True, 1, 1.5, 2, "a", "b"]
    assert ranks(into.range("rank", low=1)) == [1, 1.5, 2]
    assert ranks(into.range("rank", high="b")) == ["a"]
    assert ranks(into.range("rank", low=True)) == [True]
    with pytest.raises(TypeError, match="no value lies between 1 and a text of 1 character: they do not compare"):
        into.range("rank", 1, "b")


def test_one_and_true_change_places_though_python_calls_them_equal() -> None:
    into = store(rank=Sorted("spec.rank"))
    for version, (rank, text) in enumerate([(1, "1"), (True, "true"), (1.0, "1.0"), (1, "1")]):
        into.put(head("a", version, rank=rank))
        assert [(type(each), each) for each in ranks(into.range("rank"))] == [(type(rank), rank)]
        assert (into.index_values("rank"), names(into.by_index("rank", text))) == ([text], ["a"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [("7", ["a", "b"]), ("7.0", ["c"]), ("true", ["d"]), ("nan", ["e"]), ("", []), ("0x7", [])],
)
def test_a_sorted_index_finds_by_one_value_as_any_other_does(value: str, expected: list[str]) -> None:
    into = store(rank=Sorted("spec.rank"))
    for name, rank in (("a", 7), ("b", "7"), ("c", 7.0), ("d", True), ("e", "nan"), ("f", 1)):
        into.put(head(name, rank=rank))
    assert names(into.by_index("rank", value)) == expected
    assert sorted(into.index_values("rank")) == ["1", "7", "7.0", "nan", "true"]


def test_times_are_ranges_of_texts() -> None:
    into = store(rank=Sorted("spec.rank"))
    for day in (3, 1, 2):
        into.put(head(f"day-{day}", rank=f"2026-01-0{day}T12:00:00Z"))
    assert names(into.range("rank", datetime(2026, 1, 2, tzinfo=UTC))) == ["day-2", "day-3"]
    with pytest.raises(ValueError, match="naive"):
        into.range("rank", datetime(2026, 1, 2))  # noqa: DTZ001 - that is the mistake


def test_an_object_with_several_values_has_several_places() -> None:
    into = store(ports=Sorted("spec.ports[*]"))
    into.put(head("a", ports=[443, 80, 80, None, {}]))
    into.put(head("b", ports=[100]))
    assert names(into.range("ports")) == ["a", "b", "a"]
    into.put(head("a", 2, ports=[80]))
    assert names(into.range("ports")) == ["a", "b"]


def test_a_key_function_sorts_by_what_it_makes_of_a_value_and_its_failures_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    into = store(size=Sorted("spec.rank", key=lambda text: int(text.removesuffix("Gi"))))
    for name, rank in (("a", "100Gi"), ("b", "20Gi"), ("c", "lots"), ("d", None)):
        into.put(head(name, rank=rank))
    assert names(into.range("size")) == ["b", "a"]
    assert names(into.range("size", low=50)) == ["a"]
    assert [record.message for record in caplog.records] == [
        "index \"size\" failed for ns/c: ValueError: invalid literal for int() with base 10: 'lots'; the object is not in this index"
    ]


def test_a_function_of_the_object_can_be_sorted_by() -> None:
    created = {"a": datetime(2026, 3, 1, tzinfo=UTC), "b": datetime(2026, 2, 1, tzinfo=UTC)}

    def when(pod: Unstructured) -> datetime | None:
        return created.get(pod.metadata.name)

    into = store(created=Sorted(when))
    for name in "abc":
        into.put(head(name))
    assert names(into.range("created")) == ["b", "a"]
    into.remove("ns", "b")
    into.put(head("a", 2))
    assert names(into.range("created")) == ["a"]


@pytest.mark.parametrize(
    "answer",
    [pytest.param(float("nan"), id="not a number"), pytest.param(object(), id="an object"), pytest.param([[1]], id="a list in a list")],
)
def test_a_sort_function_that_answers(answer: object, caplog: pytest.LogCaptureFixture) -> None:
    """... is reported, and the object is in the store all the same [X8]."""
    into = store(odd=Sorted(lambda _: answer))
    into.put(head("a"))
    assert (into.range("odd"), len(into)) == ([], 1)
    assert "cannot be sorted" in caplog.text


def test_a_range_of_an_index_without_order_says_how_to_make_one() -> None:
    into = store(node="spec.nodeName")
    with pytest.raises(UnknownIndex, match=r'index "node" has no order; make it with indexes=\{"node": Sorted\(\'spec.nodeName\'\)\}'):
        into.range("node")
    with pytest.raises(UnknownIndex, match=r'no index "created" \(there are: node\)'):
        into.range("created")
    with pytest.raises(ValueError, match="limit=-1"):
        store(rank=Sorted("spec.rank")).range("rank", limit=-1)


@pytest.mark.parametrize("distinct", [1, 5, 100_000])
def test_thousands_in_many_buckets_come_and_go_and_stay_in_order(distinct: int) -> None:
    rng = random.Random(distinct)
    into = store(rank=Sorted("spec.rank"))
    model: dict[str, int] = {}
    for step in range(4 * BUCKET):
        name = f"pod-{rng.randrange(3 * BUCKET)}"
        if step % 5 == 4:
            into.remove("ns", name)
            model.pop(name, None)
        else:
            model[name] = rng.randrange(distinct)
            into.put(head(name, step, rank=model[name]))
    expected = sorted(model, key=lambda name: (model[name], name))
    assert names(into.range("rank")) == expected
    assert names(into.range("rank", reverse=True)) == expected[::-1]
    middle = distinct // 2
    assert names(into.range("rank", middle)) == [name for name in expected if model[name] >= middle]
    assert names(into.by_index("rank", "0")) == [name for name in expected if model[name] == 0]
    for name in model:
        into.remove("ns", name)
    assert (into.range("rank"), into.index_values("rank"), len(into)) == ([], [], 0)


# ------------------------------------------------------------------------------------------------------ what all have in common


def test_one_object_has_many_values_and_each_finds_it_once() -> None:
    """[G93]"""
    into = store(port="spec.ports[*]")
    into.put(head("a", ports=[80, 443, 80]))
    into.put(head("b", ports=[80]))
    assert names(into.by_index("port", "80")) == ["a", "b"]
    assert into.index_values("port") == ["80", "443"]


def test_an_index_added_late_is_complete_and_a_name_that_is_taken_is_an_error() -> None:
    """[F85]"""
    into = store(node="spec.nodeName")
    into.put(head("a", node="n1", rank=3, labels={"team": "red"}))
    late = store(rank=Sorted("spec.rank"), team=ByLabel("team")).indexes
    for index in late.values():
        into.add_index(index)
    assert names(into.range("rank")) == names(into.by_index("team", "red")) == ["a"]
    with pytest.raises(ValueError, match=r'index "rank" exists already, over Sorted\(source=\'spec.rank\''):
        into.add_index(late["rank"])


def test_an_index_on_an_unknown_name_is_an_error() -> None:
    """[G94]"""
    with pytest.raises(UnknownIndex, match=r'no index "node" \(there are: none\)'):
        store().by_index("node", "n1")
    with pytest.raises(UnknownIndex):
        store().index_values("node")


def test_an_index_function_that_raises_is_reported_and_the_object_is_stored_and_in_the_other_indexes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A write never fails half: the object is stored and delivered; the other objects and indexes are unchanged. [E65, X8]"""

    def fails(pod: Unstructured) -> str:
        if pod.metadata.name == "b":
            raise ZeroDivisionError("b")
        return "fine"

    into = store(bad=fails, node="spec.nodeName")
    for name in "abc":
        into.put(head(name, node="n1"))
    assert names(into.by_index("bad", "fine")) == ["a", "c"]
    assert names(into.by_index("node", "n1")) == ["a", "b", "c"]
    assert [record.message for record in caplog.records] == [
        'index "bad" failed for ns/b: ZeroDivisionError: b; the object is not in this index'
    ]
    into.remove("ns", "b")
    assert len(into) == 2


def test_a_function_that_fails_for_everything_is_reported_in_full_once_ten_times_by_object_then_by_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """[X8]"""

    def fails(pod: Unstructured) -> str:
        raise ZeroDivisionError(pod.metadata.name)

    into = store(bad=fails)
    for number in range(1500):
        into.put(head(f"pod-{number}"))
    assert len(into) == 1500
    assert [bool(record.exc_info) for record in caplog.records] == [True] + 11 * [False]
    assert [record.message for record in caplog.records[9:]] == [
        'index "bad" failed for ns/pod-9: ZeroDivisionError: pod-9; the object is not in this index',
        'index "bad" has failed 100 times, the last time for ns/pod-99: ZeroDivisionError: pod-99',
        'index "bad" has failed 1000 times, the last time for ns/pod-999: ZeroDivisionError: pod-999',
    ]


def test_a_function_that_changes_its_mind_leaves_no_object_behind_under_its_old_answer() -> None:
    answers = iter(["one", "two", "three", "four"])
    into = store(moody=lambda _: next(answers))
    into.put(head("a", 1))
    into.put(head("a", 2))
    assert (into.index_values("moody"), names(into.by_index("moody", "two"))) == (["two"], ["a"])
    into.remove("ns", "a")
    assert into.index_values("moody") == []


def test_postings_take_no_container_for_one_item_and_a_tuple_for_a_few() -> None:
    postings: Postings[str] = Postings()
    inner = postings._items
    for number in range(FEW + 1):
        postings.add("v", str(number))
        postings.add("v", str(number))
        assert type(inner["v"]) is (str if number == 0 else tuple if number < FEW else dict)
        assert postings.items("v") == [str(each) for each in range(number + 1)]
        assert postings.first("v") == "0"
    postings.discard("v", "never there")
    for number in range(FEW + 1):
        postings.swap("v", str(number), f"new-{number}")
    assert sorted(postings.items("v")) == sorted(f"new-{number}" for number in range(FEW + 1))
    for number in range(FEW + 1):
        postings.discard("v", f"new-{number}")
    assert (inner, postings.items("v"), postings.first("v")) == ({}, [], None)
    postings.swap("v", "not there", "new")
    assert postings.items("v") == ["new"]


def test_the_garbage_collector_traverses_no_object_for_each_cached_one() -> None:
    """Else each of its rounds would take longer with every cached object."""
    into = store(node="spec.nodeName")
    for number in range(200):
        into.put(head(f"pod-{number}", node=f"n{number % (1, 30, 100)[number % 3]}"))
    gc.collect()
    index = into.indexes["node"]
    assert isinstance(index, Index)
    found = index._postings._items
    assert {type(each) for each in found.values()} >= {tuple, dict}
    parts = into.snapshot("ns")._parts
    assert not any(gc.is_tracked(each) for part in parts for each in part.values())
    # From Python 3.14 on, every dict is tracked: one for some hundred objects, and one for each value of an index that many objects share.
    containers = [each for each in (*found.values(), *parts) if sys.version_info < (3, 14) or not isinstance(each, dict)]
    assert not any(gc.is_tracked(each) for each in containers)
