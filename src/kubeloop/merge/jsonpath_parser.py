"""Parses JSONPath templates of kubectl's dialect into nodes. Messages are those of k8s.io/client-go util/jsonpath."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from kubeloop.meta.errors import KubeloopError


class JSONPathError(KubeloopError):
    """A template is malformed, or a document lacks a value that it selects."""


@dataclass(frozen=True, slots=True)
class LiteralNode:
    """Text between expressions, or a constant in a filter."""

    value: str | int | float | bool


@dataclass(frozen=True, slots=True)
class MemberNode:
    """A member by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Wildcard:
    """The step ``.*``, which selects all members or elements."""


@dataclass(frozen=True, slots=True)
class Recursive:
    """Recursive descent (``..``): the value and everything below it."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The step ``[start:stop:step]``, which selects elements of a list; ``[*]`` selects all. ``single`` marks the form ``[start]``."""

    start: int | None = None
    stop: int | None = None
    step: int = 1
    single: bool = False


@dataclass(frozen=True, slots=True)
class UnionNode:
    """The step ``[0,2]`` or ``['a','b']``, which yields the results of several selectors one after the other."""

    members: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class FilterNode:
    """The step ``[?(left operator right)]``, which filters elements. An empty operator tests whether ``left`` exists."""

    left: tuple[Node, ...]
    operator: str = ""
    right: tuple[Node, ...] = ()


Node: TypeAlias = LiteralNode | MemberNode | Wildcard | Recursive | Slice | UnionNode | FilterNode

_QUOTED_KEY = re.compile(r"""^'([^']*)'$|^"([^"]*)"$""")
_SLICE = re.compile(r"^(-?[\d]*)(:-?[\d]*)?(:-?[\d]*)?$")
_COMPARISON = re.compile(r"^([^!<>=]+)([!<>=]+)(.+?)$", re.DOTALL)
_OPERATORS = ("==", "!=", "<", "<=", ">", ">=")
_TERMINATORS = " \t\r\n.,[]$@{}"


def parse(template: str, *, any_word: bool = False) -> tuple[tuple[Node, ...], ...]:
    """Return the parts of a template: literal texts and expressions. With ``any_word``, any bare word is a literal instead of an error.

    Raises:
        JSONPathError: The template is malformed.
    """
    parts: list[tuple[Node, ...]] = []
    position = 0
    while position < len(template):
        start = template.find("{", position)
        if start < 0:
            start = len(template)
        if start > position:
            parts.append((LiteralNode(template[position:start]),))
        if start < len(template):
            reader = _Reader(template, start + 1, any_word=any_word)
            parts.append(reader.expression("}"))
            start = reader.position
        position = start
    return tuple(parts)


