"""The table of CEL functions: each overload with its signature, its identifier in cel-go and its Python function."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from kubeloop.cel import types
from kubeloop.cel.faults import EvalError
from kubeloop.cel.types import Type
from kubeloop.cel.values import kind_of, type_name

Implementation = Callable[..., Any]
F = TypeVar("F", bound=Implementation)

_NAMED: Final[dict[str, Type]] = {
    "bool": types.BOOL, "int": types.INT, "uint": types.UINT, "double": types.DOUBLE, "string": types.STRING, "bytes": types.BYTES,
    "null": types.NULL, "duration": types.DURATION, "timestamp": types.TIMESTAMP, "dyn": types.DYN, "type": types.TYPE,
    "ip": types.IP, "cidr": types.CIDR, "quantity": types.QUANTITY, "semver": types.SEMVER, "url": types.URL, "format": types.FORMAT,
    "authorizer": types.AUTHORIZER, "pathcheck": types.PATH_CHECK, "groupcheck": types.GROUP_CHECK,
    "resourcecheck": types.RESOURCE_CHECK, "decision": types.DECISION,
}  # fmt: skip
_TOKEN: Final = re.compile(r"\s*([A-Za-z]+|[(),])")


@dataclass(frozen=True, slots=True)
class Overload:
    id: str
    parameters: tuple[Type, ...]
    result: Type
    call: Implementation
    #: Whether the function is called on its first argument: ``a.f(b)``.
    member: bool = False
    variables: tuple[Type, ...] = ()

    def accepts(self, kinds: tuple[str, ...]) -> bool:
        return len(kinds) == len(self.parameters) and all(map(_accepts, self.parameters, kinds))


def _accepts(parameter: Type, kind: str) -> bool:
    if parameter.kind in ("dyn", "param"):
        return True
    return kind == (parameter.name if parameter.kind in ("struct", "opaque") else parameter.kind)


@dataclass(slots=True)
class Function:
    name: str
    overloads: list[Overload] = field(default_factory=list)

    def call(self, *args: Any) -> Any:
        """Call the overload that accepts these values. Used by functions that are composed of other CEL functions.

        Raises:
            EvalError: No overload accepts the values, or the call fails.
        """
        return resolve(self.name, self.overloads, args).call(*args)


def resolve(name: str, overloads: Sequence[Overload], args: tuple[Any, ...]) -> Overload:
    """Return the first overload that accepts these values.

    Raises:
        EvalError: No overload accepts the values. The type checker excludes this, except for values of type ``dyn``.
    """
    kinds = tuple(kind_of(type(one)) for one in args)
    for one in overloads:
        if one.accepts(kinds):
            return one
    raise EvalError(no_such_overload(name, args))


# The kinds of values for which an operator is defined; cel-go calls them traits of a type. For other kinds the message names the operator,
# except for ``_RECEIVERS``.
_COMPARABLE: Final = frozenset({"bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration"})
_SUBTRACTABLE: Final = frozenset({"int", "uint", "double", "timestamp", "duration"})
_TRAITS: Final = {
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), _COMPARABLE),
    "_+_": _SUBTRACTABLE | {"string", "bytes", "list"},
    "_-_": _SUBTRACTABLE,
    "_*_": frozenset({"int", "uint", "double"}),
    "_/_": frozenset({"int", "uint", "double"}),
    "_%_": frozenset({"int", "uint"}),
    "-_": frozenset({"bool", "int", "double", "duration"}),
    "size": frozenset({"string", "bytes", "list", "map"}),
}
_RECEIVERS: Final = frozenset({"string", "timestamp", "duration"})


def no_such_overload(name: str, args: tuple[Any, ...]) -> str:
    """Return cel-go's error message for a call that no overload accepts.

    The message names an operator only if the operator is not defined for the kind of the first value.
    """
    kinds = _TRAITS.get(name)
    if kinds is not None and kind_of(type(args[0])) not in kinds | _RECEIVERS:
        return f"no such overload: {name}"
    if kinds is not None or not name[0].isalpha():
        return "no such overload"
    return f"no such overload: {name}({', '.join(map(type_name, args))})"


FUNCTIONS: Final[dict[str, Function]] = {}


def function(
    name: str, signature: str, identifier: str, *, member: bool = False, into: dict[str, Function] = FUNCTIONS
) -> Callable[[F], F]:
    """Register the implementation of an overload.

    Args:
        name: The name of the function or operator.
        signature: Such as ``list(T), T -> bool``; capital letters are type parameters.
        identifier: The overload's identifier in cel-go.
        member: Whether the function is called on its first argument.
        into: The table to add to. Default: the functions of every environment.

    Returns:
        A decorator for the Python function.
    """
    arguments, _, result = signature.rpartition("->")

    def register(call: F) -> F:
        parameters = tuple(_types(arguments))
        made = _types(result)[0]
        free: dict[Type, None] = {}
        for one in (*parameters, made):
            _collect(one, free)
        overload = Overload(identifier, parameters, made, call, member, tuple(free))
        into.setdefault(name, Function(name)).overloads.append(overload)
        return call

    return register


def member(name: str, signature: str, identifier: str) -> Callable[[F], F]:
    """Register a function that is called on its first argument (``a.f(b)``). See ``function`` for everything else."""
    return function(name, signature, identifier, member=True)


def _collect(of: Type, into: dict[Type, None]) -> None:
    if of.kind == "param":
        into[of] = None
    for one in of.parameters:
        _collect(one, into)


def _types(text: str) -> list[Type]:
    tokens = _TOKEN.findall(text)
    result: list[Type] = []
    at = 0
    while at < len(tokens):
        one, at = _one(tokens, at)
        result.append(one)
        at += 1
    return result


def _one(tokens: list[str], at: int) -> tuple[Type, int]:
    name, at = tokens[at], at + 1
    inside: list[Type] = []
    if at < len(tokens) and tokens[at] == "(":
        while tokens[at] != ")":
            one, at = _one(tokens, at + 1)
            inside.append(one)
        at += 1
    match name:
        case "list":
            return types.list_of(inside[0]), at
        case "map":
            return types.map_of(inside[0], inside[1]), at
        case "optional":
            return types.optional_of(inside[0]), at
        case "type" if inside:
            return types.type_of(inside[0]), at
        case _ if len(name) == 1:
            return types.variable(name), at
        case _:
            return _NAMED[name], at
