"""Responses, and the conversion of a response with a status of 400 and above to an ApiError.

Source: apimachinery pkg/api/errors (NewGenericServerResponse), client-go rest/request.go (transformResponse).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from kubeloop.meta.errors import ApiError
from kubeloop.meta.status import Status, StatusDetails
from kubeloop.transport.log_context import logger_with_context


class Response(msgspec.Struct, frozen=True):
    """A complete response with a status below 400. Header names are case-insensitive.

    Example:
        >>> from kubeloop.transport import Transport
        >>> async with Transport(cluster.config) as transport:
        ...     response = await transport.request("GET", "/version")
        >>> response.status, response.headers["content-type"]
        (200, 'application/json')
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        # A body may be a Secret, or have megabytes.
        return f"Response(status={self.status}, {len(self.body)} bytes)"


_TEXT_LIMIT = 2048


def retry_after(headers: Mapping[str, str]) -> int | None:
    """Return the seconds of a ``Retry-After`` header, or None if there is none or it is a date (client-go accepts whole seconds only)."""
    value = headers.get("Retry-After", "").strip()
    # More digits are no sensible time (and int() refuses thousands of them).
    return int(value) if value.isdecimal() and value.isascii() and len(value) < 10 else None


_BY_CODE = {
    400: ("BadRequest", "the server rejected the request as malformed"),
    401: ("Unauthorized", "the server does not accept the credentials, or there were none"),
    403: ("Forbidden", "the server does not allow this"),
    404: ("NotFound", "the server serves nothing there; is the version right, and the CustomResourceDefinition installed?"),
    405: ("MethodNotAllowed", "the server does not allow this method on the resource"),
    406: ("NotAcceptable", "the server has none of the requested media types"),
    409: ("Conflict", "the server reported a conflict"),
    413: ("RequestEntityTooLarge", "the request is larger than the server accepts"),
    415: ("UnsupportedMediaType", "the server does not accept this media type"),
    422: ("Invalid", "the server refused the object as invalid"),
    429: ("TooManyRequests", "the server has too many requests at the moment"),
    503: ("ServiceUnavailable", "the server is unavailable at the moment"),
    504: ("Timeout", "the server did not answer in time"),
}


def error_of(status: int, headers: Mapping[str, str], body: bytes, method: str, request: str) -> ApiError:
    """Return the exception for an error response. It is built from the Status in the body, or else from the status code and the text.

    Args:
        status: The HTTP status.
        headers: The response's headers.
        body: The response's body.
        method: The HTTP method.
        request: A description of the request, for messages.

    Returns:
        The exception; it is not raised here.
    """
    answer = _status_in(body)
    if answer is None:
        answer = _status_for(status, headers, body, method)
    if not answer.code:
        answer.code = status
    seconds = retry_after(headers)
    if seconds is not None:
        answer.details = answer.details or StatusDetails()
        answer.details.retry_after_seconds = answer.details.retry_after_seconds or seconds
    return ApiError.from_status(answer, request)


def _status_in(body: bytes) -> Status | None:
    if body.lstrip()[:1] != b"{":
        return None
    try:
        answer = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # RecursionError: endless brackets
        return None
    # A proxy's own JSON has no such field; the default of the type must not make it a Status.
    return answer if answer.kind == "Status" and b'"Status"' in body else None


def _status_for(status: int, headers: Mapping[str, str], body: bytes, method: str) -> Status:
    reason, message = _BY_CODE.get(
        status, ("InternalError" if status >= 500 else "Unknown", f"the server answered with HTTP status {status}")
    )
    if status == 409 and method == "POST":
        reason, message = "AlreadyExists", "the server reported that it exists already"
    text = _text(body, headers.get("Content-Type", ""))
    return Status(reason=reason, code=status, message=f"{message} ({text})" if text else message)


def _text(body: bytes, media_type: str) -> str:
    """Return the beginning of a body as one line of readable text, without HTML tags."""
    text = body[:_TEXT_LIMIT].decode("utf-8", "replace")
    if "html" in media_type or text.lstrip()[:1] == "<":
        text = re.sub(r"(?s)<(script|style)\b.*?</\1>|<[^>]*>", " ", text)
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


# Warnings in a server's responses, and their handlers. Source: RFC 9111 (section 5.5), KEP-1693, client-go rest/warnings.go.


_LOG = logger_with_context("kubeloop.transport")

#: Maximum number of remembered warning texts; a server that sends a new one each time must not fill the memory.
REMEMBERED = 1000
# The header is obsolete in HTTP; Kubernetes uses it with code 299. The agent is ``-`` or a name.
_WARNING = re.compile(r'299 (\S+) "((?:[^"\\]|\\.)*)"')


class ServerWarning(msgspec.Struct, frozen=True):
    """A warning in a response. ``request`` describes the request, for example ``create pods "web-0"``.

    Example:
        >>> ServerWarning("v1 ComponentStatus is deprecated in v1.19+", request="list componentstatuses").text
        'v1 ComponentStatus is deprecated in v1.19+'
    """

    text: str
    agent: str = "-"
    request: str = ""


class WarningHandler(Protocol):
    """The interface of functions that receive warnings.

    The function is called once for each warning of each response, including streams and errors, before the response is returned.
    """

    def __call__(self, warning: ServerWarning, /) -> None: ...


def warnings_in(values: Iterable[str], request: str) -> tuple[ServerWarning, ...]:
    """Return the warnings in ``Warning`` headers with code 299. Headers with other codes are ignored."""
    return tuple(
        ServerWarning(re.sub(r"\\(.)", r"\1", text), agent, request) for value in values for agent, text in _WARNING.findall(value) if text
    )


def ignore_warnings(_: ServerWarning, /) -> None:
    """Ignore all warnings."""


def once_each(handler: Callable[[ServerWarning], None]) -> WarningHandler:
    """Return a handler that forwards each warning text only once. After ``REMEMBERED`` different texts it forwards no new ones."""
    heard: set[str] = set()

    def hear(warning: ServerWarning, /) -> None:
        if warning.text not in heard and len(heard) < REMEMBERED:
            heard.add(warning.text)
            handler(warning)

    return hear


def log_once() -> WarningHandler:
    """Return the default handler: it logs each text once, at level WARNING."""
    return once_each(lambda warning: _LOG.warning("the server warns: %s", warning.text))
