"""Quantity: an amount of CPU, memory and the like, exact, printed in Kubernetes' canonical form.

Source: k8s.io/apimachinery pkg/api/resource (quantity.go, suffix.go): the grammar, the forms, rounding up to 1n.
"""

from __future__ import annotations

import enum
import functools
import re
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias, Union

_NANO = 10**9
_GRAMMAR = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_NAMES = {exponent: name for name, exponent in _DECIMAL.items()}
_BINARY_NAMES = {exponent // 10: name for name, exponent in _BINARY.items()} | {0: ""}
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)
_LARGEST_BINARY = 2**63 - 1
_LARGEST_EXPONENT = 1000

_WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_WRONG_NUMBER = "unable to parse numeric part of quantity"
_WRONG_SUFFIX = "unable to parse quantity's suffix"

Number: TypeAlias = Union["Quantity", int, Fraction, Decimal]


class QuantityFormat(enum.Enum):
    """The format of a quantity: ``12M``, ``12Mi`` or ``12e6``."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


class Quantity:
    """An exact number of nano-units with its format. Immutable; compares and hashes by its number.

    >>> Quantity("100m") + Quantity("0.4")
    Quantity('500m')
    >>> Quantity("1Gi").value()
    1073741824

    Guarantees
        Arithmetic is exact; only fractions of 1n are rounded, away from zero, as in Kubernetes.
        ``str()`` is the text that an API server would return for the same input (except that upstream prints 1000E as 1; here it stays
        1000E).

    Not guaranteed
        Decimal exponents beyond 1000 are refused; Kubernetes would compute for a long time.

    Raises:
        ValueError: the text is not a quantity; the message is Kubernetes'.
    """

    __slots__ = ("_format", "_nanos", "_text")
    _nanos: int
    _format: QuantityFormat
    _text: str | None

    def __new__(cls, value: str | Number = 0, format: QuantityFormat | None = None) -> Quantity:  # noqa: A002, PYI034 - Kubernetes' word; not for subclasses
        if isinstance(value, str):
            parsed = _parse(value.strip())
            return parsed if format is None else _make(parsed._nanos, format)
        if isinstance(value, Quantity):
            return value if format is None else _make(value._nanos, format)
        return _make(_nanos_of(value), format or QuantityFormat.DECIMAL)

    @property
    def format(self) -> QuantityFormat:
        return self._format

    def value(self) -> int:
        """Return the amount in whole units, rounded away from zero (``Quantity("1500m").value() == 2``)."""
        return _divide_away(self._nanos, _NANO)

    def milli_value(self) -> int:
        """Return the amount in thousandths, rounded away from zero (``Quantity("0.1").milli_value() == 100``)."""
        return _divide_away(self._nanos, _NANO // 1000)

    @staticmethod
    def int64_scale(text: str) -> int | None:
        """Return the power of ten of upstream's int64 representation of a valid text, or None if 64 bits are too few."""
        match = _GRAMMAR.fullmatch(text)
        if match is None:
            return None
        whole, fraction, suffix = match[2].lstrip("0") or "0", match[3] or "", match[4]
        if suffix in _BINARY:
            return 0 if _fits_upstreams_integers(QuantityFormat.BINARY, whole, fraction, _BINARY[suffix]) else None
        exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
        fits = _fits_upstreams_integers(QuantityFormat.DECIMAL, whole, fraction, exponent)
        return exponent - len(fraction) if fits else None

    def as_fraction(self) -> Fraction:
        return Fraction(self._nanos, _NANO)

    def __float__(self) -> float:
        return self._nanos / _NANO

    def __bool__(self) -> bool:
        return self._nanos != 0

    def __str__(self) -> str:
        if self._text is None:
            self._text = _canonical(self._nanos, self._format)
        return self._text

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _make, (self._nanos, self._format, self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantity | int | Fraction | Decimal):
            return NotImplemented
        return self._nanos == _exact(other)

    def __lt__(self, other: Number) -> bool:
        return self._nanos < _exact(other)

    def __le__(self, other: Number) -> bool:
        return self._nanos <= _exact(other)

    def __gt__(self, other: Number) -> bool:
        return self._nanos > _exact(other)

    def __ge__(self, other: Number) -> bool:
        return self._nanos >= _exact(other)

    def __hash__(self) -> int:
        return hash(self.as_fraction())

    def __add__(self, other: Number) -> Quantity:
        return _make(self._nanos + _nanos_of(other), self._format_with(other))

    __radd__ = __add__

    def __sub__(self, other: Number) -> Quantity:
        return _make(self._nanos - _nanos_of(other), self._format_with(other))

    def __rsub__(self, other: int | Fraction | Decimal) -> Quantity:
        return _make(_nanos_of(other) - self._nanos, self._format)

    def __mul__(self, factor: int | Fraction | Decimal) -> Quantity:
        return _make(_round_away(self._nanos * Fraction(factor)), self._format)

    __rmul__ = __mul__

    def __truediv__(self, divisor: int | Fraction | Decimal) -> Quantity:
        """Divide, rounding away from zero to 1n: a share of a positive amount is never zero."""
        return _make(_round_away(self._nanos / Fraction(divisor)), self._format)

    def __neg__(self) -> Quantity:
        return _make(-self._nanos, self._format)

    def __abs__(self) -> Quantity:
        return _make(abs(self._nanos), self._format)

    def _format_with(self, other: Number) -> QuantityFormat:
        """Return the format of a result: zero takes the other operand's format (upstream's Add and Sub)."""
        return other._format if not self._nanos and isinstance(other, Quantity) else self._format


