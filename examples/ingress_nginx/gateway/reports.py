"""The status that each object should have, without times: pure data, which status.py compares with the present status and writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from examples.ingress_nginx.gateway.objects import AnyRoute
from examples.ingress_nginx.gateway.types import Gateway, GatewayClass


class ConditionState(NamedTuple):
    """A condition without its times: type, whether it is true, reason (one word of the specification) and message."""

    type: str
    holds: bool
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class GatewayClassReport:
    """The status of a GatewayClass."""

    object: GatewayClass
    conditions: tuple[ConditionState, ...]
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListenerReport:
    """The status of a listener. ``kinds``: group and kind of the routes that may attach."""

    name: str
    conditions: tuple[ConditionState, ...]
    kinds: tuple[tuple[str, str], ...] = ()
    attached_routes: int = 0


@dataclass(frozen=True, slots=True)
class GatewayReport:
    """The status of a Gateway. ``addresses``: type (IPAddress, Hostname) and value."""

    object: Gateway
    conditions: tuple[ConditionState, ...]
    addresses: tuple[tuple[str, str], ...] = ()
    listeners: tuple[ListenerReport, ...] = ()


class ParentReference(NamedTuple):
    """A reference of a route to a parent, with the route's namespace where it names none. ``section``, ``port``: empty or 0: all."""

    namespace: str
    name: str
    section: str = ""
    port: int = 0
    group: str = "gateway.networking.k8s.io"
    kind: str = "Gateway"


@dataclass(frozen=True, slots=True)
class ParentReport:
    """The status of a route at one of its parents. ``index``: number of the reference in ``spec.parentRefs``."""

    index: int
    conditions: tuple[ConditionState, ...]


@dataclass(frozen=True, slots=True)
class RouteReport:
    """The status of a route at the Gateways of this controller. Without parents its former entries are removed."""

    object: AnyRoute
    parents: tuple[ParentReport, ...] = ()


#: The status of any object.
Report = GatewayClassReport | GatewayReport | RouteReport
