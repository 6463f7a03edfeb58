"""Status: the response of an API server without an object, such as an error.

Source: k8s.io/apimachinery pkg/apis/meta/v1/types.go (Status, StatusDetails, StatusCause).
"""

from __future__ import annotations

import msgspec

from kubeloop.meta.model import ModelMeta


class StatusCause(msgspec.Struct, metaclass=ModelMeta, omit_defaults=True, kw_only=True):
    """One cause of an error; ``field`` is a path such as ``spec.replicas``.

    >>> cause = StatusCause(reason="FieldValueRequired", message="Required value", field="spec.containers")

    https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#statuscause-v1-meta
    """

    reason: str = ""
    """Wire name ``reason``, optional; empty if absent. A word for programs, such as ``FieldValueInvalid``."""
    message: str = ""
    """Wire name ``message``, optional; empty if absent. The same for people."""
    field: str = ""
    """Wire name ``field``, optional; empty if absent. Path of the field in question, such as ``spec.replicas``."""


class StatusDetails(msgspec.Struct, metaclass=ModelMeta, omit_defaults=True, kw_only=True):
    """The object of the status. ``kind`` is a resource (``pods``) in most responses, as upstream fills it.

    >>> StatusDetails(name="web-0", kind="pods", retry_after_seconds=1).retry_after_seconds
    1

    https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#statusdetails-v1-meta
    """

    name: str = ""
    """Wire name ``name``, optional; empty if absent. Name of the object in question."""
    group: str = ""
    """Wire name ``group``, optional; empty if absent. API group of the resource."""
    kind: str = ""
    """Wire name ``kind``, optional; empty if absent. The resource (``pods``) in most answers, a kind in a few."""
    uid: str = ""
    """Wire name ``uid``, optional; empty if absent. ``metadata.uid`` of the object in question."""
    causes: list[StatusCause] = []
    """Wire name ``causes``, optional; empty if absent. The single faults, such as all invalid fields of an object."""
    retry_after_seconds: int = msgspec.field(default=0, name="retryAfterSeconds")
    """Wire name ``retryAfterSeconds``, optional; 0 if absent. Seconds after which the client may repeat the request; 0 says nothing."""


class Status(msgspec.Struct, metaclass=ModelMeta, kw_only=True):
    """The result of a request. ``code`` is the HTTP status; ``reason`` a machine-readable word such as ``NotFound``.

    >>> await client.get(Pod, "missing")
    Traceback (most recent call last):
        ...
    NotFound: ...
    >>> Status(status="Failure", reason="NotFound", code=404).code
    404

    https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#status-v1-meta
    """

    kind: str = "Status"
    """Wire name ``kind``, optional; ``Status`` if absent. Always ``Status``."""
    api_version: str = msgspec.field(default="v1", name="apiVersion")
    """Wire name ``apiVersion``, optional; ``v1`` if absent. Always ``v1``."""
    metadata: dict[str, str | int] = {}
    """Wire name ``metadata``, optional; empty if absent. List metadata, which servers leave empty."""
    status: str = "Failure"
    """Wire name ``status``, optional; ``Failure`` if absent. One of ``Success``, ``Failure``."""
    message: str = ""
    """Wire name ``message``, optional; empty if absent. A description for people."""
    reason: str = ""
    """Wire name ``reason``, optional; empty if absent. A word for programs, such as ``NotFound``; it is finer than ``code``."""
    details: StatusDetails | None = None
    """Wire name ``details``, optional; None if absent. The object of the status, if the server names it."""
    code: int = 0
    """Wire name ``code``, optional; 0 if absent. The HTTP status, such as 404; 0 if the server leaves it out."""
