"""IP addresses, CIDRs and URLs. Source: k8s.io/apiserver pkg/cel/library (ip, cidr, urls); parsed as Go's netip and net/url do."""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from kubeloop.cel.faults import EvalError
from kubeloop.cel.overloads import function, member
from kubeloop.cel.values import Cidr, UrlValue

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}")
_ESCAPED_PATH = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/\[\]]|%[0-9A-Fa-f]{2})*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _address_error(text: str) -> str:
    """Return the error message of Go's net/netip.ParseAddr for a text that is not an IP address."""
    kind = next((character for character in text if character in ".:%"), "")
    if kind == "%":
        return _parse_error(text, "missing IPv6 address")
    if kind == ".":
        return _ipv4_error(text, text)
    return _ipv6_error(text) if kind else _parse_error(text, "unable to parse IP")


def _parse_error(text: str, why: str, at: str = "") -> str:
    return f"ParseAddr({_quoted(text)}): {why}" + (f" (at {_quoted(at)})" if at else "")


def _ipv4_error(text: str, fields: str) -> str:
    value, digits, dots = 0, 0, 0
    for index, character in enumerate(fields):
        if character in "0123456789":
            if digits == 1 and value == 0:
                return _parse_error(text, "IPv4 field has octet with leading zero")
            value, digits = value * 10 + int(character), digits + 1
            if value > 255:
                return _parse_error(text, "IPv4 field has value >255")
        elif character != ".":
            return _parse_error(text, "unexpected character", fields[index:])
        elif index in (0, len(fields) - 1) or fields[index - 1] == ".":
            return _parse_error(text, "IPv4 field must have at least one digit", fields[index:])
        elif dots == 3:
            return _parse_error(text, "IPv4 address too long")
        else:
            value, digits, dots = 0, 0, dots + 1
    return _parse_error(text, "IPv4 address too short")


def _ipv6_error(text: str) -> str:
    """Return ParseAddr's message for an invalid IPv6 address. Follows Go's parser field by field; ``rest`` is the text not yet read."""
    rest, percent, zone = text.partition("%")
    if percent and not zone:
        return _parse_error(text, "zone must be a non-empty string")
    ellipsis = rest.startswith("::")
    rest = rest.removeprefix("::")
    size = 0
    while size < 16 and rest:
        field = re.match(r"[0-9A-Fa-f]*", rest)
        digits = field[0] if field is not None else ""
        if len(digits) > 4:
            return _parse_error(text, "each group must have 4 or less digits", rest)
        if not digits:
            return _parse_error(text, "each colon-separated field must have at least one digit", rest)
        if rest[len(digits) :].startswith("."):
            if not ellipsis and size != 12:
                return _parse_error(text, "embedded IPv4 address must replace the final 2 fields of the address", rest)
            if size > 12:
                return _parse_error(text, "too many hex fields to fit an embedded IPv4 at the end of the address", rest)
            return _ipv4_error(text, rest)
        size, rest = size + 2, rest[len(digits) :]
        if not rest:
            break
        if not rest.startswith(":"):
            return _parse_error(text, "unexpected character, want colon", rest)
        if rest == ":":
            return _parse_error(text, "colon must be followed by more characters", rest)
        rest = rest[1:]
        if rest.startswith(":"):
            if ellipsis:
                return _parse_error(text, "multiple :: in address", rest)
            ellipsis, rest = True, rest[1:]
    if rest:
        return _parse_error(text, "trailing garbage after address", rest)
    if size < 16:
        return _parse_error(text, "address string too short")
    return _parse_error(text, "the :: must expand to at least one field of zeros")


@function("ip", "string -> ip", "string_to_ip")
def _ip(text: str) -> Address:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        raise EvalError(f"IP Address {_quoted(text)} parse error during conversion from string: {_address_error(text)}") from None
    if "%" in text:
        raise EvalError(f"IP address {_quoted(text)} with zone value is not allowed")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise EvalError(f"IPv4-mapped IPv6 address {_quoted(text)} is not allowed")
    return address


def _is(parse: Any) -> Any:
    def check(text: str) -> bool:
        try:
            parse(text)
        except EvalError:
            return False
        return True

    return check


@function("cidr", "string -> cidr", "string_to_cidr")
def _cidr(text: str) -> Cidr:
    failure = "network address parse error during conversion from string: "
    address_text, slash, bits = text.rpartition("/")
    if not slash:
        raise EvalError(f"{failure * 2}netip.ParsePrefix({_quoted(text)}): no '/'")
    try:
        if "%" in address_text:
            raise ValueError
        address = ipaddress.ip_address(address_text)
    except ValueError:
        raise EvalError(f"{failure * 2}netip.ParsePrefix({_quoted(text)}): {_address_error(address_text)}") from None
    if not re.fullmatch(r"0|[1-9][0-9]*", bits):
        raise EvalError(f"{failure * 2}netip.ParsePrefix({_quoted(text)}): bad bits after slash: {_quoted(bits)}")
    if int(bits) > address.max_prefixlen:
        raise EvalError(f"{failure * 2}netip.ParsePrefix({_quoted(text)}): prefix length out of range")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise EvalError(f"{failure}IPv4-mapped IPv6 address {_quoted(text)} is not allowed")
    return Cidr(address, int(bits))


