"""The grammar of label selectors: a lexer and a parser with exactly Kubernetes' error messages.

Source: k8s.io/apimachinery pkg/labels/selector.go (Lexer, Parser).
"""

from __future__ import annotations

import enum

from kubeloop.meta import names
from kubeloop.meta.field_error import invalid
from kubeloop.meta.label_requirement import Operator, Requirement


class _Token(enum.Enum):
    ERROR = 0
    END = 1
    CLOSE = ")"
    COMMA = ","
    NOT = "!"
    DOUBLE_EQUALS = "=="
    EQUALS = "="
    GREATER = ">"
    IDENTIFIER = 2
    IN = "in"
    LESS = "<"
    NOT_EQUALS = "!="
    NOT_IN = "notin"
    OPEN = "("


_BY_TEXT = {token.value: token for token in _Token if isinstance(token.value, str)}
_SPECIAL = "=!(),><"
_SPACE = " \t\r\n"
_OPERATORS = {
    _Token.IN: Operator.IN,
    _Token.NOT_IN: Operator.NOT_IN,
    _Token.EQUALS: Operator.EQUALS,
    _Token.DOUBLE_EQUALS: Operator.DOUBLE_EQUALS,
    _Token.NOT_EQUALS: Operator.NOT_EQUALS,
    _Token.GREATER: Operator.GREATER_THAN,
    _Token.LESS: Operator.LESS_THAN,
}
_BINARY = "in, notin, =, ==, !=, gt, lt"


def parse_requirements(text: str) -> list[Requirement]:
    """Return the requirements in the order of the text.

    Raises:
        ValueError: the text is malformed; the message is Kubernetes'.
    """
    return _Parser(_scan(text)).parse()


def _scan(text: str) -> list[tuple[_Token, str]]:
    found: list[tuple[_Token, str]] = []
    at, end = 0, len(text)
    while at < end:
        if text[at] in _SPACE:
            at += 1
        elif text[at] == "\0":
            break  # upstream's lexer reads a zero byte as the end
        elif text[at] in _SPECIAL:
            token, literal, at = _special(text, at)
            found.append((token, literal))
        else:
            start = at
            while at < end and text[at] not in _SPECIAL and text[at] not in _SPACE:
                at += 1
            word = text[start:at]
            found.append((_BY_TEXT.get(word, _Token.IDENTIFIER), word))
    found.append((_Token.END, ""))
    return found


def _special(text: str, at: int) -> tuple[_Token, str, int]:
    """Return the longest operator here; if there is none, all following signs."""
    best: tuple[_Token, str] | None = None
    taken = ""
    while at < len(text) and text[at] in _SPECIAL:
        taken += text[at]
        if taken in _BY_TEXT:
            best = (_BY_TEXT[taken], taken)
        elif best is not None:
            break
        at += 1
    if best is None:
        return _Token.ERROR, f"error expected: keyword found '{taken}'", at
    return best[0], best[1], at


class _Parser:
    """Parses requirements. ``in`` and ``notin`` are operators only directly after a key; elsewhere they are names."""

    def __init__(self, items: list[tuple[_Token, str]]) -> None:
        self._items = items
        self._at = 0

    def parse(self) -> list[Requirement]:
        found: list[Requirement] = []
        while True:
            token, literal = self._look()
            if token is _Token.END:
                return found
            if token not in (_Token.IDENTIFIER, _Token.NOT):
                raise ValueError(f"found '{literal}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except ValueError as error:
                raise ValueError(f"unable to parse requirement: {error}") from None
            token, literal = self._take()
            if token is _Token.END:
                return found
            if token is not _Token.COMMA:
                raise ValueError(f"found '{literal}', expected: ',' or 'end of string'")
            token, literal = self._look()
            if token not in (_Token.IDENTIFIER, _Token.NOT):
                raise ValueError(f"found '{literal}', expected: identifier after ','")

    def _look(self) -> tuple[_Token, str]:
        token, literal = self._items[self._at]
        return (_Token.IDENTIFIER if token in (_Token.IN, _Token.NOT_IN) else token), literal

    def _take(self) -> tuple[_Token, str]:
        taken = self._look()
        self._at += 1
        return taken

    def _requirement(self) -> Requirement:
        token, key = self._take()
        absent = token is _Token.NOT
        if absent:
            token, key = self._take()
        if token is not _Token.IDENTIFIER:
            raise ValueError(f"found '{key}', expected: identifier")
        if wrong := names.qualified_name(key):
            raise ValueError(str(invalid("<nil>", key, "; ".join(wrong))))
        if absent or self._look()[0] in (_Token.END, _Token.COMMA):
            return Requirement.checked(key, Operator.DOES_NOT_EXIST if absent else Operator.EXISTS, ())
        token, literal = self._items[self._at]
        self._at += 1
        operator = _OPERATORS.get(token)
        if operator is None:
            raise ValueError(f"found '{literal}', expected: {_BINARY}")
        values = self._values() if operator in (Operator.IN, Operator.NOT_IN) else {self._exact_value()}
        return Requirement.checked(key, operator, tuple(sorted(values)))

    def _values(self) -> set[str]:
        token, literal = self._take()
        if token is not _Token.OPEN:
            raise ValueError(f"found '{literal}' expected: '('")
        token, literal = self._look()
        if token is _Token.CLOSE:
            self._take()
            return {""}
        if token not in (_Token.IDENTIFIER, _Token.COMMA):
            raise ValueError(f"found '{literal}', expected: ',', ')' or identifier")
        values = self._listed()
        self._take()
        return values

    def _listed(self) -> set[str]:
        """Read values up to, not including, the closing parenthesis; nothing between two commas is the empty value."""
        values: set[str] = set()
        while True:
            token, literal = self._take()
            following, found = self._look() if token in (_Token.IDENTIFIER, _Token.COMMA) else (token, literal)
            if token is _Token.IDENTIFIER:
                values.add(literal)
                if following is _Token.CLOSE:
                    return values
                if following is not _Token.COMMA:
                    raise ValueError(f"found '{found}', expected: ',' or ')'")
            elif token is _Token.COMMA:
                if not values or following in (_Token.CLOSE, _Token.COMMA):
                    values.add("")
                if following is _Token.CLOSE:
                    return values
            else:
                raise ValueError(f"found '{literal}', expected: ',', or identifier")

    def _exact_value(self) -> str:
        if self._look()[0] in (_Token.END, _Token.COMMA):
            return ""
        token, literal = self._take()
        if token is not _Token.IDENTIFIER:
            raise ValueError(f"found '{literal}', expected: identifier")
        return literal
