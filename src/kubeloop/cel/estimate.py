"""Estimates the maximum cost of an expression without evaluating it, from the sizes of its inputs.

Source: cel-go checker/cost.go, k8s.io/apiserver pkg/cel/library/cost.go. All numbers saturate at 64 bits, as upstream.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kubeloop.cel.checker import Checked, literal
from kubeloop.cel.runtime_cost import AUTHORIZATION, CONSTANT, LIST, MAP, ONE_PASS, REGEX, STRUCT, TRAVERSAL, TWO_PASSES, WHOLE_LIST
from kubeloop.cel.standard_macros import ACCUMULATORS
from kubeloop.cel.syntax import CallNode, Comprehension, Const, Ident, ListLiteral, MapLiteral, Node, Select, StructLiteral
from kubeloop.cel.types import Type

UNBOUNDED: Final = 2**64 - 1
Path = tuple[str, ...]


def _capped(value: float) -> int:
    return UNBOUNDED if value >= UNBOUNDED else math.ceil(value)


def _times(factor: int, other: int) -> int:
    return min(factor * other, UNBOUNDED)


@dataclass(frozen=True, slots=True)
class CostRange:
    """A range from ``low`` to ``high``, of sizes or costs."""

    low: int = 0
    high: int = 0

    def __add__(self, other: CostRange) -> CostRange:
        return CostRange(min(self.low + other.low, UNBOUNDED), min(self.high + other.high, UNBOUNDED))

    def __mul__(self, other: CostRange) -> CostRange:
        return CostRange(_times(self.low, other.low), _times(self.high, other.high))

    def __or__(self, other: CostRange) -> CostRange:
        """Return the smallest range that includes both ranges."""
        return CostRange(min(self.low, other.low), max(self.high, other.high))

    def by(self, factor: float) -> CostRange:
        return CostRange(_capped(self.low * factor), _capped(self.high * factor))


def fixed(number: int) -> CostRange:
    return CostRange(number, number)


_UNKNOWN: Final = CostRange(0, UNBOUNDED)
#: Returns the size of the value at a path from a variable, None if it is unknown.
SizeOf = Callable[[Path], CostRange | None]
_SCALARS: Final = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})
_ADDRESS: Final = CostRange(4, 16)
_NAMED_FORMAT: Final = 128


@dataclass(slots=True)
class _Local:
    path: Path
    size: CostRange | None
    entries: _Entries | None = None


@dataclass(frozen=True, slots=True)
class _Entries:
    """The sizes of the items of a list or map that the expression constructs."""

    kind: str
    key: CostRange
    value: CostRange

    def either(self, other: _Entries | None) -> _Entries | None:
        return None if other is None else _Entries(self.kind, self.key | other.key, self.value | other.value)


def estimate(checked: Checked, size_of: SizeOf) -> CostRange:
    return _CostEstimator(checked, size_of).cost(checked.root)


class _CostEstimator:
    def __init__(self, checked: Checked, size_of: SizeOf) -> None:
        self.types = checked.types
        self.overloads = checked.overloads
        self.references = checked.references
        self.size_of = size_of
        self.paths: dict[int, Path] = {}
        self.sizes: dict[int, CostRange] = {}
        self.entries: dict[int, _Entries] = {}
        self.locals: dict[str, list[_Local]] = {}

    def cost(self, node: Node) -> CostRange:
        name = self.references.get(node.id)
        if name is not None or isinstance(node, Ident):
            name = name or (node.name if isinstance(node, Ident) else "")
            local = self._local(name)
            self.paths[node.id] = local.path if local else (name,)
            return fixed(1)
        match node:
            case Const():
                return CostRange()
            case Select():
                return self._select(node)
            case CallNode():
                return self._call(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral() | StructLiteral():
                return self._map(node)
            case Comprehension():
                return self._comprehension(node)

    def _local(self, name: str) -> _Local | None:
        known = self.locals.get(name)
        return known[-1] if known else None

    def type(self, node: Node) -> Type:
        return self.types[node.id]

    def path(self, node: Node) -> Path:
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.path
        return self.paths.get(node.id, ())

    def _known_size(self, path: Path) -> CostRange | None:
        """Return the known size of the value at a path, or None. As upstream, the first part is ignored, even if it is not a variable."""
        return self.size_of(path) if path else None

    def _item_size(self, node: Node) -> CostRange:
        path = self.path(node)
        if not path or path[0] in ACCUMULATORS:
            return _UNKNOWN
        return self._known_size((*path, "@items")) or _UNKNOWN

    def _size(self, node: Node) -> CostRange | None:
        if node.id in self.sizes:
            return self.sizes[node.id]
        made = _literal_size(node)
        if made is not None:
            return made
        known = self._known_size(self.path(node))
        if known is not None:
            self.sizes[node.id] = known
            return known
        if _scalar(self.type(node)):
            return fixed(1)
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.size
        return None

    def size(self, node: Node) -> CostRange:
        return self._size(node) or _UNKNOWN

    def entry(self, node: Node) -> _Entries | None:
        if node.id in self.entries:
            return self.entries[node.id]
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.entries
        return None

    def _select(self, node: Select) -> CostRange:
        cost = self.cost(node.operand)
        if node.test_only:
            return cost
        if self.type(node.operand).kind in ("map", "struct", "param"):
            cost += fixed(1)
        self.paths[node.id] = (*self.path(node.operand), node.field)
        return cost

    def _list(self, node: ListLiteral) -> CostRange:
        total = fixed(LIST)
        size = CostRange(UNBOUNDED if node.elements else 0, 0)
        for one in node.elements:
            total += self.cost(one)
            size |= self.size(one)
        self.entries[node.id] = _Entries("list", fixed(1), size)
        return total

    def _map(self, node: MapLiteral | StructLiteral) -> CostRange:
        total = fixed(MAP)
        start = CostRange(UNBOUNDED if node.entries else 0, 0)
        keys = values = start
        for one in node.entries:
            if not isinstance(one.key, str):
                total += self.cost(one.key)
                keys |= self.size(one.key)
            total += self.cost(one.value)
            values |= self.size(one.value)
        self.entries[node.id] = _Entries("map", keys, values)
        return total

    def _call(self, node: CallNode) -> CostRange:
        if node.function == "dyn" and node.args:
            cost = self.cost(node.args[0]) + fixed(1)
            self._copy(node, node.args[0])
            return cost
        costs = [self.cost(one) for one in node.args]
        chosen = self.overloads.get(node.id, [])
        if not chosen:
            return CostRange()
        own = CostRange()
        if node.target is not None:
            own = self.cost(node.target)
        total = CostRange(UNBOUNDED, 0)
        size: CostRange | None = None
        for overload in chosen:
            cost, made = self._overload(node, overload, costs)
            total |= cost
            if made is not None:
                size = made if size is None else size | made
            if overload in ("index_list", "index_map") and node.args:
                entry = self.entry(node.args[0])
                size = entry.value if entry else None
                self.paths[node.id] = (*self.path(node.args[0]), "@items" if overload == "index_list" else "@values")
            if size is None:
                size = self._size(node)
        if size is not None:
            self.sizes[node.id] = size
        return own + total

    def _overload(self, node: CallNode, overload: str, costs: list[CostRange]) -> tuple[CostRange, CostRange | None]:
        args = sum(costs, CostRange())
        match overload:
            case "logical_or" | "logical_and":
                return CostRange(costs[0].low, (costs[0] + costs[1]).high), None
            case "conditional":
                return self._conditional(node, costs)
        cost, size = self._listed(node, overload) or self._extended(node, overload) or self._standard(node, overload) or (fixed(1), None)
        return cost + args, size

    def _conditional(self, node: CallNode, costs: list[CostRange]) -> tuple[CostRange, CostRange | None]:
        one, other = self.entry(node.args[1]), self.entry(node.args[2])
        if one is not None and (either := one.either(other)) is not None:
            self.entries[node.id] = either
        return costs[0] + (costs[1] | costs[2]), self.size(node.args[1]) | self.size(node.args[2])

    def _standard(self, node: CallNode, overload: str) -> tuple[CostRange, CostRange | None] | None:
        args, target = node.args, node.target
        match overload:
            case "string_format" if target is not None:
                return self.size(target).by(TRAVERSAL), None
            case "string_to_bytes":
                size = self.size(args[0])
                return size.by(TRAVERSAL), CostRange(size.low, _times(size.high, 4))
            case "bytes_to_string":
                size = self.size(args[0])
                return size.by(TRAVERSAL), CostRange(size.low // 4, size.high)
            case "strings_quote":
                size = self.size(args[0])
                return size.by(TRAVERSAL), CostRange(size.low + 2, min(size.high * 2 + 2, UNBOUNDED))
            case "starts_with_string" | "ends_with_string":
                return self.size(args[0]).by(TRAVERSAL), None
            case "in_list":
                return self.size(args[1]).by(1), None
            case "matches_string" if target is not None:
                text = (self.size(target) + fixed(1)).by(TRAVERSAL)
                return text * self.size(args[0]).by(REGEX), None
            case "contains_string" if target is not None:
                return self.size(target).by(TRAVERSAL) * self.size(args[0]).by(TRAVERSAL), None
            case "add_string" | "add_bytes" | "add_list":
                return self._added(node, overload)
            case "equals" | "not_equals":
                return self._compared(node), None
        if overload.startswith(("less_", "greater_")) and overload.endswith(("_string", "_bytes")):
            return self._compared(node), None
        return None

    def _added(self, node: CallNode, overload: str) -> tuple[CostRange, CostRange]:
        size = self.size(node.args[0]) + self.size(node.args[1])
        one, other = self.entry(node.args[0]), self.entry(node.args[1])
        if one is not None and (either := one.either(other)) is not None:
            self.entries[node.id] = either
        return (fixed(1) if overload == "add_list" else size.by(TRAVERSAL)), size

    def _compared(self, node: CallNode) -> CostRange:
        of = self.type(node.args[0])
        if of == self.type(node.args[1]) and of.name in ("net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver"):
            return fixed(1)
        if of == self.type(node.args[1]) and of.name == "kubernetes.NamedFormat":
            return CostRange(1, 64).by(TRAVERSAL)
        high = min(self.size(node.args[0]).high, self.size(node.args[1]).high)
        return CostRange(1 if high else 0, high).by(TRAVERSAL)

    def _extended(self, node: CallNode, overload: str) -> tuple[CostRange, CostRange | None] | None:
        """Return the cost and the result size of a call whose function Kubernetes adds or prices differently; None for other functions."""
        name, args, target = node.function, node.args, node.target
        if name in CONSTANT or overload == "cidr_ip":
            return fixed(1), None
        if name in WHOLE_LIST and target is not None:
            return self._whole(target), None
        if name in ("lowerAscii", "upperAscii", "substring", "trim") and target is not None:
            return self.size(target).by(TRAVERSAL), self.size(target)
        if name in ONE_PASS and args:
            size = self.size(args[0])
            return size.by(TRAVERSAL), size if name == "url" else None
        if name in TWO_PASSES:
            return self._two_passes(node)
        match name:
            case "check":
                return fixed(AUTHORIZATION), None
            case "fieldSelector" | "labelSelector":
                size = self.size(args[0])
                return fixed(LIST) + size.by(TRAVERSAL) + size.by(0.5).by(LIST + STRUCT), None
            case "join" if target is not None:
                return self._join(target, args)
            case "find" | "findAll" if target is not None:
                size = self.size(target)
                return (size + fixed(1)).by(TRAVERSAL) * self.size(args[0]).by(REGEX), CostRange(0, size.high)
            case "containsIP" | "containsCIDR":
                cost = (_ADDRESS + _ADDRESS).by(TRAVERSAL)
                if name == "containsCIDR":
                    cost += _ADDRESS.by(TRAVERSAL) + fixed(1)
                return cost + (self.size(args[0]).by(TRAVERSAL) if overload.endswith("_string") else CostRange()), None
            case "validate":
                return self.size(args[0]).by(TRAVERSAL).by(_NAMED_FORMAT * REGEX), None
        return None

    def _whole(self, target: Node) -> CostRange:
        of = self.type(target)
        if not of.parameters:
            return self.size(target).by(TRAVERSAL)
        each = fixed(1)
        if of.parameters[0].kind in ("string", "bytes"):
            each += self._item_size(target).by(TRAVERSAL)
        return self.size(target) * each

    def _two_passes(self, node: CallNode) -> tuple[CostRange, CostRange | None]:
        of = node.target if node.target is not None else node.args[0]
        size = self.size(of)
        cost = size.by(2 * TRAVERSAL)
        if node.function == "split":
            most = literal(node.args[1]) if len(node.args) > 1 else None
            # As upstream, a negative limit counts as its unsigned counterpart.
            return cost, CostRange(0, most % 2**64 if isinstance(most, int) else size.high)
        if node.function == "replace" and len(node.args) > 1:
            return cost, _replaced(size, self.size(node.args[0]), self.size(node.args[1]))
        return cost, None

    def _join(self, target: Node, args: list[Node]) -> tuple[CostRange, CostRange | None]:
        items = self.size(target)
        size = CostRange()
        if self.type(target).parameters:
            size = items * self._item_size(target)
        if args:
            size += self.size(args[0]) * CostRange(max(items.low - 1, 0), max(items.high - 1, 0))
        return size.by(TRAVERSAL), size

    def _listed(self, node: CallNode, overload: str) -> tuple[CostRange, CostRange | None] | None:
        """Return the cost and the result size of a call that constructs a list or compares lists as sets; None for other functions."""
        args, target = node.args, node.target
        if overload.startswith("list_sets_"):
            size = self.size(args[0]) * self.size(args[1])
            return size.by(2 if "equivalent" in overload else 1) + fixed(1), None
        made, factor = None, 1.0
        if overload == "list_slice" and target is not None:
            start, end = _whole_number(args[0], 0), _whole_number(args[1], self.size(target).high)
            made = fixed((end - start) % 2**64)
        elif overload == "lists_range":
            made = fixed(_whole_number(args[0], UNBOUNDED))
        elif overload == "list_reverse" and target is not None:
            made = self.size(target)
        elif overload in ("list_flatten", "list_flatten_int") and target is not None:
            made, factor = self.size(target), float(_whole_number(args[0], UNBOUNDED)) if args else 1.0
        elif target is not None and (overload == "list_distinct" or overload.endswith(("_sort", "_sortByAssociatedKeys"))):
            size = self.size(args[0] if args else target)
            factor = 2 + TRAVERSAL if overload.startswith(("list_string_", "list_bytes_")) else 2.0
            made = size * size
        return None if made is None else (made.by(factor) + fixed(1 + LIST), made)

    def _copy(self, to: Node, of: Node) -> None:
        size, entries = self._size(of), self.entry(of)
        if size is not None:
            self.sizes[to.id] = size
        if entries is not None:
            self.entries[to.id] = entries

    def _push(self, name: str, local: _Local) -> None:
        self.locals.setdefault(name, []).append(local)

    def _comprehension(self, node: Comprehension) -> CostRange:
        total = self.cost(node.over) + self.cost(node.initial)
        of = _Local(self.path(node.initial), self._size(node.initial), self.entry(node.initial))
        self._push(node.accumulator, of)
        if _is_binding(node):
            total += self.cost(node.result)
            self.locals[node.accumulator].pop()
            self._copy(node, node.result)
            return total
        self._push_variables(node)
        each = self.cost(node.condition)
        each += self.cost(node.step)
        self.locals[node.variable].pop()
        if node.variable2:
            self.locals[node.variable2].pop()
        total += self.cost(node.result)
        self.locals[node.accumulator].pop()
        count = self.size(node.over)
        total += count * each
        match node.initial:
            case Const():
                size = self._size(node.initial)
                if size is not None:
                    self.sizes[node.id] = size
            case ListLiteral() | MapLiteral():
                self.sizes[node.id] = count
                if (stepped := self.entry(node.step)) is not None:
                    self.entries[node.id] = stepped
        return total

    def _push_variables(self, node: Comprehension) -> None:
        entries, path = self.entry(node.over), self.path(node.over)
        is_list = (entries.kind if entries else self.type(node.over).kind) == "list"
        key, value = (entries.key, entries.value) if entries else (None, None)
        if node.variable2:
            self._push(node.variable, _Local((*path, "@indices" if is_list else "@keys"), key))
            self._push(node.variable2, _Local((*path, "@items" if is_list else "@values"), value))
        else:
            self._push(node.variable, _Local((*path, "@items" if is_list else "@keys"), value if is_list else key))


def _is_binding(node: Comprehension) -> bool:
    empty = isinstance(node.over, ListLiteral) and not node.over.elements
    return empty and isinstance(node.condition, Const) and node.condition.value is False and node.accumulator != "__result__"


def _scalar(of: Type) -> bool:
    return of.kind in _SCALARS or (of.is_optional and _scalar(of.parameters[0]))


def _literal_size(node: Node) -> CostRange | None:
    match node:
        case Const():
            return fixed(len(node.value) if isinstance(node.value, str | bytes) else 1)
        case ListLiteral():
            return fixed(len(node.elements))
        case MapLiteral():
            return fixed(len(node.entries))
        case _:
            return None


def _whole_number(node: Node, default: int) -> int:
    value = literal(node)
    return max(value, 0) if isinstance(value, int) and not isinstance(value, bool) else default


def _replaced(size: CostRange, old: CostRange, new: CostRange) -> CostRange:
    """Return the size range of a string after ``replace(old, new)``."""
    if old.low == 0:
        most, kept_most = min(size.high + 1, UNBOUNDED), size.high
    elif new.high <= old.low:
        most, kept_most = 0, size.high
    else:
        most, kept_most = math.ceil(size.high / old.low), 0
    if old.high == 0:
        least, kept_least = min(size.low + 1, UNBOUNDED), size.low
    elif old.high <= new.low:
        least, kept_least = 0, size.low
    else:
        least, kept_least = math.ceil(size.low / old.high), 0
    return CostRange(least, most) * new + CostRange(kept_least, kept_most)
