"""The types of CEL for the checker, their names in messages, and the rules of assignability.

The rules are cel-go's (checker/types.go): type parameters are bound as they meet types, ``dyn`` fits everything.
"""

from __future__ import annotations

from dataclasses import dataclass, field

OPTIONAL = "optional_type"
_NULLABLE = frozenset({"opaque", "struct", "duration", "timestamp"})
_WITH_PARAMETERS = frozenset({"list", "map", "opaque", "type"})


@dataclass(frozen=True, slots=True)
class Type:
    """A CEL type. ``kind`` is its general form, such as ``list`` or ``struct``; ``name`` is its name in messages."""

    kind: str
    name: str
    parameters: tuple[Type, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.parameters))})" if self.parameters else self.name

    @property
    def is_optional(self) -> bool:
        return self.kind == "opaque" and self.name == OPTIONAL

    @property
    def is_dyn(self) -> bool:
        return self.kind == "dyn"


BOOL, INT, UINT, DOUBLE = Type("bool", "bool"), Type("int", "int"), Type("uint", "uint"), Type("double", "double")
STRING, BYTES, NULL = Type("string", "string"), Type("bytes", "bytes"), Type("null", "null")
DURATION, TIMESTAMP = Type("duration", "duration"), Type("timestamp", "timestamp")
DYN, ERROR = Type("dyn", "dyn"), Type("error", "!error!")
#: A value of unknown type, like ``dyn``, but comprehensions cannot iterate over it.
ANY = Type("dyn", "google.protobuf.Any")
TYPE = Type("type", "type")
IP, CIDR = Type("opaque", "net.IP"), Type("opaque", "net.CIDR")
QUANTITY, SEMVER = Type("struct", "kubernetes.Quantity"), Type("struct", "kubernetes.Semver")
URL, FORMAT = Type("struct", "kubernetes.URL"), Type("struct", "kubernetes.NamedFormat")

_AUTHORIZATION = "kubernetes.authorization."
AUTHORIZER, DECISION = Type("struct", f"{_AUTHORIZATION}Authorizer"), Type("struct", f"{_AUTHORIZATION}Decision")
PATH_CHECK, GROUP_CHECK = Type("struct", f"{_AUTHORIZATION}PathCheck"), Type("struct", f"{_AUTHORIZATION}GroupCheck")
RESOURCE_CHECK = Type("struct", f"{_AUTHORIZATION}ResourceCheck")


def list_of(element: Type) -> Type:
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("opaque", OPTIONAL, (value,))


def shown(of: Type) -> str:
    """Return the type as the checker's messages print it."""
    return str(of).replace(ANY.name, "any")


def type_of(value: Type) -> Type:
    return Type("type", "type", (value,))


def variable(name: str) -> Type:
    return Type("param", name)


def struct(name: str) -> Type:
    return Type("struct", name)


def unwrap_optional(of: Type) -> tuple[Type, bool]:
    return (of.parameters[0], True) if of.is_optional else (of, False)


@dataclass(slots=True)
class Bindings:
    """The current bindings of type parameters."""

    bound: dict[Type, Type] = field(default_factory=dict)

    def assignable(self, source: Type, other: Type) -> bool:
        """Return whether ``source`` is assignable to ``other``; binds type parameters only if it is."""
        attempt = Bindings(dict(self.bound))
        if not attempt._fits(source, other):
            return False
        self.bound = attempt.bound
        return True

    def all_assignable(self, actual: list[Type], expected: list[Type]) -> bool:
        attempt = Bindings(dict(self.bound))
        if len(actual) != len(expected) or not all(map(attempt._fits, actual, expected)):
            return False
        self.bound = attempt.bound
        return True

    def substitute(self, of: Type, *, free_to_dyn: bool = False) -> Type:
        if (found := self.bound.get(of)) is not None:
            return self.substitute(found, free_to_dyn=free_to_dyn)
        if of.kind == "param" and free_to_dyn:
            return DYN
        if of.parameters and of.kind in _WITH_PARAMETERS:
            return Type(of.kind, of.name, tuple(self.substitute(one, free_to_dyn=free_to_dyn) for one in of.parameters))
        return of

    def _fits(self, left: Type, other: Type) -> bool:
        if other.kind == "param":
            valid, bound = self._bind(left, other)
            if valid:
                return True
            if bound:
                return False
        if left.kind == "param":
            return self._bind(other, left)[0]
        if left.kind in ("dyn", "error") or other.kind in ("dyn", "error"):
            return True
        if left.kind == "null" or other.kind == "null":
            return left.kind == other.kind or (other if left.kind == "null" else left).kind in _NULLABLE
        if left.kind == "type":
            return other.kind == "type"
        if left.kind in ("opaque", "list", "map"):
            same = left.kind == other.kind and left.name == other.name and len(left.parameters) == len(other.parameters)
            return same and all(map(self._fits, left.parameters, other.parameters))
        return left == other

    def _bind(self, to: Type, parameter: Type) -> tuple[bool, bool]:
        """Return whether the parameter may be bound to ``to``, and whether it was bound before."""
        if to == parameter:
            return True, True
        known = self.bound.get(parameter)
        if known is not None:
            if to == known:
                return True, True
            if not self._fits(to, known):
                return False, True
            general = most_general(to, known)
            if self._free_of(parameter, general):
                self.bound[parameter] = general
            return True, True
        if self._free_of(parameter, to):
            self.bound[parameter] = to
            return True, False
        return False, False

    def _free_of(self, parameter: Type, within: Type) -> bool:
        if parameter == within:
            return False
        if within.kind == "param":
            known = self.bound.get(within)
            return known is None or self._free_of(parameter, known)
        return all(self._free_of(parameter, one) for one in within.parameters)


def most_general(left: Type, other: Type) -> Type:
    return left if _as_general(left, other) else other


def _as_general(left: Type, other: Type) -> bool:
    if left.kind in ("dyn", "param"):
        return True
    if other.kind in ("dyn", "param") or left.kind != other.kind:
        return False
    if left.kind == "type":
        return True
    if left.kind in ("opaque", "list", "map"):
        same = left.name == other.name and len(left.parameters) == len(other.parameters)
        return same and all(map(_as_general, left.parameters, other.parameters))
    return left == other
