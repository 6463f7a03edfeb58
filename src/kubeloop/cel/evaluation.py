"""Compiles a checked tree into closures: the closure of a node calls those of its children.

``&&``, ``||`` and comprehensions follow CEL's error rules: an error on one side does not matter when the other side decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kubeloop.cel.checker import TYPE_NAMES, Checked
from kubeloop.cel.faults import CostExceeded, EvalError
from kubeloop.cel.functions.operators import index_of_list, index_of_map, shown_key
from kubeloop.cel.functions.optionals import select
from kubeloop.cel.overloads import FUNCTIONS, Function, Overload, resolve
from kubeloop.cel.runtime_cost import LIST, MAP, STRUCT, CallCost, Meter, call_cost
from kubeloop.cel.standard_macros import ACCUMULATORS
from kubeloop.cel.syntax import CallNode, Comprehension, Const, Ident, ListLiteral, MapLiteral, Node, Select, StructLiteral
from kubeloop.cel.values import NONE, ConstructedObject, Optional, TypeValue, as_key, check_qualifier, entries_of, keys_of

#: Values of variables by name, including the variables of running loops.
Scope = dict[str, Any]
Step = Callable[[Scope, Meter], Any]


def plan(checked: Checked) -> Step:
    """Return the closure that evaluates the whole expression."""
    return _Planner(checked).step(checked.root)


class _Planner:
    def __init__(self, checked: Checked) -> None:
        self._references = checked.references
        self._overloads = checked.overloads
        self._functions = checked.functions
        self._types = checked.types

    def step(self, node: Node) -> Step:
        name = self._references.get(node.id)
        if name is not None:
            return _variable(name)
        match node:
            case Const():
                return _constant(node.value)
            case Ident():
                return _variable(node.name)
            case Select():
                return self._select(node)
            case CallNode():
                return self._call(node)
            case ListLiteral():
                return _list([self.step(one) for one in node.elements], node.optional)
            case MapLiteral():
                return self._map(node)
            case StructLiteral():
                return self._struct(node)
            case Comprehension():
                return self._fold(node)

    def _select(self, node: Select) -> Step:
        operand, name = self.step(node.operand), node.field
        if node.test_only:
            return lambda scope, meter: _has(operand(scope, meter), name)

        def step(scope: Scope, meter: Meter) -> Any:
            value = operand(scope, meter)
            meter.cost += 1
            if isinstance(value, dict):
                try:
                    return value[name]
                except KeyError:
                    raise EvalError(f"no such key: {name}") from None
            return select(value, name) if isinstance(value, Optional) else _no_fields(value, name)

        return step

    def _call(self, node: CallNode) -> Step:
        args = [self.step(one) for one in ([node.target] if node.target is not None else []) + node.args]
        match node.function:
            case "_&&_":
                return _logic(args[0], args[1], decisive=False)
            case "_||_":
                return _logic(args[0], args[1], decisive=True)
            case "_?_:_":
                return _conditional(*args)
            case "@not_strictly_false":
                return _not_strictly_false(args[0])
            case "_?._" | "_[?_]":
                return _optional_select(args[0], args[1])
            case "_[_]":
                return _index(args[0], args[1], strict=self._is_of_schema(node.args[0]))
        function = FUNCTIONS.get(node.function) or self._functions[node.function]
        return _function(function, args, self._overloads.get(node.id, ()))

    def _is_of_schema(self, node: Node) -> bool:
        """Return whether the node is a variable or field whose type a schema declares."""
        return isinstance(node, Ident | Select) and not self._types[node.id].is_dyn

    def _map(self, node: MapLiteral) -> Step:
        entries = [(self.step(one.key), self.step(one.value), one.optional) for one in node.entries if not isinstance(one.key, str)]

        def step(scope: Scope, meter: Meter) -> Any:
            made: dict[Any, Any] = {}
            for key_step, value_step, optional in entries:
                key, value = as_key(key_step(scope, meter)), value_step(scope, meter)
                if optional:
                    value = _as_optional(value)
                    if not value.present:
                        continue
                    value = value.value
                made[key] = value
            meter.add(MAP)
            return made

        return step

    def _struct(self, node: StructLiteral) -> Step:
        name = node.name.removeprefix(".")
        entries = [(str(one.key), self.step(one.value), one.optional) for one in node.entries]

        def step(scope: Scope, meter: Meter) -> Any:
            made = ConstructedObject(name, {})
            for field, value_step, optional in entries:
                value = value_step(scope, meter)
                if optional:
                    value = _as_optional(value)
                    if not value.present:
                        continue
                    value = value.value
                made[field] = value
            meter.add(STRUCT)
            return made

        return step

    def _fold(self, node: Comprehension) -> Step:
        one, two, accumulator = node.variable, node.variable2, node.accumulator
        over = self.step(node.over)
        quantified = None if two else _quantifier(node)
        if quantified is not None:
            return _quantify(over, one, self.step(quantified[0]), quantified[1], quantified[2])
        initial, condition = self.step(node.initial), self.step(node.condition)
        step, result = self.step(node.step), self.step(node.result)

        def fold(scope: Scope, meter: Meter) -> Any:
            items = over(scope, meter)
            inner = {**scope, accumulator: initial(scope, meter)}
            for first, second in _iterate(items, both=bool(two)):
                inner[one] = first
                if two:
                    inner[two] = second
                if condition(inner, meter) is False:
                    break
                inner[accumulator] = _captured(step, inner, meter)
            return _raised(result(inner, meter))

        return fold


#: The cost that ``all`` and ``exists`` add for each element: the condition, and reading the accumulated result.
_ALL_COST = 3
_EXISTS_COST = 4


def _quantifier(node: Comprehension) -> tuple[Node, bool, int] | None:
    """Return predicate, deciding value and added cost of an expanded ``all`` or ``exists``; None for other comprehensions."""
    step = node.step
    if node.accumulator not in ACCUMULATORS or not isinstance(step, CallNode) or not isinstance(node.initial, Const):
        return None
    by_macro = isinstance(step.args[0], Ident) and step.args[0].name == node.accumulator and isinstance(node.result, Ident)
    waits = isinstance(node.condition, CallNode) and node.condition.function == "@not_strictly_false"
    if not by_macro or not waits:
        return None
    match step.function, node.initial.value:
        case "_&&_", True:
            return step.args[1], False, _ALL_COST
        case "_||_", False:
            return step.args[1], True, _EXISTS_COST
        case _:
            return None


def _quantify(over: Step, variable: str, predicate: Step, decisive: bool, added: int) -> Step:
    """Return the step of ``all`` or ``exists``, which stops at the first element whose predicate returns ``decisive``.

    ``added`` is the cost of each element beyond that of the predicate.
    """

    def step(scope: Scope, meter: Meter) -> Any:
        items = over(scope, meter)
        inner = dict(scope)
        failed: EvalError | None = None
        elements = list(keys_of(items)) if isinstance(items, dict) else _items(items)
        left = len(elements)
        for item in elements:
            left -= 1
            inner[variable] = item
            meter.add(added)
            try:
                found = predicate(inner, meter)
                if found is decisive:
                    meter.add(added if left else 1)
                    return decisive
                if found is not True and found is not False:
                    failed = failed or EvalError("no such overload")
            except CostExceeded:
                raise
            except EvalError as exc:
                failed = failed or exc
        meter.add(1)
        if failed is not None:
            raise failed
        return not decisive

    return step


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise EvalError("no such overload")
    return value


class _Failure:
    """An error as the value of an accumulator: a later element may still decide the result."""

    __slots__ = ("error",)

    def __init__(self, error: EvalError) -> None:
        self.error = error


def _captured(step: Step, scope: Scope, meter: Meter) -> Any:
    try:
        return step(scope, meter)
    except CostExceeded:
        raise
    except EvalError as exc:
        return _Failure(exc)


def _raised(value: Any) -> Any:
    if type(value) is _Failure:
        raise value.error
    return value


def _iterate(items: Any, *, both: bool) -> Iterable[tuple[Any, Any]]:
    if isinstance(items, dict):
        return entries_of(items)
    if isinstance(items, list):
        return enumerate(items) if both else ((item, None) for item in items)
    raise EvalError("no such overload")


def _constant(value: Any) -> Step:
    return lambda _scope, _meter: value


def _variable(name: str) -> Step:
    if name in ACCUMULATORS:
        return _accumulated(name)
    known = TYPE_NAMES.get(name)

    def step(scope: Scope, meter: Meter) -> Any:
        meter.cost += 1
        try:
            return scope[name]
        except KeyError:
            if known is None:
                raise EvalError(f"no such attribute(s): {name}") from None
            return TypeValue(name)

    return step


def _accumulated(name: str) -> Step:
    def step(scope: Scope, meter: Meter) -> Any:
        meter.cost += 1
        return _raised(scope[name])

    return step


def _no_fields(value: Any, name: str) -> Any:
    if isinstance(value, list):
        raise EvalError("unsupported index type 'string' in list")
    raise EvalError(f"no such key: {name}")


def _has(value: Any, name: str) -> bool:
    if isinstance(value, Optional):
        return value.present and _has(value.value, name)
    if isinstance(value, list):
        raise EvalError("no such overload")
    return isinstance(value, dict) and name in value


def _bool(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise EvalError("no such overload")


def _logic(left: Step, right: Step, *, decisive: bool) -> Step:
    def step(scope: Scope, meter: Meter) -> Any:
        try:
            value = left(scope, meter)
            if value is decisive:
                return decisive
            if value is not (not decisive):
                raise EvalError("no such overload")
        except CostExceeded:
            raise
        except EvalError as exc:
            try:
                if right(scope, meter) is decisive:
                    return decisive
            except CostExceeded:
                raise
            except EvalError:
                raise exc from None
            raise
        return _bool(right(scope, meter))

    return step


def _conditional(condition: Step, when_true: Step, when_false: Step) -> Step:
    return lambda scope, meter: when_true(scope, meter) if _bool(condition(scope, meter)) else when_false(scope, meter)


def _not_strictly_false(of: Step) -> Step:
    def step(scope: Scope, meter: Meter) -> Any:
        value = _captured(of, scope, meter)
        meter.add(1)
        return value is not False

    return step


def _index(operand: Step, key_of: Step, *, strict: bool) -> Step:
    """Return the step that evaluates ``operand[key]``.

    ``strict`` says that the operand is a list with a schema, which only ints can index; doubles and uints can index other lists too.
    """

    def step(scope: Scope, meter: Meter) -> Any:
        value, key = operand(scope, meter), key_of(scope, meter)
        if not isinstance(key, str | int | float):
            check_qualifier(key)
        if isinstance(value, dict):
            result = index_of_map(value, key)
        elif isinstance(value, list):
            if strict and type(key) is not int:
                raise EvalError("no such overload")
            result = index_of_list(value, key)
        elif isinstance(value, Optional):
            result = select(value, key)
        else:
            raise EvalError(f"no such key: {shown_key(key)}")
        meter.add(1)
        return result

    return step


def _optional_select(operand: Step, name: Step) -> Step:
    def step(scope: Scope, meter: Meter) -> Any:
        value, key = operand(scope, meter), name(scope, meter)
        meter.add(1)
        return select(value, key)

    return step


def _as_optional(value: Any) -> Optional:
    if not isinstance(value, Optional):
        raise EvalError("cannot initialize optional entry from non-optional value")
    return value


def _list(steps: list[Step], optional: frozenset[int]) -> Step:
    def step(scope: Scope, meter: Meter) -> Any:
        made = []
        for index, one in enumerate(steps):
            value = one(scope, meter)
            if index in optional:
                value = _as_optional(value)
                if not value.present:
                    continue
                value = value.value
            made.append(value)
        meter.add(LIST)
        return made

    return step


def _function(function: Function, args: list[Step], chosen: Sequence[str]) -> Step:
    """Return the step that calls a function. ``chosen`` are the overloads that the type checker accepts; the values select one of them."""
    name = function.name
    among = [one for one in function.overloads if one.id in chosen]
    found: dict[Any, tuple[Overload, CallCost | None]] = {}

    def look_up(kinds: Any, values: tuple[Any, ...]) -> tuple[Overload, CallCost | None]:
        overload = resolve(name, among, values)
        known = found[kinds] = overload, call_cost(name, overload.id)
        return known

    if len(args) == 2:
        first, second = args

        def binary(scope: Scope, meter: Meter) -> Any:
            one, other = first(scope, meter), second(scope, meter)
            kinds = type(one), type(other)
            overload, cost = found.get(kinds) or look_up(kinds, (one, other))
            result = overload.call(one, other)
            meter.add(1 if cost is None else cost((one, other), result))
            return result

        return binary

    def step(scope: Scope, meter: Meter) -> Any:
        values = tuple([one(scope, meter) for one in args])
        kinds = tuple(map(type, values))
        overload, cost = found.get(kinds) or look_up(kinds, values)
        result = overload.call(*values)
        meter.add(1 if cost is None else cost(values, result))
        return result

    return step


__all__ = ["NONE", "Scope", "Step", "plan"]
