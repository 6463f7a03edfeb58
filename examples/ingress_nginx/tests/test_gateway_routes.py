"""What the rules of routes become in the model: locations, conditions, filters, targets, and the order of them."""

from __future__ import annotations

from typing import Any

import pytest

from examples.ingress_nginx.gateway.precedence import names_of
from examples.ingress_nginx.gateway.routes import seconds_of
from examples.ingress_nginx.model.configuration import CATCH_ALL, Condition, Endpoint, Rewrite, Route, Source, Target
from examples.ingress_nginx.model.policy import DEFAULT_POLICY, Cors, HeaderChanges, Mirror, Policy, Protocol, Redirect, Timeouts
from examples.ingress_nginx.tests.gateway_objects import (
    build,
    gateway,
    grant,
    grpc_route,
    http_route,
    listener,
    moved,
    path,
    route_conditions,
    rule,
    server_at,
)
from examples.ingress_nginx.tests.objects import service, slice_of, tls_secret
from kubeloop.meta import Resource


def routes_of(*objects: Resource, host: str = CATCH_ALL) -> dict[str, list[Route]]:
    """Return the routes of a host at a Gateway of HTTP, by MATCH PATH."""
    server = server_at(build(gateway(), *objects), host)
    return {f"{location.match} {location.path}": list(location.routes) for location in server.locations}


def origins_of(*objects: Resource, host: str = CATCH_ALL) -> dict[str, list[str]]:
    """Return the names and rules of the routes of a host: NAME/RULE."""
    return {
        place: [route.origin.partition("/")[2].replace(" rules[", "/").rstrip("]") for route in routes]
        for place, routes in routes_of(*objects, host=host).items()
    }


def only_route(*rules: dict[str, Any], objects: tuple[Resource, ...] = ()) -> Route:
    """Return the route of the only match of an HTTPRoute."""
    (routes,) = routes_of(http_route("web", *rules), *objects).values()
    return routes[0]


# Matches


@pytest.mark.parametrize(
    ("match", "place", "conditions"),
    [
        pytest.param({}, "prefix /", (), id="an empty match is all paths"),
        pytest.param(path("/a"), "prefix /a", (), id="a prefix"),
        pytest.param(path("/a/"), "prefix /a", (), id="a prefix with a slash at its end is the same prefix"),
        pytest.param(path("/a/", "Exact"), "exact /a/", (), id="an exact path keeps its slash"),
        pytest.param(path("/v[0-9]+", "RegularExpression"), "regex (?-i:/v[0-9]+)$", (), id="an expression for a whole path, with case"),
        pytest.param(path("/", method="GET"), "prefix /", (Condition(Source.METHOD, "", "GET"),), id="a method"),
        pytest.param({"headers": [{"name": "v", "value": "2"}]}, "prefix /", (Condition(Source.HEADER, "v", "2"),), id="a header"),
        pytest.param(
            {"headers": [{"name": "v", "value": "2|3", "type": "RegularExpression"}]},
            "prefix /",
            (Condition(Source.HEADER, "v", "2|3", regex=True),),
            id="an expression for a header",
        ),
        pytest.param(
            {"headers": [{"name": "V", "value": "1"}, {"name": "v", "value": "2"}]},
            "prefix /",
            (Condition(Source.HEADER, "V", "1"),),
            id="the first of two headers with the same name",
        ),
        pytest.param(
            {"queryParams": [{"name": "q", "value": "1"}, {"name": "Q", "value": "2"}]},
            "prefix /",
            (Condition(Source.QUERY, "q", "1"), Condition(Source.QUERY, "Q", "2")),
            id="parameters, with case",
        ),
    ],
)
def test_a_match(match: dict[str, Any], place: str, conditions: tuple[Condition, ...]) -> None:
    routes = routes_of(http_route("web", rule(match)))
    assert list(routes) == [place]
    assert routes[place][0].conditions == conditions


@pytest.mark.parametrize(
    ("method", "place"),
    [
        pytest.param({"service": "shop.Cart", "method": "Add"}, "exact /shop.Cart/Add", id="service and method"),
        pytest.param({"service": "shop.Cart"}, "prefix /shop.Cart", id="all methods of a service"),
        pytest.param({"method": "Add"}, "regex (?-i:/[^/]+/Add)$", id="a method of all services"),
        pytest.param(
            {"service": "shop[.].+", "type": "RegularExpression"}, "regex (?-i:/(?:shop[.].+)/(?:[^/]+))$", id="an expression for a service"
        ),
    ],
)
def test_a_grpc_method_is_a_path(method: dict[str, Any], place: str) -> None:
    routes = routes_of(grpc_route("calls", rule({"method": method})))
    assert list(routes) == [place]
    assert routes[place][0].policy.protocol is Protocol.GRPC