class _Reader:
    """Parses one expression."""

    def __init__(self, text: str, position: int = 0, *, any_word: bool = False) -> None:
        self._text = text
        self._any_word = any_word
        self.position = position

    def expression(self, end: str) -> tuple[Node, ...]:
        """Return the nodes up to ``end`` (consumed), or to the end of the text if ``end`` is empty."""
        nodes: list[Node] = []
        while True:
            character = self._peek()
            if end and character == end:
                self.position += 1
                return tuple(nodes)
            if not character and not end:
                return tuple(nodes)
            if not character or character in "\r\n":
                raise JSONPathError("unclosed action")
            if self._text.startswith("[?(", self.position):
                nodes.append(self._filter())
            elif self._text.startswith("..", self.position):
                nodes += self._recursive(nodes)
            elif character in " @$":
                self.position += 1
            elif character == "[":
                nodes += self._brackets()
            elif character in "\"'":
                nodes.append(LiteralNode(self._quoted(character)))
            elif character == ".":
                self.position += 1
                nodes.append(self._field())
            elif character in "+-" or character.isdigit():
                nodes.append(LiteralNode(self._number()))
            elif character == "_" or character.isalnum():
                nodes.append(self._word())
            else:
                raise JSONPathError(f"unrecognized character in action: U+{ord(character):04X} '{character}'")

    def _peek(self) -> str:
        return self._text[self.position : self.position + 1]

    def _field(self) -> Node:
        start = self.position
        while self._peek() and self._peek() not in _TERMINATORS:
            self.position += 2 if self._peek() == "\\" else 1
        name = self._text[start : self.position]
        return Wildcard() if name == "*" else MemberNode(name.replace("\\", ""))

    def _recursive(self, before: list[Node]) -> list[Node]:
        if before and isinstance(before[-1], Recursive):
            raise JSONPathError("invalid multiple recursive descent")
        self.position += 2
        if self._peek() == "_" or self._peek().isalnum():
            return [Recursive(), self._field()]
        return [Recursive()]

    def _word(self) -> Node:
        start = self.position
        while self._peek() and self._peek() not in _TERMINATORS:
            self.position += 1
        word = self._text[start : self.position]
        if word in ("true", "false"):
            return LiteralNode(word == "true")
        if self._any_word:
            return LiteralNode(word)
        if word in ("range", "end"):
            raise JSONPathError(f'"{word}" is not supported here; select the values with one expression')
        raise JSONPathError(f"unrecognized identifier {word}")

    def _number(self) -> int | float:
        start = self.position
        self.position += self._peek() in ("+", "-")
        while self._peek() == "." or self._peek().isdigit():
            self.position += 1
        text = self._text[start : self.position]
        try:
            return int(text)
        except ValueError:
            pass
        try:
            return float(text)
        except ValueError:
            raise JSONPathError(f"cannot parse number {text}") from None

    def _quoted(self, quote: str) -> str:
        start = self.position = self.position + 1
        while (character := self._peek()) != quote:
            if not character or character == "\n":
                raise JSONPathError("unterminated quoted string")
            self.position += 2 if character == "\\" else 1
        self.position += 1
        return re.sub(
            r"\\(.)", lambda match: {"n": "\n", "t": "\t", "r": "\r"}.get(match[1], match[1]), self._text[start : self.position - 1]
        )

    def _brackets(self) -> list[Node]:
        end = self._text.find("]", self.position)
        if end < 0 or "\n" in self._text[self.position : end]:
            raise JSONPathError("unterminated array")
        inside = self._text[self.position + 1 : end]
        self.position = end + 1
        if "," in inside:
            return [UnionNode(tuple(tuple(_subscript(part.strip())) for part in inside.split(",")))]
        return _subscript(inside)

    def _filter(self) -> FilterNode:
        self.position += 3
        start = self.position
        quote = ""
        while (character := self._peek()) != ")" or quote:
            if not character or character == "\n":
                raise JSONPathError("unterminated filter")
            if quote:
                quote = "" if character == quote and self._text[self.position - 1] != "\\" else quote
            elif character in "\"'":
                quote = character
            self.position += 1
        text = self._text[start : self.position]
        self.position += 1
        if self._peek() != "]":
            raise JSONPathError("unclosed array expect ]")
        self.position += 1
        compared = _COMPARISON.match(text)
        if compared is None:
            return FilterNode(_Reader(text, any_word=self._any_word).expression(""))
        left, operator, right = compared.groups()
        if operator not in _OPERATORS:
            raise JSONPathError(f"unrecognized filter operator {operator}")
        return FilterNode(
            _Reader(left, any_word=self._any_word).expression(""), operator, _Reader(right, any_word=self._any_word).expression("")
        )


def _subscript(text: str) -> list[Node]:
    """Parse the content of brackets: ``*``, a quoted member, an index or a slice."""
    if text == "*":
        return [Slice()]
    quoted = _QUOTED_KEY.match(text)
    if quoted:
        # kubectl's users escape dots in quoted names: ['a\.b'].
        return [MemberNode((quoted[1] if quoted[1] is not None else quoted[2]).replace("\\", ""))]
    match = _SLICE.match(text)
    if match is None or not text:
        raise JSONPathError(f"invalid array index {text}")
    start, stop, step = (None if part is None else part.removeprefix(":") for part in match.groups())
    try:
        numbers = [int(part) if part else None for part in (start, stop, step)]
    except ValueError:
        raise JSONPathError(f"array index {text} is not a number") from None
    return [Slice(numbers[0], numbers[1], 1 if numbers[2] is None else numbers[2], single=stop is None)]
