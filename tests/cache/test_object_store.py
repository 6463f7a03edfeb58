"""The bare store: client-go's nine Store methods and its Indexer, by their sentences, which remembers its own mistakes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kubeloop import ObjectStore
from kubeloop.api.core.v1 import Pod
from kubeloop.cache import (
    EventType,
    ExpiringStore,
    IndexFunctionError,
    InformerEvent,
    ObjectKeyError,
    UnknownIndex,
    meta_namespace,
    meta_namespace_key,
    split_meta_namespace_key,
)
from kubeloop.cache.lister.view import CacheView
from kubeloop.cache.store.store import Store
from kubeloop.meta import ObjectKey, ObjectMeta
from kubeloop.timing import FakeClock
from tests.cache.heads import head


@dataclass
class Book:
    author: str
    title: str
    words: tuple[str, ...] = ()


def book_key(book: Book) -> str:
    return f"{book.author}/{book.title}"


INDEXERS: dict[str, Callable[[Book], Any]] = {"author": lambda book: book.author, "word": lambda book: book.words}
MOBY, PIERRE, EMMA = Book("Melville", "Moby Dick", ("sea", "whale")), Book("Melville", "Pierre", ("sea",)), Book("Austen", "Emma")


def books(*there: Book) -> ObjectStore[Book]:
    store = ObjectStore(book_key, INDEXERS)
    store.replace(there)
    return store


# ------------------------------------------------------------------------------------------------------------ the nine methods


def test_add_get_and_list() -> None:
    store = ObjectStore(book_key)
    store.add(MOBY)
    assert store.get(Book("Melville", "Moby Dick")) is MOBY
    assert store.get_by_key("Melville/Moby Dick") is MOBY
    assert (store.list(), store.list_keys(), len(store)) == ([MOBY], ["Melville/Moby Dick"], 1)
    assert store.get(EMMA) is None
    assert store.get_by_key("absent/nothing") is None


def test_add_and_update_both_replace_what_has_the_key() -> None:
    store = books(MOBY)
    newer, newest = Book("Melville", "Moby Dick", ("ship",)), Book("Melville", "Moby Dick")
    store.add(newer)
    assert store.list() == [newer]
    store.update(newest)
    assert store.list() == [newest]


def test_delete_takes_the_object_of_the_key_out_and_a_missing_one_is_no_error() -> None:
    store = books(MOBY, EMMA)
    store.delete(Book("Melville", "Moby Dick"))
    store.delete(MOBY)
    assert store.list() == [EMMA]


def test_replace_leaves_these_and_nothing_else_and_rebuilds_all_indexes() -> None:
    """[G94]"""
    store = books(MOBY)
    store.replace([EMMA, PIERRE], "17")
    assert (store.list(), store.resource_version) == ([EMMA, PIERRE], "17")
    assert store.list_index_func_values("author") == ["Austen", "Melville"]
    assert store.list_index_func_values("word") == ["sea"]
    assert store.by_index("word", "whale") == []


def test_resync_changes_nothing() -> None:
    store = books(MOBY)
    store.resync()
    assert store.list() == [MOBY]


@pytest.mark.parametrize("method", ["add", "update", "delete", "get", "replace"])
def test_an_object_without_a_key_is_an_error_that_carries_the_object_and_the_cause(method: str) -> None:
    """[G91]"""
    store: ObjectStore[Any] = ObjectStore(book_key)
    store.add(MOBY)
    wrong = {"password": "secret"}
    with pytest.raises(ObjectKeyError, match=r"no key for an object of type dict: .*author") as caught:
        getattr(store, method)([wrong] if method == "replace" else wrong)
    assert caught.value.object is wrong
    assert isinstance(caught.value.cause, AttributeError)
    assert "secret" not in str(caught.value)
    assert store.list() == [MOBY], "nothing was changed"


# ----------------------------------------------------------------------------------------------------------------- the indexer


def test_an_object_leaves_its_old_values_and_a_value_without_objects_is_gone() -> None:
    """[G92]"""
    store = books(MOBY, PIERRE)
    store.update(Book("Melville", "Moby Dick", ("ship",)))
    assert sorted(store.list_index_func_values("word")) == ["sea", "ship"]
    assert store.index_keys("word", "sea") == ["Melville/Pierre"]
    store.delete(PIERRE)
    assert store.list_index_func_values("word") == ["ship"]


def test_an_object_has_many_values_and_asking_with_one_of_several_gives_each_match_once() -> None:
    """[G93]"""
    store = books(MOBY, PIERRE, EMMA)
    assert store.by_index("word", "sea") == [MOBY, PIERRE]
    assert store.index("word", MOBY) == [MOBY, PIERRE]
    assert store.index("word", Book("x", "y", ("whale", "sea", "whale"))) == [MOBY, PIERRE]
    assert store.index("word", EMMA) == []


def test_an_object_changed_in_place_is_found_where_it_was_put() -> None:
    mutable = Book("Melville", "Typee")
    store = books(mutable)
    mutable.author = "Anonymous"
    assert store.by_index("author", "Melville") == [mutable]
    store.delete(Book("Melville", "Typee"))
    assert store.list_index_func_values("author") == []


def test_an_index_added_late_is_complete_and_a_name_that_is_taken_is_an_error() -> None:
    """[F85]"""
    store = ObjectStore(book_key, {"author": INDEXERS["author"]})
    store.add(MOBY)
    with pytest.raises(ValueError, match='index "author" exists already'):
        store.add_indexers(INDEXERS)
    assert list(store.get_indexers()) == ["author"], "none of them was added"
    store.add_indexers({"word": INDEXERS["word"]})
    assert store.by_index("word", "whale") == [MOBY]
    assert store.get_indexers() == INDEXERS


def test_an_index_of_an_unknown_name_is_an_error_that_names_the_known_ones() -> None:
    """[G94]"""
    store = books(MOBY)
    for ask in (
        lambda: store.by_index("colour", "red"),
        lambda: store.index_keys("colour", "red"),
        lambda: store.index("colour", MOBY),
        lambda: store.list_index_func_values("colour"),
    ):
        with pytest.raises(UnknownIndex, match=r'no index "colour" \(there are: author, word\)'):
            ask()


def fails(book: Book) -> str:
    if book.title == "Emma":
        raise ZeroDivisionError("no Emma here")
    return "fine"


@pytest.mark.parametrize(
    ("function", "why"),
    [
        pytest.param(fails, "ZeroDivisionError: no Emma here", id="an index function that raises [X8]"),
        pytest.param(lambda book: 7 if book.title == "Emma" else "fine", "not iterable", id="an index function that returns a number [X8]"),
        pytest.param(lambda book: [7] if book.title == "Emma" else "fine", "not text", id="an index function that returns numbers [X8]"),
    ],
)
def test_raises_to_the_caller_and_nothing_is_changed(function: Callable[[Book], Any], why: str) -> None:
    store = ObjectStore(book_key, {"bad": function})
    store.add(MOBY)
    changes: list[Callable[[], None]] = [lambda: store.add(EMMA), lambda: store.replace([PIERRE, EMMA])]
    for change in changes:
        with pytest.raises(IndexFunctionError, match=f'index "bad" failed for Austen/Emma: .*{why}; nothing was changed') as caught:
            change()
        assert (caught.value.index, caught.value.key) == ("bad", "Austen/Emma")
        assert store.list() == [MOBY]
        assert store.by_index("bad", "fine") == [MOBY]
    plain = books(EMMA)
    with pytest.raises(IndexFunctionError):
        plain.add_indexers({"bad": function})
    assert "bad" not in plain.get_indexers()


def test_the_full_list_is_pushed_after_each_change_and_never_on_a_read() -> None:
    """[G98]"""
    pushed: list[list[Book]] = []
    store = ObjectStore(book_key, INDEXERS, push=pushed.append)
    store.add(MOBY)
    store.update(MOBY)
    store.add(EMMA)
    store.delete(MOBY)
    store.replace([PIERRE])
    assert pushed == [[MOBY], [MOBY], [MOBY, EMMA], [EMMA], [PIERRE]]
    store.list()
    store.list_keys()
    store.get(MOBY)
    store.get_by_key("x")
    store.by_index("author", "x")
    store.resync()
    assert len(pushed) == 5


# -------------------------------------------------------------------------------------------------------------------------- keys


@pytest.mark.parametrize(
    ("obj", "key"),
    [
        pytest.param(Pod(metadata=ObjectMeta(name="a", namespace="b")), "b/a", id="the key of a namespaced object is namespace/name [G91]"),
        pytest.param(Pod(metadata=ObjectMeta(name="a")), "a", id="the key of a cluster-scoped object is its name [G91]"),
        pytest.param({"metadata": {"name": "a", "namespace": "b"}}, "b/a", id="an object as JSON has one"),
        pytest.param(ObjectKey("cluster", "b", "a"), "b/a", id="a key of a cluster has one"),
        pytest.param("b/a", "b/a", id="a key is its own key"),
    ],
)
def test_key(obj: object, key: str) -> None:
    assert meta_namespace_key(obj) == key
    assert meta_namespace(obj) == key.rpartition("/")[0]


@pytest.mark.parametrize(
    "obj", [{}, {"metadata": {}}, {"metadata": "x"}, Pod(), 7, None, "a/b/c", "", {"metadata": {"name": "a/b"}}, {"metadata": None}]
)
def test_what_has_no_name_or_a_slash_in_it_has_no_key(obj: object) -> None:
    with pytest.raises(ValueError):
        meta_namespace_key(obj)


def test_an_event_is_its_objects_key_tombstone_or_not() -> None:
    """client-go's key functions unwrap tombstones; here none are wrapped. [E63]"""
    gone = head("a", namespace="b")
    event = InformerEvent(EventType.DELETED, gone, gone, CacheView(Store(), Pod, "cluster"), tombstone=True)
    assert [meta_namespace_key(each) for each in (gone, event, event.key)] == ["b/a"] * 3


