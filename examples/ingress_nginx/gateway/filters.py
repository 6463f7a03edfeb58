"""Reads the filters of rules and of backends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from examples.ingress_nginx.gateway.records import NO_FILTERS, BackendReference, FilterSet, MirrorReference
from examples.ingress_nginx.gateway.types import (
    GRPCRouteSpecRuleBackendRefFilter,
    GRPCRouteSpecRuleBackendRefFilterRequestHeaderModifier,
    GRPCRouteSpecRuleBackendRefFilterResponseHeaderModifier,
    GRPCRouteSpecRuleFilter,
    GRPCRouteSpecRuleFilterRequestHeaderModifier,
    GRPCRouteSpecRuleFilterResponseHeaderModifier,
    HTTPRouteSpecRuleBackendRefFilter,
    HTTPRouteSpecRuleBackendRefFilterCors,
    HTTPRouteSpecRuleBackendRefFilterRequestHeaderModifier,
    HTTPRouteSpecRuleBackendRefFilterRequestMirror,
    HTTPRouteSpecRuleBackendRefFilterRequestRedirect,
    HTTPRouteSpecRuleBackendRefFilterResponseHeaderModifier,
    HTTPRouteSpecRuleBackendRefFilterUrlRewrite,
    HTTPRouteSpecRuleFilter,
    HTTPRouteSpecRuleFilterCors,
    HTTPRouteSpecRuleFilterRequestHeaderModifier,
    HTTPRouteSpecRuleFilterRequestMirror,
    HTTPRouteSpecRuleFilterRequestRedirect,
    HTTPRouteSpecRuleFilterResponseHeaderModifier,
    HTTPRouteSpecRuleFilterUrlRewrite,
)
from examples.ingress_nginx.model.configuration import Rewrite
from examples.ingress_nginx.model.policy import Cors, HeaderChanges, Redirect

_HttpFilter = HTTPRouteSpecRuleFilter | HTTPRouteSpecRuleBackendRefFilter
_GrpcFilter = GRPCRouteSpecRuleFilter | GRPCRouteSpecRuleBackendRefFilter
_Modifier = (
    HTTPRouteSpecRuleFilterRequestHeaderModifier
    | HTTPRouteSpecRuleFilterResponseHeaderModifier
    | HTTPRouteSpecRuleBackendRefFilterRequestHeaderModifier
    | HTTPRouteSpecRuleBackendRefFilterResponseHeaderModifier
    | GRPCRouteSpecRuleFilterRequestHeaderModifier
    | GRPCRouteSpecRuleFilterResponseHeaderModifier
    | GRPCRouteSpecRuleBackendRefFilterRequestHeaderModifier
    | GRPCRouteSpecRuleBackendRefFilterResponseHeaderModifier
)


def read_filters(filters: Sequence[_HttpFilter | _GrpcFilter], namespace: str) -> FilterSet:
    """Read the filters of a rule or of a backend of a route in a namespace. A filter that NGINX cannot follow is the result's problem."""
    result = NO_FILTERS
    for entry in filters:
        if entry.type == "RequestHeaderModifier" and entry.request_header_modifier is not None:
            result = replace(result, request_headers=_header_changes(entry.request_header_modifier))
        elif entry.type == "ResponseHeaderModifier" and entry.response_header_modifier is not None:
            result = replace(result, response_headers=_header_changes(entry.response_header_modifier))
        elif isinstance(entry, _HttpFilter):
            result = _with_http_filter(result, entry, namespace)
        else:
            result = replace(result, problem=f"filter {entry.type} is not supported")
    return result


def _with_http_filter(result: FilterSet, entry: _HttpFilter, namespace: str) -> FilterSet:
    if entry.type == "RequestRedirect" and entry.request_redirect is not None:
        return replace(result, redirect=_redirect(entry.request_redirect))
    if entry.type == "URLRewrite" and entry.url_rewrite is not None:
        return replace(result, hostname=(entry.url_rewrite.hostname or "").lower(), rewrite=_rewrite(entry.url_rewrite))
    if entry.type == "CORS" and entry.cors is not None:
        return replace(result, cors=_cors(entry.cors))
    if entry.type == "RequestMirror" and entry.request_mirror is not None:
        return replace(result, mirrors=(*result.mirrors, _mirror(entry.request_mirror, namespace)))
    return replace(result, problem=f"filter {entry.type} is not supported")


def _header_changes(modifier: _Modifier) -> HeaderChanges:
    return HeaderChanges(
        set=tuple((header.name, header.value) for header in modifier.set),
        add=tuple((header.name, header.value) for header in modifier.add),
        remove=tuple(modifier.remove),
    )


def _redirect(entry: HTTPRouteSpecRuleFilterRequestRedirect | HTTPRouteSpecRuleBackendRefFilterRequestRedirect) -> Redirect:
    result = Redirect(status=int(entry.status_code), scheme=entry.scheme or "", host=entry.hostname or "", port=entry.port)
    if entry.path is None:
        return result
    if entry.path.type == "ReplacePrefixMatch":
        return replace(result, path=entry.path.replace_prefix_match or "/", replace_prefix=True)
    return replace(result, path=entry.path.replace_full_path or "/")


def _rewrite(entry: HTTPRouteSpecRuleFilterUrlRewrite | HTTPRouteSpecRuleBackendRefFilterUrlRewrite) -> Rewrite | None:
    if entry.path is None:
        return None
    if entry.path.type == "ReplacePrefixMatch":
        # "/foo" replaced by "/" in "/foo/bar" is "/bar": the slash after the prefix stays, so that of the replacement goes.
        return Rewrite((entry.path.replace_prefix_match or "").rstrip("/"), prefix=True)
    return Rewrite(entry.path.replace_full_path or "/")


def _mirror(
    entry: HTTPRouteSpecRuleFilterRequestMirror | HTTPRouteSpecRuleBackendRefFilterRequestMirror, namespace: str
) -> MirrorReference:
    backend = entry.backend_ref
    reference = BackendReference(backend.namespace or namespace, backend.name, backend.port or 0, group=backend.group, kind=backend.kind)
    if entry.fraction is not None:
        return MirrorReference(reference, entry.fraction.numerator, entry.fraction.denominator)
    return MirrorReference(reference, 100 if entry.percent is None else entry.percent, 100)


def _cors(entry: HTTPRouteSpecRuleFilterCors | HTTPRouteSpecRuleBackendRefFilterCors) -> Cors:
    return Cors(
        echo=True,
        origins=tuple(entry.allow_origins),
        methods=tuple(entry.allow_methods),
        headers=tuple(entry.allow_headers),
        expose=tuple(entry.expose_headers),
        credentials=bool(entry.allow_credentials),
        max_age=entry.max_age,
    )
