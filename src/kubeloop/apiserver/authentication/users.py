"""Who a request is from, as every later stage sees it, and the names that Kubernetes itself gives.

Source: Kubernetes documentation, "Authenticating" and "Using RBAC Authorization" (default groups).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"


@dataclass(frozen=True, slots=True)
class User:
    """``extra`` holds further attributes, as impersonation and authenticators set them."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))
