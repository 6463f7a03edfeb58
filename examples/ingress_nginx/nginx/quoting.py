"""The only way in which text from outside enters nginx.conf: ``quote`` makes one parameter of it, or refuses it."""

from __future__ import annotations

import ipaddress
import re

#: A variable of nginx.conf with the text ``$``: NGINX has no other way to write a dollar sign where it evaluates variables.
DOLLAR = "${kubeloop_dollar}"
#: Longest parameter in bytes. NGINX reads a file through a buffer of 4,096 bytes (NGX_CONF_BUFFER), which must hold a whole parameter.
LONGEST = 4000

#: Text that needs no change; most text is of this kind.
_PLAIN = re.compile(rf"[ !#%-\[\]-~]{{0,{LONGEST}}}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class UnsafeText(ValueError):
    """A text cannot be written into nginx.conf; the message says why and shows the start of the text."""


def quote(text: str, *, variables: bool = True) -> str:
    """Return the text as one parameter in double quotes that NGINX reads as exactly this text.

    Args:
        text: Any text.
        variables: The directive evaluates variables, so a dollar sign must not begin one. False: for parameters in which a dollar sign
            is an ordinary character, such as the path of a location, a regular expression, a server name, and the first column of a map.

    Raises:
        UnsafeText: The text has control characters, cannot be encoded as UTF-8, or is longer than NGINX can read.
    """
    if _PLAIN.fullmatch(text):
        return f'"{text}"'
    if (found := _CONTROL.search(text)) is not None:
        raise UnsafeText(f"{_shown(text)} has the control character {found.group()!r}")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    if variables:
        escaped = escaped.replace("$", DOLLAR)
    try:
        size = len(escaped.encode())
    except UnicodeEncodeError:
        raise UnsafeText(f"{_shown(text)} is not valid Unicode") from None
    if size > LONGEST:
        raise UnsafeText(f"{_shown(text)} is longer than {LONGEST} bytes")
    return f'"{escaped}"'


def map_regex(pattern: str, *, ignore_case: bool = False) -> str:
    """Return a regular expression as the first column of a map.

    Also for literal text (``pcre_literal``): NGINX compares literal columns without regard to case.
    """
    return quote(("~*" if ignore_case else "~") + pattern, variables=False)


def pcre_literal(text: str) -> str:
    """Return a regular expression that matches exactly this text."""
    return "".join(letter if letter.isalnum() or letter in "_/" else f"\\{letter}" if letter.isascii() else letter for letter in text)


def header_name(name: str) -> str:
    """Return the name of a header if it is a token (RFC 9110, 5.6.2) of letters, digits, ``-`` and ``_``.

    Raises:
        UnsafeText: It is not, so NGINX could not send or read such a header.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name) or len(name) > LONGEST:
        raise UnsafeText(f"{_shown(name)} is no name of a header that NGINX supports")
    return name


def token(text: str) -> str:
    """Return a text that is a token (RFC 9110), such as a method, in quotes; raises UnsafeText."""
    if not _TOKEN.fullmatch(text):
        raise UnsafeText(f"{_shown(text)} is not a token")
    return quote(text)


def network(text: str) -> str:
    """Return a network (CIDR) or address in its normal form; raises UnsafeText."""
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        raise UnsafeText(f"{_shown(text)} is not a network such as 10.0.0.0/8") from None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
