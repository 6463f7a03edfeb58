"""The error tree: every error that kubeloop raises on purpose is a ``KubeloopError``.

``ApiError`` and its subclasses are error responses of an API server, one class for each reason; the message describes the error.
Source of reasons and codes: k8s.io/apimachinery pkg/apis/meta/v1/types.go (StatusReason) and pkg/api/errors.
"""

from __future__ import annotations

import re
from typing import ClassVar

from kubeloop.meta.status import Status, StatusCause

#: The beginning of ``ApiError.request`` for Secrets, as ``kubeloop.transport.round_tripper`` writes it.
_OF_SECRETS = re.compile(r"(?:delete collection of|[\w-]+) secrets(?![\w.-])")
# k8s.io/apimachinery pkg/util/validation/field (Error.ErrorBody), structured-merge-diff typed/helpers.go (expected ..., got ...).
# An unquoted value, such as a struct, has no recognisable end: the rest of the message is left out too.
_VALUE = re.compile(
    r"(?P<what>\b(?:Invalid|Unsupported|Duplicate) value: |\bexpected [\w ]+, got )"
    r'(?:"(?:[^"\\]|\\.)*"|[-\w.]+(?=: )|.*)',
    re.DOTALL,
)


class KubeloopError(Exception):
    """The base class of all errors that kubeloop raises on purpose."""


class ConfigError(KubeloopError):
    """A kubeconfig, a credential or a setting cannot be used; the message names the file and the field."""


class TransportError(KubeloopError, ConnectionError):
    """No response arrived: the connection was refused, reset, timed out, or is not trusted. Also a ``ConnectionError`` of Python."""


class UntrustedCertificate(TransportError):
    """The server's certificate is not signed by the configured authority, or is for another name."""


class ConnectionRefused(TransportError, ConnectionRefusedError):
    """Nothing listens at the server's address. Also a ``ConnectionRefusedError`` of Python."""


class DecodeError(KubeloopError):
    """Data cannot be decoded: it is not JSON, or it has another kind or a field of another type than expected."""


class NestedTooDeeply(DecodeError):
    """A document has more levels than this Python can process. The limit depends on Python's version (from about 1,000 levels on)."""


class DeadlineError(KubeloopError, TimeoutError):
    """A wait reached its deadline; the message names the unmet condition. Also a ``TimeoutError`` of Python."""


class WaitFailed(KubeloopError):
    """The awaited condition can no longer become true; the message says why."""


class IncompleteObject(KubeloopError):
    """A partially known object cannot be sent as an update: it would erase the rest."""


class UnknownKind(KubeloopError, LookupError):
    """No kind or resource of that name is known here or at the server. Also a ``LookupError`` of Python."""


class ApiError(KubeloopError):
    """An API server refused a request. ``status`` is its whole response; ``request`` describes the request (``get pods "web-0"``).

    The message is one line: the server's reason and message, the request, and a hint if there is one. For requests about
    Secrets it leaves out values that the message quotes; ``status`` contains them.
    """

    reason: ClassVar[str] = ""
    code: ClassVar[int] = 0

    def __init__(self, status: Status, request: str = "") -> None:
        self.status = status
        self.request = request
        super().__init__(status, request)

    @property
    def causes(self) -> list[StatusCause]:
        return self.status.details.causes if self.status.details else []

    @property
    def retry_after(self) -> int | None:
        """The seconds that the server asks clients to wait, if it does."""
        seconds = self.status.details.retry_after_seconds if self.status.details else 0
        return seconds or None

    def has_cause(self, reason: str) -> bool:
        return any(cause.reason == reason for cause in self.causes)

    @property
    def brief(self) -> str:
        """The text without the hint, for logs that contain the hint already."""
        name = self.status.reason or (f"HTTP {self.status.code}" if self.status.code else "Unknown")
        message = self.status.message
        if message and self._about_secret:
            message = _VALUE.sub(r"\g<what>(hidden)", message)
        text = f"{name}: {message or 'the server gave no message'}"
        return f"{text} ({self.request})" if self.request else text

    def __str__(self) -> str:
        if not self.request:
            return self.brief
        hint = hint_for(self)
        return f"{self.brief}{f'; {hint}' if hint else ''}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.brief!r})" if self._about_secret else super().__repr__()

    @property
    def _about_secret(self) -> bool:
        """Whether the request concerns a Secret. A server's message may quote values of a rejected object, or even the whole object."""
        details = self.status.details
        resource = (details.kind, details.group) if details else ("", "")
        return resource in (("Secret", ""), ("secrets", "")) or _OF_SECRETS.match(self.request) is not None

    @staticmethod
    def from_status(status: Status, request: str = "") -> ApiError:
        """Return the error for a failed response. Its subclass is chosen by reason, or by code if the reason is empty or unknown."""
        kind = _BY_REASON.get(status.reason) or _BY_CODE.get(status.code, ApiError)
        return kind(status, request)


class BadRequest(ApiError):
    reason, code = "BadRequest", 400


