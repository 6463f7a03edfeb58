"""Text as Go's %q shows it; what is wanted was printed by Go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.meta.go_quote import go_quoted, go_unquoted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("spec.foo", '"spec.foo"', id="what can be printed stays"),
        pytest.param("ä😀", '"ä😀"', id="so do letters of all languages"),
        pytest.param('a"b\\c', r'"a\"b\\c"', id="quotes and backslashes are escaped"),
        pytest.param("a\nb\tc", r'"a\nb\tc"', id="some controls have a letter"),
        pytest.param("\x01\x7f", r'"\x01\x7f"', id="others are written in hexadecimal"),
        pytest.param("\u200b\U000e0001", r'"\u200b\U000e0001"', id="what has no shape is written by its number"),
    ],
)
def test_go_quotes(text: str, shown: str) -> None:
    assert go_quoted(text) == shown
    assert go_unquoted(shown) == text


@given(st.text())
def test_what_was_quoted_can_be_read(text: str) -> None:
    assert go_unquoted(go_quoted(text)) == text
