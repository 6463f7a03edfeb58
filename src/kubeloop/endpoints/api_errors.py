"""How the server says no: one function per Status that Kubernetes answers, with its texts.

Source: k8s.io/apimachinery pkg/api/errors/errors.go, and recorded answers of kube-apiserver 1.36.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.meta.errors import ApiError
from kubeloop.meta.field_error import FieldError
from kubeloop.meta.kinds import GroupKind, GroupResource
from kubeloop.meta.status import Status, StatusCause, StatusDetails
from kubeloop.meta.strconv import go_quoted


def refusal(code: int, reason: str, message: str, details: StatusDetails | None = None) -> ApiError:
    """Return an error with a ``Status`` of the server.

    Args:
        code: HTTP status code.
        reason: Machine-readable reason, for example ``NotFound`` (metav1.StatusReason).
        message: Text for people.
        details: The object concerned, and causes.
    """
    return ApiError.of(Status(code=code, reason=reason, message=message, details=details))


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
        why: The reason, the end of the message.
        causes: Causes in the details of the ``Status``.
    """
    subject = f'{resource} "{name}" is forbidden' if name else f"{resource} is forbidden"
    return refusal(403, "Forbidden", f"{subject}: {why}", about(resource, name, causes))


def forbidden_path(why: str) -> ApiError:
    return refusal(403, "Forbidden", f"forbidden: {why}", StatusDetails())


def not_found(resource: GroupResource, name: str) -> ApiError:
    return refusal(404, "NotFound", f"{resource} {go_quoted(name)} not found", about(resource, name))


def no_such_resource() -> ApiError:
    """A path below a served group that names nothing."""
    return refusal(404, "NotFound", "the server could not find the requested resource", StatusDetails())


def method_not_allowed() -> ApiError:
    return refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", StatusDetails())


def verb_not_supported(resource: GroupResource, verb: str) -> ApiError:
    """The path takes the method, the kind has no such verb."""
    return refusal(405, "MethodNotAllowed", f'{verb} is not supported on resources of kind "{resource}"', about(resource))


def not_acceptable(media_types: Sequence[str]) -> ApiError:
    """The media type is known, the form (``as=``) or streaming is not."""
    return refusal(406, "NotAcceptable", f"only the following media types are accepted: {', '.join(media_types)}")


def not_acceptable_at_all(media_types: Sequence[str]) -> ApiError:
    """No clause of the Accept header names a media type of this server."""
    text = f"406: Not Acceptable\n\nAvailable representations: {', '.join(media_types)}"
    return refusal(406, "NotAcceptable", text, StatusDetails())


def unacceptable_form(message: str) -> ApiError:
    """A list form asked for one object, or the other way round."""
    return refusal(406, "NotAcceptable", message)


def already_exists(resource: GroupResource, name: str, *, being_deleted: bool = False) -> ApiError:
    text = f'{resource} "{name}" already exists'
    return refusal(409, "AlreadyExists", f"object is being deleted: {text}" if being_deleted else text, about(resource, name))


def conflict(resource: GroupResource, name: str, why: str) -> ApiError:
    return refusal(409, "Conflict", f'Operation cannot be fulfilled on {resource} "{name}": {why}', about(resource, name))


#: Characters of all causes of a refusal together.
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
    """A JSON patch that cannot be applied: the server does not say why."""
    return refusal(422, "Invalid", "the server rejected our request due to an error in our request", StatusDetails())


def invalid(kind: GroupKind, name: str, errors: Sequence[FieldError]) -> ApiError:
    """Every error is a cause; the message shows equal ones once. Beyond 1 MiB of causes it only says how many more there are.

    An error shows the value that it is about, so that errors of a list that each show the whole list would multiply a body by itself.
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
    """Query parameters or a body of options (ListOptions, DeleteOptions ...) that make no sense."""
    return invalid(GroupKind("meta.k8s.io", kind), "", errors)


def internal(message: str) -> ApiError:
    """What upstream returns as a bare error: 500 without a reason."""
    return refusal(500, "", message)


def undefined_version(api_version: str) -> ApiError:
    """A custom object is stored in a version that its definition no longer has."""
    return internal(f"request to convert CR from an invalid group/version: {api_version}")


def storage_initializing(why: str) -> ApiError:
    return refusal(429, "TooManyRequests", f"storage is (re)initializing: {why}", StatusDetails(retry_after_seconds=1))


def internal_error(message: str) -> ApiError:
    return refusal(500, "InternalError", f"Internal error occurred: {message}", StatusDetails(causes=[StatusCause(message=message)]))


def not_implemented(message: str) -> ApiError:
    """Kubernetes does it, this server does not (yet): said plainly rather than pretended. HTTP 501."""
    return refusal(501, "NotImplemented", f"kubeloop does not implement this: {message}")


def version_too_large(asked: int, current: int) -> ApiError:
    details = StatusDetails(
        causes=[StatusCause(reason="ResourceVersionTooLarge", message="Too large resource version")], retry_after_seconds=1
    )
    return refusal(504, "Timeout", f"Timeout: Too large resource version: {asked}, current: {current}", details)
