"""Patterns find what Go's find, in time that no pattern can blow up."""

from __future__ import annotations

import random
import re
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.schema.linear import LinearPattern
from kubeloop.schema.patterns import go_pattern
from kubeloop.schema.regular import PatternError, compile_go


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        pytest.param("^(a+)+$", "a" * 5000 + "!", id="nested repetition"),
        pytest.param("(a|aa)+$", "a" * 5000 + "!", id="alternatives that overlap"),
        pytest.param("^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 5000, id="a pattern known to be evil"),
        pytest.param("(x+x+)+y", "x" * 5000, id="repetitions that can share a text in many ways"),
    ],
)
def test_a_text_that_does_not_match_is_given_up_on(pattern: str, text: str) -> None:
    assert not go_pattern(pattern).is_in(text)
    assert list(go_pattern(pattern).matches(text[:500] + "!")) == []


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        pytest.param("a*", "abaa", ["a", "aa"], id="an empty match behind another one does not count"),
        pytest.param("a*?", "ab", ["", "", ""], id="lazy repetition takes as little as it can"),
        pytest.param("(a|ab)(c|bcd)", "abcd", ["abcd"], id="the first alternative is preferred"),
        pytest.param("[a-z]+[0-9]+", "ab1, c22 d", ["ab1", "c22"], id="one after the other"),
        pytest.param(r"\b[a-z]+\b[ ]*", "ab cd", ["ab ", "cd"], id="edges of words"),
        pytest.param("(?i:AB)+c{2}", "abABcc", ["abABcc"], id="flags of a group"),
        pytest.param("(?m)^a+b*$", "a\nab\nb", ["a", "ab"], id="begins and ends of lines"),
    ],
)
def test_what_matches(pattern: str, text: str, found: list[str]) -> None:
    assert list(go_pattern(pattern).matches(text)) == found


def test_what_is_too_large_is_refused() -> None:
    with pytest.raises(PatternError, match="expression too large"):
        go_pattern("((a{1,1000}b{1,1000}){1,30}c)+")


PIECES = st.sampled_from(
    ["a", "b", "[ab]", "[^a]", ".", r"\w", "(a|b)", "(a|ab)", "(?i:A)", "^", "$", r"\b", "a*", "b+", "a?", "(ab){1,2}", "a*?", "(a*)*", "|"]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=6).map("".join), st.text("aAb1 \n", max_size=8))
def test_following_all_ways_at_once_finds_what_backtracking_finds(pattern: str, text: str) -> None:
    translated = compile_go(pattern).pattern
    expected = re.search(translated, text)
    linear = LinearPattern(translated)
    assert linear.find(text) == (expected.span() if expected else None)
    assert linear.is_in(text) == (expected is not None)


def test_what_a_pattern_remembers_of_texts_is_bounded() -> None:
    """Each letter leads to another set of places, a thousand of them: with nothing but a number of sets, that would be many megabytes."""
    pattern = go_pattern("^(a|b)*a(a|b){400}c$")
    digits = random.Random(1)
    tracemalloc.start()
    try:
        assert not pattern.is_in("".join(digits.choice("ab") for _ in range(500)))
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000
