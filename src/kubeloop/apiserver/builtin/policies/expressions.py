"""Validates the CEL expressions of admission policies: compiles them as for evaluation, and converts errors to field errors."""

from __future__ import annotations

from kubeloop.apiserver.expressions.compiler import (
    ANNOTATION,
    CONDITION,
    CONFIGURATION,
    MESSAGE,
    OPERATIONS,
    CompiledExpression,
    ExpressionCompiler,
    ResultTypes,
)
from kubeloop.meta.field_error import Errors, FieldError, FieldErrorType, invalid


class ExpressionValidator:
    """Validates the expressions of one policy in their order: each variable may use the ones before it."""

    def __init__(self, *, params: bool, variables: bool) -> None:
        self._compiler = ExpressionCompiler(params=params, variables=variables)

    def condition(self, path: str, text: str) -> Errors:
        """Validate one of ``matchConditions``, which see no variables."""
        yield from _faults(path, self._compiler.expression(text, CONDITION, variables=False))

    def variable(self, path: str, name: str, text: str) -> Errors:
        """Validate a variable, and declare it for later expressions."""
        yield from _faults(path, self._compiler.variable(name, text))

    def check(self, path: str, text: str, result_types: ResultTypes, *, shown: str = "", authorizer: bool = True) -> Errors:
        """Validate an expression.

        Args:
            path: Path of the expression.
            text: The expression.
            result_types: Allowed result types; None allows any.
            shown: Text for messages; empty shows the expression.
            authorizer: The expression sees ``authorizer``.

        Returns:
            An error, or none.
        """
        yield from _faults(path, self._compiler.expression(text, result_types, authorizer=authorizer), shown)

    def change(self, path: str, text: str, result_types: ResultTypes) -> Errors:
        """Validate a mutation expression, which constructs an object or the operations of a patch."""
        yield from _faults(path, self._compiler.change(text, result_types))


def _faults(path: str, compiled: CompiledExpression, shown: str = "") -> Errors:
    if compiled.internal:
        yield FieldError(FieldErrorType.INTERNAL, path, None, compiled.error)
    elif compiled.error:
        yield invalid(path, shown or compiled.expression, compiled.error)


__all__ = ["ANNOTATION", "CONDITION", "CONFIGURATION", "MESSAGE", "OPERATIONS", "ExpressionValidator"]
