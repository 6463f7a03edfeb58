"""Go's regular expressions, run by Python's: what they find, and what Go refuses."""

from __future__ import annotations

import pytest

from kubeloop.schema.regular import PatternError, compile_go


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
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
def test_search(pattern: str, text: str, found: bool) -> None:
    assert (compile_go(pattern).search(text) is not None) == found


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
