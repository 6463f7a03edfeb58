"""Explains which HTTPRoute or GRPCRoute serves a request at the listeners of Gateways, and why other routes do not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from examples.ingress_nginx.explain import Explainer, OtherIngress, RequestExplanation, normalised
from examples.ingress_nginx.gateway.attach import intersection
from examples.ingress_nginx.gateway.build import GatewayResult
from examples.ingress_nginx.gateway.objects import AnyRoute
from examples.ingress_nginx.gateway.reports import RouteReport
from examples.ingress_nginx.ingress.builder import IngressBuilder
from examples.ingress_nginx.ingress.records import ClusterObjects
from examples.ingress_nginx.model.configuration import CATCH_ALL, Backend, Listener, Location, Server


def explain_gateways(
    result: GatewayResult, builder: IngressBuilder, objects: ClusterObjects, host: str, path: str
) -> tuple[RequestExplanation, ...]:
    """Explain a request at each listener of Gateways whose host names fit.

    Args:
        result: The servers of Gateways.
        builder: The servers of Ingresses. Where an Ingress and a Gateway have the same host on the same listener, the Ingress is served.
        objects: The objects that ``builder`` reads.
        host: Host of the request, with or without a port.
        path: Its path; a query does not count.
    """
    name, path = normalised(host, path)
    by_listeners: dict[tuple[Listener, ...], dict[str, Server]] = defaultdict(dict)
    for (listeners, served), server in result.servers.items():
        if (listeners, served) not in builder.configuration.servers:
            by_listeners[listeners][served] = server
    found = []
    for listeners, servers in sorted(by_listeners.items(), key=lambda item: [_shown(listener) for listener in item[0]]):
        explainer = _GatewayExplainer(result, builder, objects, servers, name, path)
        if explainer.has_host:
            shown = ", ".join(_shown(listener) for listener in listeners)
            found.append(replace(explainer.explanation(), listener=shown))
    return tuple(found)


class _GatewayExplainer(Explainer):
    def __init__(
        self, result: GatewayResult, builder: IngressBuilder, objects: ClusterObjects, servers: dict[str, Server], host: str, path: str
    ) -> None:
        super().__init__(builder, objects, servers, host, path)
        self._result = result

    @property
    def has_host(self) -> bool:
        """Whether a listener has the host; else NGINX answers 404 as for all unknown hosts."""
        return self._server()[0].host != CATCH_ALL or CATCH_ALL in self._servers

    def _backend(self, name: str) -> Backend | None:
        return self._result.backends.get(name)

    def _others(self, server: Server, location: Location | None) -> Iterator[OtherIngress]:
        served = {route.origin.partition(" rules[")[0] for found in server.locations for route in found.routes}
        serving = {route.origin.partition(" rules[")[0] for route in location.routes} if location is not None else set()
        for report in self._result.reports:
            if not isinstance(report, RouteReport) or not self._concerns_route(report.object):
                continue
            metadata = report.object.metadata
            origin = f"{type(report.object).kind} {metadata.namespace}/{metadata.name}"
            refused = next(_refusals(report), "")
            if refused:
                yield OtherIngress(origin, refused)
            elif origin in served - serving:
                yield OtherIngress(origin, "its matches do not fit the path, or are less specific")
            elif origin not in serving:
                yield OtherIngress(origin, "it is attached to other listeners")

    def _concerns_route(self, route: AnyRoute) -> bool:
        return not route.spec.hostnames or any(intersection(name.lower(), self._host) == self._host for name in route.spec.hostnames)


def _refusals(report: RouteReport) -> Iterator[str]:
    return (
        f"{condition.reason}: {condition.message}"
        for parent in report.parents
        for condition in parent.conditions
        if condition.type in ("Accepted", "ResolvedRefs") and not condition.holds
    )


def _shown(listener: Listener) -> str:
    address = f"{listener.address} " if listener.address else ""
    return f"{address}port {listener.port}{' with TLS' if listener.tls else ''}"
