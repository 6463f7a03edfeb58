"""Parses text into a syntax tree by operator precedence, with an explicit stack, so that deep nesting needs no recursion.

Node positions, the balancing of ``&&`` chains and the nesting limit are cel-go's (parser/parser.go).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from kubeloop.cel.faults import Issue, TooDeep
from kubeloop.cel.syntax import MOST_LEVELS, CallNode, Const, EntryNode, Ident, ListLiteral, MapLiteral, Node, Parsed, Select, StructLiteral
from kubeloop.cel.tokens import (
    NO_IDENTIFIER,
    OPERANDS,
    RESERVED,
    SyntaxErrorReport,
    Token,
    bytes_of,
    double_of,
    escaped,
    integer_of,
    text_of,
    tokens,
    too_much,
    unexpected,
)
from kubeloop.cel.values import UInt

_TERNARY, _OR, _AND, _RELATION, _SUM, _PRODUCT = range(6)
_BINARY: Final = {
    "||": (_OR, "_||_"), "&&": (_AND, "_&&_"),
    "<": (_RELATION, "_<_"), "<=": (_RELATION, "_<=_"), ">": (_RELATION, "_>_"), ">=": (_RELATION, "_>=_"),
    "==": (_RELATION, "_==_"), "!=": (_RELATION, "_!=_"), "in": (_RELATION, "@in"),
    "+": (_SUM, "_+_"), "-": (_SUM, "_-_"), "*": (_PRODUCT, "_*_"), "/": (_PRODUCT, "_/_"), "%": (_PRODUCT, "_%_"),
}  # fmt: skip
_RULES: Final = ("", "", "", "relation", "sum", "sum")
_PREFIX: Final = {"!": "!_", "-": "-_"}
_SIGNED: Final = (*(kind for kind in OPERANDS if kind not in ("-", "!")),)
_CLOSED_AT_ONCE: Final = ("paren", "call", "index")
_CLOSES: Final = {"(": ")", "[": "]", "{": "}"}


@dataclass(slots=True)
class _Operator:
    rank: int
    function: str
    at: int


@dataclass(slots=True)
class _Frame:
    """The content of one pair of brackets. ``kind``: start, paren, call, index, list, map or message."""

    kind: str
    at: int
    closes: str
    name: str = ""
    target: Node | None = None
    operands: list[Node] = field(default_factory=list)
    operators: list[_Operator] = field(default_factory=list)
    #: Prefix signs of the present operand: ``!`` or ``-``, their number, and the position of the first.
    prefix: tuple[str, int, int] | None = None
    #: How many of the open ternaries still lack their colon: none or one.
    lacks_colon: bool = False
    elements: list[Node] = field(default_factory=list)
    optional: set[int] = field(default_factory=set)
    entries: list[EntryNode] = field(default_factory=list)
    #: In a map or message: the key just read, the position of its colon, and whether it is optional.
    key: Node | str | None = None
    colon: int = 0
    key_optional: bool = False
    fresh: bool = True


def read(source: str) -> tuple[Parsed, list[Issue]]:
    """Return the syntax tree with unexpanded macros, and errors for tokens that the grammar allows but CEL does not.

    Raises:
        SyntaxErrorReport: The text has a syntax error.
        TooDeep: The text nests too deeply.
    """
    reader = _Reader(source)
    root = reader.run()
    return Parsed(source, root, reader.positions), reader.issues


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.words, self.issues = tokens(source)
        self.index = 0
        self.positions: dict[int, int] = {}
        self.frames = [_Frame("start", 0, "end")]
        self.next = 1
        #: The present nesting of each grammar rule; "level" counts all of them.
        self.levels = {"level": 1, "relation": 0, "sum": 0, "": 0}

    @property
    def word(self) -> Token:
        return self.words[self.index]

    def ahead(self, steps: int) -> str:
        return self.words[min(self.index + steps, len(self.words) - 1)].kind

    def id(self, at: int) -> int:
        number, self.next = self.next, self.next + 1
        self.positions[number] = at
        return number

    def issue(self, at: int, text: str) -> None:
        self.issues.append(Issue(at, text))

    def fail(self, *expected: str) -> SyntaxErrorReport:
        return SyntaxErrorReport(
            [*self.issues, Issue(self.word.at, unexpected(self.word, self.ahead(1), expected, completes=self._completes()))]
        )

    def no_viable_alternative(self, begin: Token) -> SyntaxErrorReport:
        """Return the syntax error for the tokens from ``begin`` to the current one, with which no expression can begin."""
        word = self.word
        text = self.source[begin.at : word.at + len(word.text) if word.kind != "end" else None]
        said = f"no viable alternative at input '{escaped(text)}'"
        if word.kind in ("true", "false", "null") and len(text) == len(word.text) + 1:
            said = f"mismatched input '{word.text}' expecting IDENTIFIER"
        return SyntaxErrorReport([*self.issues, Issue(word.at, f"Syntax error: {said}")])

    def skip(self, *expected: str) -> None:
        """Record an error and skip a superfluous token, if one of the expected tokens follows it.

        Raises:
            SyntaxErrorReport: No expected token follows.
        """
        fault = self.fail(*expected)
        if self.word.kind == "end" or self.ahead(1) not in expected:
            raise fault
        self.issues.append(fault.issues[-1])
        self.index += 1

    def _completes(self) -> bool:
        """Return whether only closing brackets are missing at the end of the text."""
        if self.word.kind != "end" or [one.kind for one in self.frames[:-1]] != ["start"]:
            return False
        return self.frames[-1].kind in _CLOSED_AT_ONCE or self.words[self.index - 1].kind == ","

    def take(self, kind: str) -> Token:
        if self.word.kind != kind:
            self.skip(kind)
        word = self.word
        self.index += 1
        return word

    def run(self) -> Node:
        operand = self._operand()
        while True:
            # An operand was read, unless a bracket was opened.
            while operand is None:
                operand = self._operand()
            operand = self._after(operand)
            if operand is not None and self._is_done():
                return operand

    def _is_done(self) -> bool:
        frame = self.frames[-1]
        return frame.kind == "start" and self.word.kind == "end" and not frame.operators and frame.prefix is None

    # -- operands

    def _operand(self) -> Node | None:
        """Read the operand that begins at the current token. Return None if it opened a bracket, whose content comes next."""
        frame = self.frames[-1]
        if frame.fresh:
            frame.fresh = False
            if (closed := self._begin(frame)) is not None:
                return closed
        self._signs(frame)
        word = self.word
        match word.kind:
            case "(":
                self._open("paren")
            case "[":
                self._open("list")
            case "{":
                self._open("map")
            case "name" | ".":
                return self._name()
            case _:
                return self._literal()
        return None

    def _signs(self, frame: _Frame) -> None:
        sign = self.word.kind
        if sign not in _PREFIX or (sign == "-" and self.ahead(1) in ("int", "float")):
            return
        first, count = self.word.at, 0
        while self.word.kind == sign:
            self.index += 1
            count += 1
        frame.prefix = sign, count, first
        if sign == "-" and self.word.kind not in _SIGNED:
            fault = self.no_viable_alternative(self.words[self.index - 1])
            raise SyntaxErrorReport([*fault.issues, self.fail(*OPERANDS).issues[-1]])
        if sign == "!" and self.word.kind not in OPERANDS:
            raise SyntaxErrorReport([*self.issues, Issue(self.word.at, too_much(self.word, OPERANDS))])
        if sign == "!" and self.word.kind == "-" and self.ahead(1) not in ("int", "float"):
            minus = self.word
            self.index += 1
            raise self.no_viable_alternative(minus)

    def _begin(self, frame: _Frame) -> Node | None:
        """Read the ``?`` or field name that begins an element or entry. Return the node of a bracket that is already closed, else None."""
        word = self.word
        if word.kind == frame.closes and frame.kind in ("call", "list", "map", "message"):
            return self._close()
        if word.kind == "," and self.ahead(1) == frame.closes and frame.kind in ("list", "map", "message") and self._is_empty(frame):
            self.index += 1
            return self._close()
        if word.kind == "?" and (frame.kind in ("list", "message") or (frame.kind == "map" and frame.key is None)):
            self.index += 1
            frame.key_optional = True
        elif word.kind == "?" and frame.kind == "index":
            self.index += 1
            frame.name = "_[?_]"
        elif frame.kind in ("list", "map") and not self._is_empty(frame) and self.word.kind not in OPERANDS:
            self.skip(frame.closes)
            return self._close()
        if frame.kind == "message" and frame.key is None:
            if self._is_empty(frame) and self.word.kind not in ("name", "quoted"):
                self.skip("}", ",", "?", "name", "quoted")
            name = self.word if self.word.kind == "quoted" else self.take("name")
            self.index += name.kind == "quoted"
            frame.key = self._quoted(name)
            frame.colon = self.take(":").at
        return None

    @staticmethod
    def _is_empty(frame: _Frame) -> bool:
        return not (frame.elements or frame.entries)

    def _quoted(self, name: Token) -> str:
        if name.kind == "quoted":
            self.issue(name.at, "unsupported syntax: '`'")
        return name.text

    def _open(self, kind: str, *, name: str = "", target: Node | None = None) -> None:
        opening = self.word
        self.index += 1
        self.frames.append(_Frame(kind, opening.at, _CLOSES[opening.kind], name, target))
        self._deepen("level")

    def _deepen(self, rule: str) -> None:
        self.levels[rule] += 1
        if self.levels["level"] + max(self.levels["relation"], self.levels["sum"]) > MOST_LEVELS:
            raise TooDeep

    def _name(self) -> Node | None:
        start = self.word
        dot = ""
        if start.kind == ".":
            self.index += 1
            dot = "."
            if self.word.kind != "name":
                raise self.no_viable_alternative(start)
        if self._is_message():
            names = [self.take("name").text]
            while self.word.kind == ".":
                self.index += 1
                names.append(self.take("name").text)
            self._open("message", name=dot + ".".join(names))
            return None
        name = self.take("name")
        reserved = name.text in RESERVED
        if reserved:
            self.issue(start.at, f"reserved identifier: {name.text}")
        if self.word.kind == "(":
            self._open("call", name=dot + name.text)
            return None
        # Macros do not accept a reserved word as a name.
        return Const(self.id(name.at), None) if reserved else Ident(self.id(name.at), dot + name.text)

    def _is_message(self) -> bool:
        steps = 0
        while self.ahead(steps) == "name":
            if self.ahead(steps + 1) == "{":
                return True
            if self.ahead(steps + 1) != ".":
                return False
            steps += 2
        return False

    def _literal(self) -> Node | None:
        """Read a literal. Return None if a superfluous token was skipped and the operand is still to be read."""
        start = self.word
        if start.kind == "-":
            self.index += 1
        word = self.word
        self.index += 1
        text = ("-" if start.kind == "-" else "") + word.text
        value: Any = None
        try:
            match word.kind:
                case "int":
                    value = integer_of(text, -(2**63), 2**63 - 1)
                case "uint":
                    value = UInt(integer_of(text[:-1], 0, 2**64 - 1))
                case "float":
                    value = double_of(text)
                case "string":
                    value = text_of(text)
                case "bytes":
                    value = bytes_of(text[1:])
                case "true" | "false":
                    value = word.kind == "true"
                case "null":
                    pass
                case _:
                    self.index -= 1
                    self.skip(*OPERANDS, *self._instead())
                    return None
        except ValueError as exc:
            numbers = {"int": "invalid int literal", "uint": "invalid uint literal", "float": "invalid double literal"}
            self.issue(start.at, numbers.get(word.kind, str(exc)))
        return Const(self.id(start.at), value)

    def _instead(self) -> tuple[str, ...]:
        """Return the tokens that are allowed here besides an operand: the end of an empty bracket, an optional element's ``?``."""
        frame = self.frames[-1]
        if self.words[self.index - 1].kind not in ("(", "[") or not self._is_empty(frame) or frame.operators:
            return ()
        return {"call": (")",), "index": ("?",), "list": ("]", ",", "?")}.get(frame.kind, ())

    # -- what follows an operand

    def _after(self, operand: Node) -> Node | None:
        """Read the token that follows an operand. Return the extended operand, or None if another operand must be read first."""
        frame, word = self.frames[-1], self.word
        if word.kind == ".":
            return self._member(operand)
        if word.kind == "[":
            self._open("index", name="_[_]", target=operand)
            return None
        if frame.prefix is not None:
            sign, count, at = frame.prefix
            frame.prefix = None
            if count % 2:
                operand = CallNode(self.id(at), _PREFIX[sign], [operand])
        if word.kind in _BINARY:
            rank, function = _BINARY[word.kind]
            self._push(frame, operand, rank, function, word)
            return None
        if word.kind == "?":
            if frame.lacks_colon:
                raise self.fail(":")
            self._push(frame, operand, _TERNARY, "?", word)
            frame.lacks_colon = True
            return None
        if word.kind == ":" and frame.lacks_colon:
            operand = self._reduce(frame, operand, _OR)
            frame.lacks_colon = False
            frame.operands.append(operand)
            frame.operators.append(_Operator(_TERNARY, ":", word.at))
            self.index += 1
            self._deepen("level")
            return None
        return self._end(frame, operand)

    def _member(self, operand: Node) -> Node | None:
        dot = self.take(".")
        if self.word.kind == "?":
            self.index += 1
            name = self.word
            if name.kind not in ("name", "quoted"):
                fault = self.fail("name", "quoted")
                raise SyntaxErrorReport([*fault.issues, Issue(name.at, NO_IDENTIFIER)])
            self.index += 1
            field_name = Const(self.id(name.at), self._quoted(name))
            return CallNode(self.id(dot.at), "_?._", [operand, field_name])
        name = self.word
        if name.kind not in ("name", "quoted"):
            fault = self.no_viable_alternative(dot)
            if name.kind not in _BINARY or name.kind == "-":
                raise fault
            self.issues.append(fault.issues[-1])  # continue as if there were no dot
            return operand
        self.index += 1
        if name.kind == "name" and self.word.kind == "(":
            self._open("call", name=name.text, target=operand)
            return None
        return Select(self.id(dot.at), operand, self._quoted(name))

    def _push(self, frame: _Frame, operand: Node, rank: int, function: str, word: Token) -> None:
        # Chains of && and || are collected and balanced at their end; stronger operators, and equal ones from the left, are reduced here.
        operand = self._reduce(frame, operand, rank + 1 if rank in (_OR, _AND) else max(rank, _OR))
        frame.operands.append(operand)
        frame.operators.append(_Operator(rank, function, word.at))
        self.index += 1
        self._deepen(_RULES[rank])

    def _reduce(self, frame: _Frame, operand: Node, least: int) -> Node:
        """Combine ``operand`` with the pending operators that bind at least as strongly as ``least`` and return the resulting node."""
        while frame.operators and frame.operators[-1].rank >= least:
            rank = frame.operators[-1].rank
            if rank in (_OR, _AND):
                operand = self._chain(frame, operand, rank)
                continue
            operator = frame.operators.pop()
            left = frame.operands.pop()
            self.levels["level" if operator.function == ":" else _RULES[rank]] -= 1
            if operator.function == ":":
                question, condition = frame.operators.pop(), frame.operands.pop()
                operand = CallNode(self.id(question.at), "_?_:_", [condition, left, operand])
            else:
                operand = CallNode(self.id(operator.at), operator.function, [left, operand])
        return operand

    def _chain(self, frame: _Frame, last: Node, rank: int) -> Node:
        terms, operators = [last], []
        while frame.operators and frame.operators[-1].rank == rank:
            operators.append(frame.operators.pop())
            terms.append(frame.operands.pop())
        terms.reverse()
        operators.reverse()

        def balanced(low: int, high: int) -> Node:
            middle = (low + high + 1) // 2
            left = terms[middle] if middle == low else balanced(low, middle - 1)
            right = terms[middle + 1] if middle == high else balanced(middle + 1, high)
            return CallNode(self.id(operators[middle].at), operators[middle].function, [left, right])

        return balanced(0, len(operators) - 1)

    def _end(self, frame: _Frame, operand: Node) -> Node | None:
        """Handle the comma, colon or closing bracket that follows an operand."""
        if frame.lacks_colon:
            raise self.fail(":")
        operand = self._reduce(frame, operand, _TERNARY)
        word = self.word
        if word.kind == ":" and frame.kind == "map" and frame.key is None:
            frame.key, frame.colon = operand, word.at
            self.index += 1
            return None
        if frame.kind in ("map", "message"):
            if frame.key is None:
                self._missing_colon(frame, operand)
                return None
            frame.entries.append(EntryNode(self.id(frame.colon), frame.key, operand, frame.key_optional))
            frame.key, frame.key_optional = None, False
        elif frame.kind in ("list", "call"):
            if frame.key_optional:
                frame.optional.add(len(frame.elements))
                frame.key_optional = False
            frame.elements.append(operand)
        if word.kind == "," and frame.kind in ("list", "call", "map", "message"):
            self.index += 1
            if self.word.kind != frame.closes or frame.kind == "call":
                frame.fresh = frame.kind != "call"
                return None
        if self.word.kind != frame.closes:
            more = (",",) if frame.kind in ("list", "map", "message") and self.word is word else ()
            self.skip(frame.closes, *more)
            if self.word.kind == ",":
                return self._end_again(frame)
        return operand if frame.kind == "start" else self._close(operand)

    def _missing_colon(self, frame: _Frame, key: Node) -> None:
        word = self.word
        if word.kind not in OPERANDS or self.ahead(1) == ":":
            self.skip(":")
            self.take(":")
        else:
            self.issues.append(Issue(word.at, f"Syntax error: missing ':' at '{escaped(word.text)}'"))
        frame.key, frame.colon = key, word.at

    def _end_again(self, frame: _Frame) -> Node | None:
        """Handle a comma that follows an element and a skipped token."""
        self.index += 1
        frame.fresh = True
        return None

    def _close(self, operand: Node | None = None) -> Node:
        frame = self.frames.pop()
        self.levels["level"] -= 1
        self.take(frame.closes)
        match frame.kind:
            case "paren":
                assert operand is not None
                return operand
            case "index":
                assert operand is not None and frame.target is not None  # noqa: PT018
                return CallNode(self.id(frame.at), frame.name, [frame.target, operand])
            case "list":
                return ListLiteral(self.id(frame.at), frame.elements, frozenset(frame.optional))
            case "map":
                return MapLiteral(self.id(frame.at), frame.entries)
            case "message":
                return StructLiteral(self.id(frame.at), frame.name, frame.entries)
            case _:
                return CallNode(self.id(frame.at), frame.name, frame.elements, frame.target)
