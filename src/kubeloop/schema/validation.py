"""Validates JSON values against a schema, with the messages and causes of the Kubernetes API server.

Covers structural schemas without CEL rules. Source: kube-openapi validation/validate, apiextensions-apiserver validation.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Final

from kubeloop.meta.field_error import FieldError, FieldErrorType, go_number, invalid, required, too_long, type_invalid
from kubeloop.schema import formats
from kubeloop.schema.node import TypeSchema
from kubeloop.schema.patterns import go_pattern
from kubeloop.schema.structural import NO_OTHER

_NOTHING: Final = object()
#: The field that Kubernetes names when a whole object fails a junctor (anyOf, oneOf, allOf, not).
_NO_FIELD: Final = "<nil>"
_INT64: Final = 2**63
_ANY: Final = TypeSchema()
#: The largest whole number that every JSON reader represents exactly.
_LARGEST_EXACT: Final = 2**53 - 1


def validate(value: Any, schema: TypeSchema, *, at: str = "", old: Any = _NOTHING) -> list[FieldError]:
    """Return an error for every rule of the schema that ``value`` breaks.

    Args:
        value: The JSON value.
        schema: Its schema.
        at: Prefix of field names (``status`` for a status subresource).
        old: The value before an update: parts that equal their counterpart in it are not reported (ratcheting, KEP-4008); list items
            have a counterpart only in lists of type map.
    """
    return [fault.as_field_error(at) for fault in _node(value, schema, "", _Old(old)).faults]


@dataclass(slots=True)
class _Fault:
    """A fault. ``name`` is the path within the value in messages; ``as_field_error`` adds the prefix of the path."""

    name: str
    type: FieldErrorType
    value: Any = None
    detail: str = ""
    limit: int = 0

    def key(self) -> tuple[str, FieldErrorType, str]:
        return self.name, self.type, self.detail

    def as_field_error(self, at: str) -> FieldError:
        name = self.name.removeprefix(".")
        field_name = (f"{at}.{name}" if at and name else at or name) or _NO_FIELD
        if self.name == _NO_FIELD:
            field_name = at or _NO_FIELD
        match self.type:
            case FieldErrorType.REQUIRED:
                return required(field_name)
            case FieldErrorType.TOO_LONG:
                return too_long(field_name, self.limit)
            case FieldErrorType.TYPE_INVALID:
                return type_invalid(field_name, self.value, self.detail)
            case FieldErrorType.INVALID:
                return invalid(field_name, self.value, self.detail)
            case _:
                return FieldError(self.type, field_name, self.value, self.detail)


@dataclass(slots=True)
class _Result:
    """The faults of one value. ``matched`` counts the checks: if an anyOf fails, the alternative with most checks is reported."""

    faults: list[_Fault] = field(default_factory=list)
    matched: int = 0

    def add(self, *faults: _Fault) -> None:
        seen = {fault.key() for fault in self.faults}
        self.faults.extend(fault for fault in faults if fault.key() not in seen)

    def merge(self, other: _Result) -> None:
        self.add(*other.faults)
        self.matched += other.matched


class _Old:
    """The counterpart of a value in the object before the update, if there is one."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def known(self) -> bool:
        return self.value is not _NOTHING

    def key(self, name: str) -> _Old:
        return _Old(self.value.get(name, _NOTHING) if isinstance(self.value, dict) else _NOTHING)

    def item(self, schema: TypeSchema, item: Any) -> _Old:
        if not isinstance(self.value, list) or schema.list_type != "map" or not isinstance(item, dict):
            return _Old(_NOTHING)
        expected = [item.get(key) for key in schema.list_map_keys]
        same = [one for one in self.value if isinstance(one, dict) and [one.get(key) for key in schema.list_map_keys] == expected]
        return _Old(same[0] if len(same) == 1 else _NOTHING)


