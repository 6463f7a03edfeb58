"""Constants that a function could never take: ``duration('x')``, ``timestamp('y')``, ``matches('(')`` are faults of the expression.

Source: cel-go cel/validator.go.
"""

from __future__ import annotations

from kubeloop.cel.checker import Checked, literal
from kubeloop.cel.faults import CompileError, EvalError, Issue, render
from kubeloop.cel.functions.moments import parse_duration, parse_timestamp
from kubeloop.cel.syntax import Call, Node, walk
from kubeloop.schema.regular import PatternError, compile_go


def check_literals(checked: Checked) -> None:
    """
    Raises:
        CompileError: naming each constant that cannot be.
    """
    found = [_fault(node) for node in walk(checked.root) if isinstance(node, Call)]
    positions = checked.parsed.positions
    issues = [Issue(positions.get(one[0].id, 0), f"invalid {one[1]} argument") for one in found if one is not None]
    if issues:
        raise CompileError(render(checked.parsed.source, issues))


def _fault(call: Call) -> tuple[Node, str] | None:
    if not call.args:
        return None
    last = call.args[-1]
    text = literal(last)
    if not isinstance(text, str):
        return None
    try:
        match call.function, len(call.args):
            case "duration", 1:
                parse_duration(text)
            case "timestamp", 1:
                parse_timestamp(text)
            case "matches", _:
                compile_go(text)
    except (EvalError, PatternError):
        return last, call.function
    return None
