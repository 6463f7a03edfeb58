"""One request's passage through the server: what the stages found out about it, for the audit log, metrics, flow control and logs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kubeloop.apiserver.authentication import User
from kubeloop.apiserver.request_info import RequestInfo
from kubeloop.serving.request import Request

if TYPE_CHECKING:
    from kubeloop.apiserver.audit.record import AuditRecord
    from kubeloop.apiserver.flow.control import Seat

#: Carries the id of a request's audit events, in both directions.
AUDIT_ID = "Audit-Id"

_LONG_RUNNING_VERBS = frozenset({"watch", "proxy"})
_LONG_RUNNING_SUBRESOURCES = frozenset({"attach", "exec", "proxy", "log", "portforward"})


@dataclass(slots=True)
class RequestState:
    """``started`` is the clock's ``now`` at the beginning. ``user`` is None until authenticated, and is never whom it impersonates.

    ``annotations`` go into the audit events; whoever decides something about the request may add to them.
    """

    request: Request
    info: RequestInfo
    audit_id: str
    started: float
    user: User | None = None
    impersonated: User | None = None
    #: The constraint under which it may do so; empty: none.
    impersonated_by: str = ""
    annotations: dict[str, str] = field(default_factory=dict)
    #: Whether the path is of a resource that is served.
    known: bool = False
    #: Headers of the answer that stages before the handler decide on.
    headers: list[tuple[str, str]] = field(default_factory=list)
    #: None: nothing about this request goes into the audit log.
    audit: AuditRecord | None = None
    #: What it holds of flow control while it is carried out, and whether it is counted as being so.
    seat: Seat | None = None
    in_flight: bool = False

    @property
    def acting(self) -> User | None:
        """As whom it is carried out."""
        return self.impersonated or self.user

    @property
    def long_running(self) -> bool:
        """Whether no time limit holds for it (kube-apiserver's BasicLongRunningRequestCheck)."""
        info = self.info
        return info.verb in _LONG_RUNNING_VERBS or (info.is_resource and info.subresource in _LONG_RUNNING_SUBRESOURCES)


def audit_id_of(request: Request) -> str:
    """The client's own, or a new random one."""
    given = request.headers.get(AUDIT_ID)
    if given:
        return given
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{'89ab'[int(digits[16], 16) & 3]}{digits[17:20]}-{digits[20:]}"
