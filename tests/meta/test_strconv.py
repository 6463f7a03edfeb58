"""Text conversions of Go's strconv."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.meta.strconv import decimal, go_quoted, go_unquoted, is_digits


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


@pytest.mark.parametrize(
    ("text", "bits", "signed", "number"),
    [
        pytest.param("17", 64, True, 17, id="digits are a number"),
        pytest.param("+17", 64, True, 17, id="a plus is allowed where a sign is"),
        pytest.param("-17", 64, True, -17, id="a minus is"),
        pytest.param("-17", 64, False, None, id="an unsigned number has no sign"),
        pytest.param("+17", 64, False, None, id="not even a plus"),
        pytest.param("-", 64, True, None, id="a sign alone is no number"),
        pytest.param("", 64, True, None, id="nothing is no number"),
        pytest.param("1_000", 64, True, None, id="underscores are not allowed"),
        pytest.param(" 1", 64, True, None, id="nor are spaces"),
        pytest.param("\u0663", 64, True, None, id="nor digits of other scripts"),
        pytest.param(str(2**63 - 1), 64, True, 2**63 - 1, id="the largest signed number"),
        pytest.param(str(2**63), 64, True, None, id="one more does not fit"),
        pytest.param(str(-(2**63)), 64, True, -(2**63), id="the smallest signed number"),
        pytest.param(str(2**64 - 1), 64, False, 2**64 - 1, id="the largest unsigned number"),
        pytest.param(str(2**31), 32, True, None, id="fewer bits hold less"),
        pytest.param("0" * 10_000 + "5", 64, True, 5, id="leading zeros do not count"),
        pytest.param("9" * 1_000_000, 64, True, None, id="a million digits are refused, not converted"),
    ],
)
def test_a_decimal(text: str, bits: int, signed: bool, number: int | None) -> None:
    assert decimal(text, bits=bits, signed=signed) == number


def test_digits_are_those_of_ascii() -> None:
    assert is_digits("012")
    assert not is_digits("")
    assert not is_digits("\u00b2")
