"""Patterns find what Go's find, in time that no pattern can blow up."""

from __future__ import annotations

import random
import re
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.schema.go_regex import PatternError, compile_go
from kubeloop.schema.patterns import LinearPattern, go_pattern


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
    ("pattern", "text", "expected"),
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
def test_what_matches(pattern: str, text: str, expected: list[str]) -> None:
    assert list(go_pattern(pattern).matches(text)) == expected


def test_a_too_large_pattern_is_refused() -> None:
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


# Go's regular expressions, run by Python's: what they find, and what Go refuses.


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        pytest.param("^a$", "a\n", False, id="$ is the end of the text, not of its last line"),
        pytest.param("(?m)^b$", "a\nb\nc", True, id="(?m) makes ^ and $ match at lines"),
        pytest.param(r"^\d+$", "١٢", False, id="\\d is ASCII"),
        pytest.param(r"^\w+$", "é", False, id="\\w is ASCII"),
        pytest.param(r"^\s$", "\v", False, id="\\s leaves out the vertical tab"),
        pytest.param("^[[:alpha:]]+$", "abc", True, id="POSIX classes stand in brackets"),
        pytest.param("^[[:^digit:]]+$", "a1", False, id="POSIX classes can be negated"),
        pytest.param(r"^\p{Lu}\pL+$", "Éa", True, id="Unicode classes are known"),
        pytest.param(r"^\P{L}$", "a", False, id="Unicode classes can be negated"),
        pytest.param(r"^\Qa.b\E$", "axb", False, id="\\Q quotes"),
        pytest.param(r"^\x{1F600}$", "\U0001f600", True, id="code points can be written in hexadecimal"),
        pytest.param("a(?i)B", "ab", True, id="flags can be set in the middle"),
        pytest.param("(?:a(?i)B)C", "abc", False, id="flags end with their group"),
        pytest.param("(?i)a|b", "B", True, id="flags reach over alternatives"),
        pytest.param("(?s)a.b", "a\nb", True, id="(?s) lets a dot match a newline"),
        pytest.param("a.b", "a\nb", False, id="a dot does not match a newline"),
        pytest.param("^[a-]$", "-", True, id="a dash at the end of a class is itself"),
        pytest.param("^[]a]$", "]", True, id="a bracket at the start of a class is itself"),
        pytest.param("^a{,2}$", "a{,2}", True, id="braces without a least count are plain text"),
        pytest.param("^a{2,3}?$", "aaa", True, id="counted repetition can be lazy"),
        pytest.param("^(?P<n>a)$", "a", True, id="groups can be named"),
        pytest.param(r"^[\d\-_]+$", "1-_", True, id="escapes stand in classes"),
        pytest.param(r"\bfoo\b", "a foo b", True, id="word boundaries are known"),
        pytest.param("#", "a#", True, id="what Python would escape needs none"),
    ],
)
def test_search(pattern: str, text: str, matches: bool) -> None:
    assert (compile_go(pattern).search(text) is not None) == matches


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        pytest.param("(", "missing closing ): `(`", id="an open group"),
        pytest.param("a)", "unexpected ): `a)`", id="a group closed twice"),
        pytest.param("[a", "missing closing ]: `[a`", id="an open class"),
        pytest.param("[z-a]", "invalid character class range: `z-a`", id="a range backwards"),
        pytest.param("*a", "missing argument to repetition operator: `*`", id="nothing to repeat"),
        pytest.param("a**", "invalid nested repetition operator: `**`", id="a repetition repeated"),
        pytest.param("a{1001}", "invalid repeat count: `{1001}`", id="more than a thousand repetitions"),
        pytest.param("(?=a)", "invalid or unsupported Perl syntax: `(?=`", id="look-ahead"),
        pytest.param(r"(a)\1", r"invalid escape sequence: `\1`", id="a back reference"),
        pytest.param("a\\", "trailing backslash at end of expression: ``", id="a backslash at the end"),
        pytest.param(r"\pX", r"invalid character class range: `\pX`", id="an unknown Unicode class"),
    ],
)
def test_refused(pattern: str, message: str) -> None:
    with pytest.raises(PatternError) as refused:
        compile_go(pattern)
    assert str(refused.value) == f"error parsing regexp: {message}"
