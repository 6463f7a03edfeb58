"""A cluster with objects of the Gateway API as tables, and short functions that make them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from examples.ingress_nginx.gateway.build import GatewayBuilder, GatewayResult
from examples.ingress_nginx.gateway.objects import CONTROLLER_NAME, GatewayOptions
from examples.ingress_nginx.gateway.reports import GatewayReport, RouteReport
from examples.ingress_nginx.gateway.types import Gateway, GatewayClass, GRPCRoute, HTTPRoute, ReferenceGrant
from examples.ingress_nginx.model.configuration import Listener, Server
from examples.ingress_nginx.tests.objects import ClusterTable, service, slice_of
from kubeloop.api.core.v1 import Namespace
from kubeloop.meta import Resource

R = TypeVar("R", bound=Resource)
#: Conditions as TYPE=STATUS/REASON.
Summary = dict[str, str]

WEB = (service("web"), slice_of("web", "10.0.0.1", "10.0.0.2"))


class GatewayTable(ClusterTable):
    """The objects of a cluster with a GatewayClass."""

    def __init__(self, *objects: Resource) -> None:
        super().__init__(gateway_class(), *WEB, *objects)

    def list(self, kind: type[R]) -> list[R]:
        return self.all(kind)

    def namespace(self, name: str) -> Namespace | None:
        return self.get(Namespace, "", name)


def build(*objects: Resource, options: GatewayOptions | None = None, http2_beside_http1: bool = True) -> GatewayResult:
    """Build from objects, with a class, a service and published addresses."""
    builder = GatewayBuilder(options or GatewayOptions(published=("192.0.2.1",)))
    builder.http2_beside_http1 = http2_beside_http1
    return builder.build(GatewayTable(*objects))


def gateway_class(name: str = "kubeloop", controller: str = CONTROLLER_NAME, **spec: Any) -> GatewayClass:
    return GatewayClass.from_dict({"metadata": {"name": name, "generation": 1}, "spec": {"controllerName": controller, **spec}})


def listener(name: str = "web", port: int = 80, hostname: str = "", protocol: str = "HTTP", **fields: Any) -> dict[str, Any]:
    """Return a listener. ``certificates``: names of Secrets, or references."""
    certificates = fields.pop("certificates", None)
    document = {"name": name, "port": port, "protocol": protocol, **({"hostname": hostname} if hostname else {}), **fields}
    if certificates is not None:
        references = [{"name": entry} if isinstance(entry, str) else entry for entry in certificates]
        document["tls"] = {"certificateRefs": references}
    return document


def gateway(name: str = "front", *listeners: dict[str, Any], age: int = 0, namespace: str = "shop", **spec: Any) -> Gateway:
    """Return a Gateway; without listeners it has one of HTTP on port 80. ``age``: seconds after midnight at which it was created."""
    metadata = {"name": name, "namespace": namespace, "generation": 3, "creationTimestamp": _time(age)}
    body = {"gatewayClassName": "kubeloop", "listeners": list(listeners) or [listener()], **spec}
    return Gateway.from_dict({"metadata": metadata, "spec": body})


def http_route(
    name: str = "web",
    *rules: dict[str, Any],
    hosts: Iterable[str] = (),
    age: int = 0,
    namespace: str = "shop",
    parents: Iterable[dict[str, Any]] = ({"name": "front"},),
) -> HTTPRoute:
    """Return an HTTPRoute.

    Args:
        name: Its name.
        rules: Its rules; none: a rule for all paths, to the service web.
        hosts: Its host names.
        age: Seconds after midnight at which it was created.
        namespace: Its namespace.
        parents: References to parents.
    """
    return HTTPRoute.from_dict(_route(name, rules or (rule(),), hosts, age, namespace, parents))


def grpc_route(
    name: str = "calls", *rules: dict[str, Any], hosts: Iterable[str] = (), parents: Iterable[dict[str, Any]] = ({"name": "front"},)
) -> GRPCRoute:
    """Return a GRPCRoute of the namespace shop."""
    return GRPCRoute.from_dict(_route(name, rules or (rule(),), hosts, 0, "shop", parents))


def rule(*matches: dict[str, Any], to: Iterable[str | dict[str, Any]] = ("web",), **fields: Any) -> dict[str, Any]:
    """Return a rule. ``to``: services with port 80, as ``NAME`` or ``NAME*WEIGHT``, or whole references."""
    references = [_reference(entry) if isinstance(entry, str) else entry for entry in to]
    return {**({"matches": list(matches)} if matches else {}), "backendRefs": references, **fields}


def path(value: str, kind: str = "PathPrefix", **fields: Any) -> dict[str, Any]:
    """Return a match of a path."""
    return {"path": {"type": kind, "value": value}, **fields}


def grant(namespace: str, kind: str, source: str, target: str, name: str = "") -> ReferenceGrant:
    """Return a ReferenceGrant of a namespace, for objects of a kind in the namespace ``source``."""
    origin = {"group": "gateway.networking.k8s.io", "kind": kind, "namespace": source}
    to = {"group": "", "kind": target, **({"name": name} if name else {})}
    return ReferenceGrant.from_dict(
        {"metadata": {"name": f"{kind}-{source}".lower(), "namespace": namespace}, "spec": {"from": [origin], "to": [to]}}
    )


def moved(obj: R, namespace: str) -> R:
    """Return an object in another namespace."""
    document = obj.to_dict()
    document["metadata"]["namespace"] = namespace
    return type(obj).from_dict(document)


def server_at(result: GatewayResult, host: str, port: int = 80, address: str = "", *, tls: bool = False) -> Server:
    """Return the server of a host at a listener."""
    return result.servers[(Listener(address, port, tls),), host]


def route_conditions(result: GatewayResult, name: str, parent: int = 0) -> Summary:
    """Return the conditions of a route at one of its parents."""
    report = next(report for report in result.reports if isinstance(report, RouteReport) and report.object.metadata.name == name)
    found = next(entry for entry in report.parents if entry.index == parent)
    return {state.type: f"{state.holds}/{state.reason}" for state in found.conditions}


def gateway_of(result: GatewayResult, name: str = "front") -> GatewayReport:
    """Return the report of a Gateway."""
    return next(report for report in result.reports if isinstance(report, GatewayReport) and report.object.metadata.name == name)


def gateway_conditions(result: GatewayResult, name: str = "front") -> Summary:
    """Return the conditions of a Gateway."""
    return {state.type: f"{state.holds}/{state.reason}" for state in gateway_of(result, name).conditions}


def listener_conditions(result: GatewayResult, gateway: str = "front", name: str = "web") -> Summary:
    """Return the conditions of a listener."""
    report = next(entry for entry in gateway_of(result, gateway).listeners if entry.name == name)
    return {state.type: f"{state.holds}/{state.reason}" for state in report.conditions}


def attached(result: GatewayResult, gateway: str = "front") -> dict[str, int]:
    """Return the number of attached routes of each listener."""
    return {entry.name: entry.attached_routes for entry in gateway_of(result, gateway).listeners}


def _reference(text: str) -> dict[str, Any]:
    name, _, weight = text.partition("*")
    return {"name": name, "port": 80, **({"weight": int(weight)} if weight else {})}


def _route(
    name: str,
    rules: Iterable[dict[str, Any]],
    hosts: Iterable[str],
    age: int,
    namespace: str,
    parents: Iterable[dict[str, Any]],
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "generation": 2, "creationTimestamp": _time(age)}
    return {"metadata": metadata, "spec": {"parentRefs": list(parents), "hostnames": list(hosts), "rules": list(rules)}}


def _time(age: int) -> str:
    return f"2026-01-01T{age // 3600:02}:{age // 60 % 60:02}:{age % 60:02}Z"
