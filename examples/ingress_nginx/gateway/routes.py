"""Reads HTTPRoutes and GRPCRoutes into records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from examples.ingress_nginx.annotations.expressions import expression
from examples.ingress_nginx.annotations.values import InvalidValue
from examples.ingress_nginx.gateway.filters import read_filters
from examples.ingress_nginx.gateway.objects import AnyRoute, age_of, key_of
from examples.ingress_nginx.gateway.records import BackendReference, RouteMatch, RouteRecord, RouteRule
from examples.ingress_nginx.gateway.reports import ParentReference
from examples.ingress_nginx.gateway.types import (
    GRPCRoute,
    GRPCRouteSpecRule,
    GRPCRouteSpecRuleBackendRef,
    GRPCRouteSpecRuleMatch,
    GRPCRouteSpecRuleMatchHeader,
    GRPCRouteSpecRuleMatchMethod,
    HTTPRoute,
    HTTPRouteSpecRule,
    HTTPRouteSpecRuleBackendRef,
    HTTPRouteSpecRuleMatch,
    HTTPRouteSpecRuleMatchHeader,
    HTTPRouteSpecRuleMatchQueryParam,
    HTTPRouteSpecRuleRetry,
    HTTPRouteSpecRuleTimeouts,
)
from examples.ingress_nginx.model.configuration import Condition, PathMatch, Source
from examples.ingress_nginx.model.policy import DEFAULT_POLICY, Retries, Timeouts

_Comparison = HTTPRouteSpecRuleMatchHeader | HTTPRouteSpecRuleMatchQueryParam | GRPCRouteSpecRuleMatchHeader
_AnyBackend = HTTPRouteSpecRuleBackendRef | GRPCRouteSpecRuleBackendRef
M = TypeVar("M")

_DURATION = re.compile(r"([0-9]{1,5})(ms|h|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
#: NGINX cannot wait without limit: a duration of zero is a year.
_LONGEST = 365 * 86400.0
#: Statuses for which proxy_next_upstream has a word.
_RETRY_STATUSES = frozenset({403, 404, 429, 500, 502, 503, 504})
_GRPC_NAME = r"[^/]+"


def read_route(route: AnyRoute) -> RouteRecord:
    """Read a route. A rule that cannot be followed has a problem; nothing is raised."""
    namespace = route.metadata.namespace
    parents = tuple(
        ParentReference(entry.namespace or namespace, entry.name, entry.section_name or "", entry.port or 0, entry.group, entry.kind)
        for entry in route.spec.parent_refs
    )
    rules = _http_rules(route) if isinstance(route, HTTPRoute) else _grpc_rules(route)
    hostnames = tuple(dict.fromkeys(host.lower() for host in route.spec.hostnames))
    return RouteRecord(route, type(route).kind, key_of(route), age_of(route), parents, hostnames, rules)


def seconds_of(duration: str) -> float:
    """Return the seconds of a duration as GEP-2257 writes it: ``1h30m``, ``10s``, ``500ms``."""
    return sum(int(number) * _SECONDS[unit] for number, unit in _DURATION.findall(duration))


# HTTPRoute


def _http_rules(route: HTTPRoute) -> tuple[RouteRule, ...]:
    return tuple(_http_rule(rule, route.metadata.namespace) for rule in route.spec.rules or [HTTPRouteSpecRule()])


def _http_rule(rule: HTTPRouteSpecRule, namespace: str) -> RouteRule:
    matches, problem = _read_matches(_http_match, rule.matches or [HTTPRouteSpecRuleMatch()])
    filters = read_filters(rule.filters, namespace)
    return RouteRule(
        matches=matches,
        backends=_backends(rule.backend_refs, namespace),
        filters=filters,
        timeouts=_timeouts(rule.timeouts),
        retries=_retries(rule.retry),
        problem=problem or filters.problem or _backend_problem(rule.backend_refs, namespace) or _retry_problem(rule.retry),
    )


def _http_match(match: HTTPRouteSpecRuleMatch) -> RouteMatch:
    conditions = [
        *([Condition(Source.METHOD, "", match.method)] if match.method else ()),
        *_comparisons(Source.HEADER, match.headers),
        *_comparisons(Source.QUERY, match.query_params),
    ]
    path, kind = "/", PathMatch.PREFIX
    if match.path is not None:
        path = match.path.value or "/"
        if match.path.type == "Exact":
            kind = PathMatch.EXACT
        elif match.path.type == "RegularExpression":
            path, kind = _path_expression(expression(path)), PathMatch.REGEX
        elif match.path.type != "PathPrefix":
            raise InvalidValue(f"path type {match.path.type} is not supported")
    rank = (bool(match.method), len(match.headers), len(match.query_params))
    return RouteMatch(path, kind, tuple(conditions), rank)


def _timeouts(timeouts: HTTPRouteSpecRuleTimeouts | None) -> Timeouts:
    usual = DEFAULT_POLICY.timeouts
    if timeouts is None:
        return usual
    wait = usual.read
    if timeouts.backend_request:
        wait = seconds_of(timeouts.backend_request) or _LONGEST
    elif timeouts.request:
        # The limit of the whole request bounds the wait for the backend, too.
        wait = seconds_of(timeouts.request) or _LONGEST
    total = seconds_of(timeouts.request) if timeouts.request else 0
    return replace(usual, send=wait, read=wait, total=total)


def _retries(retry: HTTPRouteSpecRuleRetry | None) -> Retries:
    usual = DEFAULT_POLICY.retries
    if retry is None:
        return usual
    return replace(usual, on=(*usual.on, *(f"http_{code}" for code in sorted(retry.codes))), tries=retry.attempts + 1)


def _retry_problem(retry: HTTPRouteSpecRuleRetry | None) -> str:
    codes = [] if retry is None else sorted(set(retry.codes) - _RETRY_STATUSES)
    return f"NGINX does not retry after status {codes[0]}" if codes else ""


# GRPCRoute


def _grpc_rules(route: GRPCRoute) -> tuple[RouteRule, ...]:
    return tuple(_grpc_rule(rule, route.metadata.namespace) for rule in route.spec.rules)


def _grpc_rule(rule: GRPCRouteSpecRule, namespace: str) -> RouteRule:
    matches, problem = _read_matches(_grpc_match, rule.matches or [GRPCRouteSpecRuleMatch()])
    filters = read_filters(rule.filters, namespace)
    return RouteRule(
        matches=matches,
        backends=_backends(rule.backend_refs, namespace),
        filters=filters,
        problem=problem or filters.problem or _backend_problem(rule.backend_refs, namespace),
    )


def _grpc_match(match: GRPCRouteSpecRuleMatch) -> RouteMatch:
    conditions = tuple(_comparisons(Source.HEADER, match.headers))
    path, kind = ("/", PathMatch.PREFIX) if match.method is None else _grpc_path(match.method)
    return RouteMatch(path, kind, conditions, (False, len(match.headers), 0))


def _grpc_path(method: GRPCRouteSpecRuleMatchMethod) -> tuple[str, PathMatch]:
    """Return the path of a gRPC method: ``/SERVICE/METHOD``."""
    if method.type == "RegularExpression":
        names = [expression(text) if text else _GRPC_NAME for text in (method.service, method.method)]
        return _path_expression("/" + "/".join(f"(?:{name})" for name in names)), PathMatch.REGEX
    if method.service and method.method:
        return f"/{method.service}/{method.method}", PathMatch.EXACT
    if method.service:
        return f"/{method.service}", PathMatch.PREFIX
    return (_path_expression(f"/{_GRPC_NAME}/{method.method}"), PathMatch.REGEX) if method.method else ("/", PathMatch.PREFIX)


# Both


def _read_matches(read: Callable[[M], RouteMatch], matches: Iterable[M]) -> tuple[tuple[RouteMatch, ...], str]:
    """Return the matches of a rule, without incomparable ones, and the problem of the last of these."""
    result = []
    problem = ""
    for number, match in enumerate(matches):
        try:
            result.append(read(match))
        except InvalidValue as error:
            problem = f"matches[{number}]: an expression {error}"
    return tuple(result), problem


def _comparisons(source: Source, entries: Iterable[_Comparison]) -> Iterable[Condition]:
    names = set()
    for entry in entries:
        # Of several entries with equal names the first counts. Header names are equal in any case, parameter names are not.
        name = entry.name.lower() if source is Source.HEADER else entry.name
        if name in names:
            continue
        names.add(name)
        if entry.type == "RegularExpression":
            yield Condition(source, entry.name, expression(entry.value), regex=True)
        elif entry.type == "Exact":
            yield Condition(source, entry.name, entry.value)
        else:
            raise InvalidValue(f"of type {entry.type} is not supported")


def _path_expression(pattern: str) -> str:
    """Return an expression for a whole path. The model compares without case; the Gateway API compares with it."""
    return f"(?-i:{pattern})$"


def _backends(references: Sequence[_AnyBackend], namespace: str) -> tuple[BackendReference, ...]:
    return tuple(
        BackendReference(
            entry.namespace or namespace,
            entry.name,
            entry.port or 0,
            entry.weight,
            entry.group,
            entry.kind,
            read_filters(entry.filters, namespace),
        )
        for entry in references
    )


def _backend_problem(references: Sequence[_AnyBackend], namespace: str) -> str:
    """Return why the filters of a rule's backends cannot be followed; empty: they can."""
    for entry in references:
        filters = read_filters(entry.filters, namespace)
        if filters.problem:
            return f"backendRef {entry.name}: {filters.problem}"
        if filters.rewrite is not None or filters.cors is not None or filters.redirect is not None:
            return f"backendRef {entry.name}: a filter of a backend changes headers and the host name, or copies requests"
    return ""
