"""The CEL expressions of admission policies, compiled to say what is wrong with them.

Source: k8s.io/apiserver pkg/admission/plugin/cel (compile.go, composition.go), pkg/admission/plugin/policy (ReturnTypes).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubeloop.apiserver.webhooks.admission_variables import ADMISSION_FIELDS, admission_variables
from kubeloop.cel import CompileError, Environment, InstantiationError, compile_expression, types
from kubeloop.cel.patches import OBJECT, OPERATION, PATCH_FUNCTIONS, patch_messages
from kubeloop.cel.types import Type
from kubeloop.meta.field_error import FieldError, FieldErrorType, invalid

Errors = Iterator[FieldError]

CONDITION: Final = (types.BOOL,)
MESSAGE: Final = (types.STRING,)
ANNOTATION: Final = (types.STRING, types.NULL)
CONFIGURATION: Final = (OBJECT,)
OPERATIONS: Final = (types.list_of(OPERATION),)

_VARIABLES: Final = types.struct("kubernetes.variables")
#: Types that a variable keeps; the value of another is anything to whoever uses it.
_KEPT: Final = {types.BOOL, types.BYTES, types.DOUBLE, types.DURATION, types.INT, types.NULL, types.STRING, types.TIMESTAMP, types.UINT}


class Expressions:
    """The expressions of one policy, in the order in which it has them: each variable may use those before it."""

    def __init__(self, *, params: bool, variables: bool) -> None:
        self._params = params
        self._known: dict[str, Type] | None = {} if variables else None

    def condition(self, path: str, text: str) -> Errors:
        """One of ``matchConditions``: these see no variables."""
        yield from _faults(path, text, text, Environment(admission_variables(params=self._params), ADMISSION_FIELDS), CONDITION)

    def variable(self, path: str, name: str, text: str) -> Errors:
        result, faults = _compiled(path, text, text, self._environment(), None)
        if self._known is not None:
            self._known[name] = _kept(result)
        yield from faults

    def check(self, path: str, text: str, wanted: tuple[Type, ...], *, shown: str = "", authorizer: bool = True) -> Errors:
        """``shown`` is the text in messages, where that is not what is compiled."""
        yield from _faults(path, text, shown or text, self._environment(authorizer=authorizer), wanted)

    def change(self, path: str, text: str, wanted: tuple[Type, ...]) -> Errors:
        """An expression that constructs objects or operations of a patch."""
        plain = self._environment()
        yield from _faults(
            path, text, text, Environment(plain.variables, plain.fields, messages=patch_messages, functions=PATCH_FUNCTIONS), wanted
        )

    def _environment(self, *, authorizer: bool = True) -> Environment:
        variables = admission_variables(params=self._params, authorizer=authorizer)
        if self._known is None:
            return Environment(variables, ADMISSION_FIELDS)
        return Environment({**variables, "variables": _VARIABLES}, {**ADMISSION_FIELDS, _VARIABLES.name: dict(self._known)})


def _kept(result: Type | None) -> Type:
    if result in _KEPT and result is not None:
        return result
    if result is not None and result.kind in ("list", "map"):
        return Type(result.kind, result.name, tuple(_kept(one) for one in result.parameters))
    return types.DYN


def _faults(path: str, text: str, shown: str, environment: Environment, wanted: tuple[Type, ...]) -> Errors:
    yield from _compiled(path, text, shown, environment, wanted)[1]


def _compiled(
    path: str, text: str, shown: str, environment: Environment, wanted: tuple[Type, ...] | None
) -> tuple[Type | None, list[FieldError]]:
    """The type of the value (None: there is none), and what is wrong. ``wanted`` None: any type will do."""
    try:
        result = compile_expression(text, environment).result
    except InstantiationError as fault:
        if wanted is not None and fault.result not in [one.kind for one in wanted]:
            return None, [invalid(path, shown, _misfit(wanted, fault.result))]
        return None, [FieldError(FieldErrorType.INTERNAL, path, None, f"program instantiation failed: {fault}")]
    except CompileError as fault:
        return None, [invalid(path, shown, f"compilation failed: {fault}")]
    if wanted is not None and result not in wanted:
        return None, [invalid(path, shown, _misfit(wanted, str(result)))]
    return result, []


def _misfit(wanted: tuple[Type, ...], found: str) -> str:
    names = [_name(one) for one in wanted]
    if len(names) == 1:
        return f"must evaluate to {names[0]} but got {found}"
    return f"must evaluate to one of [{' '.join(names)}] but got {found}"


def _name(of: Type) -> str:
    return "null_type" if of == types.NULL else str(of)
