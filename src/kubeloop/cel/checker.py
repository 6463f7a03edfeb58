"""The type checker: determines types and possible overloads, and reports type errors with cel-go's messages.

Source: cel-go checker/checker.go. Names resolve in the empty container, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kubeloop.cel import types
from kubeloop.cel.faults import CompileError, Issue, render
from kubeloop.cel.functions import FUNCTIONS
from kubeloop.cel.identifier_escaping import RESERVED
from kubeloop.cel.overloads import Function
from kubeloop.cel.syntax import (
    CallNode,
    Comprehension,
    Const,
    EntryNode,
    Ident,
    ListLiteral,
    MapLiteral,
    Node,
    Parsed,
    Select,
    StructLiteral,
    qualified_name,
)
from kubeloop.cel.types import Bindings, Type
from kubeloop.cel.values import UInt

if TYPE_CHECKING:
    from kubeloop.cel.program import Environment

#: Types that an expression may name, as in ``type(x) == int``.
TYPE_NAMES: Final = {
    "bool": types.BOOL, "int": types.INT, "uint": types.UINT, "double": types.DOUBLE, "string": types.STRING, "bytes": types.BYTES,
    "null_type": types.NULL, "list": types.list_of(types.DYN), "map": types.map_of(types.DYN, types.DYN), "type": types.TYPE,
    "google.protobuf.Timestamp": types.TIMESTAMP, "google.protobuf.Duration": types.DURATION, "net.IP": types.IP, "net.CIDR": types.CIDR,
    "kubernetes.Quantity": types.QUANTITY, "kubernetes.Semver": types.SEMVER, "kubernetes.URL": types.URL,
    "optional_type": types.optional_of(types.DYN),
}  # fmt: skip
_LITERALS: Final[dict[type, Type]] = {
    type(None): types.NULL, bool: types.BOOL, int: types.INT, UInt: types.UINT, float: types.DOUBLE, str: types.STRING, bytes: types.BYTES
}  # fmt: skip
_SIMPLE: Final = frozenset({"bool", "int", "uint", "double", "string", "bytes", "list", "map", "type"})
_LOGIC: Final = {"_&&_": "logical_and", "_||_": "logical_or"}


@dataclass(slots=True)
class Checked:
    """A type-checked expression."""

    parsed: Parsed
    types: dict[int, Type]
    #: Identifiers of the possible overloads of each call.
    overloads: dict[int, list[str]]
    #: Nodes that name a variable of the environment, with its name (which may contain dots).
    references: dict[int, str] = field(default_factory=dict)
    #: Functions of the environment beyond the common ones.
    functions: Mapping[str, Function] = field(default_factory=dict)

    @property
    def root(self) -> Node:
        return self.parsed.root

    @property
    def result(self) -> Type:
        return self.types[self.root.id]


def check(parsed: Parsed, environment: Environment) -> Checked:
    """Type-check an expression.

    Raises:
        CompileError: Types do not fit, or a name is not declared. The message lists every error.
    """
    checker = _Checker(parsed, environment)
    checker.check(parsed.root)
    if checker.issues:
        raise CompileError(render(parsed.source, checker.issues))
    final = {number: checker.bindings.substitute(of, free_to_dyn=True) for number, of in checker.types.items()}
    return Checked(parsed, final, checker.overloads, checker.references, environment.functions)


class _Checker:
    def __init__(self, parsed: Parsed, environment: Environment) -> None:
        self.positions = parsed.positions
        self.environment = environment
        self.scopes: list[Mapping[str, Type]] = [environment.variables]
        self.bindings = Bindings()
        self.types: dict[int, Type] = {}
        self.overloads: dict[int, list[str]] = {}
        self.references: dict[int, str] = {}
        self.issues: list[Issue] = []
        self._free = 0

    def check(self, node: Node) -> None:
        self.types[node.id] = self._type(node)

    def _type(self, node: Node) -> Type:
        match node:
            case Const():
                return _LITERALS[type(node.value)]
            case Ident():
                return self._ident(node)
            case Select():
                return self._select(node)
            case CallNode():
                return self._call(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case StructLiteral():
                return self._struct(node)
            case Comprehension():
                return self._comprehension(node)

    def _report(self, node: Node | EntryNode, text: str) -> None:
        self.issues.append(Issue(self.positions.get(node.id, 0), text))

    def _undeclared(self, node: Node, name: str) -> None:
        self._report(node, f"undeclared reference to '{name}' (in container '')")

    def _mismatch(self, node: Node, expected: Type, actual: Type) -> None:
        self._report(node, f"expected type '{expected}' but found '{actual}'")

    def _variable(self) -> Type:
        self._free += 1
        return types.variable(f"_var{self._free - 1}")

    def _look_up(self, name: str) -> Type | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        named = TYPE_NAMES.get(name)
        return None if named is None else types.type_of(named)

    def _ident(self, node: Ident) -> Type:
        name = node.name.removeprefix(".")
        found = self._look_up(name)
        if found is None:
            self._undeclared(node, node.name)
            return types.ERROR
        self.references[node.id] = name
        return found

    def _select(self, node: Select) -> Type:
        name = None if node.test_only else qualified_name(node)
        if name is not None and (found := self._look_up(name)) is not None:
            self.references[node.id] = name
            return found
        of = self._field(node, node.operand, node.field, optional=False)
        return types.BOOL if node.test_only else self.bindings.substitute(of)

    def _field(self, node: Node, operand: Node, name: str, *, optional: bool) -> Type:
        self.check(operand)
        of, unwrapped = types.unwrap_optional(self.bindings.substitute(self.types[operand.id]))
        found = types.ERROR
        match of.kind:
            case "map":
                found = of.parameters[1]
            case "struct":
                fields = self._fields(of.name)
                known = fields.get(name)
                if known is None and name in RESERVED:
                    # A field by its plain name. Only its escaped name leads to its size, so rules that need the size cost more than they
                    # should.
                    known = fields.get(f"__{name}__")
                if known is not None:
                    found = known
                else:
                    self._report(node, f"undefined field '{name}'")
            case "param":
                self.bindings.assignable(types.DYN, of)
                found = types.DYN
            case kind:
                if kind not in ("dyn", "error"):
                    self._report(node, f"type '{of}' does not support field selection")
                found = types.DYN
        return types.optional_of(found) if unwrapped or optional else found

    def _fields(self, name: str) -> Mapping[str, Type]:
        return self.environment.fields.get(name) or self._message(name) or {}

    def _message(self, name: str) -> Mapping[str, Type] | None:
        return None if self.environment.messages is None else self.environment.messages(name)

    def _function(self, name: str) -> Function | None:
        return FUNCTIONS.get(name) or self.environment.functions.get(name)

    def _call(self, node: CallNode) -> Type:
        if node.function == "_?._":
            field_name = node.args[1]
            if not isinstance(field_name, Const) or not isinstance(field_name.value, str):
                self._report(field_name, f"unsupported optional field selection: {field_name}")
                return types.ERROR
            self.types[field_name.id] = types.STRING
            self.overloads[node.id] = ["select_optional_field"]
            return self.bindings.substitute(self._field(node, node.args[0], field_name.value, optional=True))
        for one in node.args:
            self.check(one)
        if node.target is None:
            found = self._function(node.function.removeprefix("."))
            if found is None:
                self._undeclared(node, node.function)
                return types.ERROR
            return self._resolve(node, found, None)
        prefix = qualified_name(node.target)
        if prefix is not None and (found := self._function(f"{prefix}.{node.function}")) is not None:
            # ``strings.quote(x)`` is not a call on a variable named strings.
            node.function, node.target = found.name, None
            return self._resolve(node, found, None)
        self.check(node.target)
        found = self._function(node.function)
        if found is None:
            self._undeclared(node, node.function)
            return types.ERROR
        return self._resolve(node, found, node.target)

    def _resolve(self, node: CallNode, function: Function, target: Node | None) -> Type:
        nodes = node.args if target is None else [target, *node.args]
        given = [self.types[one.id] for one in nodes]
        if node.function in _LOGIC:
            return self._logic(node, given)
        result: Type | None = None
        chosen: list[str] = []
        for overload in function.overloads:
            if overload.member != (target is not None):
                continue
            names = Bindings({one: self._variable() for one in overload.variables})
            expected = [names.substitute(one) for one in overload.parameters]
            if not self.bindings.all_assignable(given, expected):
                continue
            chosen.append(overload.id)
            made = self.bindings.substitute(names.substitute(overload.result))
            if result is None:
                result = made
            elif not result.is_dyn and made != result:
                result = types.DYN
        if result is None:
            shown = [types.shown(self.bindings.substitute(one, free_to_dyn=True)) for one in given]
            of = f"{shown.pop(0)}." if target is not None else ""
            self._report(node, f"found no matching overload for '{node.function}' applied to '{of}({', '.join(shown)})'")
            return types.ERROR
        self.overloads[node.id] = chosen
        return result

    def _logic(self, node: CallNode, argument_types: list[Type]) -> Type:
        failed = False
        for one, of in zip(node.args, argument_types, strict=True):
            if not self.bindings.assignable(of, types.BOOL):
                self._mismatch(one, types.BOOL, of)
                failed = True
        self.overloads[node.id] = [_LOGIC[node.function]]
        return types.ERROR if failed else types.BOOL

    def _joined(self, before: Type | None, now: Type) -> Type:
        """Return the element type of a literal after one more element of type ``now``; ``before`` is None for the first element.

        Elements of different types are accepted here. A later step, which knows all types, checks whether the mixture is allowed.
        """
        if before is None:
            return now
        return types.most_general(before, now) if self.bindings.assignable(before, now) else types.DYN

    def _unwrapped(self, node: Node) -> Type:
        of, optional = types.unwrap_optional(self.types[node.id])
        if not optional and not of.is_dyn:
            self._mismatch(node, types.optional_of(of), of)
        return of

    def _list(self, node: ListLiteral) -> Type:
        element: Type | None = None
        for index, one in enumerate(node.elements):
            self.check(one)
            element = self._joined(element, self._unwrapped(one) if index in node.optional else self.types[one.id])
        return types.list_of(element or self._variable())

    def _map(self, node: MapLiteral) -> Type:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            if isinstance(entry.key, str):
                continue
            self.check(entry.key)
            key = self._joined(key, self.types[entry.key.id])
            self.check(entry.value)
            value = self._joined(value, self._unwrapped(entry.value) if entry.optional else self.types[entry.value.id])
        return types.map_of(key or self._variable(), value or self._variable())

    def _struct(self, node: StructLiteral) -> Type:
        name = node.name.removeprefix(".")
        fields = self._message(name)
        if fields is None:
            if (named := TYPE_NAMES.get(name)) is not None and named.kind in _SIMPLE:
                self._report(node, f"'{named.name}' is not a message type")
            else:
                self._undeclared(node, node.name)
            return types.ERROR
        for entry in node.entries:
            self.check(entry.value)
            value = self._unwrapped(entry.value) if entry.optional else self.types[entry.value.id]
            field_name = str(entry.key)
            expected = fields.get(field_name)
            if expected is None or not self.bindings.assignable(expected, value):
                shown = "" if expected is None else str(expected)  # upstream's types report every field as present
                self._report(entry, f"expected type of field '{field_name}' is '{shown}' but provided type is '{value}'")
        return types.struct(name)

    def _comprehension(self, node: Comprehension) -> Type:
        self.check(node.over)
        self.check(node.initial)
        over = self.bindings.substitute(self.types[node.over.id])
        accumulated = self.types[node.initial.id]
        one, two = self._iterated(node, over)
        self.scopes.append({node.accumulator: accumulated})
        names = {node.variable: one}
        if node.variable2:
            names[node.variable2] = two
        self.scopes.append(names)
        self.check(node.condition)
        self._assert(node.condition, types.BOOL)
        self.check(node.step)
        self._assert(node.step, accumulated)
        self.scopes.pop()
        self.check(node.result)
        self.scopes.pop()
        return self.bindings.substitute(self.types[node.result.id])

    def _iterated(self, node: Comprehension, over: Type) -> tuple[Type, Type]:
        match over.kind:
            case "list":
                element = over.parameters[0]
                return (types.INT, element) if node.variable2 else (element, element)
            case "map":
                return over.parameters[0], over.parameters[1]
            case "dyn" | "error" | "param" if over != types.ANY:
                self.bindings.assignable(types.DYN, over)
                return types.DYN, types.DYN
            case _:
                text = f"expression of type '{types.shown(over)}' cannot be range of a comprehension (must be list, map, or dynamic)"
                self._report(node.over, text)
                return types.ERROR, types.ERROR

    def _assert(self, node: Node, expected: Type) -> None:
        if not self.bindings.assignable(expected, self.types[node.id]):
            self._mismatch(node, expected, self.types[node.id])


def literal(node: Node) -> Any:
    """Return the value of a constant, None for any other node."""
    return node.value if isinstance(node, Const) else None
