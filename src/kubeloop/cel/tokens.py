"""The tokens of an expression. Source: the CEL specification's lexis (https://github.com/google/cel-spec/blob/master/doc/langdef.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kubeloop.cel.faults import Issue

#: One rule of the grammar each; the longest match counts, and of equally long matches the first.
_ESCAPE: Final = r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
_HALF_ESCAPE: Final = r"""\\(?:[0-3][0-7]?|[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7})?"""
_TEXT: Final = "|".join([
    rf'"""(?:{_ESCAPE}|[^\\])*?"""',
    rf"'''(?:{_ESCAPE}|[^\\])*?'''",
    rf'"(?:{_ESCAPE}|[^\\"\n\r])*"',
    rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
    r'[rR]"""(?s:.)*?"""',
    r"[rR]'''(?s:.)*?'''",
    r'[rR]"[^"\n\r]*"',
    r"[rR]'[^'\n\r]*'",
])  # fmt: skip
_WORDS: Final = re.compile(
    rf"""
    (?P<space>[\t \r\n\f]+|//[^\n]*)
    |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<bytes>[bB](?:{_TEXT}))
    |(?P<string>{_TEXT})
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<quoted>`[A-Za-z0-9_./\- ]+`)
    |(?P<sign>==|!=|<=|>=|&&|\|\||[\[\](){{}}.,\-!?:+*/%<>])
    """,
    re.VERBOSE,
)
#: The beginning of an unfinished token: the next character belongs to the unrecognised text.
_BEGUN: Final = re.compile(rf"""(?:'(?:{_ESCAPE}|[^\\'\n\r])*|"(?:{_ESCAPE}|[^\\"\n\r])*)(?:{_HALF_ESCAPE})?|[&|=]|`[A-Za-z0-9_./\- ]*""")
_WORD_SIGNS: Final = frozenset({"in", "true", "false", "null"})


@dataclass(frozen=True, slots=True)
class Token:
    """One token. ``kind`` is the text itself for signs and for in, true, false and null; "end" for the last token."""

    kind: str
    text: str
    at: int


def tokens(source: str) -> tuple[list[Token], list[Issue]]:
    """Return the tokens of a text, and an issue for each unrecognised part."""
    found: list[Token] = []
    issues: list[Issue] = []
    at = 0
    while at < len(source):
        match = _WORDS.match(source, at)
        if match is None:
            begun = _BEGUN.match(source, at)
            end = (begun.end() if begun is not None else at) + 1
            issues.append(Issue(at, f"Syntax error: token recognition error at: '{escaped(source[at:end])}'"))
            at = end
            continue
        kind = match.lastgroup or ""
        text = match[0]
        if kind == "sign" or (kind == "name" and text in _WORD_SIGNS):
            kind = text
        if kind != "space":
            found.append(Token(kind, text, at))
        at = match.end()
    found.append(Token("end", "<EOF>", len(source)))
    return found, issues


def escaped(text: str) -> str:
    """Return the text as messages show it."""
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
