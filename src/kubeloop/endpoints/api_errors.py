"""Error responses of the server: one function for each Status that Kubernetes returns, with the same messages.

Source: k8s.io/apimachinery pkg/api/errors/errors.go, and recorded responses of kube-apiserver 1.36.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.meta.errors import ApiError
from kubeloop.meta.field_error import FieldError
from kubeloop.meta.kinds import GroupKind, GroupResource
from kubeloop.meta.status import Status, StatusCause, StatusDetails
from kubeloop.meta.strconv import go_quoted


def refusal(code: int, reason: str, message: str, details: StatusDetails | None = None) -> ApiError:
    """Return an error that carries a ``Status``.

    Args:
        code: HTTP status code.
        reason: Machine-readable reason, for example ``NotFound`` (metav1.StatusReason).
        message: Text for people.
        details: The object that the error is about, and the causes.
    """
    return ApiError.from_status(Status(code=code, reason=reason, message=message, details=details))


def about(resource: GroupResource, name: str = "", causes: list[StatusCause] | None = None) -> StatusDetails:
    return StatusDetails(name=name, group=resource.group, kind=resource.resource, causes=causes or [])


def bad_request(message: str) -> ApiError:
    return refusal(400, "BadRequest", message)


def unauthorized() -> ApiError:
    return refusal(401, "Unauthorized", "Unauthorized")


def forbidden(resource: GroupResource, name: str, why: str, causes: list[StatusCause] | None = None) -> ApiError:
    """Return a 403 error about an object.

    Args:
        resource: The resource of the object.
        name: The name of the object; empty if the request names none.
        why: The reason; it becomes the end of the message.
        causes: Causes in the details of the ``Status``.
    """
    subject = f'{resource} "{name}" is forbidden' if name else f"{resource} is forbidden"
    return refusal(403, "Forbidden", f"{subject}: {why}", about(resource, name, causes))


def forbidden_path(why: str) -> ApiError:
    return refusal(403, "Forbidden", f"forbidden: {why}", StatusDetails())


def not_found(resource: GroupResource, name: str) -> ApiError:
    return refusal(404, "NotFound", f"{resource} {go_quoted(name)} not found", about(resource, name))


def no_such_resource() -> ApiError:
    """Return a 404 error for a path below a served group that matches no resource."""
    return refusal(404, "NotFound", "the server could not find the requested resource", StatusDetails())


def method_not_allowed() -> ApiError:
    return refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", StatusDetails())


def verb_not_supported(resource: GroupResource, verb: str) -> ApiError:
    """Return a 405 error for a path that accepts the HTTP method while the resource does not support the verb."""
    return refusal(405, "MethodNotAllowed", f'{verb} is not supported on resources of kind "{resource}"', about(resource))


def not_acceptable(media_types: Sequence[str]) -> ApiError:
    """Return a 406 error for an Accept header with a known media type whose form (``as=``) or stream is not supported."""
    return refusal(406, "NotAcceptable", f"only the following media types are accepted: {', '.join(media_types)}")


def not_acceptable_at_all(media_types: Sequence[str]) -> ApiError:
    """Return a 406 error for an Accept header that names no media type of this server."""
    text = f"406: Not Acceptable\n\nAvailable representations: {', '.join(media_types)}"
    return refusal(406, "NotAcceptable", text, StatusDetails())


def unacceptable_form(message: str) -> ApiError:
    """Return a 406 error for a request that asks for a list form of a single object, or the reverse."""
    return refusal(406, "NotAcceptable", message)


def already_exists(resource: GroupResource, name: str, *, being_deleted: bool = False) -> ApiError:
    text = f'{resource} "{name}" already exists'
    return refusal(409, "AlreadyExists", f"object is being deleted: {text}" if being_deleted else text, about(resource, name))


def conflict(resource: GroupResource, name: str, why: str) -> ApiError:
    return refusal(409, "Conflict", f'Operation cannot be fulfilled on {resource} "{name}": {why}', about(resource, name))


#: Maximum number of characters of all causes of one error together.
_CAUSES_SIZE = 1024 * 1024
STALE = "the object has been modified; please apply your changes to the latest version and try again"


def gone(message: str) -> ApiError:
    return refusal(410, "Expired", message)


def too_old(revision: int, oldest: int) -> ApiError:
    return gone(f"too old resource version: {revision} ({oldest})")


def too_large(limit: int) -> ApiError:
    return refusal(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def unsupported_media_type() -> ApiError:
    return refusal(415, "UnsupportedMediaType", "415: Unsupported Media Type", StatusDetails())


def unprocessable() -> ApiError:
    """Return a 422 error for a JSON patch that cannot be applied. As upstream, it does not state the reason."""
    return refusal(422, "Invalid", "the server rejected our request due to an error in our request", StatusDetails())


def invalid(kind: GroupKind, name: str, errors: Sequence[FieldError]) -> ApiError:
    """Return a 422 error with all field errors as causes.

    The message lists equal errors once. After 1 MiB of causes the message only states how many more errors there are: each error shows
    the invalid value, so the errors of a long list could each repeat the whole list.
    """
    causes: list[StatusCause] = []
    texts: dict[str, None] = {}
    size = 0
    for error in errors:
        cause = StatusCause(reason=error.type.value, message=error.body, field=error.field)
        causes.append(cause)
        texts[f"{cause.field}: {cause.message}"] = None
        size += len(cause.message) + len(cause.field)
        if size > _CAUSES_SIZE:
            break
    if len(causes) < len(errors):
        texts[f"and {len(errors) - len(causes)} more"] = None
    shown = next(iter(texts)) if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = StatusDetails(name=name, group=kind.group, kind=kind.kind, causes=causes)
    return refusal(422, "Invalid", f'{kind} "{name}" is invalid: {shown}', details)


def invalid_options(kind: str, errors: Sequence[FieldError]) -> ApiError:
    """Return a 422 error for invalid options (ListOptions, DeleteOptions ...) in query parameters or in a body."""
    return invalid(GroupKind("meta.k8s.io", kind), "", errors)


def internal(message: str) -> ApiError:
    """Return a 500 error without a reason, which upstream sends for a plain Go error."""
    return refusal(500, "", message)


def undefined_version(api_version: str) -> ApiError:
    """Return a 500 error for a custom object that is stored in a version that its definition no longer has."""
    return internal(f"request to convert CR from an invalid group/version: {api_version}")


def storage_initializing(why: str) -> ApiError:
    return refusal(429, "TooManyRequests", f"storage is (re)initializing: {why}", StatusDetails(retry_after_seconds=1))


def internal_error(message: str) -> ApiError:
    return refusal(500, "InternalError", f"Internal error occurred: {message}", StatusDetails(causes=[StatusCause(message=message)]))


def not_implemented(message: str) -> ApiError:
    """Return a 501 error for a feature of Kubernetes that this server does not implement."""
    return refusal(501, "NotImplemented", f"kubeloop does not implement this: {message}")


def version_too_large(asked: int, current: int) -> ApiError:
    details = StatusDetails(
        causes=[StatusCause(reason="ResourceVersionTooLarge", message="Too large resource version")], retry_after_seconds=1
    )
    return refusal(504, "Timeout", f"Timeout: Too large resource version: {asked}, current: {current}", details)
