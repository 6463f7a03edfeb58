"""The request of an admission hook (the write to judge, typed) and its possible denial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar, cast

import msgspec

from kubeloop.meta import ApiError, KubeloopError, Resource
from kubeloop.meta.field_error import OMITTED, FieldError, FieldErrorType
from kubeloop.meta.kinds import GroupKind, GroupVersionKind, GroupVersionResource
from kubeloop.meta.status import Status, StatusCause, StatusDetails
from kubeloop.meta.type_checks import described_word

R = TypeVar("R", bound=Resource)

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
OPERATIONS: Final[tuple[Operation, ...]] = ("CREATE", "UPDATE", "DELETE", "CONNECT")
ADMISSION: Final = "admission.k8s.io"
VERSIONS: Final = ("v1", "v1beta1")


class ReviewMalformed(KubeloopError):
    """The request body is not a review, so that no review can answer it."""


@dataclass(frozen=True, slots=True)
class AdmissionUser:
    """The user of a write, as the API server authenticated it.

    Example:
        >>> AdmissionUser("alice", groups=("developers",)).username
        'alice'
    """

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class AdmissionRequest(Generic[R]):
    """One write before it is stored, as an admission webhook gets it.

    Attributes:
        uid: Identifies the request.
        operation: CREATE, UPDATE, DELETE or CONNECT.
        kind: The kind that the hook was declared for.
        resource: The resource that the hook was declared for.
        subresource: The subresource; empty for the object itself.
        asked_kind: The kind of the client's request; it differs from ``kind`` if the server converted the object.
        asked_resource: The resource of the client's request.
        asked_subresource: The subresource of the client's request.
        name: Name of the object; empty while the server has still to generate it.
        namespace: Namespace of the object; empty for cluster-scoped kinds.
        user: The author of the write.
        object: The state to store, typed as the hook declares, for this hook alone; None for DELETE.
        old: The stored state, for UPDATE and DELETE, for this hook alone.
        dry_run: The write is not stored, so the hook must not have side effects.
        options: Options of the write (CreateOptions and others) as a JSON tree.
        warnings: Warnings for the writer; ``warn`` adds one.
        audit_annotations: Annotations of the audit event; ``audit`` adds one.

    Example:
        >>> from kubeloop.controller.webhooks import Webhooks
        >>> hooks = Webhooks()
        >>> @hooks.validating(ConfigMap, operations=["DELETE"])
        ... def protect(config_map: ConfigMap, request: AdmissionRequest[ConfigMap]) -> None:
        ...     if request.user.username != "admin":
        ...         raise Denied("only admin deletes ConfigMaps")
    """

    uid: str
    operation: Operation
    kind: GroupVersionKind
    resource: GroupVersionResource
    subresource: str = ""
    asked_kind: GroupVersionKind | None = None
    asked_resource: GroupVersionResource | None = None
    asked_subresource: str = ""
    name: str = ""
    namespace: str = ""
    user: AdmissionUser = field(default_factory=AdmissionUser)
    object: R | None = None
    old: R | None = None
    dry_run: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    audit_annotations: dict[str, str] = field(default_factory=dict)

    def warn(self, text: str) -> None:
        """Add a warning for the author of the write, whether it is allowed or not."""
        self.warnings.append(text)

    def audit(self, key: str, value: str) -> None:
        """Add ``WEBHOOK/key: value`` to the API server's audit event. ``key`` is a name without a slash."""
        self.audit_annotations[key] = value


class _Kind(msgspec.Struct):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Resource(msgspec.Struct):
    group: str = ""
    version: str = ""
    resource: str = ""


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


_NULL: Final = msgspec.Raw(b"null")


class RawRequest(msgspec.Struct, rename="camel"):
    """The ``request`` of an AdmissionReview, with its objects as undecoded bytes."""

    uid: str
    operation: str
    kind: _Kind = msgspec.field(default_factory=_Kind)
    resource: _Resource = msgspec.field(default_factory=_Resource)
    sub_resource: str = ""
    request_kind: _Kind | None = None
    request_resource: _Resource | None = None
    request_sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: _User = msgspec.field(default_factory=_User)
    object: msgspec.Raw = _NULL
    old_object: msgspec.Raw = _NULL
    dry_run: bool | None = None
    options: dict[str, Any] | None = None

    def gvk(self) -> GroupVersionKind:
        return GroupVersionKind(self.kind.group, self.kind.version, self.kind.kind)

    def typed(self) -> AdmissionRequest[Any]:
        """Return the request without its objects, which are decoded later."""
        asked_kind, asked = self.request_kind, self.request_resource
        user = self.user_info
        return AdmissionRequest(
            uid=self.uid,
            operation=cast("Operation", self.operation),
            kind=self.gvk(),
            resource=GroupVersionResource(self.resource.group, self.resource.version, self.resource.resource),
            subresource=self.sub_resource,
            asked_kind=GroupVersionKind(asked_kind.group, asked_kind.version, asked_kind.kind) if asked_kind else None,
            asked_resource=GroupVersionResource(asked.group, asked.version, asked.resource) if asked else None,
            asked_subresource=self.request_sub_resource,
            name=self.name,
            namespace=self.namespace,
            user=AdmissionUser(user.username, user.uid, tuple(user.groups or ()), user.extra or {}),
            dry_run=bool(self.dry_run),
            options=self.options or {},
        )


