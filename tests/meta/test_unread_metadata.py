"""Typed metadata of a tree are made on the first access; until then the tree alone counts, and nothing is lost between the two."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kubeloop.meta import DecodeError, ObjectMeta, Unstructured

Foo = Unstructured.for_kind("example.com/v1", "Foo")


def foo(name: str = "a") -> Unstructured:
    return Foo.from_dict({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name, "labels": {"a": "1"}, "other": 7}})


def to_tree(read: Unstructured) -> None:
    read["metadata"]["labels"]["b"] = "2"


def to_view(read: Unstructured) -> None:
    read.metadata.labels["b"] = "2"


def both(read: Unstructured) -> None:
    read["metadata"]["name"] = "b"
    to_view(read)
    read["metadata"]["name"] = "a"


@pytest.mark.parametrize("change", [to_tree, to_view, both])
def test_a_change_of_either_side_shows_on_both(change: Callable[[Unstructured], None]) -> None:
    read = foo()
    change(read)
    assert read.metadata.labels == {"a": "1", "b": "2"}
    assert read.to_dict()["metadata"] == {"name": "a", "labels": {"a": "1", "b": "2"}, "other": 7}


def test_new_metadata_replace_the_known_fields_of_an_unread_tree() -> None:
    read = foo()
    read.metadata = ObjectMeta(name="b")
    assert read.to_dict()["metadata"] == {"name": "b", "other": 7}


TWINS = [
    pytest.param(copy.copy, id="copied"),
    pytest.param(copy.deepcopy, id="copied deeply"),
    pytest.param(lambda read: pickle.loads(pickle.dumps(read)), id="pickled"),
    pytest.param(msgspec.structs.replace, id="replaced"),
]


@pytest.mark.parametrize("twin", TWINS)
def test_a_copy_of_an_unread_object_has_its_metadata(twin: Callable[[Any], Any]) -> None:
    assert twin(foo()).metadata.name == "a"
    assert twin(foo()) == foo()


def test_a_copy_with_other_metadata_has_those() -> None:
    assert msgspec.structs.replace(foo(), metadata=ObjectMeta(name="b")).to_dict()["metadata"] == {"name": "b", "other": 7}
    assert foo().__replace__(metadata=ObjectMeta(name="b")).metadata == ObjectMeta(name="b")


def test_twins_share_their_metadata() -> None:
    read = foo()
    twin = copy.copy(read)
    read.metadata.labels["b"] = "2"
    assert twin.metadata.labels == {"a": "1", "b": "2"}


def test_metadata_that_are_no_object_are_refused_at_once() -> None:
    with pytest.raises(DecodeError, match="Foo: metadata is not an object"):
        Foo.from_dict({"metadata": [1]})


def test_metadata_that_cannot_be_read_stay_an_error() -> None:
    read = Foo.from_dict({"metadata": {"name": 1}})
    for _ in range(2):
        with pytest.raises(DecodeError, match=r"Foo: metadata\.name"):
            _ = read.metadata
    assert read.to_dict()["metadata"] == {"name": 1}


def text(**more: Any) -> bytes:
    return msgspec.json.encode({"metadata": {"name": "a"}, "spec": {"size": 1}} | more)


def test_an_object_of_a_list_reads_as_any_other() -> None:
    read = Foo.from_text(text())
    assert read.get("spec", "size") == 1
    read["spec"]["size"] = 2
    read.metadata.labels["b"] = "2"
    expected = {"metadata": {"name": "a", "labels": {"b": "2"}}, "spec": {"size": 2}}
    assert read.to_dict() == {"apiVersion": "example.com/v1", "kind": "Foo"} | expected
    assert Foo.from_text(text()) == Foo.from_dict(msgspec.json.decode(text()))


@pytest.mark.parametrize("twin", TWINS)
def test_a_twin_of_an_object_of_a_list_has_its_tree(twin: Callable[[Any], Any]) -> None:
    assert twin(Foo.from_text(text()))["spec"] == {"size": 1}


def test_a_tree_that_is_put_in_place_of_an_unread_one_stays() -> None:
    read = Foo.from_text(text())
    read.content = {"metadata": {"name": "b"}}
    assert read.metadata.name == "b"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param(b"[1]", "Foo: the body is not a JSON object", id="a document that is no object is refused at once"),
        pytest.param(text(metadata=7), "Foo: metadata is not an object", id="metadata that are no object are refused at once"),
        pytest.param(text(kind="Bar"), "the object is None, Kind=Bar, not example.com/v1", id="another kind is refused at once"),
    ],
)
def test_an_invalid_document_is_refused_at_once(document: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        Foo.from_text(document)


def test_text_that_is_no_unicode_is_refused_when_it_is_looked_into() -> None:
    read = Foo.from_text(b'{"spec": "\xff"}')
    for _ in range(2):
        with pytest.raises(DecodeError, match="Foo: the body is not a JSON object"):
            _ = read["spec"]
