"""Checks the constants of an expression before it runs: regular expressions, times, durations, quantities and other literals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.cel.checker import Checked, literal
from kubeloop.cel.faults import CompileError, EvalError, InstantiationError, Issue, render
from kubeloop.cel.functions import FUNCTIONS
from kubeloop.cel.functions.formatting import clauses, fits
from kubeloop.cel.functions.timestamps import parse_duration, parse_timestamp
from kubeloop.cel.syntax import CallNode, Const, EntryNode, ListLiteral, MapLiteral, Node, children, walk
from kubeloop.cel.types import Type, unwrap_optional
from kubeloop.cel.values import as_key, check_qualifier, is_key
from kubeloop.schema.go_regex import PatternError
from kubeloop.schema.patterns import go_pattern

# Calls with constant arguments that always fail are found when the program is created, as cel-go's optimiser finds them.
#
# Source: cel-go interpreter/decorators.go (conversions), k8s.io/apiserver pkg/cel/library/regex.go.


_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})


def check_constants(checked: Checked) -> None:
    """Check the constant arguments of conversions and of regular expressions.

    Raises:
        InstantiationError: A constant conversion or pattern always fails.
    """
    try:
        _fold(checked.root)
    except (EvalError, PatternError) as exc:
        raise InstantiationError(str(exc), checked.result.kind) from None


class _NotConstant:
    pass


_VARIES = _NotConstant()


def _varies(values: list[Any]) -> bool:
    return any(one is _VARIES for one in values)


def _fold(node: Node) -> Any:
    """Return the value of a constant node that upstream evaluates before the program runs; ``_VARIES`` for any other node."""
    below = [_fold(one) for one in children(node)]
    match node:
        case Const():
            return node.value
        case ListLiteral() if not node.optional and not _varies(below):
            return below
        case MapLiteral() if not _varies(below) and not any(one.optional for one in node.entries):
            if all(map(is_key, below[::2])):
                return {as_key(key): value for key, value in zip(below[::2], below[1::2], strict=True)}
        case CallNode() if node.function in ("_[_]", "_[?_]") and below[1] is not _VARIES:
            check_qualifier(below[1])
        case CallNode() if node.function in _CONVERSIONS and len(below) == 1 and node.target is None and below[0] is not _VARIES:
            return FUNCTIONS[node.function].call(below[0])
        case CallNode() if node.function in ("find", "findAll") and isinstance(pattern := literal(node.args[0]), str):
            go_pattern(pattern)
    return _VARIES


# Constants of the right type that are still invalid: bad durations, timestamps and patterns, format strings, mixed literals.
#
# Source: cel-go cel/validator.go, ext/formatting.go (stringFormatValidator).


def check_literals(checked: Checked) -> None:
    """Check the literals of an expression: times, patterns, format strings, and lists and maps of mixed types.

    Raises:
        CompileError: Some constants are invalid; the message names each.
    """
    positions = checked.parsed.positions
    issues = [Issue(positions.get(node.id, 0), text) for node, text in _faults(checked)]
    if issues:
        raise CompileError(render(checked.parsed.source, issues))


def _faults(checked: Checked) -> Iterator[tuple[Node, str]]:
    exempt: set[int] = set()
    for node in walk(checked.root):
        if isinstance(node, CallNode) and node.function == "format":
            exempt.update(one.id for one in walk(node))
    for node in walk(checked.root):
        match node:
            case CallNode():
                yield from _constant(node)
                yield from _format(node, checked)
            case ListLiteral() if node.id not in exempt:
                yield from _mixed(node.elements, [index in node.optional for index in range(len(node.elements))], checked)
            case MapLiteral() if node.id not in exempt:
                yield from _mixed_entries(node.entries, checked)


def _mixed(nodes: list[Node], optional: list[bool], checked: Checked) -> Iterator[tuple[Node, str]]:
    first: Type | None = None
    for node, unwrap in zip(nodes, optional, strict=True):
        of = checked.types[node.id]
        of = unwrap_optional(of)[0] if unwrap else of
        if first is None:
            first = of
        elif of != first:
            yield node, f"expected type '{first}' but found '{of}'"
            return


def _mixed_entries(entries: list[EntryNode], checked: Checked) -> Iterator[tuple[Node, str]]:
    """Yield an error for each key or value of another type than the first key or value; ``_mixed`` yields only the first error."""
    keys: Type | None = None
    values: Type | None = None
    for entry in entries:
        if isinstance(entry.key, str):
            continue
        key, value = checked.types[entry.key.id], checked.types[entry.value.id]
        value = unwrap_optional(value)[0] if entry.optional else value
        keys, values = keys or key, values or value
        if key != keys:
            yield entry.key, f"expected type '{keys}' but found '{key}'"
        if value != values:
            yield entry.value, f"expected type '{values}' but found '{value}'"


def _constant(call: CallNode) -> Iterator[tuple[Node, str]]:
    text = literal(call.args[-1]) if call.args else None
    if not isinstance(text, str):
        return
    try:
        match call.function, len(call.args):
            case "duration", 1:
                parse_duration(text)
            case "timestamp", 1:
                parse_timestamp(text)
            case "matches", 1:
                go_pattern(text)
    except (EvalError, PatternError):
        yield call.args[-1], f"invalid {call.function} argument"


def _format(call: CallNode, checked: Checked) -> Iterator[tuple[Node, str]]:
    text = literal(call.target) if call.target is not None else None
    if call.function != "format" or not isinstance(text, str) or not isinstance(call.args[0], ListLiteral):
        return
    given = call.args[0].elements
    used = 0
    try:
        for verb in clauses(text):
            if used >= len(given):
                yield call, f"index {used} out of range"
                return
            at = given[used]
            fault = fits(verb, checked.types[at.id])
            if fault:
                yield at, f"error during formatting: {fault}"
                return
            used += 1
    except EvalError as exc:
        yield call, str(exc)
        return
    if len(given) > used:
        yield call, f"too many arguments supplied to string.format (expected {used}, got {len(given)})"
