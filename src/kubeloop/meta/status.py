"""Status: what an API server says when it does not answer with an object.

Source: k8s.io/apimachinery pkg/apis/meta/v1/types.go (Status, StatusDetails, StatusCause).
"""

from __future__ import annotations

import msgspec


class StatusCause(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One of several reasons; ``field`` is a path such as ``spec.replicas``."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What the status is about. ``kind`` is a resource (``pods``) in most answers, as upstream fills it."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[StatusCause] = []
    retry_after_seconds: int = msgspec.field(default=0, name="retryAfterSeconds")


class Status(msgspec.Struct, kw_only=True):
    """``code`` is the HTTP status; ``reason`` a machine-readable word such as ``NotFound``."""

    kind: str = "Status"
    api_version: str = msgspec.field(default="v1", name="apiVersion")
    metadata: dict[str, str | int] = {}
    status: str = "Failure"
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None
    code: int = 0
