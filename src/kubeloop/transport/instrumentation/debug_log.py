"""Debug records of requests, like kubectl's -v=6 to 9, without secrets.

The levels are those of ``logging``; a lower level logs more. ``DEBUG`` (10) logs one line for each request. Level 9 adds headers, and the
request as a curl command. Level 8 adds truncated bodies, except secret ones.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from kubeloop.transport.hooks import shown, without_secrets
from kubeloop.transport.log_context import logger_with_context
from kubeloop.transport.round_tripper import parse_request_path

if TYPE_CHECKING:
    from kubeloop.transport.request_executor import RequestCall
    from kubeloop.transport.round_tripper import ResponseHead

_LOG = logger_with_context("kubeloop.transport")

HEADERS = 9
BODIES = 8
#: Maximum shown characters of a body, as kubectl at -v=8.
SHOWN = 1024
# Resources whose bodies grant access to something; also certificate requests, whose response may contain a certificate.
_SECRET_RESOURCES = frozenset(("secrets", "tokenreviews", "selfsubjectreviews", "certificatesigningrequests"))
_SECRET_SUBRESOURCES = frozenset(("token", "proxy", "exec", "attach", "portforward", "log"))


def log_exchange(url: str, call: RequestCall, sent: list[tuple[str, str]], answer: ResponseHead, content: bytes, seconds: float) -> None:
    """Log an attempt that got a response.

    Args:
        url: The URL.
        call: The request.
        sent: The sent headers.
        answer: The response's head.
        content: The response's body.
        seconds: The duration.
    """
    url = without_secrets(url)
    _LOG.debug("%s %s: HTTP status %d in %.0f ms", call.method, url, answer.status, seconds * 1000)
    if not _LOG.isEnabledFor(HEADERS):
        return
    _LOG.log(HEADERS, "%s", curl(call.method, url, sent, has_body=bool(call.body)))
    received = [(name, value) for name in answer.headers for value in answer.headers.values_of(name)]
    _LOG.log(HEADERS, "answer headers: %s", "; ".join(f"{name}: {value}" for name, value in shown(received)))
    if _LOG.isEnabledFor(BODIES):
        if call.body:
            _LOG.log(BODIES, "request body: %s", body_text(call, call.body))
        if content:
            _LOG.log(BODIES, "answer body: %s", body_text(call, content))


def log_failure(url: str, call: RequestCall, error: BaseException, seconds: float) -> None:
    """Log an attempt that got no response, or an unreadable one.

    Args:
        url: The URL.
        call: The request.
        error: The error.
        seconds: The duration.
    """
    _LOG.debug("%s %s: %s after %.0f ms: %s", call.method, without_secrets(url), type(error).__name__, seconds * 1000, error)


def curl(method: str, url: str, headers: list[tuple[str, str]], *, has_body: bool) -> str:
    """Return the request as a curl command. Credentials are masked, and the body is only mentioned.

    Args:
        method: The HTTP method.
        url: The URL.
        headers: The sent headers.
        has_body: Whether the request has a body.
    """
    parts = ["curl", "-v", f"-X{method}"]
    for name, value in shown(headers):
        parts += ["-H", shlex.quote(f"{name}: {value}")]
    if has_body:
        parts += ["--data-binary", "@BODY"]
    return " ".join([*parts, shlex.quote(url)])


def body_text(call: RequestCall, body: bytes) -> str:
    """Return the truncated body for a log, or the reason why it is hidden."""
    found = parse_request_path(call.method, call.path, call.query)
    if found.resource in _SECRET_RESOURCES or found.subresource.partition("/")[0] in _SECRET_SUBRESOURCES:
        return f"<{len(body)} bytes, not shown: they may hold secrets>"
    if body[:2] == b"k8":
        return f"<{len(body)} bytes of protobuf>"
    text = body[: SHOWN * 4].decode("utf-8", "replace")
    whole = len(text) <= SHOWN and len(body) <= SHOWN * 4
    return repr(text) if whole else f"{text[:SHOWN]!r} [{len(body)} bytes in all]"
