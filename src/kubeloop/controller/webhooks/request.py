"""The write that a hook is asked about, typed; and how it is read from an AdmissionReview.

Source: admission.k8s.io/v1 and v1beta1 AdmissionRequest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar, cast

import msgspec

from kubeloop.meta import KubeloopError, Resource
from kubeloop.meta.kinds import GroupVersionKind, GroupVersionResource

R = TypeVar("R", bound=Resource)

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
OPERATIONS: Final[tuple[Operation, ...]] = ("CREATE", "UPDATE", "DELETE", "CONNECT")
ADMISSION: Final = "admission.k8s.io"
VERSIONS: Final = ("v1", "v1beta1")


class ReviewMalformed(KubeloopError):
    """What was sent is no review, so that nothing can be answered in its form."""


@dataclass(frozen=True, slots=True)
class User:
    """Who writes, as the API server authenticated them."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class AdmissionRequest(Generic[R]):
    """One write, before it is stored.

    ``object`` is what is to be stored, None for DELETE; ``old`` what is stored now, for UPDATE and DELETE. Both are the hook's own, typed
    as it was declared. ``kind`` and ``resource`` are what the hook was declared for; the ``asked_`` ones are those of the request, which
    differ where the server converted it. ``name`` is empty while the server has still to generate it. With ``dry_run`` nothing is
    stored: have no side effect. ``options`` are those of the write (CreateOptions and others) as a tree.
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
    user: User = field(default_factory=User)
    object: R | None = None
    old: R | None = None
    dry_run: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    audit_annotations: dict[str, str] = field(default_factory=dict)

    def warn(self, text: str) -> None:
        """Have the author of the write warned, whether it is allowed or not."""
        self.warnings.append(text)

    def audit(self, key: str, value: str) -> None:
        """Have the API server's audit log say ``WEBHOOK/key: value``. ``key`` is a name without a slash."""
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
    """``request`` of a review, its objects still bytes."""

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
        """Without the objects."""
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
            user=User(user.username, user.uid, tuple(user.groups or ()), user.extra or {}),
            dry_run=bool(self.dry_run),
            options=self.options or {},
        )


class _Review(msgspec.Struct):
    api_version: str = msgspec.field(name="apiVersion")
    kind: str
    request: RawRequest | None = None


_REVIEWS = msgspec.json.Decoder(_Review)


def read_review(body: bytes) -> tuple[str, RawRequest]:
    """The review's version (``v1``) and its request.

    Raises:
        ReviewMalformed: no JSON, no AdmissionReview of a known version, no request, or a field of another type; says which.
    """
    try:
        review = _REVIEWS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReviewMalformed(f"the body is no AdmissionReview: {error}") from None
    version = checked_version(review.api_version, review.kind, ADMISSION, "AdmissionReview")
    request = review.request
    if request is None:
        raise ReviewMalformed("the AdmissionReview has no request")
    if not request.uid:
        raise ReviewMalformed("the AdmissionReview's request has no uid")
    if request.operation not in OPERATIONS:
        raise ReviewMalformed(f'request.operation is "{request.operation}"; known are {", ".join(OPERATIONS)}')
    return version, request


def checked_version(api_version: str, kind: str, group: str, wanted: str) -> str:
    """The version of a review of that group and kind.

    Raises:
        ReviewMalformed: it is something else.
    """
    given, _, version = api_version.rpartition("/")
    if kind != wanted or given != group or version not in VERSIONS:
        raise ReviewMalformed(f"expected {wanted} of {group}/v1 or {group}/v1beta1, got {api_version}, Kind={kind}")
    return version


def has_object(raw: msgspec.Raw) -> bool:
    return bytes(raw).strip() != b"null"