def test_a_key_with_two_slashes_is_an_error() -> None:
    """[G91]"""
    assert split_meta_namespace_key("b/a") == ("b", "a")
    assert split_meta_namespace_key("a") == ("", "a")
    with pytest.raises(ValueError, match='unexpected key format: "a/b/c"'):
        split_meta_namespace_key("a/b/c")


# -------------------------------------------------------------------------------------------------------------------- expiring


async def test_an_entry_is_gone_when_it_is_read_after_its_time() -> None:
    """[G96]"""
    clock = FakeClock()
    store = ExpiringStore(10, book_key, INDEXERS, clock=clock)
    store.add(MOBY)
    await clock.advance(6)
    store.add(EMMA)
    await clock.advance(4)
    assert store.list() == [MOBY, EMMA], "at its time it is still there"
    await clock.advance(0.1)
    assert store.get(MOBY) is None
    assert (store.list(), store.list_keys(), len(store)) == ([EMMA], ["Austen/Emma"], 1)
    assert (store.by_index("author", "Melville"), store.list_index_func_values("author")) == ([], ["Austen"])
    await clock.advance(60)
    assert store.get_by_key("Austen/Emma") is None


async def test_adding_again_restarts_its_time() -> None:
    """[G96]"""
    clock = FakeClock()
    store = ExpiringStore(10, book_key, clock=clock)
    store.replace([MOBY, EMMA])
    await clock.advance(9)
    store.add(MOBY)
    await clock.advance(9)
    assert store.list() == [MOBY]
    store.replace([EMMA])
    await clock.advance(9)
    assert store.list() == [EMMA]
    store.delete(EMMA)
    assert store.list() == []


