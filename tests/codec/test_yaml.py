"""YAML as kubectl reads and writes it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.codec import read_yaml, write_yaml
from kubeloop.meta import DecodeError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("yes", True, id="yes is a boolean"),
        pytest.param("Off", False, id="off is one too"),
        pytest.param("y", True, id="and so is y"),
        pytest.param("'yes'", "yes", id="but not in quotes"),
        pytest.param("2026-01-02", "2026-01-02", id="a date is text"),
        pytest.param("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z", id="a time is text"),
        pytest.param("1:30", "1:30", id="there are no numbers to base 60"),
        pytest.param("010", 8, id="a leading zero is octal"),
        pytest.param("0x1F", 31, id="hexadecimal"),
        pytest.param("1_000", 1000, id="underscores in numbers"),
        pytest.param("1e3", 1000.0, id="an exponent without a point"),
        pytest.param(".5", 0.5, id="a point first"),
        pytest.param("~", None, id="a tilde is null"),
        pytest.param("", None, id="nothing is null"),
        pytest.param("1.2.3", "1.2.3", id="a version is text"),
        pytest.param("<<", "<<", id="a merge sign as a value is text"),
    ],
)
def test_a_plain_value_is_read_as_kubectl_does(text: str, value: Any) -> None:
    (document,) = read_yaml(f"a: {text}")
    assert document == {"a": value}
    assert type(document["a"]) is type(value)


def test_documents_are_separated_empty_ones_left_out_and_lists_opened() -> None:
    text = "a: 1\n---\n# nothing\n---\napiVersion: v1\nkind: List\nitems:\n- b: 2\n- c: 3\n"
    assert read_yaml(text) == [{"a": 1}, {"b": 2}, {"c": 3}]


def test_json_is_yaml() -> None:
    assert read_yaml(b'{"a": {"b": [1, null]}}') == [{"a": {"b": [1, None]}}]


def test_keys_become_text_as_in_json() -> None:
    assert read_yaml("1: a\ntrue: b\n1.5: c") == [{"1": "a", "true": "b", "1.5": "c"}]


def test_anchors_and_merges_are_resolved() -> None:
    assert read_yaml("x: &x {a: 1}\nz: {<<: *x, b: 2}") == [{"x": {"a": 1}, "z": {"a": 1, "b": 2}}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: [1", r"pod.yaml line \d: ", id="broken YAML names file and line"),
        pytest.param("just words", "pod.yaml: document 1 is not an object but text", id="text is no object"),
        pytest.param("a: 1\n---\n- 2", "pod.yaml: document 2 is not an object but a list", id="the document is counted"),
        pytest.param("a: !!python/object:os.system x", "pod.yaml line 1: ", id="nothing is executed"),
        pytest.param("? [a]\n: b", "pod.yaml line 1: a key is a list of 1 item; keys are text", id="a list is no key"),
    ],
)
def test_the_error_of_an_invalid_manifest_explains_it(text: str, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        read_yaml(text, name="pod.yaml")


@pytest.mark.parametrize(
    "text", ["yes", "on", "n", "010", "1e3", "1:30", "2026-01-02", "null", "", "0x", "a: b", "- x", "#", "line\nline\n", " x "]
)
def test_text_that_looks_like_something_else_is_written_so_that_it_stays_text(text: str) -> None:
    assert read_yaml(write_yaml({"a": text, "b": [text], text: 1})) == [{"a": text, "b": [text], text: 1}]


def test_documents_are_written_as_kubectl_prints_them() -> None:
    written = write_yaml({"kind": "A", "items": [{"name": "x", "on": True}], "text": "one\ntwo\n"}, {"kind": "B"})
    assert written == 'kind: A\nitems:\n- name: x\n  "on": true\ntext: |\n  one\n  two\n---\nkind: B\n'


_TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=6), _TREES, max_size=4))
def test_written_yaml_is_read_back(tree: dict[str, Any]) -> None:
    assert read_yaml(write_yaml(tree)) == [tree]
