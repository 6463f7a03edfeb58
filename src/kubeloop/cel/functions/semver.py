"""Quantities, semantic versions and named formats. Source: k8s.io/apiserver pkg/cel/library (quantity, semverlib, format)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from kubeloop.cel.faults import EvalError
from kubeloop.cel.overloads import function, member
from kubeloop.cel.values import NONE, UINT_MAX, Amount, FormatValue, Optional, Semver
from kubeloop.meta import names
from kubeloop.meta.quantity import Quantity
from kubeloop.schema import formats

_MOST_SHORT = 3


@function("quantity", "string -> quantity", "string_to_quantity")
def _quantity(text: str) -> Amount:
    try:
        parsed = Quantity(text)
    except ValueError as exc:
        raise EvalError(str(exc)) from None
    return Amount(parsed, parsed.int64_scale(text.strip()))


def _succeeds(parse: Callable[..., Any]) -> Callable[..., bool]:
    def check(*args: Any) -> bool:
        try:
            parse(*args)
        except EvalError:
            return False
        return True

    return check


def _as_integer(amount: Amount) -> int:
    if not amount.is_integer:
        raise EvalError("cannot convert value to integer")
    return amount.quantity.value()


def _of(number: int) -> Amount:
    return Amount(Quantity(number), 0)


def _compared(value: Any, other: Any) -> int:
    return int(value > other) - int(value < other)


function("isQuantity", "string -> bool", "is_quantity_string")(_succeeds(_quantity))
function("sign", "quantity -> int", "quantity_sign")(lambda quantity: _compared(quantity.quantity, 0))
member("isGreaterThan", "quantity, quantity -> bool", "quantity_is_greater_than")(
    lambda quantity, other: quantity.quantity > other.quantity
)
member("isLessThan", "quantity, quantity -> bool", "quantity_is_less_than")(lambda quantity, other: quantity.quantity < other.quantity)
member("compareTo", "quantity, quantity -> int", "quantity_compare_to")(
    lambda quantity, other: _compared(quantity.quantity, other.quantity)
)
member("asApproximateFloat", "quantity -> double", "quantity_get_float")(lambda quantity: float(quantity.quantity))
member("asInteger", "quantity -> int", "quantity_get_int")(_as_integer)
member("isInteger", "quantity -> bool", "quantity_is_integer")(lambda quantity: quantity.is_integer)
member("add", "quantity, quantity -> quantity", "quantity_add")(lambda quantity, other: quantity.plus(other))
member("add", "quantity, int -> quantity", "quantity_add_int")(lambda quantity, other: quantity.plus(_of(other)))
member("sub", "quantity, quantity -> quantity", "quantity_sub")(lambda quantity, other: quantity.minus(other))
member("sub", "quantity, int -> quantity", "quantity_sub_int")(lambda quantity, other: quantity.minus(_of(other)))


def _parse_semver(text: str) -> Semver:
    """Parse a semantic version.

    Raises:
        EvalError: The text is not a semantic version. The message is that of github.com/blang/semver.
    """
    if not text:
        raise EvalError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != _MOST_SHORT:
        raise EvalError("No Major.Minor.Patch elements found")
    rest, _, build = parts[2].partition("+")
    patch, dash, pre = rest.partition("-")
    numbers = []
    for name, part in (("major", parts[0]), ("minor", parts[1]), ("patch", patch)):
        if not part:
            raise EvalError('strconv.ParseUint: parsing "": invalid syntax')
        if not re.fullmatch(r"[0-9]+", part):
            what = "patch " if name == "patch" else f"{name} "
            raise EvalError(f'Invalid character(s) found in {what}number "{part}"')
        if len(part) > 1 and part.startswith("0"):
            raise EvalError(f'{name.capitalize()} number must not contain leading zeroes "{part}"')
        if len(part) > len(str(UINT_MAX)) or int(part) > UINT_MAX:
            raise EvalError(f'strconv.ParseUint: parsing "{part}": value out of range')
        numbers.append(int(part))
    identifiers = tuple(_identifier(one) for one in pre.split(".")) if dash else ()
    for one in build.split(".") if "+" in parts[2] else []:
        if not one:
            raise EvalError("Build meta data is empty")
        if not re.fullmatch(r"[0-9A-Za-z-]+", one):
            raise EvalError(f'Invalid character(s) found in build meta data "{one}"')
    return Semver(numbers[0], numbers[1], numbers[2], identifiers, build)


def _identifier(text: str) -> int | str:
    if not text:
        raise EvalError("Prerelease is empty")
    if text.isdigit() and text.isascii():
        if len(text) > 1 and text.startswith("0"):
            raise EvalError(f'Numeric PreRelease version must not contain leading zeroes "{text}"')
        return int(text)
    if not re.fullmatch(r"[0-9A-Za-z-]+", text):
        raise EvalError(f'Invalid character(s) found in prerelease "{text}"')
    return text


@function("semver", "string -> semver", "string_to_semver")
@function("semver", "string, bool -> semver", "string_bool_to_semver")
def _semver(text: str, normalise: bool = False) -> Semver:
    if not normalise:
        return _parse_semver(text)
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            short = part.lstrip("0")
            parts[index] = short if short[:1].isdigit() else "0" + short
    if len(parts) < _MOST_SHORT and re.search(r"[+-]", parts[-1]):
        raise EvalError("short version cannot contain PreRelease/Build meta data")
    return _parse_semver(".".join([*parts, "0", "0"][: max(len(parts), _MOST_SHORT)]))


function("isSemver", "string -> bool", "is_semver_string")(_succeeds(_semver))
function("isSemver", "string, bool -> bool", "is_semver_string_bool")(_succeeds(_semver))
member("isGreaterThan", "semver, semver -> bool", "semver_is_greater_than")(lambda version, other: version.key() > other.key())
member("isLessThan", "semver, semver -> bool", "semver_is_less_than")(lambda version, other: version.key() < other.key())
member("compareTo", "semver, semver -> int", "semver_compare_to")(lambda version, other: _compared(version.key(), other.key()))
member("major", "semver -> int", "semver_major")(lambda version: version.major)
member("minor", "semver -> int", "semver_minor")(lambda version: version.minor)
member("patch", "semver -> int", "semver_patch")(lambda version: version.patch)


def _of_schema(name: str, fault: str) -> Callable[[str], list[str]]:
    return lambda text: [] if formats.matches(name, text) else [fault]


def _uri(text: str) -> list[str]:
    parts = urlsplit(text)
    if not text or not (text.startswith("/") or parts.scheme):
        why = "empty url" if not text else "invalid URI for request"
        return [f'parse "{text}": {why}']
    return []


_FORMATS = {
    "dns1123Label": FormatValue("DNS1123Label", names.dns1123_label, 30),
    "dns1123Subdomain": FormatValue("DNS1123Subdomain", names.dns1123_subdomain, 60),
    "dns1035Label": FormatValue("DNS1035Label", names.dns1035_label, 30),
    "qualifiedName": FormatValue("QualifiedName", names.qualified_name, 60),
    "dns1123LabelPrefix": FormatValue("DNS1123LabelPrefix", lambda text: names.dns1123_label(text, True), 30),
    "dns1123SubdomainPrefix": FormatValue("DNS1123SubdomainPrefix", lambda text: names.dns1123_subdomain(text, True), 60),
    "dns1035LabelPrefix": FormatValue("DNS1035LabelPrefix", lambda text: names.dns1035_label(text, True), 30),
    "labelValue": FormatValue("LabelValue", names.label_value, 40),
    "uri": FormatValue("URI", _uri, 1000),
    "uuid": FormatValue("uuid", _of_schema("uuid", "does not match the UUID format"), 103),
    "byte": FormatValue("byte", _of_schema("byte", "invalid base64"), 84),
    "date": FormatValue("date", _of_schema("date", "invalid date"), 132),
    "datetime": FormatValue("datetime", _of_schema("date-time", "invalid datetime"), 132),
}


def _constant(value_format: FormatValue) -> Callable[[], FormatValue]:
    return lambda: value_format


for _name, _format in _FORMATS.items():
    function(f"format.{_name}", "-> format", f"format.{_name}")(_constant(_format))


@function("format.named", "string -> optional(format)", "format-named")
def _named(name: str) -> Optional:
    found = _FORMATS.get(name)
    return NONE if found is None else Optional(found)


@member("validate", "format, string -> optional(list(string))", "format-validate")
def _validate(value_format: FormatValue, text: str) -> Optional:
    faults = value_format.check(text)
    return Optional(faults) if faults else NONE