def _make(nanos: int, format: QuantityFormat, text: str | None = None) -> Quantity:  # noqa: A002 - as above
    made = object.__new__(Quantity)
    made._nanos, made._format, made._text = nanos, format, text
    return made


def _exact(value: Number) -> int | Fraction:
    return value._nanos if isinstance(value, Quantity) else Fraction(value) * _NANO


def _nanos_of(value: Number) -> int:
    return value._nanos if isinstance(value, Quantity) else _round_away(Fraction(value) * _NANO)


def _round_away(value: Fraction | int) -> int:
    return _divide_away(value.numerator, value.denominator)


def _divide_away(dividend: int, divisor: int) -> int:
    quotient = -(-abs(dividend) // divisor)
    return quotient if dividend >= 0 else -quotient


@functools.lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    match = _GRAMMAR.fullmatch(text)
    if match is None or not text:
        raise ValueError(_WRONG_FORMAT)
    sign, whole, fraction, suffix = match[1], match[2].lstrip("0"), match[3] or "", match[4]
    if suffix in _DECIMAL:
        form, exponent = QuantityFormat.DECIMAL, _DECIMAL[suffix]
    elif suffix in _BINARY:
        form, exponent = QuantityFormat.BINARY, _BINARY[suffix]
    elif (power := _EXPONENT.fullmatch(suffix)) is not None and abs(exponent := int(power[1])) <= _LARGEST_EXPONENT:
        form = QuantityFormat.EXPONENT
    else:
        raise ValueError(_WRONG_SUFFIX)
    whole = whole or "0"
    plain = _fits_upstreams_integers(form, whole, fraction, exponent)
    if not plain and not match[2] and not fraction:
        raise ValueError(_WRONG_NUMBER)

    digits = int(whole + fraction)
    if form is QuantityFormat.BINARY:
        amount = Fraction(digits << exponent, 10 ** len(fraction))
    else:
        amount = Fraction(digits) * Fraction(10) ** (exponent - len(fraction))
    nanos = _round_away(amount * _NANO)
    if form is QuantityFormat.BINARY:
        if nanos > _LARGEST_BINARY * _NANO:
            nanos = _LARGEST_BINARY * _NANO
        elif 0 < nanos < _NANO:
            form = QuantityFormat.DECIMAL
    kept = text if plain and _looks_canonical(form, whole + fraction, exponent - len(fraction), digits) else None
    return _make(-nanos if sign == "-" else nanos, form, kept)


def _fits_upstreams_integers(form: QuantityFormat, integer: str, fraction: str, exponent: int) -> bool:
    """Return whether upstream parses the text as int64, without its arbitrary-precision type.

    This affects whether the quantity is printed as it was written, and which texts are errors.
    """
    if form is QuantityFormat.BINARY:
        return not fraction and 15 - len(integer) - exponent * 3 // 10 - 1 >= 0
    return 18 - len(integer) - len(fraction) >= 0 and exponent - len(fraction) >= -9


def _looks_canonical(form: QuantityFormat, digits_text: str, scale: int, digits: int) -> bool:
    """Return whether the text is printed as it was written (``1.500``, ``1Ki``), although its canonical form differs."""
    if form is QuantityFormat.BINARY:
        return bool(digits & 7)
    return scale % 3 == 0 and not digits_text.endswith("000") and not digits_text.startswith("0")


def _canonical(nanos: int, form: QuantityFormat) -> str:
    if nanos == 0:
        return "0"
    if form is QuantityFormat.BINARY and (abs(nanos) < 1024 * _NANO or nanos % _NANO):
        form = QuantityFormat.DECIMAL
    if form is QuantityFormat.BINARY:
        value, power = nanos // _NANO, 0
        while value % 1024 == 0 and power < 6:
            value, power = value // 1024, power + 1
        return f"{value}{_BINARY_NAMES[power]}"
    mantissa, exponent = nanos, -9
    largest = 18 if form is QuantityFormat.DECIMAL else None
    while mantissa % 1000 == 0 and exponent != largest:
        mantissa, exponent = mantissa // 1000, exponent + 3
    if form is QuantityFormat.DECIMAL:
        return f"{mantissa}{_DECIMAL_NAMES[exponent]}"
    return f"{mantissa}e{exponent}" if exponent else str(mantissa)
