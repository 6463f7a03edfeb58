"""``FieldError``: the fault of one field of an object, with Kubernetes' wording and causes.

Source: k8s.io/apimachinery pkg/util/validation/field/errors.go (ErrorType, ErrorBody) and pkg/api/errors NewInvalid.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec

from kubeloop.meta.strconv import go_quoted


class FieldErrorType(enum.Enum):
    """The type of a fault. The value is the ``details.causes[].reason``; ``title`` begins the message."""

    REQUIRED = "FieldValueRequired"
    NOT_FOUND = "FieldValueNotFound"
    DUPLICATE = "FieldValueDuplicate"
    INVALID = "FieldValueInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"
    INTERNAL = "InternalError"
    TYPE_INVALID = "FieldValueTypeInvalid"

    @property
    def title(self) -> str:
        return _TITLES[self]


_TITLES = {
    FieldErrorType.REQUIRED: "Required value",
    FieldErrorType.NOT_FOUND: "Not found",
    FieldErrorType.DUPLICATE: "Duplicate value",
    FieldErrorType.INVALID: "Invalid value",
    FieldErrorType.NOT_SUPPORTED: "Unsupported value",
    FieldErrorType.FORBIDDEN: "Forbidden",
    FieldErrorType.TOO_LONG: "Too long",
    FieldErrorType.TOO_MANY: "Too many",
    FieldErrorType.INTERNAL: "Internal error",
    FieldErrorType.TYPE_INVALID: "Invalid value",
}

_WITHOUT_VALUE = {
    FieldErrorType.REQUIRED,
    FieldErrorType.FORBIDDEN,
    FieldErrorType.TOO_LONG,
    FieldErrorType.INTERNAL,
}


#: The ``value`` of an error whose message leaves the value out because of its size.
OMITTED: Any = object()


class Printed(msgspec.Struct, frozen=True):
    """The ``value`` of a ``FieldError`` that Go prints in a special format: ``text``, without quotes."""

    text: str


class FieldError(msgspec.Struct, frozen=True):
    """One cause of an Invalid response: the field, the type of fault, the bad value, and a detail for people.

    >>> print(FieldError(FieldErrorType.REQUIRED, "spec.containers", "", ""))
    spec.containers: Required value
    """

    type: FieldErrorType
    field: str
    value: Any = None
    detail: str = ""

    @property
    def body(self) -> str:
        """The cause's message: type of fault, value, detail (without the field)."""
        text = self.type.title
        if self.type not in _WITHOUT_VALUE and self.value is not OMITTED:
            text += f": {_show(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"


def go_number(number: float) -> str:
    """Format a number as Go's ``%v``: no ``.0``, and from a million on (or below 0.0001) an exponent of two digits: ``1e+06``."""
    if isinstance(number, int):
        return str(number)
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "+Inf" if number > 0 else "-Inf"
    exact = Decimal(repr(number)).normalize()  # repr gives the fewest digits that read back as the same number, as Go does
    if number and not -4 <= exact.adjusted() < 6:
        digits, _, exponent = f"{exact:e}".partition("e")
        return f"{digits}e{int(exponent):+03d}"
    return f"{exact:f}"


def fits_int64(number: int) -> bool:
    return -(2**63) <= number < 2**63


def go_float(number: float) -> str:
    """Format a finite float as Go's encoding/json: no ``.0``, and an exponent only from 1e21 on and below 1e-6 (``1e+21``, ``1e-7``)."""
    exact = Decimal(repr(number)).normalize()
    if number and not -6 <= exact.adjusted() < 21:
        digits, _, exponent = f"{exact:e}".partition("e")
        return f"{digits}e{int(exponent):+d}"
    return f"{exact:f}"


def go_whole(number: float) -> float:
    """Return the integer that Go writes for a float below 1e21 without a fraction, with Go's digits; other floats unchanged."""
    return int(go_float(number)) if number.is_integer() and abs(number) < 1e21 else number


def _show(value: Any) -> str:
    """Format a bad value as Go: strings quoted, null as such, the rest as compact JSON."""
    if value is None:
        return "null"
    if isinstance(value, Printed):
        return value.text
    if isinstance(value, float):
        return go_number(value)
    if isinstance(value, bool | int):
        return str(value).lower()
    return go_quoted(value) if isinstance(value, str) else go_json(value)


def go_json(value: Any, indent: int | None = None, *, sort_keys: bool = False) -> str:
    """Return a value as JSON in the form of Go's json.Marshal, which is safe in HTML and JavaScript.

    ``indent``: spaces for each level. ``sort_keys``: ``value`` is a map in Go, and no struct.
    """
    import json  # clients without such a fault start without it

    text = json.dumps(value, separators=(",", ": ") if indent else (",", ":"), ensure_ascii=False, indent=indent, sort_keys=sort_keys)
    return text.translate(_UNSAFE)


_UNSAFE = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(FieldErrorType.REQUIRED, field, None, detail)


def invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(FieldErrorType.INVALID, field, value, detail)


def type_invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(FieldErrorType.TYPE_INVALID, field, value, detail)


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError(FieldErrorType.DUPLICATE, field, value)


def not_found(field: str, value: Any) -> FieldError:
    return FieldError(FieldErrorType.NOT_FOUND, field, value)


def not_supported(field: str, value: Any, supported: list[str]) -> FieldError:
    """Return the error of a value outside a set. ``supported`` is printed sorted and quoted, as in Kubernetes."""
    shown = ", ".join(_quoted(one) for one in sorted(supported))
    return FieldError(FieldErrorType.NOT_SUPPORTED, field, value, f"supported values: {shown}" if supported else "")


def _quoted(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError(FieldErrorType.FORBIDDEN, field, None, detail)


def too_long(field: str, limit: int) -> FieldError:
    """Return the error of a too long value; ``limit`` is in bytes."""
    return FieldError(FieldErrorType.TOO_LONG, field, None, f"may not be more than {limit} byte{'' if limit == 1 else 's'}")


def too_many(field: str, actual: int, limit: int) -> FieldError:
    return FieldError(
        FieldErrorType.TOO_MANY,
        field,
        actual,
        f"must have at most {limit} items" if limit == 0 or limit > 1 else "must have at most 1 item",
    )


#: The result of a check: one error at a time.
Errors = Iterator[FieldError]
