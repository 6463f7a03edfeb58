"""From text to syntax tree, by Google's own CEL parser (the library ``cel-expr-python``, which wraps cel-cpp).

It shares its grammar with cel-go, so syntax errors read as Kubernetes'. Its trees come as the protobuf message cel.expr.ParsedExpr
(https://github.com/google/cel-spec, proto/cel/expr/syntax.proto), read here by field number.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

from kubeloop.cel.faults import CompileError, Issue, ParserMissing, render
from kubeloop.cel.macros import expand
from kubeloop.cel.syntax import Call, Comprehension, Const, Entry, Ident, ListLiteral, MapLiteral, Node, Parsed, Select, StructLiteral, walk
from kubeloop.cel.values import UInt

_AROUND = re.compile(r"\A(?:INVALID_ARGUMENT|CANCELLED): | {1,2}\[(?:INVALID_ARGUMENT|CANCELLED)\]\Z")
#: Where cel-go prints an unknown line as -1, the other parser prints it as an unsigned number.
_UNKNOWN_LINE = "<input>:4294967295:"
#: Where the two parsers word a fault differently.
_WORDS = (
    (re.compile(r"(?<=\n)ERROR: <input>:-1:0: <<nil>> parsetree\Z"), ""),
    (re.compile(r"\AExpression recursion limit exceeded\. limit: (\d+)"), r"ERROR: <input>:-1:0: expression recursion limit exceeded: \1"),
    (
        re.compile(r"\AERROR: <input>:-1:0: Exceeded max recursion depth of (\d+) when parsing\..*", re.DOTALL),
        r"ERROR: <input>:-1:0: max recursion depth exceeded: \1",
    ),
    (
        re.compile(r"expression size exceeds codepoint limit\. input size: (\d+), limit: (\d+)"),
        r"ERROR: <input>:-1:0: expression code point size exceeds limit: size: \1, limit \2",
    ),
    (re.compile(r"(?:all|exists|exists_one|existsOne)\(\) variable name must be a simple identifier"), "argument must be a simple name"),
    (re.compile(r"(?:map|filter)\(\) variable name must be a simple identifier"), "argument is not an identifier"),
    (re.compile(r"has\(\) argument must be a field selection"), "invalid argument to has() macro"),
    (re.compile(r"'\\u003F'"), "'?'"),
)
#: Texts, bytes and comments, in which a backtick is a character like any other.
_BLANKED = re.compile(
    r"""[rR]?(?:\"\"\".*?\"\"\"|'''.*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|//[^\n]*""",
    re.DOTALL,
)


def _blank(found: re.Match[str]) -> str:
    return " " * len(found[0])


@cache
def _parser() -> Any:
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_optional
    except ImportError as exc:
        raise ParserMissing("CEL expressions need the package cel-expr-python: pip install 'kubeloop[cel]'") from exc
    return cel.NewEnv(extensions=[ext_optional.ExtOptional()])


def parse(source: str, *, bindings: bool = False) -> Parsed:
    """The syntax tree of an expression, every macro that Kubernetes knows expanded; ``cel.bind`` where there are ``bindings``.

    Raises:
        CompileError: the text is no expression.
        ParserMissing: the parser is not installed.
    """
    try:
        data: bytes = _parser().compile(_clean(source), disable_check=True).serialize()
    except RuntimeError as exc:
        if isinstance(exc, ParserMissing):
            raise
        text = _AROUND.sub("", str(exc)).replace(_UNKNOWN_LINE, "<input>:-1:")
        if not source:
            text = text.replace("<input>:1:1:", "<input>:1:0:")  # where cel-go sees the end of nothing
        for theirs, ours in _WORDS:
            text = theirs.sub(ours, text)
        raise CompileError(text.rstrip("\n")) from None
    if (tick := _BLANKED.sub(_blank, source).find("`")) >= 0:
        raise CompileError(render(source, [Issue(tick, "unsupported syntax: '`'")]))
    message = _message(_message(data)[2][0])
    tree = _node(message[2][0])
    positions: dict[int, int] = {}
    for packed in _message(message[3][0]).get(4, ()):
        entry = _message(packed)
        positions[_number(entry, 1)] = _number(entry, 2)
    for node in walk(tree):
        if isinstance(node, StructLiteral):  # cel-go takes the brace for its place
            positions[node.id] = max(source.find("{", positions.get(node.id, 0)), 0)
    parsed = Parsed(source, tree, positions)
    expand(parsed, bindings=bindings)
    return parsed


def _clean(source: str) -> str:
    """Without halves of surrogate pairs, which are no characters."""
    return source.encode("utf-8", "replace").decode()


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                value, at = _varint(data, at)
                yield key >> 3, value
            case 1:
                yield key >> 3, data[at : at + 8]
                at += 8
            case 2:
                length, at = _varint(data, at)
                yield key >> 3, data[at : at + length]
                at += length
            case wire:
                raise ValueError(f"unexpected wire type {wire} in a parsed expression")


def _message(data: bytes) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for number, value in _fields(data):
        found.setdefault(number, []).append(value)
    return found


def _number(message: dict[int, list[Any]], field: int) -> int:
    return int(message[field][-1]) if field in message else 0


def _text(message: dict[int, list[Any]], field: int) -> str:
    return str(message[field][-1], "utf-8") if field in message else ""


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _node(data: bytes) -> Node:
    message = _message(data)
    number = _signed(_number(message, 2))
    for kind in (3, 4, 5, 6, 7, 8, 9):
        if kind in message:
            return _build(number, kind, message[kind][-1])
    return Const(number, None)


def _build(number: int, kind: int, data: bytes) -> Node:
    if kind == 3:
        return Const(number, _constant(data))
    message = _message(data)
    match kind:
        case 4:
            return Ident(number, _text(message, 1))
        case 5:
            return Select(number, _node(message[1][0]), _text(message, 2), bool(_number(message, 3)))
        case 6:
            target = _node(message[1][0]) if 1 in message else None
            return Call(number, _text(message, 2), [_node(one) for one in message.get(3, ())], target)
        case 7:
            return ListLiteral(number, [_node(one) for one in message.get(1, ())], frozenset(_packed(message.get(2, []))))
        case 8:
            return _struct(number, message)
        case _:
            over, initial, condition, step, result = (_node(message[field][0]) for field in (2, 4, 5, 6, 7))
            variables = _text(message, 1), _text(message, 8)
            return Comprehension(number, variables[0], over, _text(message, 3), initial, condition, step, result, variables[1])


def _struct(number: int, message: dict[int, list[Any]]) -> Node:
    entries = []
    for data in message.get(2, ()):
        entry = _message(data)
        key: Node | str = _node(entry[3][0]) if 3 in entry else _text(entry, 2)
        entries.append(Entry(_signed(_number(entry, 1)), key, _node(entry[4][0]), bool(_number(entry, 5))))
    name = _text(message, 1)
    return StructLiteral(number, name, entries) if name else MapLiteral(number, entries)


def _packed(values: list[Any]) -> Iterator[int]:
    for value in values:
        if isinstance(value, int):
            yield value
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            yield number


def _constant(data: bytes) -> Any:
    for field, value in _fields(data):
        match field:
            case 2:
                return bool(value)
            case 3:
                return _signed(value)
            case 4:
                return UInt(value)
            case 5:
                return struct.unpack("<d", value)[0]
            case 6:
                return str(value, "utf-8")
            case 7:
                return bytes(value)
    return None
