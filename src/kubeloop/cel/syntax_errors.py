"""Messages for unexpected words, as cel-go's parser generator (ANTLR) words them."""

from __future__ import annotations

from typing import Final

from kubeloop.cel.faults import Issue
from kubeloop.cel.tokens import Token, escaped

#: cel-go's second message about an invalid field name.
NO_IDENTIFIER: Final = "unsupported ident kind"
#: The words that an operand may begin with.
OPERANDS: Final = ("[", "{", "(", ".", "-", "!", "true", "false", "null", "float", "int", "uint", "string", "bytes", "name")
#: Kinds of words in the order of the grammar, in which messages list them.
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
    """The text is not an expression, and parsing cannot continue; ``issues`` are the faults found so far."""

    def __init__(self, issues: list[Issue]) -> None:
        super().__init__(issues[-1].text)
        self.issues = issues


def unexpected(word: Token, following: str, expected: tuple[str, ...], *, completes: bool) -> str:
    """Return the message for an unexpected word.

    Args:
        word: The unexpected word.
        following: The kind of the next word; if it is expected, ``word`` is superfluous.
        expected: The kinds of words that are allowed.
        completes: Whether only one word is missing at the end of the text.
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