class _Review(msgspec.Struct):
    api_version: str = msgspec.field(name="apiVersion")
    kind: str
    request: RawRequest | None = None


_REVIEWS = msgspec.json.Decoder(_Review)


def read_review(body: bytes) -> tuple[str, RawRequest]:
    """Return the review's version (``v1``) and its request.

    Raises:
        ReviewMalformed: the body is not JSON, not an AdmissionReview of a known version, without a request, or has a field of a wrong type;
            the message has the reason.
    """
    try:
        review = _REVIEWS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReviewMalformed(f"the body is not an AdmissionReview: {error}") from None
    version = checked_version(review.api_version, review.kind, ADMISSION, "AdmissionReview")
    request = review.request
    if request is None:
        raise ReviewMalformed("the AdmissionReview has no request")
    if not request.uid:
        raise ReviewMalformed("the AdmissionReview's request has no uid")
    if request.operation not in OPERATIONS:
        raise ReviewMalformed(f'request.operation is "{request.operation}"; known: {", ".join(OPERATIONS)}')
    return version, request


def checked_version(api_version: str, kind: str, group: str, expected: str) -> str:
    """Return the version of a review.

    Args:
        api_version: ``apiVersion`` of the document.
        kind: ``kind`` of the document.
        group: The expected group.
        expected: The expected kind.

    Raises:
        ReviewMalformed: the document has another group or kind, or an unknown version.
    """
    given, _, version = api_version.rpartition("/")
    if kind != expected or given != group or version not in VERSIONS:
        raise ReviewMalformed(f"expected {expected} of {group}/v1 or {group}/v1beta1, got {api_version}, Kind={kind}")
    return version


def has_object(raw: msgspec.Raw) -> bool:
    return bytes(raw).strip() != b"null"


class Denied(KubeloopError):
    """Raised by a hook to deny a write. The author of the write reads ``message``.

    Args:
        message: The reason, for people.
        field: A field (``spec.replicas``): the response is Invalid (422) and names the field as a cause, as built-in validation does.
            Empty: the response is Forbidden (403).
        value: The value of that field.
        errors: Several fields at once, made by ``kubeloop.meta.field_error``, instead of ``field`` and ``value``.
        code: HTTP status. 0: 422 or 403.
        reason: Reason of the Status. Empty: Invalid if fields are named; otherwise Forbidden, or no reason if ``code`` is set.

    Raises:
        ValueError: neither ``message`` nor ``errors``; or ``code`` is not from 400 to 599.
    """

    def __init__(
        self,
        message: str = "",
        *,
        field: str = "",
        value: Any = OMITTED,
        errors: Sequence[FieldError] = (),
        code: int = 0,
        reason: str = "",
    ) -> None:
        if field:
            errors = (FieldError(FieldErrorType.INVALID, field, value, message), *errors)
        if not message and not errors:
            raise ValueError("Denied needs a message for the writer, or errors=[...] that name fields")
        if code and code not in range(400, 600):
            raise ValueError(f"code={described_word(code)}: a refusal has a code from 400 to 599")
        super().__init__(message or "; ".join(map(str, errors)))
        self.errors = tuple(errors)
        self.code = code
        self.reason = reason

    def status(self, kind: GroupKind, name: str) -> Status:
        """Return the Status for the client, about an object of that kind and name.

        Source: k8s.io/apimachinery pkg/api/errors NewInvalid and NewForbidden.
        """
        if not self.errors:
            return Status(message=str(self), reason=self.reason or ("" if self.code else "Forbidden"), code=self.code or 403)
        listed = [str(error) for error in self.errors]
        shown = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
        causes = [StatusCause(reason=error.type.value, message=error.body, field=error.field) for error in self.errors]
        details = StatusDetails(name=name, group=kind.group, kind=kind.kind, causes=causes)
        return Status(
            message=f'{kind} "{name}" is invalid: {shown}', reason=self.reason or "Invalid", code=self.code or 422, details=details
        )


class Warnings(Sequence[str]):
    """Result of a validating hook that allows the write and warns its author (kubectl prints the texts).

    Keep the texts short: servers truncate long ones.

    Example:
        >>> list(Warnings("spec.size is deprecated, use spec.count"))
        ['spec.size is deprecated, use spec.count']
    """

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def __getitem__(self, at: Any) -> Any:
        return self.texts[at]

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return f"Warnings({', '.join(map(repr, self.texts))})"


def status_of(error: Denied | ApiError, kind: GroupKind, name: str) -> Status:
    """Return the Status of an error that a hook raised on purpose; the Status of an API server's error is passed on."""
    if isinstance(error, Denied):
        return error.status(kind, name)
    given, kind_of = error.status, type(error)
    if given.code and given.reason:
        return given
    return Status(
        message=given.message, reason=given.reason or kind_of.reason, details=given.details, code=given.code or kind_of.code or 500
    )
