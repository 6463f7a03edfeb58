"""Arithmetic, comparison, indexing and membership. Integers have 64 bits; an overflow is an error, never a wrap."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from kubeloop.cel.faults import EvalError
from kubeloop.cel.overloads import function
from kubeloop.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    DurationValue,
    Timestamp,
    UInt,
    as_key,
    contains,
    equal,
    from_key,
    is_key,
    joined,
)
from kubeloop.meta.field_error import go_number

#: The range of Go's time.Time that CEL allows: the years 1 to 9999.
_FIRST, _LAST = -62135596800 * 10**9, 253402300799 * 10**9 + 999_999_999


def integer(value: int) -> int:
    if not INT_MIN <= value <= INT_MAX:
        raise EvalError("integer overflow")
    return value


def unsigned(value: int) -> UInt:
    if not 0 <= value <= UINT_MAX:
        raise EvalError("unsigned integer overflow")
    return UInt(value)


def duration(nanos: int) -> DurationValue:
    if not INT_MIN <= nanos <= INT_MAX:
        raise EvalError("integer overflow")
    return DurationValue(nanos)


def timestamp(nanos: int, offset: int = 0) -> Timestamp:
    if not _FIRST <= nanos <= _LAST:
        raise EvalError("timestamp overflow")
    return Timestamp(nanos, offset)


def _divided(left: int, other: int) -> int:
    """Divide and round towards zero, as Go does."""
    if other == 0:
        raise EvalError("division by zero")
    quotient = abs(left) // abs(other)
    return quotient if (left < 0) == (other < 0) else -quotient


def _rest(left: int, other: int) -> int:
    if other == 0:
        raise EvalError("modulus by zero")
    return left - _divided(left, other) * other


def _float_divided(left: float, other: float) -> float:
    if other:
        return left / other
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, other)


def _float(compute: Callable[[float, float], float]) -> Callable[[float, float], float]:
    def computed(left: float, other: float) -> float:
        try:
            return compute(left, other)
        except OverflowError:
            return math.inf

    return computed


for _name, _verb, _int, _double in (
    ("_+_", "add", operator.add, operator.add),
    ("_-_", "subtract", operator.sub, operator.sub),
    ("_*_", "multiply", operator.mul, operator.mul),
    ("_/_", "divide", _divided, _float_divided),
    ("_%_", "modulo", _rest, None),
):

    def _make(compute: Callable[[int, int], int], bound: Callable[[int], int]) -> Callable[[int, int], int]:
        return lambda left, other: bound(compute(int(left), int(other)))

    function(_name, "int, int -> int", f"{_verb}_int64")(_make(_int, integer))
    function(_name, "uint, uint -> uint", f"{_verb}_uint64")(_make(_int, unsigned))
    if _double is not None:
        function(_name, "double, double -> double", f"{_verb}_double")(_float(_double))

function("_+_", "string, string -> string", "add_string")(operator.add)
function("_+_", "bytes, bytes -> bytes", "add_bytes")(operator.add)
function("_+_", "list(A), list(A) -> list(A)", "add_list")(joined)
function("_+_", "duration, duration -> duration", "add_duration_duration")(lambda left, other: duration(left.nanos + other.nanos))
function("_+_", "timestamp, duration -> timestamp", "add_timestamp_duration")(
    lambda left, other: timestamp(left.nanos + other.nanos, left.offset)
)
function("_+_", "duration, timestamp -> timestamp", "add_duration_timestamp")(
    lambda left, other: timestamp(left.nanos + other.nanos, other.offset)
)
function("_-_", "duration, duration -> duration", "subtract_duration_duration")(lambda left, other: duration(left.nanos - other.nanos))
function("_-_", "timestamp, duration -> timestamp", "subtract_timestamp_duration")(
    lambda left, other: timestamp(left.nanos - other.nanos, left.offset)
)
function("_-_", "timestamp, timestamp -> duration", "subtract_timestamp_timestamp")(lambda left, other: duration(left.nanos - other.nanos))
function("-_", "int -> int", "negate_int64")(lambda left: integer(-left))
function("-_", "double -> double", "negate_double")(operator.neg)
function("!_", "bool -> bool", "logical_not")(operator.not_)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda left, other: bool(compare(left, other))


def _ordered_doubles(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Return a function that compares two numbers as doubles, so that 9223372036854775807 equals 9223372036854775808.0.

    It is used if at least one of the numbers is a double.
    """

    def compared(left: float, other: float) -> bool:
        if left != left or other != other:
            raise EvalError("NaN values cannot be ordered")
        return bool(compare(float(left), float(other)))

    return compared


