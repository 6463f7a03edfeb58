"""Compiles the CEL expressions of policies and match conditions, for validation and for evaluation.

Source: k8s.io/apiserver pkg/admission/plugin/cel (compile.go, composition.go), pkg/admission/plugin/policy (ReturnTypes).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kubeloop.cel import CompileError, Environment, InstantiationError, Program, compile_expression, types
from kubeloop.cel.admission import ADMISSION_FIELDS, VARIABLES, admission_variables, variable_type
from kubeloop.cel.declared import OBJECT, OPERATION, PATCH_FUNCTIONS, patch_messages
from kubeloop.cel.types import Type

#: The result types that an expression may have; None allows any.
ResultTypes = tuple[Type, ...] | None

CONDITION: Final = (types.BOOL,)
MESSAGE: Final = (types.STRING,)
ANNOTATION: Final = (types.STRING, types.NULL)
CONFIGURATION: Final = (OBJECT,)
OPERATIONS: Final = (types.list_of(OPERATION),)


@dataclass(frozen=True, slots=True)
class CompiledExpression:
    """A compiled expression, or its error. ``internal`` is set if the types are correct but the program cannot be created."""

    expression: str
    program: Program | None = None
    error: str = ""
    internal: bool = False


class ExpressionCompiler:
    """Compiles the expressions of one policy in their order, so that each variable may use the earlier ones.

    ``params`` says whether the policy has a parameter kind. ``variables`` says whether expressions see ``variables``, even if the policy
    defines none.
    """

    def __init__(self, *, params: bool, variables: bool) -> None:
        self._params = params
        self._known: dict[str, Type] | None = {} if variables else None

    def variable(self, name: str, expression: str) -> CompiledExpression:
        """Compile a variable of the policy, and declare it for later expressions."""
        compiled = self.expression(expression, None)
        if self._known is not None:
            self._known[name] = variable_type(None if compiled.program is None else compiled.program.result)
        return compiled

    def expression(
        self, expression: str, result_types: ResultTypes, *, authorizer: bool = True, variables: bool = True
    ) -> CompiledExpression:
        """Compile an expression.

        Args:
            expression: The text in CEL.
            result_types: The types that the result may have; None allows any.
            authorizer: Whether the expression may use ``authorizer``.
            variables: Whether the expression may use ``variables``.

        Returns:
            The program, or the error.
        """
        return _compiled(expression, self._environment(authorizer=authorizer, variables=variables), result_types)

    def change(self, expression: str, result_types: ResultTypes) -> CompiledExpression:
        """Compile a mutation expression, which constructs an object or the operations of a patch."""
        plain = self._environment()
        changing = Environment(plain.variables, plain.fields, messages=patch_messages, functions=PATCH_FUNCTIONS)
        return _compiled(expression, changing, result_types)

    def _environment(self, *, authorizer: bool = True, variables: bool = True) -> Environment:
        value = admission_variables(params=types.DYN if self._params else None, authorizer=authorizer)
        if self._known is None or not variables:
            return Environment(value, ADMISSION_FIELDS)
        return Environment({**value, "variables": VARIABLES}, {**ADMISSION_FIELDS, VARIABLES.name: dict(self._known)})


def _compiled(expression: str, environment: Environment, result_types: ResultTypes) -> CompiledExpression:
    try:
        program = compile_expression(expression, environment)
    except InstantiationError as error:
        if result_types is not None and error.result not in [one.kind for one in result_types]:
            return CompiledExpression(expression, error=_misfit(result_types, error.result))
        return CompiledExpression(expression, error=f"program instantiation failed: {error}", internal=True)
    except CompileError as error:
        return CompiledExpression(expression, error=f"compilation failed: {error}")
    if result_types is not None and program.result not in result_types:
        return CompiledExpression(expression, error=_misfit(result_types, str(program.result)))
    return CompiledExpression(expression, program)


def _misfit(result_types: tuple[Type, ...], result_type: str) -> str:
    names = [_name(one) for one in result_types]
    if len(names) == 1:
        return f"must evaluate to {names[0]} but got {result_type}"
    return f"must evaluate to one of [{' '.join(names)}] but got {result_type}"


def _name(of: Type) -> str:
    return "null_type" if of == types.NULL else str(of)


# ``matchConditions`` of webhooks. Source: k8s.io/apiserver pkg/admission/plugin/webhook/matchconditions.


#: Maximum characters of a condition to cache; its program has about a hundred times as many bytes.
_LONGEST: Final = 1024


def compiled_condition(expression: str) -> CompiledExpression:
    """Compile a condition of a webhook. The error is that of kube-apiserver."""
    return _cached(expression) if len(expression) <= _LONGEST else _compile(expression)


@lru_cache(maxsize=256)
def _cached(expression: str) -> CompiledExpression:
    return _compile(expression)


def _compile(expression: str) -> CompiledExpression:
    return ExpressionCompiler(params=False, variables=False).expression(expression, CONDITION)
