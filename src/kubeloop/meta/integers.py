"""Parses integers in untrusted texts: accepts what Go's strconv accepts, and never a number of unbounded size.

Python's ``int`` accepts more (other digits, underscores, spaces) and refuses numbers of thousands of digits with another error.
"""

from __future__ import annotations

#: Digits of the longest 64-bit number.
_LONGEST = 20


def is_digits(text: str) -> bool:
    """Whether the text is one or more of the digits 0 to 9."""
    return text.isascii() and text.isdigit()


def decimal(text: str, *, bits: int = 64, signed: bool = True) -> int | None:
    """Return the number; None if the text is no number or does not fit. Source: Go, strconv.ParseInt and ParseUint in base 10."""
    digits = text[1:] if signed and text[:1] in ("+", "-") else text
    if not is_digits(digits) or len(digits.lstrip("0")) > _LONGEST:
        return None
    number = int(digits.lstrip("0") or "0")
    if signed:
        number = -number if text[0] == "-" else number
        return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None
    return number if number < 1 << bits else None
