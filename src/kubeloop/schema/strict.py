"""Converts the body of a built-in kind as Go's typed decoding and encoding do: unknown fields, types, nulls, zero values.

Source: encoding/json as patched in sigs.k8s.io/json (strict errors with paths), apimachinery pkg/runtime/serializer/json, and the
JSON tags of Kubernetes' API modules (``strict_types``).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from kubeloop.meta.errors import DecodeError
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.meta.quantity import Quantity
from kubeloop.meta.strconv import go_quoted
from kubeloop.schema.strict_scalars import JsonNumber, decode_base64, decode_time, fits, is_integer, number_text, plain, whole
from kubeloop.schema.strict_types import WireField, WireType, wire_types
from kubeloop.types import JSONObject

#: Maximum digits of an integer. No integer type has nearly as many.
_LONGEST_INTEGER = 1000
#: Go reports at most this many unknown and duplicate fields.
_MOST_PROBLEMS = 100
#: Marks a field that is left out, as opposed to null.
_ABSENT: Any = object()


class RepeatedKeys(dict[str, Any]):
    """A JSON object in which a key occurred more than once; the last one counts. ``repeated`` is in order of appearance."""

    __slots__ = ("repeated",)

    repeated: list[str]


@dataclass(frozen=True, slots=True)
class Conformed:
    """The body as Kubernetes would store it, and the messages of strict decoding: ``unknown field "spec.foo"``, ``duplicate field
    "data.a"``.
    """

    obj: JSONObject
    problems: list[str]


def parse_json(data: bytes) -> Any:
    """Decode JSON as the server does, with repeated keys (``RepeatedKeys``) and fractions as written (``JsonNumber``).

    As in Go, invalid Unicode inside a text becomes U+FFFD, whether bytes or half of a surrogate pair.

    Raises:
        ValueError: The data is not JSON.
        RecursionError: The data nests too deeply.
    """
    if b"\\ud" in data or b"\\uD" in data:
        data = _ESCAPE.sub(_paired, data)
    text = data.decode(errors="replace")
    try:
        return json.loads(text, object_pairs_hook=_pairs, parse_float=JsonNumber, parse_constant=_no_number)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # An integer of thousands of digits. Checked only after a failure, because the check makes every other number slower.
        return json.loads(text, object_pairs_hook=_pairs, parse_float=JsonNumber, parse_constant=_no_number, parse_int=_long_integer)


#: An escape in a text: half a surrogate pair by itself, or anything else.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


def _paired(match: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if match["half"] else match[0]


def _no_number(name: str) -> Any:
    raise json.JSONDecodeError(f"{name} is no JSON", name, 0)


def _long_integer(text: str) -> int | JsonNumber:
    return int(text) if len(text) < _LONGEST_INTEGER else JsonNumber(text)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    marked = RepeatedKeys(pairs)
    seen: set[str] = set()
    marked.repeated = []
    for key, _ in pairs:
        if key in seen and key not in marked.repeated:
            marked.repeated.append(key)
        seen.add(key)
    return marked


def conform(obj: Mapping[str, Any], gvk: GroupVersionKind) -> Conformed:
    """Return a copy of ``obj`` in the form in which a typed server stores and writes it. ``obj`` is unchanged.

    Guarantees
        The result has only known fields, in Go's order, and maps sorted by key. Nulls, empty lists and maps, and zero values are left out
        where Go omits them, and written where Go writes them (``status: {}``). Quantities are canonical, times in UTC. Conforming the
        result again changes nothing.

    Not guaranteed
        Defaults are not set, and validity is not checked.

    Raises:
        DecodeError: A value has the wrong type; the text is Go's, for use after ``Pod in version "v1" cannot be handled as a Pod:``.
        KeyError: ``gvk`` is not a built-in kind.
    """
    index = wire_types().kind(gvk)
    if index is None:
        raise KeyError(f"{'/'.join(gvk)} is not a built-in kind")
    state = _State()
    result = decoder(index)(obj, state)
    if state.fault:
        raise DecodeError(state.fault)
    return Conformed(result, list(state.problems))


def read(index: int, value: Any) -> Any:
    """Convert a JSON value to the form of one Go type, given by its index in ``wire_types``.

    Raises:
        DecodeError: The value has the wrong type. The message is that of Go, and names no field.
    """
    state = _State()
    result = decoder(index)(value, state)
    if state.fault:
        raise DecodeError(state.fault)
    return result


def is_builtin(gvk: GroupVersionKind) -> bool:
    return wire_types().kind(gvk) is not None


def zero(gvk: GroupVersionKind, name: str) -> Any:
    """Return Go's output for an empty field of a kind (``status`` of a Deployment: ``{}``), or None if it is left out or null.

    Raises:
        KeyError: The kind or the field does not exist.
    """
    index = wire_types().kind(gvk)
    if index is None:
        raise KeyError(f"{'/'.join(gvk)} is not a built-in kind")
    for one in wire_types().type(index).fields:
        if one.name == name:
            found = _empty(one)
            return None if found is _ABSENT else found()
    raise KeyError(f"{gvk.kind} has no field {name}")


@dataclass(slots=True)
class _State:
    """The position of decoding, for error texts: ``path`` for strict errors, ``fields`` and ``struct`` for type errors."""

    path: list[str] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)
    struct: str = ""
    fault: str = ""
    problems: dict[str, None] = field(default_factory=dict)
    #: Inside a hand-written decoder upstream is not strict.
    lenient: bool = False

    def mistyped(self, actual: str, expected: str) -> None:
        """Record the first type error; decoding continues, because an error of a special type takes precedence."""
        if not self.fault:
            self.fault = self.type_error(actual, expected)

    def type_error(self, actual: str, expected: str) -> str:
        where = f"Go struct field {self.struct}.{'.'.join(self.fields)}" if self.struct or self.fields else "Go value"
        return f"json: cannot unmarshal {actual} into {where} of type {expected}"

    def problem(self, description: str, name: str) -> None:
        if not self.lenient and len(self.problems) < _MOST_PROBLEMS:
            whole = "".join(self.path) + "." + name if self.path else name
            self.problems[f"{description} field {go_quoted(whole)}"] = None

    def step(self, name: str) -> None:
        self.path.append(f".{name}" if self.path else name)


Decode = Callable[[Any, _State], Any]


@cache
def decoder(index: int) -> Decode:
    """Return the decoder of one Go type. For null, the decoder returns the zero value of the type (None for Go's nil)."""
    kind = wire_types().type(index)
    match kind.category:
        case "pointer":
            return _pointer(kind)
        case "slice":
            return _slice(kind)
        case "map":
            return _map(kind)
        case "struct":
            return _struct(kind)
        case "raw":
            return _raw(kind)
        case category:
            return _SCALARS[category](kind) if category in _SCALARS else _integer(kind)


def _met(value: Any) -> str:
    """Return Go's word for the kind of a JSON value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"


def _pointer(kind: WireType) -> Decode:
    element = decoder(kind.element) if wire_types().type(kind.element).category != "struct" else None

    def decode(value: Any, state: _State) -> Any:
        if value is None:
            return None
        # Structs refer to themselves through pointers, so these are looked up at the first use.
        return (element or decoder(kind.element))(value, state)

    return decode


def _slice(kind: WireType) -> Decode:
    def decode(value: Any, state: _State) -> Any:
        if not isinstance(value, list):
            if value is not None:
                state.mistyped(_met(value), kind.name)
            return None
        element = decoder(kind.element)
        result = []
        depth = len(state.path)
        for at, one in enumerate(value):
            state.path.append(f"[{at}]")
            result.append(element(one, state))
            del state.path[depth:]
        return result or None

    return decode


def _map(kind: WireType) -> Decode:
    def decode(value: Any, state: _State) -> Any:
        if not isinstance(value, dict):
            if value is not None:
                state.mistyped(_met(value), kind.name)
            return None
        element = decoder(kind.element)
        # Stored objects went through protobuf, which has no null among bytes.
        null = "" if wire_types().type(kind.element).category == "bytes" else element(None, state)
        if isinstance(value, RepeatedKeys):
            for name in value.repeated:
                state.problem("duplicate", name)
        result = {}
        depth = len(state.path)
        for key, one in value.items():
            state.step(key)
            result[key] = element(one, state) if one is not None else null
            del state.path[depth:]
        # Go writes maps by key; messages that quote a value do, too.
        return {key: result[key] for key in sorted(result)} if len(result) > 1 else result or None

    return decode


def _struct(kind: WireType) -> Decode:
    known = {one.name: (one, (*one.prefix.rstrip(".").split("."), one.name) if one.prefix else (one.name,)) for one in kind.fields}
    order: list[tuple[str, bool, bool, Any]] | None = None

    def decode(value: Any, state: _State) -> Any:
        nonlocal order
        if order is None:
            order = [(one.name, _drops_zero(one), one.omitempty or one.omitzero, _empty(one)) for one in kind.fields]
        read: JSONObject = {}
        if isinstance(value, dict):
            _read_fields(kind, known, value, state, read)
        elif value is not None:
            state.mistyped(_met(value), kind.name)
        result: JSONObject = {}
        for name, drops_zero, drops_nil, empty in order:
            found = read.get(name, _ABSENT)
            if found is _ABSENT:
                if empty is not _ABSENT:
                    result[name] = empty()
            elif found is None:
                if not drops_nil:
                    result[name] = None
            elif not (drops_zero and not found):
                result[name] = found
        return result

    return decode


def _read_fields(
    kind: WireType, known: dict[str, tuple[WireField, tuple[str, ...]]], value: JSONObject, state: _State, read: JSONObject
) -> None:
    repeated = value.repeated if isinstance(value, RepeatedKeys) else ()
    depth, outer, above = len(state.path), state.struct, len(state.fields)
    for key, one in value.items():
        found = known.get(key)
        if found is None:
            state.problem("unknown", key)
            continue
        if key in repeated:
            state.problem("duplicate", key)
        state.step(key)
        state.struct = kind.struct_name
        state.fields += found[1]
        decoded = decoder(found[0].type)(one, state)
        if one is not None or decoded is not None:
            read[key] = decoded
        del state.path[depth:], state.fields[above:]
        state.struct = outer


def _drops_zero(wire_field: WireField) -> bool:
    """Return whether a zero value of the field is left out, because Go cannot distinguish it from an absent value."""
    return (wire_field.omitempty and _category(wire_field) in _FALSY) or (wire_field.omitzero and _category(wire_field) != "pointer")


def _category(wire_field: WireField) -> str:
    return wire_types().type(wire_field.type).category


#: Categories whose zero value omitempty leaves out.
_FALSY = {"string", "bool", "int32", "int64", "int", "float64", "bytes", "slice", "map"}


def _empty(wire_field: WireField) -> Any:
    """Return a function that returns the output for a missing field, or ``_ABSENT`` if the field is left out."""
    kind = wire_types().type(wire_field.type)
    if wire_field.omitzero or (wire_field.omitempty and (kind.category in _FALSY or kind.category == "pointer")):
        return _ABSENT
    return lambda: decoder(wire_field.type)(None, _State())


def _raw(kind: WireType) -> Decode:
    """Return the decoder of a type that accepts any JSON.

    Schemas inside CRD schemas are decoded too, but not strictly, because upstream's decoders for them are hand-written.
    """
    if kind.name == "v1.JSON":
        return lambda value, _: whole(value)
    if not kind.name.startswith("v1.JSONSchemaPropsOr"):
        return lambda value, _: plain(value)

    def decode(value: Any, state: _State) -> Any:
        lenient, state.lenient = state.lenient, True
        schema = decoder(wire_types().schema_props)
        if isinstance(value, dict):
            result: Any = schema(value, state)
        elif isinstance(value, list):
            result = [schema(one, state) if isinstance(one, dict) else one for one in value]
        else:
            result = plain(value)
        state.lenient = lenient
        return result

    return decode


def _string(kind: WireType) -> Decode:
    def decode(value: Any, state: _State) -> Any:
        if isinstance(value, str):
            return value
        if value is not None:
            state.mistyped(_met(value), kind.name)
        return ""

    return decode


def _bool(kind: WireType) -> Decode:
    def decode(value: Any, state: _State) -> Any:
        if isinstance(value, bool):
            return value
        if value is not None:
            state.mistyped(_met(value), kind.name)
        return False

    return decode


def _integer(kind: WireType) -> Decode:
    if not is_integer(kind.category):
        raise AssertionError(f"no reader for the Go kind {kind.category}")

    def decode(value: Any, state: _State) -> Any:
        if fits(value, kind.category):
            return value
        if value is not None:
            met = _met(value)
            state.mistyped(f"number {number_text(value)}" if met == "number" else met, kind.name)
        return 0

    return decode


def _float(kind: WireType) -> Decode:
    def decode(value: Any, state: _State) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return int(value) if float(value).is_integer() else float(value)
        if value is not None:
            state.mistyped(_met(value), kind.name)
        return 0

    return decode


def _bytes(kind: WireType) -> Decode:
    octet = _integer(WireType("uint8", "uint8"))

    def decode(value: Any, state: _State) -> Any:
        if isinstance(value, str):
            try:
                return decode_base64(value)
            except DecodeError as fault:
                state.fault = state.fault or str(fault)
                return ""
        if isinstance(value, list):
            return base64.b64encode(bytes(octet(one, state) for one in value)).decode()
        if value is not None:
            state.mistyped(_met(value), kind.name)
        return None

    return decode


def _time(kind: WireType) -> Decode:
    micro = kind.category == "microtime"

    def decode(value: Any, state: _State) -> Any:
        if value is None:
            return None
        if not isinstance(value, str):
            raise DecodeError(state.type_error(_met(value), "string"))
        return decode_time(value, micro)

    return decode


def _quantity(_kind: WireType) -> Decode:
    def decode(value: Any, _: _State) -> Any:
        if value is None:
            return "0"
        if isinstance(value, str):
            text = value.strip()
        elif _met(value) == "number":
            text = number_text(value)
        else:
            text = json.dumps(value)
        try:
            # Formatted twice, as on its way through a real server: a binary quantity that is not a multiple of 1024 turns decimal in
            # between.
            return str(Quantity(str(Quantity(text))))
        except ValueError as fault:
            raise DecodeError(str(fault)) from None

    return decode


def _int_or_string(_kind: WireType) -> Decode:
    def decode(value: Any, state: _State) -> Any:
        if value is None:
            return 0
        if isinstance(value, str) or fits(value, "int32"):
            return value
        met = _met(value)
        raise DecodeError(state.type_error(f"number {number_text(value)}" if met == "number" else met, "int32"))

    return decode


_SCALARS: dict[str, Callable[[WireType], Decode]] = {
    "string": _string,
    "bool": _bool,
    "float64": _float,
    "bytes": _bytes,
    "time": _time,
    "microtime": _time,
    "quantity": _quantity,
    "intorstring": _int_or_string,
}
