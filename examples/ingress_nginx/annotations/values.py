"""Parsers of single values: text that users write becomes a number, a list or a word of a small alphabet, or ``InvalidValue``.

Each parser accepts an alphabet, and no parser removes characters: a value outside of it is refused. No accepted value contains a control
character, a quote, a backslash, ``;``, ``{`` or ``}``; a dollar sign stands only in front of the variables that a parser names.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")

#: Longest value, and longest value that is a list, in characters.
MAX_TEXT, MAX_LIST = 2048, 16384

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"})

_TRUE, _FALSE = {"1", "t", "T", "TRUE", "true", "True"}, {"0", "f", "F", "FALSE", "false", "False"}
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_SIZE = re.compile(r"([0-9]{1,15})([bkmgBKMG]?)")
_DURATION = re.compile(r"([0-9]{1,12})([smhd]?)")
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}

_PHRASE = re.compile(r"[A-Za-z0-9 _.,:@()/&+!?*=%~-]+")
_HEADER = re.compile(r"[A-Za-z0-9_-]{1,128}")
_TOKENS = re.compile(r"[A-Za-z0-9-]+(?:, ?[A-Za-z0-9-]+)*")
_COOKIE = re.compile(r"[A-Za-z0-9_-]{1,128}")
_PARAMETER = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_LABEL = r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?"
_NAME = rf"{_LABEL}(?:\.{_LABEL})*"
_HOST = re.compile(rf"(?:\*\.)?{_NAME}")
_SERVICE = re.compile(r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
_OBJECT = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_PORT = r"(?::([0-9]{1,5}))?"
_AUTHORITY = re.compile(rf"({_NAME}|\[[0-9a-fA-F:.]+\]){_PORT}", re.IGNORECASE)
_ORIGIN = re.compile(rf"[a-z][a-z0-9+.-]{{0,31}}://((?:\*\.)?{_NAME}){_PORT}", re.IGNORECASE)
# RFC 3986 without the characters "$", "'" and ";".
_CHARACTER = r"(?:[A-Za-z0-9._~!&()*+,=:@-]|%[0-9A-Fa-f]{2})"
_PATH = re.compile(rf"/(?:{_CHARACTER}|/)*")
_REFERENCE = re.compile(rf"(?:/(?:{_CHARACTER}|/)*)?(?:\?(?:{_CHARACTER}|[/?])*)?(?P<fragment>#(?:{_CHARACTER}|[/?])*)?")
_TEMPLATE = re.compile(rf"/(?:{_CHARACTER}|[/?]|\$[1-9](?![0-9]))*|\$[1-9](?![0-9])")
_DOTS = re.compile(r"(?:^|/)\.{1,2}(?:[/?]|$)", re.ASCII)
_ENCODED_DOT = re.compile("%2e", re.IGNORECASE)


class InvalidValue(ValueError):
    """A value is refused. The text continues a sentence about the value, names the expected values, and never contains the value."""


def boolean(value: str) -> bool:
    """Return the value of the words that Go's ParseBool accepts, such as ``true``, ``T`` and ``1``."""
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise InvalidValue('is neither "true" nor "false"')


def switch(value: str) -> bool:
    """Return whether the value is ``on``; the other value is ``off``."""
    return choice({"on": True, "off": False})(value)


def choice(values: Mapping[str, T]) -> Callable[[str], T]:
    """Return a parser of a few words: word -> result."""

    def parse(value: str) -> T:
        if value in values:
            return values[value]
        raise InvalidValue(f"is not one of the values {', '.join(values)}")

    return parse


