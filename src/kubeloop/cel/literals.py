"""Constants that fit by their types and still cannot be: bad durations, timestamps and patterns, format strings, mixed literals.

Source: cel-go cel/validator.go, ext/formatting.go (stringFormatValidator).
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.cel.checker import Checked, literal
from kubeloop.cel.faults import CompileError, EvalError, Issue, render
from kubeloop.cel.functions.formatting import clauses, fits
from kubeloop.cel.functions.moments import parse_duration, parse_timestamp
from kubeloop.cel.syntax import Call, ListLiteral, MapLiteral, Node, walk
from kubeloop.cel.types import Type, unwrap_optional
from kubeloop.schema.patterns import go_pattern
from kubeloop.schema.regular import PatternError


def check_literals(checked: Checked) -> None:
    """
    Raises:
        CompileError: naming each constant that cannot be.
    """
    positions = checked.parsed.positions
    issues = [Issue(positions.get(node.id, 0), text) for node, text in _faults(checked)]
    if issues:
        raise CompileError(render(checked.parsed.source, issues))


def _faults(checked: Checked) -> Iterator[tuple[Node, str]]:
    exempt: set[int] = set()
    for node in walk(checked.root):
        if isinstance(node, Call) and node.function == "format":
            exempt.update(one.id for one in walk(node))
    for node in walk(checked.root):
        match node:
            case Call():
                yield from _constant(node)
                yield from _format(node, checked)
            case ListLiteral() if node.id not in exempt:
                yield from _mixed(node.elements, [index in node.optional for index in range(len(node.elements))], checked)
            case MapLiteral() if node.id not in exempt:
                keys = [one.key for one in node.entries if not isinstance(one.key, str)]
                yield from _mixed(keys, [False] * len(keys), checked)
                yield from _mixed([one.value for one in node.entries], [one.optional for one in node.entries], checked)


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


def _constant(call: Call) -> Iterator[tuple[Node, str]]:
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


def _format(call: Call, checked: Checked) -> Iterator[tuple[Node, str]]:
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