def test_more_specific_matches_come_first() -> None:
    headers = [{"name": "a", "value": "1"}, {"name": "b", "value": "1"}]
    route = http_route(
        "web",
        rule(path("/")),
        rule(path("/a")),
        rule(path("/a", queryParams=[{"name": "q", "value": "1"}])),
        rule(path("/a", headers=headers[:1])),
        rule(path("/a", headers=headers)),
        rule(path("/a", method="GET")),
        rule(path("/a/long")),
        rule(path("/a", "Exact")),
        rule(path("/x.*", "RegularExpression")),
    )
    assert origins_of(route) == {
        "exact /a": ["web/7"],
        "regex (?-i:/x.*)$": ["web/8"],
        "prefix /a/long": ["web/6"],
        "prefix /a": ["web/5", "web/4", "web/3", "web/2", "web/1"],
        "prefix /": ["web/0"],
    }


def test_ties_go_to_the_oldest_route_then_to_the_first_name_then_to_the_first_rule() -> None:
    conditions = [path("/", method=method) for method in ("GET", "PUT", "POST")]
    young = http_route("young", rule(conditions[0]), age=9)
    second = http_route("b", rule(conditions[1]), age=5)
    first = http_route("a", rule(conditions[2]), rule(conditions[1]), age=5)
    assert origins_of(young, second, first) == {"prefix /": ["a/0", "a/1", "b/0", "young/0"]}


def test_names_that_cover_a_host() -> None:
    assert names_of("a.b.test") == ["a.b.test", "*.b.test", "*.test", ""]
    assert names_of("*.b.test") == ["*.b.test", "*.test", ""]
    assert names_of(CATCH_ALL) == [""]


def test_a_narrow_host_comes_before_a_wide_one_also_where_its_path_is_shorter() -> None:
    narrow = http_route("narrow", rule(path("/", method="GET")), rule(path("/a/b/c", method="PUT")), hosts=["a.test"])
    wide = http_route("wide", rule(path("/a")), rule(path("/a/x", "Exact")), hosts=["*.test"])
    assert origins_of(narrow, wide, host="a.test") == {
        "exact /a/x": ["narrow/0", "wide/1"],
        "prefix /a/b/c": ["narrow/1"],
        "prefix /a": ["narrow/0", "wide/0"],
        "prefix /": ["narrow/0"],
    }
    assert origins_of(narrow, wide, host="*.test") == {"exact /a/x": ["wide/1"], "prefix /a": ["wide/0"]}


def test_a_rule_of_a_narrow_host_for_all_requests_hides_the_wide_host() -> None:
    narrow, wide = http_route("narrow", hosts=["a.test"]), http_route("wide", rule(path("/a")), hosts=["*.test"])
    assert origins_of(narrow, wide, host="a.test") == {"prefix /": ["narrow/0"]}