class Unauthorized(ApiError):
    """The credentials are missing, expired or unknown (401)."""

    reason, code = "Unauthorized", 401


class Forbidden(ApiError):
    """The user is authenticated but not allowed to do this (403)."""

    reason, code = "Forbidden", 403


class NotFound(ApiError):
    reason, code = "NotFound", 404


class MethodNotAllowed(ApiError):
    reason, code = "MethodNotAllowed", 405


class NotAcceptable(ApiError):
    reason, code = "NotAcceptable", 406


class Conflict(ApiError):
    """Another writer changed the object (409): read it again and repeat the change."""

    reason, code = "Conflict", 409


class AlreadyExists(ApiError):
    reason, code = "AlreadyExists", 409


class Gone(ApiError):
    """The resource does not exist any more, permanently (410)."""

    reason, code = "Gone", 410


class Expired(Gone):
    """The server no longer has the resourceVersion or continue token (410): list again."""

    reason, code = "Expired", 410


class RequestEntityTooLarge(ApiError):
    reason, code = "RequestEntityTooLarge", 413


class UnsupportedMediaType(ApiError):
    reason, code = "UnsupportedMediaType", 415


class Invalid(ApiError):
    """The object is well-formed but invalid (422); ``causes`` names each field."""

    reason, code = "Invalid", 422


class TooManyRequests(ApiError):
    reason, code = "TooManyRequests", 429


class InternalError(ApiError):
    reason, code = "InternalError", 500


class ServiceUnavailable(ApiError):
    reason, code = "ServiceUnavailable", 503


class ServerTimeout(ApiError):
    """The server could not complete the request in time (500); try again."""

    reason, code = "ServerTimeout", 500


class Timeout(ApiError):
    reason, code = "Timeout", 504


_CHILDREN: tuple[type[ApiError], ...] = (
    BadRequest, Unauthorized, Forbidden, NotFound, MethodNotAllowed, NotAcceptable, AlreadyExists, Conflict, Gone, Expired,
    RequestEntityTooLarge, UnsupportedMediaType, Invalid, TooManyRequests, ServerTimeout, InternalError, ServiceUnavailable, Timeout,
)  # fmt: skip
_BY_REASON = {kind.reason: kind for kind in _CHILDREN}
_BY_CODE = {kind.code: kind for kind in _CHILDREN} | {409: Conflict, 410: Gone, 500: InternalError}


# k8s.io/apiserver pkg/endpoints/handlers/responsewriters/errors.go (forbiddenMessage).
_FORBIDDEN = re.compile(
    r'cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)"| at the cluster scope)?'
)
_PATH = re.compile(r'cannot (?P<verb>\S+) path "(?P<path>[^"]+)"')


def hint_for(error: ApiError) -> str:
    """Return a short hint on how to resolve an error; empty if there is none, or if the server's message contains it."""
    status = error.status
    match status.reason:
        case "Unauthorized":
            return "log in again or renew the credentials; kubeloop config explain says where they come from"
        case "Forbidden":
            return _grant(status.message)
        case "Conflict" if error.has_cause("FieldManagerConflict"):
            return "leave these fields out, or take them over with force=True"
        case "Conflict" if "the object has been modified" in status.message:
            return "client.update_with_retry reads, changes and retries"
        case "" | "InternalError" if "resourceVersion should not be set on objects to be created" in status.message:
            return "it was read from a server: give a copy new metadata, ObjectMeta(name=...)"
        case "AlreadyExists":
            return "create_or_update and apply change the existing object"
        case "Expired" | "Gone":
            return "list again and go on from there"
        case "TooManyRequests" if error.retry_after:
            return f"try again in {error.retry_after} s"
    return ""


def refused_access(error: ApiError) -> tuple[str, str] | None:
    """Return the verb, and the resource with its group or the path, that a Forbidden refuses, or None if the message does not name them."""
    match = _FORBIDDEN.search(error.status.message)
    if match is not None:
        return match["verb"], f"{match['resource']}.{match['group']}" if match["group"] else match["resource"]
    path = _PATH.search(error.status.message)
    return (path["verb"], path["path"]) if path is not None else None


def _grant(message: str) -> str:
    """Return a hint with the kubectl command that grants the permission; empty if the message does not name the permission."""
    match = _FORBIDDEN.search(message)
    if match is not None:
        resource, _, subresource = match["resource"].partition("/")
        what = f"{resource}.{match['group']}" if match["group"] else resource
        what += f"/{subresource}" if subresource else ""
        where = f" -n {match['namespace']}" if match["namespace"] else ""
        kind = "role" if where else "clusterrole"
        return f"what it takes: kubectl create {kind} NAME --verb={match['verb']} --resource={what}{where}, bound to that user"
    path = _PATH.search(message)
    if path is not None:
        return f"what it takes: kubectl create clusterrole NAME --verb={path['verb']} --non-resource-url={path['path']}, bound to that user"
    return ""
