"""``"%s is %d".format([...])``: the output of each verb, and the values it accepts. Source: cel-go ext/formatting.go."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kubeloop.cel.faults import EvalError
from kubeloop.cel.types import Type
from kubeloop.cel.values import DurationValue, Timestamp, TypeValue, from_key, kind_of, type_name
from kubeloop.meta.field_error import go_number

_VERB = re.compile(r"%(?:%|(?:\.([0-9]*))?(.?))", re.DOTALL)
_DEFAULT_PRECISION = 6
_MOST_PRECISION = 1000


@dataclass(frozen=True, slots=True)
class _Verb:
    """The kinds of values that a verb accepts, and its error message for other kinds."""

    takes: frozenset[str]
    fault: str


_INTEGERS = frozenset({"int", "uint"})
_VERBS = {
    "s": _Verb(
        frozenset({
            "list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null",
        }),
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
    ),
    "d": _Verb(_INTEGERS, "decimal clause can only be used on integers"),
    "f": _Verb(frozenset({"double", "string"}), "fixed-point clause can only be used on doubles"),
    "e": _Verb(frozenset({"double", "string"}), "scientific clause can only be used on doubles"),
    "b": _Verb(_INTEGERS | {"bool"}, "only integers and bools can be formatted as binary"),
    "x": _Verb(_INTEGERS | {"string", "bytes"}, "only integers, byte buffers, and strings can be formatted as hex"),
    "o": _Verb(_INTEGERS, "octal clause can only be used on integers"),
}  # fmt: skip


#: Types with another name at run time.
_RUNTIME_NAMES = {"duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp", "null": "null_type"}


def clauses(text: str) -> Iterator[str]:
    """Yield the verbs of a format string, in order.

    Raises:
        EvalError: A verb is unknown.
    """
    for found in _VERB.finditer(text):
        if found[0] == "%%":
            continue
        if not found[2] and found[1] is None:
            raise EvalError("unexpected end of string")
        if not found[2]:
            why = "could not find end of precision specifier"
            raise EvalError(f"could not parse formatting clause: error while parsing precision: {why}")
        if found[1] == "":
            why = 'error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax'
            raise EvalError(f"could not parse formatting clause: {why}")
        if found[2].lower() not in _VERBS or found[2] in ("S", "D", "F", "E", "B", "O"):
            raise EvalError(f'could not parse formatting clause: unrecognized formatting clause "{found[2]}"')
        yield found[2]


def fits(verb: str, of: Type) -> str:
    """Return the error message if a verb does not accept a value of type ``of``, else an empty string."""
    known = _VERBS[verb.lower()]
    if of.is_dyn or of.kind in known.takes:
        return ""
    return f"{known.fault}, was given {_RUNTIME_NAMES.get(of.kind, of.name)}"


def format_text(text: str, args: list[Any]) -> str:
    """Implement ``format`` of strings: replace verbs such as ``%s`` and ``%d`` by the arguments.

    Raises:
        EvalError: A verb is unknown, an argument has the wrong type, or there are too few arguments.
    """
    verbs = list(clauses(text))
    if len(verbs) > len(args):
        raise EvalError(f"index {len(args)} out of range")
    given = iter(args)

    def one(verb: re.Match[str]) -> str:
        if verb[0] == "%%":
            return "%"
        precision = min(int(verb[1]), _MOST_PRECISION) if verb[1] else None
        return _formatted(verb[2], next(given), precision)

    return _VERB.sub(one, text)


def _formatted(verb: str, value: Any, precision: int | None) -> str:
    known = _VERBS[verb.lower()]
    if kind_of(type(value)) not in known.takes:
        raise EvalError(f"error during formatting: {known.fault}, was given {type_name(value)}")
    match verb:
        case "s":
            return shown(value)
        case "d":
            return str(int(value))
        case "f":
            return _fixed(value, _DEFAULT_PRECISION if precision is None else precision)
        case "e":
            return _scientific(value)
        case "b":
            return f"{value:b}"
        case "o":
            return f"{value:o}"
        case _:
            return _hexadecimal(verb, value)


def shown(value: Any, *, inside: bool = False) -> str:
    """Return a value as ``%s`` prints it; inside lists and maps, strings are quoted."""
    from kubeloop.cel.functions.timestamps import format_duration, format_timestamp

    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"' if inside else value
        case bytes():
            text = value.decode(errors="replace")
            return f'b"{text}"' if inside else text
        case float():
            if math.isinf(value) or math.isnan(value):
                text = go_number(value)
                return f'"{text}"' if inside else text
            return f"{value:.6f}" if inside else go_number(value)
        case int():
            return str(int(value))
        case Timestamp():
            return f'timestamp("{format_timestamp(value)}")' if inside else format_timestamp(value)
        case DurationValue():
            return f'duration("{format_duration(value)}")' if inside else format_duration(value)
        case TypeValue():
            return value.name
        case list():
            return "[" + ", ".join(shown(one, inside=True) for one in value) + "]"
        case dict():
            entries = sorted((shown(from_key(key), inside=True), shown(one, inside=True)) for key, one in value.items())
            return "{" + ", ".join(f"{key}:{one}" for key, one in entries) + "}"
        case _:
            raise EvalError(f"error during formatting: no formatting function for {type_name(value)}")


def _number(value: Any) -> float:
    if isinstance(value, str):
        number = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(value)
        if number is None:
            raise EvalError(f'error during formatting: "{value}" is not a valid number')
        return number
    return float(value)


def _special(number: float) -> str:
    return "NaN" if math.isnan(number) else "∞" if number > 0 else "-∞"


def _fixed(value: Any, precision: int) -> str:
    number = _number(value)
    # Upstream prints no sign of a negative zero.
    return f"{number + 0.0:,.{precision}f}" if math.isfinite(number) else _special(number)


def _scientific(value: Any) -> str:
    """Format a number for ``%e``. The precision has no effect, because upstream passes it to the formatter as a width."""
    number = _number(value)
    if not math.isfinite(number):
        return _special(number)
    digits, _, exponent = f"{number + 0.0:.{_DEFAULT_PRECISION}e}".partition("e")
    return f"{digits}×10{_raised(int(exponent))}"


def _raised(exponent: int) -> str:
    text = f"{exponent:03d}" if exponent < 0 else f"{exponent:02d}"
    return text.translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _hexadecimal(verb: str, value: Any) -> str:
    text = f"{value:x}" if isinstance(value, int) else (value.encode() if isinstance(value, str) else value).hex()
    return text.upper() if verb == "X" else text
