"""Sizes, conversions between types, and the plain functions of strings. Source: the CEL specification, cel-go common/stdlib."""

from __future__ import annotations

import math
import re
from typing import Any

from kubeloop.cel.faults import EvalError
from kubeloop.cel.functions.operators import integer, unsigned
from kubeloop.cel.functions.strings import compiled
from kubeloop.cel.overloads import function, member
from kubeloop.cel.values import INT_MAX, INT_MIN, UINT_MAX, TypeValue, UInt, type_name
from kubeloop.meta.field_error import go_number

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NATURAL = re.compile(r"[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?i:inf|infinity)|(?i:nan)")

for _type in ("string", "bytes", "list(A)", "map(A, B)"):
    _id = _type.partition("(")[0]
    function("size", f"{_type} -> int", f"size_{_id}")(len)
    member("size", f"{_type} -> int", f"{_id}_size")(len)

function("type", "A -> type(A)", "type")(lambda value: TypeValue(type_name(value)))
function("dyn", "A -> dyn", "to_dyn")(lambda value: value)


def same(value: Any) -> Any:
    return value


for _type in ("bool", "int", "uint", "double", "string", "bytes"):
    function(_type, f"{_type} -> {_type}", f"{_type}_to_{_type}")(same)


def _int_of_double(value: float) -> int:
    if not math.isfinite(value) or not INT_MIN < value < INT_MAX:
        raise EvalError("integer overflow")
    return int(value)


def _uint_of_double(value: float) -> UInt:
    if not math.isfinite(value) or not 0 <= value < UINT_MAX:
        raise EvalError("unsigned integer overflow")
    return UInt(value)


@function("int", "string -> int", "string_to_int64")
def _int_of_string(text: str) -> int:
    if not _INTEGER.fullmatch(text) or not INT_MIN <= int(text) <= INT_MAX:
        raise EvalError("type conversion error from 'string' to 'int'")
    return int(text)


@function("uint", "string -> uint", "string_to_uint64")
def _uint_of_string(text: str) -> UInt:
    if not _NATURAL.fullmatch(text) or int(text) > UINT_MAX:
        raise EvalError("type conversion error from 'string' to 'uint'")
    return UInt(text)


@function("double", "string -> double", "string_to_double")
def _double_of_string(text: str) -> float:
    if not _DECIMAL.fullmatch(text):
        raise EvalError("type conversion error from 'string' to 'double'")
    return float(text)


@function("bool", "string -> bool", "string_to_bool")
def _bool_of_string(text: str) -> bool:
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise EvalError("type conversion error from 'string' to 'bool'")


@function("string", "bytes -> string", "bytes_to_string")
def _string_of_bytes(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise EvalError("invalid UTF-8 in bytes, cannot convert to string") from None


function("int", "double -> int", "double_to_int64")(_int_of_double)
function("int", "uint -> int", "uint64_to_int64")(lambda value: integer(int(value)))
function("uint", "int -> uint", "int64_to_uint64")(unsigned)
function("uint", "double -> uint", "double_to_uint64")(_uint_of_double)
function("double", "int -> double", "int64_to_double")(float)
function("double", "uint -> double", "uint64_to_double")(float)
function("string", "bool -> string", "bool_to_string")(lambda value: "true" if value else "false")
function("string", "int -> string", "int64_to_string")(str)
function("string", "uint -> string", "uint64_to_string")(str)
function("string", "double -> string", "double_to_string")(go_number)
function("bytes", "string -> bytes", "string_to_bytes")(lambda text: text.encode("utf-8", "surrogatepass"))

member("contains", "string, string -> bool", "contains_string")(lambda text, part: part in text)
member("startsWith", "string, string -> bool", "starts_with_string")(lambda text, part: text.startswith(part))
member("endsWith", "string, string -> bool", "ends_with_string")(lambda text, part: text.endswith(part))


@function("matches", "string, string -> bool", "matches")
@member("matches", "string, string -> bool", "matches_string")
def _matches(text: str, pattern: str) -> bool:
    return compiled(pattern).is_in(text)