def _contains_ip(cidr: Cidr, address: Address) -> bool:
    return address.version == cidr.address.version and address in cidr.network


def _contains_ip_text(cidr: Cidr, text: str) -> bool:
    try:
        return _contains_ip(cidr, _ip(text))
    except EvalError:
        raise EvalError("no such overload") from None  # as upstream: the parser's message is lost


def _contains_cidr(cidr: Cidr, other: Cidr) -> bool:
    return cidr.prefix <= other.prefix and _contains_ip(cidr, other.address)


def _is_global(address: Address) -> bool:
    """Return whether an address is global unicast as Go's IsGlobalUnicast defines it; private addresses are included."""
    if address.version == 4 and str(address) == "255.255.255.255":
        return False
    return not (address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local)


def _is_link_local_multicast(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return address in ipaddress.ip_network("224.0.0.0/24")
    return address.is_multicast and address.packed[1] & 0x0F == 2


function("isIP", "string -> bool", "is_ip")(_is(_ip))
function("ip.isCanonical", "string -> bool", "ip_is_canonical")(lambda text: str(_ip(text)) == text)
function("string", "ip -> string", "ip_to_string")(str)
member("family", "ip -> int", "ip_family")(lambda address: address.version)
member("isUnspecified", "ip -> bool", "ip_is_unspecified")(lambda address: address.is_unspecified)
member("isLoopback", "ip -> bool", "ip_is_loopback")(lambda address: address.is_loopback)
member("isLinkLocalMulticast", "ip -> bool", "ip_is_link_local_multicast")(_is_link_local_multicast)
member("isLinkLocalUnicast", "ip -> bool", "ip_is_link_local_unicast")(lambda address: address.is_link_local)
member("isGlobalUnicast", "ip -> bool", "ip_is_global_unicast")(_is_global)
function("isCIDR", "string -> bool", "is_cidr")(_is(_cidr))
function("string", "cidr -> string", "cidr_to_string")(str)
member("containsIP", "cidr, string -> bool", "cidr_contains_ip_string")(_contains_ip_text)
member("containsIP", "cidr, ip -> bool", "cidr_contains_ip_ip")(_contains_ip)
member("containsCIDR", "cidr, string -> bool", "cidr_contains_cidr_string")(lambda cidr, text: _contains_cidr(cidr, _cidr(text)))
member("containsCIDR", "cidr, cidr -> bool", "cidr_contains_cidr")(_contains_cidr)
member("ip", "cidr -> ip", "cidr_ip")(lambda cidr: cidr.address)
member("prefixLength", "cidr -> int", "cidr_prefix_length")(lambda cidr: cidr.prefix)
member("masked", "cidr -> cidr", "cidr_masked")(lambda cidr: Cidr(cidr.network.network_address, cidr.prefix))


@function("url", "string -> url", "string_to_url")
def _url(text: str) -> UrlValue:
    """Parse an absolute URL or an absolute path, as Go's url.ParseRequestURI does."""
    failure = f"URL parse error during conversion from string: parse {_quoted(text)}: "
    if not text:
        raise EvalError(f"{failure}empty url")
    if _CONTROL.search(text):
        raise EvalError(f"{failure}net/url: invalid control character in URL")
    if not text.startswith("/") and not _SCHEME.match(text):
        missing = text.startswith(":")
        raise EvalError(failure + ("missing protocol scheme" if missing else "invalid URI for request"))
    bad = _BAD_ESCAPE.search(text.partition("?")[0])
    if bad:
        raise EvalError(f'{failure}invalid URL escape "{bad[0]}"')
    try:
        parts = urlsplit(text)
    except ValueError as exc:
        raise EvalError(f"{failure}{exc}") from None
    host = parts.netloc.rpartition("@")[2]
    if (port := re.search(r":[^\]]*\Z", host)) is not None and not re.fullmatch(":[0-9]*", port[0]):
        raise EvalError(f"{failure}invalid port {_quoted(port[0])} after host")
    if " " in host:
        raise EvalError(f'{failure}invalid character " " in host name')
    return UrlValue(text, parts)


def _host(url: UrlValue) -> str:
    return url.parts.netloc.rpartition("@")[2]


def _hostname(url: UrlValue) -> str:
    host = _host(url)
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _port(url: UrlValue) -> str:
    match = re.search(r":([0-9]*)\Z", _host(url))
    return match[1] if match else ""


function("isURL", "string -> bool", "is_url_string")(_is(_url))
member("getScheme", "url -> string", "url_get_scheme")(lambda url: url.parts.scheme)
member("getHost", "url -> string", "url_get_host")(_host)
member("getHostname", "url -> string", "url_get_hostname")(_hostname)
member("getPort", "url -> string", "url_get_port")(_port)


@member("getEscapedPath", "url -> string", "url_get_escaped_path")
def _escaped_path(url: UrlValue) -> str:
    path = url.parts.path
    if url.parts.scheme and not url.parts.netloc and not path.startswith("/"):
        return ""  # Go treats the text after the scheme as opaque then
    return path if _ESCAPED_PATH.fullmatch(path) else quote(unquote(path), safe="/$&+,:;=@-_.~")


member("getQuery", "url -> map(string, list(string))", "url_get_query")(lambda url: parse_qs(url.parts.query, keep_blank_values=True))