def test_a_rule_that_is_moved_to_a_longer_path_rewrites_the_same_prefix() -> None:
    rewrite = {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"}}}
    narrow = http_route("narrow", rule(path("/a", method="GET"), filters=[rewrite]), hosts=["a.test"])
    wide = http_route("wide", rule(path("/a/b")), rule(path("/a/c", "Exact")), hosts=["*.test"])
    routes = routes_of(narrow, wide, host="a.test")
    assert routes["prefix /a"][0].rewrite == Rewrite("/new", prefix=True)
    assert routes["prefix /a/b"][0].rewrite == Rewrite("/new/b", prefix=True)
    assert routes["exact /a/c"][0].rewrite == Rewrite("/new/c")


def test_the_listener_with_the_narrowest_host_gets_the_requests() -> None:
    listeners = [listener("all"), listener("wild", hostname="*.test"), listener("one", hostname="a.test")]
    everywhere = http_route("all", hosts=["a.test", "b.test", "b.other"], parents=[{"name": "front", "sectionName": "all"}])
    wild = http_route("wild", parents=[{"name": "front", "sectionName": "wild"}])
    result = build(gateway("front", *listeners), everywhere, wild)
    served = {
        host: [route.origin for location in server.locations for route in location.routes] for (_, host), server in result.servers.items()
    }
    assert served == {"_": [], "*.test": ["HTTPRoute shop/wild rules[0]"], "a.test": [], "b.other": ["HTTPRoute shop/all rules[0]"]}


# Targets


def test_targets_have_their_weights_and_share_the_policy_of_the_route() -> None:
    objects = (service("new"), slice_of("new", "10.0.0.9"))
    route = only_route(rule(to=["web*9", "new", "web*0"]), objects=objects)
    assert route.targets == (Target("gateway.shop.web.80", 9), Target("gateway.shop.new.80", 1))
    backends = build(gateway(), http_route("web", rule(to=["web", "new"])), *objects).backends
    assert backends["gateway.shop.new.80"].endpoints == (Endpoint("10.0.0.9", 8080),)


FAILURE = Policy(status=500)


@pytest.mark.parametrize(
    ("reference", "objects", "reason"),
    [
        pytest.param({"name": "none", "port": 80}, (), "BackendNotFound", id="no such Service"),
        pytest.param({"name": "web", "port": 81}, (), "BackendNotFound", id="no such port"),
        pytest.param({"name": "web", "kind": "Pod", "group": ""}, (), "InvalidKind", id="another kind"),
        pytest.param({"name": "api", "port": 80, "namespace": "back"}, (moved(service("api"), "back"),), "RefNotPermitted", id="no grant"),
        pytest.param(
            {"name": "odd", "port": 80},
            (service("odd", ports=[{"port": 80, "appProtocol": "mysql"}]),),
            "UnsupportedProtocol",
            id="an unknown protocol",
        ),
    ],
)
def test_an_unresolved_backend_answers_500_for_its_share(reference: dict[str, Any], objects: tuple[Resource, ...], reason: str) -> None:
    result = build(gateway(), http_route("web", rule(to=["web*3", reference])), *objects)
    (location,) = server_at(result, CATCH_ALL).locations
    assert location.routes[0].targets == (Target("gateway.shop.web.80", 3), Target("", 1, FAILURE))
    assert route_conditions(result, "web") == {"Accepted": "True/Accepted", "ResolvedRefs": f"False/{reason}"}


@pytest.mark.parametrize(
    ("references", "failure"),
    [
        pytest.param([], FAILURE, id="no backend"),
        pytest.param(["web*0"], FAILURE, id="all weights are zero"),
    ],
)
def test_rules_without_targets_answer_500(references: list[str], failure: Policy) -> None:
    route = only_route(rule(to=references))
    assert (route.targets, route.policy) == ((), failure)


def test_a_grpc_client_reads_unavailable_where_a_backend_is_unresolved() -> None:
    (routes,) = routes_of(grpc_route("calls", rule(to=["none"]))).values()
    assert routes[0].targets == (Target("", 1, Policy(status=503)),)


def test_a_grant_allows_a_backend_of_another_namespace() -> None:
    reference = {"name": "api", "port": 80, "namespace": "back"}
    objects = (moved(service("api"), "back"), grant("back", "HTTPRoute", "shop", "Service", "api"))
    result = build(gateway(), http_route("web", rule(to=[reference])), *objects)
    assert route_conditions(result, "web")["ResolvedRefs"] == "True/ResolvedRefs"
    assert result.backends["gateway.back.api.80"].endpoints == ()


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        pytest.param("kubernetes.io/h2c", Protocol.GRPC, id="HTTP/2 without TLS"),
        pytest.param("kubernetes.io/ws", Protocol.HTTP, id="websockets"),
        pytest.param("https", Protocol.HTTPS, id="TLS"),
    ],
)
def test_the_protocol_of_a_service(protocol: str, expected: Protocol) -> None:
    backend = service("odd", ports=[{"port": 80, "appProtocol": protocol}])
    assert only_route(rule(to=["odd"]), objects=(backend,)).policy.protocol is expected


# Filters