def _node(value: Any, schema: TypeSchema, path: str, old: _Old) -> _Result:
    result = _Result()
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        value = float(value)  # as Go reads a number that no int64 holds
    types = ("integer", "string") if schema.int_or_string else (schema.type,) if schema.type else ()
    format_ = schema.format if schema.format and formats.is_recognised(schema.type, schema.format) else ""
    if value is None:
        result.merge(_type(value, schema, types, format_, path))
        result.merge(_enum(value, schema, path))
        return _ratcheted(result, value, schema, old)
    parts: list[_Result] = []
    if types or format_:
        parts.append(_type(value, schema, types, format_, path))
    parts.append(_junctors(value, schema, path, old))
    if isinstance(value, str):
        parts.append(_string(value, schema, path))
        if format_ and not formats.matches(format_, value):
            parts.append(_Result([_bad_type(path, format_, value)]))
        elif format_:
            parts.append(_Result())
    elif isinstance(value, int | float) and not isinstance(value, bool):
        parts.append(_number(value, schema, types, format_, path))
    elif isinstance(value, list):
        parts.append(_list(value, schema, path, old))
    parts.append(_enum(value, schema, path))
    if isinstance(value, dict):
        parts.append(_object(value, schema, path, old))
    for part in parts:
        result.merge(part)
        result.matched += 1
    result.matched += 1
    return _ratcheted(result, value, schema, old)


def _ratcheted(result: _Result, value: Any, schema: TypeSchema, old: _Old) -> _Result:
    if result.faults and old.known and _unchanged(value, schema, old):
        result.faults = []
    return result


def _unchanged(value: Any, schema: TypeSchema, old: _Old) -> bool:
    """Return whether a value equals its counterpart ``old`` at every depth; the order of lists of type map does not matter."""
    if isinstance(value, dict) and isinstance(old.value, dict):
        if value.keys() != old.value.keys():
            return False
        return all(_unchanged(one, schema.properties.get(name, schema.values) or _ANY, old.key(name)) for name, one in value.items())
    if isinstance(value, list) and isinstance(old.value, list) and schema.list_type == "map" and len(value) == len(old.value):
        below = schema.items or _ANY
        for index, item in enumerate(value):
            counterpart = old.item(schema, item)
            # An item without a counterpart by its keys is compared with the item at the same index.
            if not _unchanged(item, below, counterpart if counterpart.known else _Old(old.value[index])):
                return False
        return True
    return same(old.value, value)