def integer(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of decimal integers between two bounds, both included."""

    def parse(value: str) -> int:
        if _INTEGER.fullmatch(value) and low <= (number := int(value)) <= high:
            return number
        raise InvalidValue(f"is not an integer from {low} to {high}")

    return parse


def size(low: int = 0, high: int = 1 << 40) -> Callable[[str], int]:
    """Return a parser of sizes such as ``8m``, whose results are bytes between two bounds."""

    def parse(value: str) -> int:
        if (parts := _SIZE.fullmatch(value)) and low <= (number := int(parts[1]) * _UNITS[parts[2].lower()]) <= high:
            return number
        raise InvalidValue(f'is not a size such as "8m" from {low} to {high} bytes; write digits, and k, m or g for a unit')

    return parse


def seconds(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of durations in seconds between two bounds. A unit s, m, h or d may follow the number."""

    def parse(value: str) -> int:
        if (parts := _DURATION.fullmatch(value)) and low <= (number := int(parts[1]) * _SECONDS[parts[2]]) <= high:
            return number
        raise InvalidValue(f'is not a time such as "60" or "60s" from {low} to {high} seconds')

    return parse


def each(parse: Callable[[str], T], *, separator: str = ",", limit: int = 512) -> Callable[[str], tuple[T, ...]]:
    """Return a parser of lists without empty elements and with at most ``limit`` different ones.

    ``separator``: one character. Spaces around elements are left out.
    """

    def parse_all(value: str) -> tuple[T, ...]:
        if len(value) > MAX_LIST:
            raise InvalidValue(f"is longer than {MAX_LIST} characters")
        elements = [element.strip(" ") for element in value.strip(" ").split(separator)]
        if separator == " ":
            elements = [element for element in elements if element]
        if not elements or elements == [""]:
            raise InvalidValue("is empty; remove the annotation")
        result = tuple(dict.fromkeys(parse(element) for element in elements))
        if len(result) > limit:
            raise InvalidValue(f"has more than {limit} elements")
        return result

    return parse_all


def phrase(value: str) -> str:
    """Return a text of ASCII letters, digits, spaces and the punctuation that NGINX never reads as syntax."""
    return _accept(_PHRASE, value, "has characters other than ASCII letters, digits, spaces and _.,:@()/&+!?*=%~-", 256)


def network(value: str) -> str:
    """Return a network in CIDR notation without host bits; an address is a network with one address."""
    try:
        if "%" not in value and len(value) <= 64:
            return str(ipaddress.ip_network(value, strict=False))
    except ValueError:
        pass
    raise InvalidValue('is not a list of networks such as "10.0.0.0/8, 2001:db8::/32"')


def address(value: str) -> str:
    """Return an IP address."""
    try:
        if "%" not in value and len(value) <= 64:
            return str(ipaddress.ip_address(value))
    except ValueError:
        pass
    raise InvalidValue("is not an IP address")


def header_name(value: str) -> str:
    """Return the name of a header: ASCII letters, digits, ``-`` and ``_``."""
    return _accept(_HEADER, value, "is not the name of a header: letters, digits, - and _")


def connection_options(value: str) -> str:
    """Return a value of the header Connection, such as ``keep-alive, Upgrade``."""
    return _accept(_TOKENS, value, 'is not a value of the header Connection such as "keep-alive"', 256)


def method(value: str) -> str:
    """Return an HTTP method of RFC 9110 or PATCH, in capitals."""
    if value.isascii() and value.upper() in METHODS:
        return value.upper()
    raise InvalidValue(f"is not one of the methods {', '.join(sorted(METHODS))}")


def host(value: str) -> str:
    """Return a DNS name in lower case, which may begin with ``*.``."""
    return _accept(_HOST, value.lower(), 'is not a host name such as "www.example.com" or "*.example.com"', 253)


def exact_host(value: str) -> str:
    """Return a DNS name in lower case, without a wildcard."""
    if value.startswith("*"):
        raise InvalidValue("has a wildcard; write one host name")
    return host(value)


def authority(value: str) -> str:
    """Return a host name or an address in brackets, in lower case, and the port if there is one."""
    split_authority(value)
    return value.lower()


def split_authority(value: str) -> tuple[str, int]:
    """Return a host in lower case and a port; port 0: none is written."""
    parts = _AUTHORITY.fullmatch(value)
    if len(value) > 300 or not parts or not _valid_port(parts[2]):
        raise InvalidValue('is not a host such as "example.com" or "example.com:8443"')
    if parts[1].startswith("["):
        address(parts[1][1:-1])
    return parts[1].lower(), int(parts[2] or 0)


def origin(value: str) -> str:
    """Return ``*``, or an origin such as ``https://example.com:8443``, whose host may begin with ``*.``."""
    parts = _ORIGIN.fullmatch(value)
    if value != "*" and (len(value) > 300 or not parts or not _valid_port(parts[2])):
        raise InvalidValue('is not a list of origins such as "https://example.com, https://*.example.org:8443"')
    return value.lower()


def path(value: str) -> str:
    """Return an absolute path without a query and without the elements ``.`` and ``..``."""
    result = _accept(_PATH, value, 'is not a path such as "/app"; encode other characters, for example %20 for a space')
    _refuse_dots(result)
    return result


def template(value: str) -> str:
    """Return a path, with a query if there is one, in which ``$1`` to ``$9`` are the groups of a location's expression."""
    result = _accept(_TEMPLATE, value, 'is not a path such as "/app/$2", in which only $1 to $9 are replaced; encode others, as in %20')
    _refuse_dots(result)
    return result


def url(value: str) -> str:
    """Return an http:// or https:// URL without user information and fragment."""
    return _url(value, fragment=False)


def page_url(value: str) -> str:
    """Return an http:// or https:// URL that a browser gets: it may have a fragment."""
    return _url(value, fragment=True)


def page(value: str) -> str:
    """Return a URL for a browser, or an absolute path with a query and a fragment."""
    if not value.startswith("/"):
        return page_url(value)
    if value.startswith("//"):
        raise InvalidValue('begins with "//", which is another host; write one slash')
    return _reference(value, fragment=True)


def status(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of HTTP statuses between two bounds, both included."""

    def parse(value: str) -> int:
        if len(value) == 3 and value.isascii() and value.isdigit() and low <= int(value) <= high:
            return int(value)
        raise InvalidValue(f"is not an HTTP status from {low} to {high}")

    return parse


def cookie_name(value: str) -> str:
    """Return the name of a cookie: ASCII letters, digits, ``-`` and ``_``."""
    return _accept(_COOKIE, value, "is not the name of a cookie: letters, digits, - and _")


def parameter(value: str) -> str:
    """Return the name of a parameter of a query."""
    return _accept(_PARAMETER, value, "is not the name of a parameter: letters, digits, _, . and -")


def service_name(value: str) -> str:
    """Return the name of a service."""
    return _accept(_SERVICE, value, "is not the name of a service of the Ingress's namespace")


def object_name(value: str) -> str:
    """Return the name of an object such as a Secret."""
    return _accept(_OBJECT, value, "is not the name of an object: lower-case letters, digits, - and .")


def _accept(pattern: re.Pattern[str], value: str, expected: str, limit: int = MAX_TEXT) -> str:
    if not value:
        raise InvalidValue("is empty; remove the annotation")
    if len(value) > limit:
        raise InvalidValue(f"is longer than {limit} characters")
    if not pattern.fullmatch(value):
        raise InvalidValue(expected)
    return value


def _url(value: str, *, fragment: bool) -> str:
    scheme, separator, rest = value.partition("://")
    if len(value) > MAX_TEXT or scheme.lower() not in ("http", "https") or not separator:
        raise InvalidValue('is not a URL such as "https://example.com/path"')
    end = min((place for place in map(rest.find, "/?#") if place >= 0), default=len(rest))
    return f"{scheme.lower()}://{authority(rest[:end])}{_reference(rest[end:], fragment=fragment)}"


def _reference(value: str, *, fragment: bool) -> str:
    parts = _REFERENCE.fullmatch(value)
    if len(value) > MAX_TEXT or not parts or (parts["fragment"] and not fragment):
        raise InvalidValue("has characters in its path that are not allowed; encode them, for example %20 for a space and %27 for a quote")
    _refuse_dots(value)
    return value


def _refuse_dots(value: str) -> None:
    if _DOTS.search(_ENCODED_DOT.sub(".", value.partition("?")[0])):
        raise InvalidValue('has an element "." or ".."; write the path that it leads to')


def _valid_port(text: str | None) -> bool:
    return text is None or 1 <= int(text) <= 65535
