"""The lexis of CEL: tokens, literals, and messages for unexpected tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kubeloop.cel.faults import Issue

#: Reserved words that are not part of the grammar.
RESERVED: Final = frozenset({
    "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package", "namespace", "return", "var",
    "void", "while",
})  # fmt: skip
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
    result: list[Token] = []
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
            result.append(Token(kind, text, at))
        at = match.end()
    result.append(Token("end", "<EOF>", len(source)))
    return result, issues


def escaped(text: str) -> str:
    """Return a text with newlines, carriage returns and tabs escaped, as messages show it."""
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


#: cel-go's second message about an invalid field name.
NO_IDENTIFIER: Final = "unsupported ident kind"
#: The kinds of tokens that an operand may begin with.
OPERANDS: Final = ("[", "{", "(", ".", "-", "!", "true", "false", "null", "float", "int", "uint", "string", "bytes", "name")
#: Kinds of tokens in the order of the grammar, in which messages list them.
_ORDER: Final = (
    "end", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "true", "false", "null", "float", "int", "uint", "string", "bytes",
    "name", "quoted",
)  # fmt: skip
_NAMES: Final = {
    "end": "<EOF>",
    "float": "NUM_FLOAT",
    "int": "NUM_INT",
    "uint": "NUM_UINT",
    "string": "STRING",
    "bytes": "BYTES",
    "name": "IDENTIFIER",
    "quoted": "ESC_IDENTIFIER",
}


class SyntaxErrorReport(Exception):
    """The text is not an expression, and parsing cannot continue. ``issues`` are the errors up to this point."""

    def __init__(self, issues: list[Issue]) -> None:
        super().__init__(issues[-1].text)
        self.issues = issues


def unexpected(word: Token, following: str, expected: tuple[str, ...], *, completes: bool) -> str:
    """Return cel-go's message for an unexpected token.

    Args:
        word: The unexpected token.
        following: The kind of the next token; if it is expected, ``word`` is superfluous.
        expected: The kinds of tokens that are allowed.
        completes: Whether only one token is missing at the end of the text.
    """
    shown, listed = f"'{escaped(word.text)}'", _listed(expected)
    if following in expected and word.kind != "end":
        return too_much(word, expected)
    if completes and len(expected) == 1:
        return f"Syntax error: missing {listed} at {shown}"
    return f"Syntax error: mismatched input {shown} expecting {listed}"


def too_much(word: Token, expected: tuple[str, ...]) -> str:
    return f"Syntax error: extraneous input '{escaped(word.text)}' expecting {_listed(expected)}"


def _listed(expected: tuple[str, ...]) -> str:
    wanted = [_NAMES.get(kind, f"'{kind}'") for kind in _ORDER if kind in expected]
    return wanted[0] if len(wanted) == 1 else f"{{{', '.join(wanted)}}}"


_ESCAPE_SEQUENCE: Final = re.compile(
    r"\\(?:(?P<plain>[abfnrtv\\'\"`?])|(?P<octal>[0-3][0-7]{2})|[xX](?P<byte>[0-9a-fA-F]{2})|u(?P<u4>[0-9a-fA-F]{4})|U(?P<u8>[0-9a-fA-F]{8}))"
)
_PLAIN: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
#: Below Python's limit of digits for int(); no 64-bit integer has as many.
_MOST_DIGITS: Final = 4000
_LAST_POINT: Final = 0x10FFFF


def text_of(literal: str) -> str:
    """Parse a string literal.

    Raises:
        ValueError: An escape stands for no character.
    """
    content, raw = _content(literal)
    return content if raw else _ESCAPE_SEQUENCE.sub(_character, content)


def bytes_of(literal: str) -> bytes:
    """Parse a byte literal without its ``b``; characters are written in UTF-8, escapes stand for bytes.

    Raises:
        ValueError: An escape stands for no byte.
    """
    content, raw = _content(literal)
    if raw:
        return content.encode()
    out = bytearray()
    at = 0
    for found in _ESCAPE_SEQUENCE.finditer(content):
        out += content[at : found.start()].encode()
        at = found.end()
        if found["u4"] or found["u8"]:
            raise ValueError("unable to unescape string")
        if found["plain"]:
            out += _PLAIN.get(found["plain"], found["plain"]).encode()
        else:
            out.append(_number(found))
    out += content[at:].encode()
    return bytes(out)


def _content(literal: str) -> tuple[str, bool]:
    literal = literal.replace("\r\n", "\n").replace("\r", "\n")
    raw = literal[0] in "rR"
    literal = literal[raw:]
    quotes = 3 if len(literal) >= 6 and literal[:3] in ("'''", '"""') else 1
    return literal[quotes:-quotes], raw


def _character(match: re.Match[str]) -> str:
    if match["plain"]:
        return _PLAIN.get(match["plain"], match["plain"])
    number = _number(match)
    if number > _LAST_POINT or 0xD800 <= number <= 0xDFFF:
        raise ValueError("invalid unicode code point")
    return chr(number)


def _number(match: re.Match[str]) -> int:
    if match["octal"]:
        return int(match["octal"], 8)
    return int(match["byte"] or match["u4"] or match["u8"], 16)


def integer_of(text: str, minimum: int, maximum: int) -> int:
    """Parse an integer literal.

    Raises:
        ValueError: The number is not between ``minimum`` and ``maximum``.
    """
    sign = -1 if text.startswith("-") else 1
    digits = text.removeprefix("-")
    if len(digits) > _MOST_DIGITS:
        raise ValueError(text)
    number = sign * int(digits, base=16 if digits.startswith("0x") else 10)
    if not minimum <= number <= maximum:
        raise ValueError(text)
    return number


def double_of(text: str) -> float:
    """Parse a floating-point literal.

    Raises:
        ValueError: The number is too large.
    """
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(text)
    return number
