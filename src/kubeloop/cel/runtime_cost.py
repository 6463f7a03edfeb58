"""Runtime costs of an evaluation in cel-go's units: about one for each step, more for calls that traverse texts or lists.

Source: cel-go interpreter/runtimecost.go, k8s.io/apiserver pkg/cel/library/cost.go (CallCost). ``has()`` is free, as in Kubernetes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from kubeloop.cel.faults import CostExceeded
from kubeloop.cel.values import Amount, Cidr, FormatValue, Semver, UrlValue, from_key, size_of

LIST: Final = 10
MAP: Final = 30
STRUCT: Final = 40
#: Cost of one authorizer check.
AUTHORIZATION: Final = 350_000
TRAVERSAL: Final = 0.1
REGEX: Final = 0.25

CallCost = Callable[[tuple[Any, ...], Any], int]

CONSTANT: Final = frozenset({
    "masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast",
    "sign", "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo", "add", "sub", "major", "minor",
    "patch", "serviceAccount", "path", "group", "resource", "subresource", "namespace", "name", "allowed", "reason", "error", "errored",
    "getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery", "format.named",
})  # fmt: skip
WHOLE_LIST: Final = frozenset({"isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"})
ONE_PASS: Final = frozenset(
    {"url", "lowerAscii", "upperAscii", "substring", "trim", "cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"}
)
TWO_PASSES: Final = frozenset({"replace", "split", "ip.isCanonical"})
_BY_FIRST: Final = frozenset({
    "starts_with_string", "ends_with_string", "string_to_bytes", "bytes_to_string", "strings_quote", "string_format",
})  # fmt: skip
_CHEAP_EQUALITY: Final = (Amount, Cidr, FormatValue, UrlValue, Semver)


@dataclass(slots=True)
class Meter:
    """Adds up the cost of one evaluation and stops it at ``limit``."""

    limit: int
    cost: int = 0

    def add(self, cost: int) -> None:
        """Add to the cost of the evaluation.

        Raises:
            CostExceeded: The limit is exceeded.
        """
        self.cost += cost
        if self.cost > self.limit:
            raise CostExceeded


def _passes(count: float) -> CallCost:
    return lambda args, _: math.ceil(size_of(args[0]) * count * TRAVERSAL)


def _regex(args: tuple[Any, ...], _: Any) -> int:
    return math.ceil((1 + size_of(args[0])) * TRAVERSAL) * math.ceil(size_of(args[1]) * REGEX)


def _within(args: tuple[Any, ...], _: Any) -> int:
    return math.ceil(size_of(args[0]) * TRAVERSAL) * math.ceil(size_of(args[1]) * TRAVERSAL)


def _compare(args: tuple[Any, ...], _: Any) -> int:
    if isinstance(args[0], _CHEAP_EQUALITY):
        return 1
    return math.ceil(min(size_of(args[0]), size_of(args[1])) * TRAVERSAL)


def _concatenated(args: tuple[Any, ...], _: Any) -> int:
    return math.ceil((size_of(args[0]) + size_of(args[1])) * TRAVERSAL)


def _cidr(args: tuple[Any, ...], _: Any, *, inner: bool, text: bool) -> int:
    own = size_of(args[0])
    cost = math.ceil(2 * own * TRAVERSAL)
    if inner:
        cost += math.ceil(own * TRAVERSAL) + 1
    return cost + (math.ceil(size_of(args[1]) * TRAVERSAL) if text else 0)


def _validated(args: tuple[Any, ...], _: Any) -> int:
    pattern: FormatValue = args[0]
    return math.ceil((1 + size_of(args[1])) * TRAVERSAL) * math.ceil(pattern.weight * REGEX)


def traversal(value: Any) -> int:
    match value:
        case str() | bytes():
            return int(len(value) * TRAVERSAL)
        case list():
            return sum(map(traversal, value))
        case dict():
            return sum(traversal(from_key(key)) + traversal(one) for key, one in value.items())
        case _:
            return 1


def _made(factor: float, size: int) -> int:
    return int(size * factor) + 1 + LIST


def _all_pairs(items: list[Any]) -> int:
    factor = 2 + TRAVERSAL if items and isinstance(items[0], str | bytes) else 2.0
    return _made(factor, len(items) ** 2)


_SETS: Final = {"list_sets_contains_list": 1, "list_sets_intersects_list": 1, "list_sets_equivalent_list": 2}


@cache
def call_cost(function: str, overload: str) -> CallCost | None:
    """Return the function that computes the cost of a call without that of its arguments, or None if the call costs 1."""
    if overload in _SETS:
        factor = _SETS[overload]
        return lambda args, _: 1 + len(args[0]) * len(args[1]) * factor
    if overload in ("list_slice", "lists_range", "list_reverse"):
        return lambda _, result: _made(1, len(result))
    if overload in ("list_flatten", "list_flatten_int"):
        return lambda args, _: _made(args[1] if len(args) > 1 else 1, len(args[0]))
    if overload == "list_distinct" or overload.endswith("_sort"):
        return lambda args, _: _all_pairs(args[0])
    if overload.endswith("_sortByAssociatedKeys"):
        return lambda args, _: _all_pairs(args[1])
    if function in CONSTANT or overload == "cidr_ip":
        return None
    return _by_function(function, overload) or _by_overload(overload)


def _by_function(function: str, overload: str) -> CallCost | None:
    if function in WHOLE_LIST:
        return lambda args, _: traversal(args[0])
    if function in ONE_PASS:
        return _passes(1)
    if function in TWO_PASSES:
        return _passes(2)
    match function:
        case "check":
            return lambda _args, _result: AUTHORIZATION
        case "fieldSelector" | "labelSelector":
            return lambda args, _: LIST + math.ceil(size_of(args[1]) * TRAVERSAL) + math.ceil(size_of(args[1]) / 2) * (LIST + STRUCT)
        case "join":
            return lambda _, result: math.ceil(size_of(result) * 2 * TRAVERSAL)
        case "find" | "findAll":
            return _regex
        case "containsIP":
            return lambda args, result: _cidr(args, result, inner=False, text=overload.endswith("string"))
        case "containsCIDR":
            return lambda args, result: _cidr(args, result, inner=True, text=overload.endswith("string"))
        case "validate":
            return _validated
        case _:
            return None


def _by_overload(overload: str) -> CallCost | None:
    if overload in _BY_FIRST:
        return _passes(1)
    if overload in ("equals", "not_equals"):
        return _compare
    if overload.startswith(("less_", "greater_")) and overload.endswith(("_string", "_bytes")):
        return _compare
    match overload:
        case "in_list":
            return lambda args, _: len(args[1])
        case "add_string" | "add_bytes":
            return _concatenated
        case "matches" | "matches_string":
            return _regex if overload == "matches_string" else None
        case "contains_string":
            return _within
        case _:
            return None