@pytest.mark.parametrize("ttl", [0, -1])
async def test_without_a_time_to_live_nothing_expires(ttl: float) -> None:
    """[G96]"""
    clock = FakeClock()
    store = ExpiringStore(ttl, book_key, clock=clock)
    store.add(MOBY)
    await clock.advance(1e9)
    assert store.list() == [MOBY]


# --------------------------------------------------------------------------------------------------- threads, and any history


def test_threads_that_add_and_delete_meet_readers_who_see_whole_changes() -> None:
    store = books()
    stop = threading.Event()
    wrong: list[str] = []

    def write(author: str) -> None:
        for number in range(150):
            book = Book(author, str(number % 7), (str(number),))
            store.add(book)
            if number % 3 == 0:
                store.delete(book)

    def read() -> None:
        while not stop.is_set():
            wrong.extend(book.author for book in store.by_index("author", "a") if book.author != "a")
            listed = store.list_keys()
            wrong.extend(listed[len(set(listed)) :])

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(author,)) for author in "abc"]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert wrong == []
    assert {(book.author, book.words) for book in store.list()} == {
        (book.author, book.words) for a in "abc" for book in store.by_index("author", a)
    }


KEYS = st.sampled_from("abcd")
WORDS = st.lists(st.sampled_from("xyz"), max_size=3).map(tuple)


class AgainstADict(RuleBasedStateMachine):
    """Whatever is done, the store equals a dict, and its indexes what one would compute from that."""

    def __init__(self) -> None:
        super().__init__()
        self.store = books()
        self.model: dict[str, Book] = {}

    @rule(title=KEYS, words=WORDS)
    def add(self, title: str, words: tuple[str, ...]) -> None:
        book = Book("x", title, words)
        self.store.add(book)
        self.model[f"x/{title}"] = book

    @rule(title=KEYS)
    def delete(self, title: str) -> None:
        self.store.delete(Book("x", title))
        self.model.pop(f"x/{title}", None)

    @rule(titles=st.lists(st.tuples(KEYS, WORDS), max_size=4))
    def replace(self, titles: list[tuple[str, tuple[str, ...]]]) -> None:
        new = [Book("x", title, words) for title, words in titles]
        self.store.replace(new)
        self.model = {book_key(book): book for book in new}

    @invariant()
    def equal(self) -> None:
        assert dict(zip(self.store.list_keys(), self.store.list(), strict=True)) == self.model
        values = {word for book in self.model.values() for word in book.words}
        assert set(self.store.list_index_func_values("word")) == values
        for value in "xyz":
            expected = sorted(key for key, book in self.model.items() if value in book.words)
            assert sorted(self.store.index_keys("word", value)) == expected


AgainstADict.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestAgainstADict = AgainstADict.TestCase
