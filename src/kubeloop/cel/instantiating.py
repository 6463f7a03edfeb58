"""Calls with nothing but constants that fail whenever they are evaluated: found when the program is made, as cel-go's optimiser does.

Source: cel-go interpreter/decorators.go (conversions), k8s.io/apiserver pkg/cel/library/regex.go.
"""

from __future__ import annotations

from kubeloop.cel.checker import Checked, literal
from kubeloop.cel.faults import EvalError, InstantiationError
from kubeloop.cel.functions import FUNCTIONS
from kubeloop.cel.syntax import Call, Const, walk
from kubeloop.schema.regular import PatternError, compile_go

_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})


def check_constants(checked: Checked) -> None:
    """
    Raises:
        InstantiationError: a conversion or a pattern that cannot be.
    """
    for node in walk(checked.root):
        if not isinstance(node, Call) or not node.args:
            continue
        try:
            if node.function in _CONVERSIONS and len(node.args) == 1 and node.target is None and isinstance(node.args[0], Const):
                value = node.args[0].value
                FUNCTIONS[node.function].call(value)
            elif node.function in ("find", "findAll") and isinstance(pattern := literal(node.args[0]), str):
                compile_go(pattern)
        except (EvalError, PatternError) as exc:
            raise InstantiationError(str(exc)) from None
