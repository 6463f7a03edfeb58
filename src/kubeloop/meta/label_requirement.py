"""Requirements of label selectors: a key, an operator and values; and their grammar with exactly Kubernetes' error messages."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping

import msgspec

from kubeloop.meta import names
from kubeloop.meta.field_error import FieldError, invalid

_INTEGER = re.compile(r"[-+]?[0-9]+", re.ASCII)


class Operator(enum.Enum):
    """The operator of a requirement; the enum value is its text in a selector."""

    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"
    GREATER_THAN = "gt"
    LESS_THAN = "lt"


_ONE = (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.NOT_EQUALS)
_SET = (Operator.IN, Operator.NOT_IN)
_NONE = (Operator.EXISTS, Operator.DOES_NOT_EXIST)
_ORDER = (Operator.GREATER_THAN, Operator.LESS_THAN)


class Requirement(msgspec.Struct, frozen=True):
    """A condition on one label. A missing label satisfies only NOT_EQUALS, NOT_IN and DOES_NOT_EXIST.

    >>> Requirement("tier", Operator.IN, ("front", "back")).matches({"tier": "front"})
    True
    """

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    @classmethod
    def checked(cls, key: str, operator: Operator, values: tuple[str, ...]) -> Requirement:
        """Validate and return a requirement.

        Raises:
            ValueError: The key, the number of values or a value is invalid; the message is Kubernetes'.
        """
        errors = [invalid("key", key, "; ".join(wrong))] if (wrong := names.qualified_name(key)) else []
        errors += _wrong_values(operator, values)
        errors += [
            invalid(f"values[{index}][{key}]", value, "; ".join(wrong))
            for index, value in enumerate(values)
            if (wrong := names.label_value(value))
        ]
        if errors:
            raise ValueError(aggregate(errors))
        return cls(key, operator, values)

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.NOT_EQUALS | Operator.NOT_IN:
                return value is None or value not in self.values
            case Operator.GREATER_THAN | Operator.LESS_THAN:
                return self._compares(value)
            case _:
                return value is not None and value in self.values

    def _compares(self, value: str | None) -> bool:
        if value is None or not _INTEGER.fullmatch(value) or len(self.values) != 1 or not _is_int64(int(value)):
            return False
        limit = int(self.values[0])
        return int(value) > limit if self.operator is Operator.GREATER_THAN else int(value) < limit

    def __str__(self) -> str:
        if self.operator is Operator.EXISTS:
            return self.key
        if self.operator is Operator.DOES_NOT_EXIST:
            return f"!{self.key}"
        values = ",".join(sorted(self.values))
        if self.operator in _SET:
            return f"{self.key} {self.operator.value} ({values})"
        sign = {Operator.GREATER_THAN: ">", Operator.LESS_THAN: "<"}.get(self.operator, self.operator.value)
        return f"{self.key}{sign}{values}"


def _wrong_values(operator: Operator, values: tuple[str, ...]) -> list[FieldError]:
    shown = list(values)
    if operator in _SET and not values:
        return [invalid("values", shown, "for 'in', 'notin' operators, values set can't be empty")]
    if operator in _ONE and len(values) != 1:
        return [invalid("values", shown, "exact-match compatibility requires one single value")]
    if operator in _NONE and values:
        return [invalid("values", shown, "values set must be empty for exists and does not exist")]
    errors = []
    if operator in _ORDER:
        if len(values) != 1:
            errors.append(invalid("values", shown, "for 'Gt', 'Lt' operators, exactly one value is required"))
        errors += [
            invalid(f"values[{index}]", value, "for 'Gt', 'Lt' operators, the value must be an integer")
            for index, value in enumerate(values)
            if not _INTEGER.fullmatch(value) or not _is_int64(int(value))
        ]
    return errors


def _is_int64(value: int) -> bool:
    return -(2**63) <= value < 2**63


def aggregate(errors: list[FieldError]) -> str:
    """Join error messages: one is unchanged, several are in brackets, equal ones appear once (k8s.io/apimachinery pkg/util/errors)."""
    texts = list(dict.fromkeys(map(str, errors)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


# The grammar of label selectors: a lexer and a parser with exactly Kubernetes' error messages.
#
# Source: k8s.io/apimachinery pkg/labels/selector.go (Lexer, Parser).


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
        ValueError: The text is malformed; the message is Kubernetes'.
    """
    return _Parser(_scan(text)).parse()


def _scan(text: str) -> list[tuple[_Token, str]]:
    result: list[tuple[_Token, str]] = []
    at, end = 0, len(text)
    while at < end:
        if text[at] in _SPACE:
            at += 1
        elif text[at] == "\0":
            break  # upstream's lexer reads a zero byte as the end
        elif text[at] in _SPECIAL:
            token, literal, at = _special(text, at)
            result.append((token, literal))
        else:
            start = at
            while at < end and text[at] not in _SPECIAL and text[at] not in _SPACE:
                at += 1
            word = text[start:at]
            result.append((_BY_TEXT.get(word, _Token.IDENTIFIER), word))
    result.append((_Token.END, ""))
    return result


def _special(text: str, at: int) -> tuple[_Token, str, int]:
    """Return the longest operator at a position, or all following special characters if they form no operator."""
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
        result: list[Requirement] = []
        while True:
            token, literal = self._look()
            if token is _Token.END:
                return result
            if token not in (_Token.IDENTIFIER, _Token.NOT):
                raise ValueError(f"found '{literal}', expected: !, identifier, or 'end of string'")
            try:
                result.append(self._requirement())
            except ValueError as error:
                raise ValueError(f"unable to parse requirement: {error}") from None
            token, literal = self._take()
            if token is _Token.END:
                return result
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