def _redirect(**fields: Any) -> dict[str, Any]:
    return {"type": "RequestRedirect", "requestRedirect": fields}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"hostname": "b.test"}, Redirect(host="b.test", port=0), id="the listener's port is the default one of http"),
        pytest.param({"scheme": "https"}, Redirect(scheme="https", port=0), id="the default port of another scheme"),
        pytest.param({"scheme": "https", "port": 443}, Redirect(scheme="https", port=0), id="a default port is not written"),
        pytest.param({"scheme": "http", "port": 8080}, Redirect(scheme="http", port=8080), id="another port"),
        pytest.param({"statusCode": 301}, Redirect(status=301, port=0), id="a status"),
        pytest.param({"path": {"type": "ReplaceFullPath", "replaceFullPath": "/new"}}, Redirect(path="/new", port=0), id="a whole path"),
        pytest.param(
            {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"}},
            Redirect(path="/new", replace_prefix=True, port=0),
            id="a prefix",
        ),
    ],
)
def test_redirects(fields: dict[str, Any], expected: Redirect) -> None:
    route = only_route(rule(path("/old"), to=[], filters=[_redirect(**fields)]))
    assert route.policy.redirect == expected
    assert not route.targets


@pytest.mark.parametrize(
    ("port", "tls", "expected"),
    [
        pytest.param(8080, False, 8080, id="another port of http"),
        pytest.param(443, True, 0, id="the default port of https"),
        pytest.param(8443, True, 8443, id="another port of https"),
    ],
)
def test_a_redirect_without_scheme_and_port_keeps_the_port_of_the_listener(port: int, tls: bool, expected: int) -> None:
    entry = listener(port=port, protocol="HTTPS", certificates=["tls"]) if tls else listener(port=port)
    route = http_route("web", rule(to=[], filters=[_redirect(hostname="b.test")]))
    result = build(gateway("front", entry), route, tls_secret("tls", "a.test"))
    redirect = server_at(result, CATCH_ALL, port, tls=tls).locations[0].routes[0].policy.redirect
    assert redirect is not None
    assert redirect.port == expected


@pytest.mark.parametrize(
    ("filters", "policy", "rewrite"),
    [
        pytest.param(
            [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "A", "value": "1"}], "remove": ["B"]}}],
            Policy(request_headers=HeaderChanges(set=(("A", "1"),), remove=("B",))),
            None,
            id="headers of the request",
        ),
        pytest.param(
            [{"type": "ResponseHeaderModifier", "responseHeaderModifier": {"add": [{"name": "A", "value": "1"}]}}],
            Policy(response_headers=HeaderChanges(add=(("A", "1"),))),
            None,
            id="headers of the answer",
        ),
        pytest.param(
            [{"type": "URLRewrite", "urlRewrite": {"hostname": "b.test"}}], Policy(upstream_vhost="b.test"), None, id="the host name"
        ),
        pytest.param(
            [{"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/new"}}}],
            DEFAULT_POLICY,
            Rewrite("/new"),
            id="the whole path",
        ),
        pytest.param(
            [{"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}}],
            DEFAULT_POLICY,
            Rewrite("", prefix=True),
            id="the prefix, without a second slash",
        ),
        pytest.param(
            [{"type": "CORS", "cors": {"allowOrigins": ["https://a.test"], "allowMethods": ["GET"], "allowCredentials": True}}],
            Policy(cors=Cors(origins=("https://a.test",), methods=("GET",), headers=(), credentials=True, max_age=5, echo=True)),
            None,
            id="CORS",
        ),
    ],
)
def test_filters(filters: list[dict[str, Any]], policy: Policy, rewrite: Rewrite | None) -> None:
    route = only_route(rule(path("/old"), filters=filters))
    assert (route.policy, route.rewrite) == (policy, rewrite)


def test_filters_of_a_backend_belong_to_its_target() -> None:
    def modifier(name: str) -> dict[str, Any]:
        return {"type": "RequestHeaderModifier", "requestHeaderModifier": {"add": [{"name": name, "value": "1"}]}}

    first = {"name": "web", "port": 80, "filters": [modifier("backend")]}
    route = only_route(rule(to=[first, "web"], filters=[modifier("rule")]))
    assert route.policy.request_headers.add == (("rule", "1"), ("backend", "1"))
    assert route.targets[0].policy is None
    assert route.targets[1].policy == Policy(request_headers=HeaderChanges(add=(("rule", "1"),)))


