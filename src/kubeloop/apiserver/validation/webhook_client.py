"""Where a webhook is said to be: ``clientConfig`` of webhook configurations. Source: k8s.io/apiserver pkg/util/webhook/validation.go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubeloop.apiserver.validation.go_url import BadUrl, parse_url
from kubeloop.meta.field_error import FieldError, invalid, required
from kubeloop.meta.names import dns1123_subdomain, in_range
from kubeloop.types import JSONObject

_FORM: Final = "; desired format: https://host[/path]"


def client_config(path: str, config: JSONObject) -> Iterator[FieldError]:
    """Exactly one of a URL and a service."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from webhook_url(f"{path}.url", url)
    elif service is not None:
        yield from webhook_service(f"{path}.service", service)


def webhook_url(path: str, url: str) -> Iterator[FieldError]:
    """An https URL with a host, and nothing else but a path."""
    try:
        parts = parse_url(url)
    except BadUrl as fault:
        yield required(path, f"url must be a valid URL: {fault}{_FORM}")
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


def webhook_service(path: str, service: JSONObject) -> Iterator[FieldError]:
    # Upstream hands each over as the other.
    for told, missing in (("name", "namespace"), ("namespace", "name")):
        if not service.get(missing):
            yield required(f"{path}.{told}")
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
