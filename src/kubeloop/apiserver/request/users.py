"""Users as all stages of a request see them, and the groups of Kubernetes itself.

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
    """An authenticated user. ``extra`` holds the attributes that authenticators and impersonation add."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))
#: The server itself, where it writes objects.
SYSTEM = User("system:apiserver", (MASTERS,))


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of a successful authentication.

    ``audiences`` are those of the token among the requested ones; ``annotations`` go into the audit log, ``warnings`` to the client.
    """

    user: User
    audiences: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def service_account(namespace: str, name: str, uid: str, extra: Mapping[str, tuple[str, ...]] | None = None) -> User:
    """A service account as a user."""
    groups = "system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED
    return User(f"system:serviceaccount:{namespace}:{name}", groups, uid, extra or {})


def authenticated(user: User) -> User:
    """Return ``user`` as a member of system:authenticated, unless it is anonymous."""
    if user.name == ANONYMOUS.name or AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)
