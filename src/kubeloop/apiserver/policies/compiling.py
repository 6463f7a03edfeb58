"""Expressions of policies and of match conditions, compiled: for what is checked when they are written, and for their evaluation.

Source: k8s.io/apiserver pkg/admission/plugin/cel (compile.go, composition.go), pkg/admission/plugin/policy (ReturnTypes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubeloop.apiserver.policies.activation import ADMISSION_FIELDS, admission_variables
from kubeloop.cel import CompileError, Environment, InstantiationError, Program, compile_expression, types
from kubeloop.cel.patches import OBJECT, OPERATION, PATCH_FUNCTIONS, patch_messages
from kubeloop.cel.types import Type

#: What an expression must give; None: anything will do.
Wanted = tuple[Type, ...] | None

CONDITION: Final = (types.BOOL,)
MESSAGE: Final = (types.STRING,)
ANNOTATION: Final = (types.STRING, types.NULL)
CONFIGURATION: Final = (OBJECT,)
OPERATIONS: Final = (types.list_of(OPERATION),)

_VARIABLES: Final = types.struct("kubernetes.variables")
#: Types that a variable keeps; the value of another is anything to whoever uses it.
_KEPT: Final = {types.BOOL, types.BYTES, types.DOUBLE, types.DURATION, types.INT, types.NULL, types.STRING, types.TIMESTAMP, types.UINT}


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression and its program, or why there is none. ``internal``: it is well-typed, and still cannot be evaluated."""

    expression: str
    program: Program | None = None
    fault: str = ""
    internal: bool = False


class Compiler:
    """Compiles the expressions of one policy, in the order in which it has them: each variable may use those before it.

    ``params``: the policy has a kind of parameters. ``variables``: expressions know ``variables``, were there none.
    """

    def __init__(self, *, params: bool, variables: bool) -> None:
        self._params = params
        self._known: dict[str, Type] | None = {} if variables else None

    def variable(self, name: str, expression: str) -> Compiled:
        found = self.expression(expression, None)
        if self._known is not None:
            self._known[name] = _kept(None if found.program is None else found.program.result)
        return found

    def expression(self, expression: str, wanted: Wanted, *, authorizer: bool = True, variables: bool = True) -> Compiled:
        """``variables`` False: one that sees none."""
        return _compiled(expression, self._environment(authorizer=authorizer, variables=variables), wanted)

    def change(self, expression: str, wanted: Wanted) -> Compiled:
        """An expression that constructs objects or operations of a patch."""
        plain = self._environment()
        changing = Environment(plain.variables, plain.fields, messages=patch_messages, functions=PATCH_FUNCTIONS)
        return _compiled(expression, changing, wanted)

    def _environment(self, *, authorizer: bool = True, variables: bool = True) -> Environment:
        found = admission_variables(params=self._params, authorizer=authorizer)
        if self._known is None or not variables:
            return Environment(found, ADMISSION_FIELDS)
        return Environment({**found, "variables": _VARIABLES}, {**ADMISSION_FIELDS, _VARIABLES.name: dict(self._known)})


def _kept(result: Type | None) -> Type:
    if result in _KEPT and result is not None:
        return result
    if result is not None and result.kind in ("list", "map"):
        return Type(result.kind, result.name, tuple(_kept(one) for one in result.parameters))
    return types.DYN


def _compiled(expression: str, environment: Environment, wanted: Wanted) -> Compiled:
    try:
        program = compile_expression(expression, environment)
    except InstantiationError as fault:
        if wanted is not None and fault.result not in [one.kind for one in wanted]:
            return Compiled(expression, fault=_misfit(wanted, fault.result))
        return Compiled(expression, fault=f"program instantiation failed: {fault}", internal=True)
    except CompileError as fault:
        return Compiled(expression, fault=f"compilation failed: {fault}")
    if wanted is not None and program.result not in wanted:
        return Compiled(expression, fault=_misfit(wanted, str(program.result)))
    return Compiled(expression, program)


def _misfit(wanted: tuple[Type, ...], found: str) -> str:
    names = [_name(one) for one in wanted]
    if len(names) == 1:
        return f"must evaluate to {names[0]} but got {found}"
    return f"must evaluate to one of [{' '.join(names)}] but got {found}"


def _name(of: Type) -> str:
    return "null_type" if of == types.NULL else str(of)
