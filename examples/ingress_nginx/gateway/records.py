"""HTTPRoutes and GRPCRoutes in one form, which the rest of the front end reads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from examples.ingress_nginx.gateway.objects import AnyRoute, Key
from examples.ingress_nginx.gateway.reports import ParentReference
from examples.ingress_nginx.model.configuration import Condition, PathMatch, Rewrite
from examples.ingress_nginx.model.policy import DEFAULT_POLICY, Cors, HeaderChanges, Policy, Redirect, Retries, Timeouts


class RouteMatch(NamedTuple):
    """A path with conditions.

    ``rank``: whether it has a method, and its numbers of headers and of parameters: of two matches with the same path, the one with the
    higher rank is compared first.
    """

    path: str = "/"
    match: PathMatch = PathMatch.PREFIX
    conditions: tuple[Condition, ...] = ()
    rank: tuple[bool, int, int] = (False, 0, 0)


@dataclass(frozen=True, slots=True)
class FilterSet:
    """The filters of a rule or of a backend. ``problem``: why they cannot be followed; empty: they can.

    ``redirect.port``: None where the filter names no port; the scheme or the listener then decides.
    """

    request_headers: HeaderChanges = DEFAULT_POLICY.request_headers
    response_headers: HeaderChanges = DEFAULT_POLICY.response_headers
    redirect: Redirect | None = None
    rewrite: Rewrite | None = None
    hostname: str = ""
    cors: Cors | None = None
    mirrors: tuple[MirrorReference, ...] = ()
    problem: str = ""

    def apply(self, policy: Policy, port: int, *, tls: bool) -> Policy:
        """Return a policy with these filters but without copies, for requests to a listener with this port."""
        if self == NO_FILTERS:
            return policy
        return replace(
            policy,
            request_headers=_joined(policy.request_headers, self.request_headers),
            response_headers=_joined(policy.response_headers, self.response_headers),
            redirect=policy.redirect if self.redirect is None else _with_port(self.redirect, port, tls=tls),
            upstream_vhost=self.hostname or policy.upstream_vhost,
            cors=self.cors or policy.cors,
        )


#: Most rules and backends have no filters.
NO_FILTERS = FilterSet()


class MirrorReference(NamedTuple):
    """A reference of a filter to a backend that gets copies of requests: ``numerator`` of ``denominator``."""

    reference: BackendReference
    numerator: int = 1
    denominator: int = 1


class BackendReference(NamedTuple):
    """A reference of a rule to a backend, with the route's namespace where it names none. ``port`` 0: none."""

    namespace: str
    name: str
    port: int = 0
    weight: int = 1
    group: str = ""
    kind: str = "Service"
    filters: FilterSet = NO_FILTERS


@dataclass(frozen=True, slots=True)
class RouteRule:
    """A rule. ``problem``: why it cannot be followed; its requests get 500."""

    matches: tuple[RouteMatch, ...]
    backends: tuple[BackendReference, ...] = ()
    filters: FilterSet = NO_FILTERS
    timeouts: Timeouts = DEFAULT_POLICY.timeouts
    retries: Retries = DEFAULT_POLICY.retries
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RouteRecord:
    """A route after one reading.

    Attributes:
        object: The route.
        kind: HTTPRoute or GRPCRoute.
        age: Creation time, namespace and name: of two equal matches the one of the lower age wins.
        parents: References to parents, in the order of the route.
        hostnames: In lower case; none: all.
    """

    object: AnyRoute
    kind: str
    key: Key
    age: tuple[str, str, str]
    parents: tuple[ParentReference, ...]
    hostnames: tuple[str, ...]
    rules: tuple[RouteRule, ...] = field(default=())

    @property
    def origin(self) -> str:
        return f"{self.kind} {self.key[0]}/{self.key[1]}"


def _joined(first: HeaderChanges, second: HeaderChanges) -> HeaderChanges:
    return HeaderChanges(first.set + second.set, first.add + second.add, first.remove + second.remove)


def _with_port(redirect: Redirect, port: int, *, tls: bool) -> Redirect:
    """Decide the port of the Location header: the filter's, else the default one of its scheme, else the listener's.

    The default port of the scheme is not written (0). Source: HTTPRequestRedirectFilter.port in the API reference.
    """
    usual = {"http": 80, "https": 443}
    number = redirect.port or (usual[redirect.scheme] if redirect.scheme else port)
    scheme = redirect.scheme or ("https" if tls else "http")
    return replace(redirect, port=0 if number == usual[scheme] else number)
