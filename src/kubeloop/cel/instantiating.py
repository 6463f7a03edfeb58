"""Calls with nothing but constants that fail whenever they are evaluated: found when the program is made, as cel-go's optimiser does.

Source: cel-go interpreter/decorators.go (conversions), k8s.io/apiserver pkg/cel/library/regex.go.
"""

from __future__ import annotations

from typing import Any

from kubeloop.cel.checker import Checked, literal
from kubeloop.cel.faults import EvalError, InstantiationError
from kubeloop.cel.functions import FUNCTIONS
from kubeloop.cel.syntax import Call, Const, ListLiteral, MapLiteral, Node, children
from kubeloop.cel.values import as_key, is_key
from kubeloop.schema.patterns import go_pattern
from kubeloop.schema.regular import PatternError

_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})


def check_constants(checked: Checked) -> None:
    """
    Raises:
        InstantiationError: a conversion or a pattern that cannot be.
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
    """The value of a node that is the same whenever it is evaluated, for those kinds of nodes that upstream evaluates beforehand."""
    below = [_fold(one) for one in children(node)]
    match node:
        case Const():
            return node.value
        case ListLiteral() if not node.optional and not _varies(below):
            return below
        case MapLiteral() if not _varies(below) and not any(one.optional for one in node.entries):
            if all(map(is_key, below[::2])):
                return {as_key(key): value for key, value in zip(below[::2], below[1::2], strict=True)}
        case Call() if node.function == "_[_]" and below[1] is None:
            raise EvalError("invalid qualifier type: types.Null")
        case Call() if node.function in _CONVERSIONS and len(below) == 1 and node.target is None and below[0] is not _VARIES:
            return FUNCTIONS[node.function].call(below[0])
        case Call() if node.function in ("find", "findAll") and isinstance(pattern := literal(node.args[0]), str):
            go_pattern(pattern)
    return _VARIES