def same(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal at every depth. Unlike in Python, true is not 1, and 1 is not 1.0."""
    if isinstance(left, float) and isinstance(right, float):
        return left == right
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def _bad_type(path: str, expected: str, actual: str) -> _Fault:
    quoted = json.dumps(actual, ensure_ascii=False)
    return _Fault(path, FieldErrorType.TYPE_INVALID, actual, f"{path} in body must be of type {expected}: {quoted}")


def _json_type(value: Any) -> tuple[str, str]:
    match value:
        case bool():
            return "boolean", ""
        case str():
            return "string", ""
        case int():
            return "integer", "int64"
        case float():
            return "number", "float64"
        case list():
            return "array", ""
        case _:
            return "object", ""


def _type(value: Any, schema: TypeSchema, types: tuple[str, ...], format_: str, path: str) -> _Result:
    fine = _Result(matched=1)
    if value is None:
        return fine if not types or schema.nullable else _Result([_bad_type(path, ",".join(types), "null")])
    found, found_format = _json_type(value)
    whole = found == "number" and "integer" in types and _nearly_whole(value)
    widened = found == "integer" and "number" in types
    if format_:
        if not isinstance(value, str | list):
            if not (found in types or found_format == format_ or whole or widened):
                return _Result([_bad_type(path, format_, found_format)])
        elif "number" not in types and "integer" not in types:
            # The format check that follows is the stricter one (and, as upstream, a list passes here).
            return fine
    if not types or found in types or whole or widened:
        return fine
    return _Result([_bad_type(path, ",".join(types), found)])


def _junctors(value: Any, schema: TypeSchema, path: str, old: _Old) -> _Result:
    result = _Result()
    if schema.any_of:
        _any_of(result, [_node(value, one, path, old) for one in schema.any_of], path)
    if schema.one_of:
        _one_of(result, [_node(value, one, path, old) for one in schema.one_of], path)
    if schema.all_of:
        results = [_node(value, one, path, old) for one in schema.all_of]
        for one in results:
            result.merge(one)
        valid = sum(not one.faults for one in results)
        if valid != len(results):
            result.add(_junctor(path, "must validate all the schemas (allOf)" + ("" if valid else ". None validated")))
    if schema.not_ is not None and not _node(value, schema.not_, path, old).faults:
        result.add(_junctor(path, "must not validate the schema (not)"))
    result.matched += 1
    return result


def _junctor(path: str, text: str) -> _Fault:
    return _Fault(_NO_FIELD, FieldErrorType.INVALID, "", f'"{path}" {text}')


def _any_of(result: _Result, alternatives: list[_Result], path: str) -> None:
    for one in alternatives:
        if not one.faults:
            result.merge(one)
            return
    result.add(_junctor(path, "must validate at least one schema (anyOf)"))
    result.merge(max(alternatives, key=lambda alternative: alternative.matched))


def _one_of(result: _Result, alternatives: list[_Result], path: str) -> None:
    valid = [one for one in alternatives if not one.faults]
    if len(valid) == 1:
        result.merge(valid[0])
        return
    found = f"Found {len(valid)} valid alternatives" if valid else "Found none valid"
    result.add(_junctor(path, f"must validate one and only one schema (oneOf). {found}"))
    if valid:
        # Upstream would show the best failure after the last valid alternative, but drops failures once an alternative was valid.
        return
    result.merge(max(alternatives, key=lambda alternative: alternative.matched))


def _string(value: str, schema: TypeSchema, path: str) -> _Result:
    if schema.max_length is not None and len(value) > schema.max_length:
        return _Result([_Fault(path, FieldErrorType.TOO_LONG, limit=schema.max_length)])
    if schema.min_length is not None and len(value) < schema.min_length:
        detail = f"{path} in body should be at least {schema.min_length} chars long"
        return _Result([_Fault(path, FieldErrorType.INVALID, value, detail)])
    if schema.pattern and not go_pattern(schema.pattern).is_in(value):
        return _Result([_Fault(path, FieldErrorType.INVALID, value, f"{path} in body should match '{schema.pattern}'")])
    return _Result()


def _number(value: float, schema: TypeSchema, types: tuple[str, ...], format_: str, path: str) -> _Result:
    result = _Result(matched=1)
    kind = types[0] if len(types) == 1 else ""
    result.add(*_range(value, kind, format_, "Checked", path))
    limits = (("MultipleOf", schema.multiple_of), ("Minimum boundary", schema.minimum), ("Maximum boundary", schema.maximum))
    for name, limit in limits:
        if limit is None:
            continue
        outside = _range(float(limit), kind, format_, name, path)
        result.add(*outside)
        # As upstream: a whole number is compared with the limit truncated to a whole number, unless the limit does not fit the type.
        shown: float = _go_int(limit) if isinstance(value, int) and not outside else float(limit)
        if name == "MultipleOf" and shown <= 0:
            factor = go_number(shown)
            detail = f"factor MultipleOf declared for {path} must be positive: {factor}"
            result.add(_Fault(path, FieldErrorType.INVALID, shown, detail))
            continue
        detail = _outside(name, value, shown, schema)
        if detail:
            result.add(_Fault(path, FieldErrorType.INVALID, value, f"{path} in body {detail}"))
    return result


def _outside(name: str, value: float, limit: float, schema: TypeSchema) -> str:
    shown = go_number(limit)
    if name == "MultipleOf":
        quotient = (1 / limit * value) if limit < 1 else value / limit
        exact = value % limit == 0 if isinstance(value, int) and isinstance(limit, int) else _nearly_whole(quotient)
        return "" if exact else f"should be a multiple of {shown}"
    if name == "Maximum boundary":
        if schema.exclusive_maximum:
            return f"should be less than {shown}" if value >= limit else ""
        return f"should be less than or equal to {shown}" if value > limit else ""
    if schema.exclusive_minimum:
        return f"should be greater than {shown}" if value <= limit else ""
    return f"should be greater than or equal to {shown}" if value < limit else ""


def _nearly_whole(number: float) -> bool:
    if not math.isfinite(number) or abs(number) > _LARGEST_EXACT:
        return False
    whole = math.trunc(number)
    return number == whole or (whole != 0 and abs(number - whole) / (abs(number) + abs(whole)) < 1e-9)


def _go_int(number: float) -> int:
    """Convert a number to int64 as Go does: the fraction is dropped, and a number that does not fit becomes the smallest int64 (amd64)."""
    return int(number) if -_INT64 <= number < _INT64 else -_INT64


def _range(value: float, kind: str, format_: str, name: str, path: str) -> list[_Fault]:
    if kind == "integer":
        bits = 31 if format_ == "int32" else 63
        fits = value == int(value) and -(2**bits) <= value < 2**bits if math.isfinite(value) else False
    elif format_ == "float":
        fits = abs(value) <= 3.4028234663852886e38
    else:
        fits = True
    if fits:
        return []
    shown = f"{kind} with format {format_}" if format_ else f"{kind} (default format)"
    return [_Fault(_NO_FIELD, FieldErrorType.INVALID, "", f"{name} value must be of type {shown} in {path}")]


def _list(value: list[Any], schema: TypeSchema, path: str, old: _Old) -> _Result:
    result = _Result(matched=1)
    if schema.items is not None:
        for index, item in enumerate(value):
            result.merge(_node(item, schema.items, f"{path}[{index}]", old.item(schema, item)))
    if schema.min_items is not None and len(value) < schema.min_items:
        result.add(_Fault(path, FieldErrorType.INVALID, len(value), f"{path} in body should have at least {schema.min_items} items"))
    if schema.max_items is not None and len(value) > schema.max_items:
        result.add(_too_many(path, len(value), schema.max_items))
    return result


def _too_many(path: str, actual: int, limit: int) -> _Fault:
    return _Fault(path, FieldErrorType.TOO_MANY, actual, f"must have at most {limit} item{'' if limit == 1 else 's'}")


def _enum(value: Any, schema: TypeSchema, path: str) -> _Result:
    if not schema.enum or any(_equal_enum(value, one) for one in schema.enum):
        return _Result()
    texts = [one if isinstance(one, str) else json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in schema.enum]
    supported = ", ".join(json.dumps(text, ensure_ascii=False) for text in texts)
    return _Result([_Fault(path, FieldErrorType.NOT_SUPPORTED, value, f"supported values: {supported}")])


def _equal_enum(value: Any, member: Any) -> bool:
    if member is None:
        return False
    numeric = isinstance(value, int | float) and isinstance(member, int | float)
    if numeric and not isinstance(value, bool) and not isinstance(member, bool):
        # Upstream converts the value to the Go type of the member, and to an integer by truncating its fraction.
        return bool((math.trunc(value) if isinstance(member, int) else value) == member)
    return same(value, member)


def _object(value: dict[str, Any], schema: TypeSchema, path: str, old: _Old) -> _Result:
    result = _Result()
    if schema.min_properties is not None and len(value) < schema.min_properties:
        detail = f"{path} in body should have at least {schema.min_properties} properties"
        result.add(_Fault(path, FieldErrorType.INVALID, len(value), detail))
    if schema.max_properties is not None and len(value) > schema.max_properties:
        result.add(_too_many(path, len(value), schema.max_properties))
    for name in sorted(value):
        known = schema.properties.get(name)
        if known is not None:
            below = f"{path}.{name}" if path else name
            # Ratcheting never excuses apiVersion and kind at the root.
            counterpart = _Old(_NOTHING) if not path and name in ("apiVersion", "kind") else old.key(name)
            result.merge(_node(value[name], known, below, counterpart))
        elif schema.values is NO_OTHER:
            result.add(_Fault(path, FieldErrorType.INVALID, name, f"{path}.{name} in body is a forbidden property"))
        elif schema.values is not None:
            result.merge(_node(value[name], schema.values, f"{path}.{name}", old.key(name)))
    for name in schema.required:
        if name not in value:
            result.add(_Fault(f"{path}.{name}", FieldErrorType.REQUIRED))
    return result
