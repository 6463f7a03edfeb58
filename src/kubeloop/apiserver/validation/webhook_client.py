"""Validates the ``clientConfig`` of webhooks. Source: k8s.io/apiserver pkg/util/webhook/validation.go."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from kubeloop.meta.field_error import FieldError, invalid, required
from kubeloop.meta.names import dns1123_subdomain, in_range
from kubeloop.meta.strconv import go_quoted
from kubeloop.types import JSONObject

# Parses URLs as Go's net/url does, with its error messages. Source: net/url Parse of Go 1.26.


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2}).{0,2}")
#: In a host only bytes outside of ASCII may be escaped.
_HOST_ESCAPE: Final = re.compile(r"%(?!25)[0-7][0-9a-fA-F]")
_NO_HOST: Final = re.compile(r"[\x00-\x20#/?@\\^`{|}\x7f]")
_USER: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")


class InvalidURL(ValueError):
    """The URL is invalid. The message is that of Go's url.Error."""


@dataclass(frozen=True, slots=True)
class GoURL:
    """A parsed URL. ``host`` includes the port; ``user`` is None if there is none."""

    scheme: str
    host: str
    user: str | None
    query: str
    fragment: str


def parse_url(text: str) -> GoURL:
    """Parse a URL.

    Raises:
        InvalidURL: The URL is invalid.
    """
    url, _, fragment = text.partition("#")
    try:
        scheme, rest = _scheme(url)
        rest, _, query = rest.partition("?")
        user, host = _authority(scheme, rest)
    except InvalidURL as error:
        raise InvalidURL(f"parse {go_quoted(url)}: {error}") from None
    try:
        return GoURL(scheme, host, user, query, _unescaped(fragment))
    except InvalidURL as error:
        raise InvalidURL(f"parse {go_quoted(text)}: {error}") from None


def _scheme(url: str) -> tuple[str, str]:
    if _CONTROL.search(url):
        raise InvalidURL("net/url: invalid control character in URL")
    if url.startswith(":"):
        raise InvalidURL("missing protocol scheme")
    match = _SCHEME.match(url)
    return (match[1].lower(), url[match.end() :]) if match else ("", url)


def _authority(scheme: str, rest: str) -> tuple[str | None, str]:
    if not rest.startswith("/"):
        if not scheme and ":" in rest.partition("/")[0]:
            raise InvalidURL("first path segment in URL cannot contain colon")
        if not scheme:
            _unescaped(rest)
        return None, ""
    user, host = None, ""
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        before, index, place = authority.rpartition("@")
        host = _host(scheme, place)
        if index and not _USER.fullmatch(before):
            raise InvalidURL("net/url: invalid userinfo")
        user = _unescaped(before) if index else None
    _unescaped(rest)
    return user, host


def _host(scheme: str, host: str) -> str:
    if host.rfind("[") > 0:
        raise InvalidURL("invalid IP-literal")
    if host.startswith("["):
        return _literal(host)
    colon = host.find(":") if scheme in ("http", "https") else host.rfind(":")
    if colon >= 0:
        _check_port(host[colon:])
    return _unescaped_host(host)


def _literal(host: str) -> str:
    """Check a host that is an IPv6 address in brackets, with an optional zone (``%25eth0``) and port, and return it unchanged.

    Raises:
        InvalidURL: The host is malformed, or its address is IPv4.
    """
    end = host.rfind("]")
    if end < 0:
        raise InvalidURL("missing ']' in host")
    _check_port(host[end + 1 :])
    inside, zone_mark, _ = host[1:end].partition("%25")
    address = _unescaped_host(inside)
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        shown = unquote(host[1:end]) if zone_mark else address
        raise InvalidURL(f"invalid host: ParseAddr({go_quoted(shown)}): unable to parse IP") from None
    if parsed.version == 4:
        raise InvalidURL("invalid IP-literal")
    return host


def _check_port(text: str) -> None:
    if text and not re.fullmatch(r":[0-9]*", text):
        raise InvalidURL(f"invalid port {go_quoted(text)} after host")


def _unescaped_host(host: str) -> str:
    for index, character in enumerate(host):
        if character == "%" and (bad := _ESCAPE.match(host, index) or _HOST_ESCAPE.match(host, index)):
            raise InvalidURL(f"invalid URL escape {go_quoted(bad.group())}")
        if _NO_HOST.match(character):
            raise InvalidURL(f"invalid character {go_quoted(character)} in host name")
    return unquote(host)


def _unescaped(text: str) -> str:
    if bad := _ESCAPE.search(text):
        raise InvalidURL(f"invalid URL escape {go_quoted(bad.group())}")
    return unquote(text)


_FORM: Final = "; desired format: https://host[/path]"


def check_client_config(path: str, config: JSONObject) -> Iterator[FieldError]:
    """Check that a ``clientConfig`` has exactly one of a URL and a service, and validate it."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from validate_webhook_url(f"{path}.url", url)
    elif service is not None:
        yield from validate_webhook_service(f"{path}.service", service)


def validate_webhook_url(path: str, url: str) -> Iterator[FieldError]:
    """Validate an https URL with a host and an optional path, and nothing else."""
    try:
        parts = parse_url(url)
    except InvalidURL as error:
        yield required(path, f"url must be a valid URL: {error}{_FORM}")
        return
    if parts.scheme != "https":
        yield invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}")
    if not parts.host:
        yield invalid(path, parts.host, f"host must be specified{_FORM}")
    if parts.user is not None:
        yield invalid(path, parts.user, "user information is not permitted in the URL")
    if parts.fragment:
        yield invalid(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(path, parts.query, "query parameters are not permitted in the URL")


def validate_webhook_service(path: str, service: JSONObject) -> Iterator[FieldError]:
    """Validate a reference to a service."""
    # Upstream passes name and namespace in the wrong order.
    for messages, missing in (("name", "namespace"), ("namespace", "name")):
        if not service.get(missing):
            yield required(f"{path}.{messages}")
    port = service.get("port") or 0
    for message in in_range(port, 1, 65535):
        yield invalid(f"{path}.port", port, f"port is not valid: {message}")
    yield from _url_path(f"{path}.path", service.get("path") or "")


def _url_path(path: str, text: str) -> Iterator[FieldError]:
    if text in ("", "/"):
        return
    if text == "//":
        yield invalid(path, text, "segment[0] may not be empty")
        return
    if not text.startswith("/"):
        yield invalid(path, text, "must start with a '/'")
    for index, segment in enumerate(text[1:].removesuffix("/").split("/")):
        if not segment:
            yield invalid(path, text, f"segment[{index}] may not be empty")
            continue
        for message in dns1123_subdomain(segment):
            yield invalid(path, text, f"segment[{index}]: {message}")