def copies(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": name, "port": 80}, **fields}}


WEB = "gateway.shop.web.80"


@pytest.mark.parametrize(
    ("filters", "mirrors"),
    [
        pytest.param([copies("web")], (Mirror(WEB, 100, 100),), id="all requests"),
        pytest.param([copies("web", percent=5)], (Mirror(WEB, 5, 100),), id="a percentage"),
        pytest.param([copies("web", fraction={"numerator": 1, "denominator": 3})], (Mirror(WEB, 1, 3),), id="a fraction"),
        pytest.param([copies("web"), copies("other")], (Mirror(WEB, 100, 100), Mirror("gateway.shop.other.80", 100, 100)), id="two"),
        pytest.param([copies("none"), copies("web")], (Mirror(WEB, 100, 100),), id="a backend that does not exist gets none"),
    ],
)
def test_filters_name_backends_that_get_copies_of_requests(filters: list[dict[str, Any]], mirrors: tuple[Mirror, ...]) -> None:
    other = (service("other"), slice_of("other", "10.0.0.9"))
    assert only_route(rule(filters=filters), objects=other).policy.mirrors == mirrors
    one, own = only_route(rule(to=["web", {"name": "web", "port": 80, "filters": filters}]), objects=other).targets
    assert (one.policy, own.policy and own.policy.mirrors) == (None, mirrors)


@pytest.mark.parametrize(
    ("target", "reason", "message"),
    [
        pytest.param(None, "BackendNotFound", "Service shop/other does not exist", id="no service"),
        pytest.param(
            service("other", ports=[{"port": 80, "appProtocol": "https"}]),
            "UnsupportedProtocol",
            "NGINX sends copies of requests over HTTP only",
            id="a protocol",
        ),
        pytest.param(
            service("other", type="ExternalName", externalName="x.test"), "UnsupportedValue", "shop/other has a DNS name", id="a DNS name"
        ),
    ],
)
def test_a_backend_that_cannot_get_copies_is_a_problem_of_its_route(target: Resource | None, reason: str, message: str) -> None:
    result = build(gateway(), http_route("web", rule(filters=[copies("other")])), *([target] if target else []))
    assert route_conditions(result, "web")["ResolvedRefs"] == f"False/{reason}"
    assert message in str(result.reports)
    (location,) = server_at(result, CATCH_ALL).locations
    assert location.routes[0].targets
    assert location.routes[0].policy.mirrors == ()


EXTENSION = {"type": "ExtensionRef", "extensionRef": {"group": "", "kind": "ConfigMap", "name": "x"}}


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        pytest.param(rule(path("/a"), filters=[EXTENSION]), "filter ExtensionRef is not supported", id="a filter"),
        pytest.param(
            rule(path("/a"), to=[{"name": "web", "port": 80, "filters": [EXTENSION]}]), "filter ExtensionRef", id="a filter of a backend"
        ),
        pytest.param(rule(path("/a"), path("/(", "RegularExpression")), "an expression", id="an expression"),
        pytest.param(rule(path("/a"), retry={"codes": [418]}), "status 418", id="a status of a retry"),
    ],
)
def test_a_rule_that_cannot_be_followed_gets_500_and_a_condition(broken: dict[str, Any], message: str) -> None:
    result = build(gateway(), http_route("web", rule(path("/")), broken))
    places = {location.path: location.routes[0] for location in server_at(result, CATCH_ALL).locations}
    assert (places["/a"].policy, places["/a"].targets) == (FAILURE, ())
    assert places["/"].targets
    assert route_conditions(result, "web") == {
        "Accepted": "True/Accepted",
        "ResolvedRefs": "True/ResolvedRefs",
        "PartiallyInvalid": "True/UnsupportedValue",
    }
    (texts,) = ([state.message for state in entry.conditions] for report in result.reports for entry in getattr(report, "parents", ()))
    assert texts[-1].startswith("Dropped Rule rules[1]")
    assert message in texts[-1]
    alone = build(gateway(), http_route("web", broken))
    assert route_conditions(alone, "web") == {"Accepted": "False/UnsupportedValue", "ResolvedRefs": "True/ResolvedRefs"}
    assert not server_at(alone, CATCH_ALL).locations


# Times


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("10s", 10, id="seconds"),
        pytest.param("1h30m", 5400, id="hours and minutes"),
        pytest.param("500ms", 0.5, id="milliseconds"),
        pytest.param("0s", 0, id="zero"),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("timeouts", "expected"),
    [
        pytest.param({"request": "10s"}, Timeouts(send=10, read=10, total=10), id="the whole request"),
        pytest.param({"request": "10s", "backendRequest": "2s"}, Timeouts(send=2, read=2, total=10), id="the backend and the whole"),
        pytest.param({"backendRequest": "0s"}, Timeouts(send=31536000, read=31536000), id="no limit is a year"),
    ],
)
def test_timeouts(timeouts: dict[str, str], expected: Timeouts) -> None:
    assert only_route(rule(timeouts=timeouts)).policy.timeouts == expected