for _name, _verb, _compare in (
    ("_<_", "less", operator.lt),
    ("_<=_", "less_equals", operator.le),
    ("_>_", "greater", operator.gt),
    ("_>=_", "greater_equals", operator.ge),
):
    for _type, _suffix in (
        ("bool", "bool"), ("int", "int64"), ("uint", "uint64"), ("double", "double"), ("string", "string"), ("bytes", "bytes"),
        ("timestamp", "timestamp"), ("duration", "duration"),
    ):  # fmt: skip
        function(_name, f"{_type}, {_type} -> bool", f"{_verb}_{_suffix}")((_ordered_doubles if _type == "double" else _ordered)(_compare))
    for _left, _right in (("int", "double"), ("int", "uint"), ("uint", "double"), ("uint", "int"), ("double", "int"), ("double", "uint")):
        _id = "_".join(name + ("64" if name != "double" else "") for name in (_left, _right))
        _made = _ordered_doubles if "double" in (_left, _right) else _ordered
        function(_name, f"{_left}, {_right} -> bool", f"{_verb}_{_id}")(_made(_compare))

function("_==_", "A, A -> bool", "equals")(equal)
function("_!=_", "A, A -> bool", "not_equals")(lambda left, other: not equal(left, other))


def list_index(index: Any) -> int:
    """Return an index of a list as an integer.

    Raises:
        EvalError: The index is a string or a bool, or a number that equals no 64-bit integer.
    """
    if isinstance(index, str | bool):
        raise EvalError(f"unsupported index type '{'bool' if isinstance(index, bool) else 'string'}' in list")
    if isinstance(index, float) and not (index.is_integer() and INT_MIN <= index < -INT_MIN):
        raise EvalError(f"unsupported index value {go_number(index)} in list")
    if index > INT_MAX:
        raise EvalError(f"unsupported index value {int(index)} in list")
    return int(index)


def index_of_list(items: list[Any], index: Any) -> Any:
    index = list_index(index)
    if not 0 <= index < len(items):
        raise EvalError(f"index out of bounds: {index}")
    return items[index]


def index_of_map(mapping: dict[Any, Any], key: Any) -> Any:
    try:
        return mapping[as_key(key)]
    except KeyError:
        raise EvalError(f"no such key: {shown_key(key)}") from None


def shown_key(key: Any) -> str:
    key = from_key(key)
    return str(key).lower() if isinstance(key, bool) else str(key)


function("_[_]", "list(A), int -> A", "index_list")(index_of_list)
function("_[_]", "map(A, B), A -> B", "index_map")(index_of_map)
function("@in", "A, list(A) -> bool", "in_list")(lambda item, items: contains(items, item))
function("@in", "A, map(A, B) -> bool", "in_map")(
    lambda key, mapping: is_key(key) and as_key(key) in mapping  # a value that cannot be a key is in no map
)
function("@not_strictly_false", "bool -> bool", "not_strictly_false")(lambda left: left is not False)
# The program evaluates these operators itself, because they do not evaluate every operand; they are registered for the type checker.
function("_?_:_", "bool, A, A -> A", "conditional")(lambda condition, left, other: left if condition else other)
function("_&&_", "bool, bool -> bool", "logical_and")(lambda left, other: left and other)
function("_||_", "bool, bool -> bool", "logical_or")(lambda left, other: left or other)
