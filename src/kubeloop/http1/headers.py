"""Header fields, and the parts of HTTP's grammar that both sides of a connection read (RFC 9110, RFC 9112)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

#: A method, the name of a header field, or a protocol (RFC 9110, section 5.6.2).
TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
#: Characters that no field value may contain: RFC 9110, section 5.5, calls CR, LF and NUL invalid and dangerous.
FORBIDDEN_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
#: Lines of fields as nearly all programs write them: no blank where one is optional but before the value, no folding, no control character.
#: One search for all lines takes a third of the time of one for each.
_USUAL_FIELDS = re.compile(rf"(?:{TOKEN.pattern}:[ \t]*(?:[^\x00-\x20\x7f](?:[^\x00-\x08\x0a-\x1f\x7f]*[^\x00-\x20\x7f])?)?\r\n)*")
_USUAL_FIELD = re.compile(r"([^:]+):[ \t]*([^\r]*)\r\n")
_HEX = b"0123456789abcdefABCDEF"
#: Maximum digits of a size. Python's ``int`` refuses thousands of digits with an unrelated error.
MAX_DIGITS = 16


def usual_fields(lines: str) -> list[tuple[str, str]] | None:
    """Return the names and values of a head's lines, each of which ends with CR LF; None if they are not written as usual.

    Such lines may be invalid, or valid in only one direction: the caller reads them one by one.
    """
    return _USUAL_FIELD.findall(lines) if _USUAL_FIELDS.fullmatch(lines) is not None else None


def is_protocol_name(text: str) -> bool:
    """Return whether a text is a valid protocol in an Upgrade header, such as ``websocket`` or ``SPDY/3.1`` (RFC 9110, section 7.8)."""
    return all(TOKEN.fullmatch(part) for part in text.split("/", 1))


def list_contains(header: str, token: str) -> bool:
    """Return True if a comma-separated header value contains ``token`` (lower case), without regard to case (RFC 9110, section 5.6.1)."""
    return bool(header) and any(part.strip(" \t").lower() == token for part in header.split(","))


def is_hexadecimal(digits: bytes) -> bool:
    """Return True if ``digits`` is not empty and ``int(digits, 16)`` reads it as RFC 9112 does: without sign, prefix and underscore."""
    return bool(digits) and not digits.translate(None, _HEX)


class Headers(Mapping[str, str]):
    """Headers by name. A lookup joins the values of the name by commas (RFC 9110, section 5.2)."""

    __slots__ = ("_values",)

    def __init__(self, fields: Iterable[tuple[str, str]] = ()) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in fields:
            self._values.setdefault(name.lower(), []).append(value)

    def add(self, name: str, value: str) -> None:
        self._values.setdefault(name.lower(), []).append(value)

    def values_of(self, name: str) -> list[str]:
        """Return each value as it was sent, or an empty list if there is none."""
        return list(self._values.get(name.lower(), ()))

    def __getitem__(self, name: str) -> str:
        return ", ".join(self._values[name.lower()])

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        # Values may be secret (Set-Cookie).
        return f"Headers({', '.join(self._values)})"
