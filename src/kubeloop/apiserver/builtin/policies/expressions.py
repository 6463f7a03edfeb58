"""The CEL expressions of admission policies: what is wrong with them, as field errors. Compiled as they are for evaluation."""

from __future__ import annotations

from kubeloop.apiserver.expressions.compiler import (
    ANNOTATION,
    CONDITION,
    CONFIGURATION,
    MESSAGE,
    OPERATIONS,
    Compiled,
    Compiler,
    ResultTypes,
)
from kubeloop.meta.field_error import Errors, FieldError, FieldErrorType, invalid


class Expressions:
    """The expressions of one policy, in the order in which it has them: each variable may use those before it."""

    def __init__(self, *, params: bool, variables: bool) -> None:
        self._compiler = Compiler(params=params, variables=variables)

    def condition(self, path: str, text: str) -> Errors:
        """One of ``matchConditions``: these see no variables."""
        yield from _faults(path, self._compiler.expression(text, CONDITION, variables=False))

    def variable(self, path: str, name: str, text: str) -> Errors:
        yield from _faults(path, self._compiler.variable(name, text))

    def check(self, path: str, text: str, wanted: ResultTypes, *, shown: str = "", authorizer: bool = True) -> Errors:
        """``shown`` is the text in messages, where that is not what is compiled."""
        yield from _faults(path, self._compiler.expression(text, wanted, authorizer=authorizer), shown)

    def change(self, path: str, text: str, wanted: ResultTypes) -> Errors:
        """An expression that constructs objects or operations of a patch."""
        yield from _faults(path, self._compiler.change(text, wanted))


def _faults(path: str, compiled: Compiled, shown: str = "") -> Errors:
    if compiled.internal:
        yield FieldError(FieldErrorType.INTERNAL, path, None, compiled.fault)
    elif compiled.fault:
        yield invalid(path, shown or compiled.expression, compiled.fault)


__all__ = ["ANNOTATION", "CONDITION", "CONFIGURATION", "MESSAGE", "OPERATIONS", "Expressions"]
