"""Parts of HTTP's grammar that both sides of a connection read: tokens, lists of tokens, sizes of chunks (RFC 9110, RFC 9112)."""

from __future__ import annotations

import re

#: A method, the name of a header field, or a protocol (RFC 9110, section 5.6.2).
TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
#: Characters that no field value may contain: RFC 9110, section 5.5, calls CR, LF and NUL invalid and dangerous.
FORBIDDEN_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_HEX = b"0123456789abcdefABCDEF"
#: Longer numbers are no size of anything, and Python's ``int`` refuses thousands of digits with an error of its own.
MAX_DIGITS = 16


def is_protocol_name(text: str) -> bool:
    """Return True for the value of an Upgrade header: ``websocket``, ``SPDY/3.1`` (RFC 9110, section 7.8)."""
    return all(TOKEN.fullmatch(part) for part in text.split("/", 1))


def list_contains(header: str, token: str) -> bool:
    """Return True if a comma-separated header value contains ``token`` (lower case), without regard to case (RFC 9110, section 5.6.1)."""
    return bool(header) and any(part.strip(" \t").lower() == token for part in header.split(","))


def is_hexadecimal(digits: bytes) -> bool:
    """Return True if ``digits`` is not empty and ``int(digits, 16)`` reads it as RFC 9112 does: without sign, prefix and underscore."""
    return bool(digits) and not digits.translate(None, _HEX)
