"""The reader of plain YAML reads what a YAML parser reads, or leaves it to that."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.codec import write_yaml
from kubeloop.codec.yaml import Loader
from kubeloop.config.kubeconfig.file import read_plain

KUBECONFIG = """\
# written by a tool
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: LS0tLS1CRUdJTg==
    server: https://127.0.0.1:6443
  name: kind-kind
- name: other
  cluster:
      insecure-skip-tls-verify: true
      server: "https://other.example"
contexts:
  - context: {}
    name: 'kind kind'
current-context: ""
kind: Config
preferences: {}
users:
- name: me@example.com
  user:
    exec:
      args:
      - eks
      - get-token
      - --region
      command: aws
      env: null
      provideClusterInfo: false
"""


def parsed(text: str) -> Any:
    return yaml.load(text, Loader=Loader)


def test_what_tools_write_is_read_without_a_parser() -> None:
    assert read_plain(KUBECONFIG.encode()) == (parsed(KUBECONFIG),)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: 1", id="a number"),
        pytest.param("a: yes", id="a boolean of YAML 1.1"),
        pytest.param("a: True", id="a boolean in another case"),
        pytest.param("y: a", id="a boolean for a key"),
        pytest.param("a: {b: c}", id="a map within a line"),
        pytest.param("a: -1", id="a number below zero"),
        pytest.param("a: b # c", id="a comment behind a value"),
        pytest.param("a: b\n  c", id="text over two lines"),
        pytest.param("a: |\n  b", id="a block of text"),
        pytest.param("a: &x b\nc: *x", id="an anchor"),
        pytest.param('a: "b\\n"', id="an escape"),
        pytest.param("a: 'it''s'", id="a doubled quote"),
        pytest.param("a: b\na: c", id="a key twice"),
        pytest.param("---\na: b", id="the start of a document"),
        pytest.param("a:\tb", id="a tab"),
        pytest.param("a: \u00e9", id="other letters"),
        pytest.param("a: b\r\n", id="lines of Windows"),
        pytest.param("- - a", id="a list in a list's line"),
        pytest.param("a: b\n c: d", id="a line that fits nowhere"),
        pytest.param("".join(" " * deep + "a:\n" for deep in range(60)), id="more levels than anybody writes"),
    ],
)
def test_a_text_is_left_to_a_parser(text: str) -> None:
    assert read_plain(text.encode()) is None


WORDS = st.sampled_from(
    [
        "v",
        "true",
        "null",
        "on",
        "Y",
        "7",
        "0x1",
        "1.5",
        "https://h:1/x?y",
        "'q r'",
        '"d: e"',
        "{}",
        "[]",
        "a:",
        "- x",
        "# c",
        "v # c",
        "=",
        "a b",
    ]
)
KEYS = st.sampled_from(["a", "b", "name", "on", "tls-server-name", "x.y/z", "Y"])
LINES = st.builds(
    lambda indent, dash, key, space, value: f"{' ' * indent}{dash}{key}{space}{value}",
    st.sampled_from([0, 0, 0, 2, 2, 4, 1]),
    st.sampled_from(["", "", "- "]),
    st.builds("{}:".format, KEYS) | st.just(""),
    st.sampled_from([" ", "  ", ""]),
    WORDS | st.just(""),
)


@settings(max_examples=200)
@given(st.lists(LINES, min_size=1, max_size=5))
def test_whatever_is_read_here_is_read_the_same_by_a_parser(lines: list[str]) -> None:
    text = "\n".join(lines)
    found = read_plain(text.encode())
    if found is not None:
        assert found == (parsed(text),)


TREES = st.recursive(
    st.sampled_from(["", "a", "on", "7", "x y", "https://h", "a: b", None, True, 5, "#", "-"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b-c", "on", "n", "7"]), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(["clusters", "users", "y"]), TREES, min_size=1))
def test_whatever_we_write_is_read_the_same_by_both(tree: dict[str, Any]) -> None:
    text = write_yaml(tree)
    assert parsed(text) == tree
    assert read_plain(text.encode()) in (None, (tree,))
