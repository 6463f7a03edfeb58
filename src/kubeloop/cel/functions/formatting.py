"""``"%s is %d".format([...])``: what each verb prints, and which values it takes. Source: cel-go ext/formatting.go."""

from __future__ import annotations

import math
import re
from typing import Any

from kubeloop.cel.faults import EvalError
from kubeloop.cel.values import Duration, Timestamp, TypeValue, UInt, from_key, type_name
from kubeloop.meta.field_error import go_number

_VERB = re.compile(r"%(?:%|(?:\.([0-9]+))?(.?))", re.DOTALL)
_DEFAULT_PRECISION = 6
_MOST_PRECISION = 1000


def format_text(text: str, args: list[Any]) -> str:
    """
    Raises:
        EvalError: a verb that is none, an argument of the wrong type, or too few of them.
    """
    given = iter(enumerate(args))

    def one(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        verb = found[2]
        if not verb:
            raise EvalError("unexpected end of string")
        try:
            index, value = next(given)
        except StopIteration:
            raise EvalError(f"index {len(args)} out of range") from None
        del index
        precision = min(int(found[1]), _MOST_PRECISION) if found[1] else _DEFAULT_PRECISION
        return _verb(verb, value, precision)

    return _VERB.sub(one, text)


def _verb(verb: str, value: Any, precision: int) -> str:
    match verb:
        case "s":
            return shown(value)
        case "d":
            return _decimal(value)
        case "f":
            return _fixed(value, precision)
        case "e":
            return _scientific(value, precision)
        case "b" if isinstance(value, int):
            return f"{value:b}"
        case "o" if isinstance(value, int) and not isinstance(value, bool):
            return f"{value:o}"
        case "x" | "X":
            return _hexadecimal(verb, value)
        case "b" | "o":
            what = "integers and bools" if verb == "b" else "integers"
            clause = "binary" if verb == "b" else "octal"
            raise EvalError(f"error during formatting: only {what} can be formatted as {clause}, was given {type_name(value)}")
        case _:
            raise EvalError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')


def shown(value: Any, *, inside: bool = False) -> str:
    """As ``%s`` prints a value; inside lists and maps, texts are quoted."""
    from kubeloop.cel.functions.moments import format_duration, format_timestamp

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
        case Duration():
            return f'duration("{format_duration(value)}")' if inside else format_duration(value)
        case TypeValue():
            return value.name
        case list():
            return "[" + ", ".join(shown(one, inside=True) for one in value) + "]"
        case dict():
            entries = sorted((shown(from_key(key), inside=True), shown(one, inside=True)) for key, one in value.items())
            return "{" + ", ".join(f"{key}:{one}" for key, one in entries) + "}"
        case _:
            kinds = "strings, bools, integers, doubles, maps, lists, types, durations, and timestamps"
            raise EvalError(f"error during formatting: string clause can only be used on {kinds}, was given {type_name(value)}")


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(value)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _decimal(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value))
    if _number(value) is not None and (isinstance(value, str) or not math.isfinite(value)):
        return _special(_number(value) or 0.0)
    raise EvalError(f"error during formatting: decimal clause can only be used on integers, was given {type_name(value)}")


def _special(number: float) -> str:
    return "NaN" if math.isnan(number) else "∞" if number > 0 else "-∞"


def _fixed(value: Any, precision: int) -> str:
    number = _number(value)
    if number is None or (isinstance(value, int) and not isinstance(value, UInt | int)):
        raise EvalError(f"error during formatting: fixed-point clause can only be used on doubles, was given {type_name(value)}")
    return f"{number:.{precision}f}" if math.isfinite(number) else _special(number)


def _scientific(value: Any, precision: int) -> str:
    number = _number(value)
    if number is None:
        raise EvalError(f"error during formatting: scientific clause can only be used on doubles, was given {type_name(value)}")
    if not math.isfinite(number):
        return _special(number)
    digits, _, exponent = f"{number:.{precision}e}".partition("e")
    return f"{digits} × 10{_raised(int(exponent))}"


def _raised(exponent: int) -> str:
    return f"{exponent:+03d}".translate(str.maketrans("+-0123456789", "⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _hexadecimal(verb: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str | bytes):
        what = "only integers, byte buffers, and strings can be formatted as hex"
        raise EvalError(f"error during formatting: {what}, was given {type_name(value)}")
    text = f"{value:x}" if isinstance(value, int) else (value.encode() if isinstance(value, str) else value).hex()
    return text.upper() if verb == "X" else text
