"""Messages whose JSON is not an object: times, quantities, IntOrString, raw JSON, and the either-or parts of CRD schemas.

Source: k8s.io/apimachinery (time_proto.go, micro_time_proto.go, quantity_proto.go, intstr.go, runtime/types_proto.go) and
k8s.io/apiextensions-apiserver (v1/marshal.go).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from kubeloop.codec.protobuf.table import MessageForm
from kubeloop.codec.protobuf.wire import EncodeError, FlatFields, kind_of, varint
from kubeloop.meta.errors import DecodeError
from kubeloop.meta.time import format_micro_time, format_time, parse_time

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = -62135596800  # year 1
_LAST = 253402300799  # year 9999
_INT32 = 1 << 31


def _moment(name: str, data: bytes) -> datetime | None:
    """Decode a time; None for Go's zero time, which has no bytes or is the first moment of the year 1."""
    if not data:
        return None
    fields = FlatFields(name, data)
    seconds, nanos = fields.number(1, 64), fields.number(2, 32)
    if not _FIRST <= seconds <= _LAST or not 0 <= nanos < 10**9:
        raise DecodeError(f"{name}: {seconds} s and {nanos} ns after 1970 is not a time in the years 1 to 9999")
    moment = _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    return None if moment == datetime(1, 1, 1, tzinfo=UTC) else moment


def _read_time(name: str, data: bytes) -> str | None:
    moment = _moment(name, data)
    return None if moment is None else format_time(moment)


def _read_micro_time(name: str, data: bytes) -> str | None:
    moment = _moment(name, data)
    return None if moment is None else format_micro_time(moment)


def _read_quantity(name: str, data: bytes) -> str:
    return FlatFields(name, data).text(1) or "0"


def _read_int_or_string(name: str, data: bytes) -> int | str:
    fields = FlatFields(name, data)
    return fields.text(3) if fields.number(1, 64) == 1 else fields.number(2, 32)


def _read_raw(name: str, data: bytes) -> Any:
    raw = FlatFields(name, data).bytes(1)
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise DecodeError(f"{name}: its raw bytes are not JSON") from None


#: Decoders of a message by form; they take the name of the message for their errors.
SPECIAL_READERS: dict[MessageForm, Callable[[str, bytes], Any]] = {
    MessageForm.TIME: _read_time,
    MessageForm.MICRO_TIME: _read_micro_time,
    MessageForm.QUANTITY: _read_quantity,
    MessageForm.INT_OR_STRING: _read_int_or_string,
    MessageForm.RAW: _read_raw,
}


def schema_choice(form: MessageForm, fields: dict[str, Any]) -> Any:
    """Return the JSON of a CRD schema's JSONSchemaPropsOrArray, OrBool or OrStringArray, from its protobuf fields."""
    schema = fields.get("schema")
    if form == MessageForm.SCHEMA_OR_ARRAY:
        return fields.get("jSONSchemas") or schema
    if form == MessageForm.SCHEMA_OR_BOOL:
        return schema if schema is not None else fields.get("allows", False)
    return fields.get("property") or schema


_EITHER_OR = {
    MessageForm.SCHEMA_OR_ARRAY: "a schema or a list of schemas",
    MessageForm.SCHEMA_OR_BOOL: "a schema, true or false",
    MessageForm.SCHEMA_OR_STRINGS: "a schema or a list of strings",
}


def schema_fields(form: MessageForm, value: Any) -> dict[str, Any]:
    """Return the protobuf fields of a CRD schema's JSONSchemaPropsOrArray, OrBool or OrStringArray, from its JSON.

    Raises:
        EncodeError: The value has neither of the two forms.
    """
    if isinstance(value, dict):
        return {"schema": value, "allows": True} if form == MessageForm.SCHEMA_OR_BOOL else {"schema": value}
    if isinstance(value, bool) and form == MessageForm.SCHEMA_OR_BOOL:
        return {"allows": value}
    if isinstance(value, list) and form != MessageForm.SCHEMA_OR_BOOL:
        return {"jSONSchemas" if form == MessageForm.SCHEMA_OR_ARRAY else "property": value}
    raise EncodeError(f"expected {_EITHER_OR[form]}, not {kind_of(value)}")


def _write_time(value: Any) -> bytes:
    return _time_bytes(value) if isinstance(value, str) else _parsed_time(value)


def _parsed_time(value: Any) -> bytes:
    moment = parse_time(value)
    if moment == datetime(1, 1, 1, tzinfo=UTC):
        return b""
    past = moment - _EPOCH
    return b"\x08" + varint(past.days * 86400 + past.seconds) + b"\x10\x00"


#: A cache: the times of an object, and of objects made together, often fall into the same second.
_time_bytes = lru_cache(maxsize=1024)(_parsed_time)


def _write_micro_time(value: Any) -> bytes:
    moment = parse_time(value)
    if moment == datetime(1, 1, 1, tzinfo=UTC):
        return b""
    past = moment - _EPOCH
    return b"\x08" + varint(past.days * 86400 + past.seconds) + b"\x10" + varint(past.microseconds * 1000)


def _write_quantity(value: Any) -> bytes:
    text = (value if isinstance(value, str) else _number(value)).encode()
    return b"\x0a" + varint(len(text)) + text


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EncodeError(f"expected a quantity, not {kind_of(value)}")
    return json.dumps(value)


def _write_int_or_string(value: Any) -> bytes:
    if isinstance(value, str):
        text = value.encode()
        return b"\x08\x01\x10\x00\x1a" + varint(len(text)) + text
    if isinstance(value, bool) or not isinstance(value, int) or not -_INT32 <= value < _INT32:
        raise EncodeError(f"expected a string or a whole number of 32 bits, not {kind_of(value)}")
    return b"\x08\x00\x10" + varint(value) + b"\x1a\x00"


#: Go's encoding/json escapes these. Controllers compare raw bytes with what they wrote: the DaemonSet controller finds its revisions so.
_ESCAPED = {character.encode(): f"\\u{ord(character):04x}".encode() for character in "<>&\u2028\u2029"}


def _write_raw(value: Any) -> bytes:
    raw = msgspec.json.encode(value)
    for character, escape in _ESCAPED.items():  # none of them stands outside of strings
        raw = raw.replace(character, escape)
    return b"\x0a" + varint(len(raw)) + raw


#: Encoders of a message from its JSON, by form. They raise ValueError or TypeError for JSON that does not fit.
SPECIAL_WRITERS: dict[MessageForm, Callable[[Any], bytes]] = {
    MessageForm.TIME: _write_time,
    MessageForm.MICRO_TIME: _write_micro_time,
    MessageForm.QUANTITY: _write_quantity,
    MessageForm.INT_OR_STRING: _write_int_or_string,
    MessageForm.RAW: _write_raw,
}
