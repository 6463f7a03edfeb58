"""Ingresses become servers: rules of order and conflict, path types, hosts, TLS, canaries, and the endpoints of services."""

from __future__ import annotations

from typing import Any

import pytest

from examples.ingress_nginx.ingress.builder import BuilderOptions, IngressBuilder
from examples.ingress_nginx.ingress.classes import ClassRules
from examples.ingress_nginx.model.configuration import CATCH_ALL, DEFAULT_BACKEND, Condition, Endpoint, PathMatch, Server, Source
from examples.ingress_nginx.tests.objects import ClusterTable, ingress, ingress_class, service, slice_of, tls_secret
from kubeloop.api.core.v1 import Secret, Service
from kubeloop.api.networking.v1 import Ingress, IngressClass
from kubeloop.meta import Resource

WEB = (service("web"), slice_of("web", "10.0.0.2", "10.0.0.1"))
API = (service("api"), slice_of("api", "10.0.1.1"))


def built(*objects: Resource, options: BuilderOptions | None = None) -> IngressBuilder:
    builder = IngressBuilder(ClusterTable(*WEB, *API, *objects), options)
    builder.rebuild()
    return builder


def server_of(builder: IngressBuilder, host: str) -> Server:
    return builder.configuration.servers[(), host]


def paths_of(server: Server) -> list[str]:
    signs = {PathMatch.EXACT: "=", PathMatch.PREFIX: "", PathMatch.REGEX: "~"}
    return [
        f"{signs[location.match]}{location.path} {'+'.join(target.backend for target in location.routes[-1].targets)}"
        for location in server.locations
    ]


@pytest.mark.parametrize(
    ("ingresses", "host", "expected"),
    [
        pytest.param([ingress("a", "x.io / web:80")], "x.io", ["/ shop-web-80"], id="a prefix of one slash is all of a host"),
        pytest.param(
            [ingress("a", "x.io / web:80", "x.io /a web:80", "x.io /a/b api:80", "x.io =/z web:80")],
            "x.io",
            ["=/z shop-web-80", "/a/b shop-api-80", "/a shop-web-80", "/ shop-web-80"],
            id="exact paths come first, then longer prefixes before shorter ones",
        ),
        pytest.param([ingress("a", "x.io /a/ web:80")], "x.io", ["/a shop-web-80"], id="a trailing slash of a prefix does not count"),
        pytest.param(
            [ingress("b", "x.io / api:80", age=5), ingress("a", "x.io / web:80", age=9)],
            "x.io",
            ["/ shop-api-80"],
            id="of two Ingresses with one path the older one is served",
        ),
        pytest.param(
            [ingress("b", "x.io / api:80"), ingress("a", "x.io / web:80")],
            "x.io",
            ["/ shop-web-80"],
            id="of two Ingresses of the same second the first by name is served",
        ),
        pytest.param(
            [ingress("a", "x.io /a web:80"), ingress("b", "x.io /b api:80")],
            "x.io",
            ["/b shop-api-80", "/a shop-web-80"],
            id="two Ingresses share a host",
        ),
        pytest.param([ingress("a", "* / web:80")], CATCH_ALL, ["/ shop-web-80"], id="a rule without a host serves all other hosts"),
        pytest.param([ingress("a", default="web:80")], CATCH_ALL, ["/ shop-web-80"], id="a default backend alone serves all other hosts"),
        pytest.param(
            [ingress("a", "x.io /a web:80", default="api:80")],
            "x.io",
            ["/a shop-web-80", "/ shop-api-80"],
            id="a default backend serves the other paths of the hosts of its Ingress",
        ),
        pytest.param([ingress("a", "X.IO / web:80")], "x.io", ["/ shop-web-80"], id="the case of a host does not count"),
        pytest.param([ingress("a", "x.io / web:http")], "x.io", ["/ shop-web-http"], id="a port has a name"),
        pytest.param(
            [ingress("a", "x.io ~/a/(.*) web:80", "x.io /b api:80", "x.io =/c api:80", use_regex="true")],
            "x.io",
            [r"~(?-i)/c\z shop-api-80", "~/a/(.*) shop-web-80", r"~(?-i)/b(?:/|\z) shop-api-80"],
            id="beside an expression, the other paths of a host become expressions of the same meaning",
        ),
        pytest.param(
            [ingress("a", "x.io ~/a/(.*) web:80")],
            "x.io",
            ["/a/(.*) shop-web-80"],
            id="without use-regex a path is no expression",
        ),
        pytest.param(
            [ingress("a", "x.io / web:80", ingress_class_name="other")],
            CATCH_ALL,
            [],
            id="an Ingress of an unknown class is not served",
        ),
    ],
)
def test_the_locations_of_a_host(ingresses: list[Ingress], host: str, expected: list[str]) -> None:
    assert paths_of(server_of(built(*ingresses), host)) == expected


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param(
            [ingress("a", "x.io / web:80")], (Endpoint("10.0.0.1", 8080), Endpoint("10.0.0.2", 8080)), id="ready addresses, sorted"
        ),
        pytest.param(
            [ingress("a", "x.io / web:80"), slice_of("web", "10.0.0.3", ready=False, suffix="2")],
            (Endpoint("10.0.0.1", 8080), Endpoint("10.0.0.2", 8080)),
            id="an address that is not ready is left out",
        ),
        pytest.param(
            [ingress("a", "x.io / web:80"), slice_of("web", "10.0.0.1", suffix="2")],
            (Endpoint("10.0.0.1", 8080), Endpoint("10.0.0.2", 8080)),
            id="an address of two slices counts once",
        ),
        pytest.param(
            [ingress("a", "x.io / web:8080")],
            (Endpoint("10.0.0.1", 8080), Endpoint("10.0.0.2", 8080)),
            id="a target port stands for its port",
        ),
        pytest.param(
            [ingress("a", "x.io / web:80", service_upstream="true")],
            (Endpoint("10.96.0.9", 80),),
            id="service-upstream: the cluster IP is the endpoint",
        ),
        pytest.param(
            [ingress("a", "x.io / far:80"), service("far", type="ExternalName", externalName="far.example.com")],
            (Endpoint("far.example.com", 8080),),
            id="an external name is an endpoint",
        ),
        pytest.param(
            [ingress("a", "x.io / far:80"), service("far", type="ExternalName", externalName="localhost")],
            (),
            id="localhost is no external name",
        ),
        pytest.param(
            [ingress("a", "x.io / far:80"), service("far", type="ExternalName", externalName="127.0.0.1")],
            (),
            id="a loopback address is no external name",
        ),
        pytest.param([ingress("a", "x.io / none:80")], (), id="a missing service has no endpoints"),
        pytest.param([ingress("a", "x.io / web:81")], (), id="a missing port has no endpoints"),
    ],
)
def test_the_endpoints_of_a_backend(objects: list[Resource], expected: tuple[Endpoint, ...]) -> None:
    builder = built(*objects)
    (route,) = server_of(builder, "x.io").locations[0].routes
    assert builder.configuration.backends[route.targets[0].backend].endpoints == expected
    assert bool(builder.problems["shop", "a"]) == (not expected)


@pytest.mark.parametrize(
    ("objects", "certificate", "problem"),
    [
        pytest.param(
            [ingress("a", "x.io / web:80", tls=["one x.io"]), tls_secret("one", "x.io")], "shop/one", "", id="the entry that lists the host"
        ),
        pytest.param(
            [ingress("a", "x.io / web:80", tls=["one X.io"]), tls_secret("one", "x.io")],
            "shop/one",
            "",
            id="the case of the host does not count",
        ),
        pytest.param(
            [ingress("a", "x.io / web:80", tls=["one"]), tls_secret("one", "x.io")],
            "shop/one",
            "",
            id="an entry without hosts counts for all hosts",
        ),
        pytest.param(
            [ingress("a", "x.io / web:80", tls=["one y.io"]), tls_secret("one", "x.io")],
            "shop/one",
            "",
            id="a certificate that names the host",
        ),
        pytest.param(
            [ingress("a", "x.io / web:80", tls=["one x.io"]), tls_secret("one", "y.io")],
            "",
            "has no certificate for x.io",
            id="a certificate for another host is not served",
        ),
        pytest.param([ingress("a", "x.io / web:80", tls=["one x.io"])], "", "secret shop/one does not exist", id="a missing Secret"),
        pytest.param(
            [
                ingress("a", "x.io / web:80", tls=["one x.io"]),
                Secret.from_dict({"metadata": {"name": "one", "namespace": "shop"}, "data": {"tls.crt": "AAAA"}}),
            ],
            "",
            "has no tls.key",
            id="a Secret without a key",
        ),
        pytest.param(
            [ingress("a", "a.x.io / web:80", tls=["one a.x.io"]), tls_secret("one", "*.x.io")], "shop/one", "", id="a wildcard certificate"
        ),
    ],
)
def test_the_certificate_of_a_host(objects: list[Resource], certificate: str, problem: str) -> None:
    builder = built(*objects)
    (server,) = (server for (_, host), server in builder.configuration.servers.items() if host != CATCH_ALL)
    assert server.certificate == certificate
    assert set(builder.configuration.certificates) == ({certificate} if certificate else set())
    assert server.locations[0].routes[0].policy.https_redirect == 308
    assert any(problem in text for _, text in builder.problems["shop", "a"]) if problem else not builder.problems["shop", "a"]


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({"canary_weight": "30"}, [((), {"shop-web-80": 70, "shop-api-80": 30})], id="by weight"),
        pytest.param({"canary_weight": "100"}, [((), {"shop-api-80": 100})], id="a weight of all"),
        pytest.param(
            {"canary_by_header": "X-New"},
            [
                ((Condition(Source.HEADER, "X-New", "always"),), {"shop-api-80": 1}),
                ((Condition(Source.HEADER, "X-New", "never"),), {"shop-web-80": 1}),
                ((), {"shop-web-80": 100}),
            ],
            id="by a header",
        ),
        pytest.param(
            {"canary_by_header": "X-New", "canary_by_header_value": "yes"},
            [((Condition(Source.HEADER, "X-New", "yes"),), {"shop-api-80": 1}), ((), {"shop-web-80": 100})],
            id="by a header's value",
        ),
        pytest.param(
            {"canary_by_cookie": "new"},
            [
                ((Condition(Source.COOKIE, "new", "always"),), {"shop-api-80": 1}),
                ((Condition(Source.COOKIE, "new", "never"),), {"shop-web-80": 1}),
                ((), {"shop-web-80": 100}),
            ],
            id="by a cookie",
        ),
    ],
)
def test_a_canary_gets_its_share(annotations: dict[str, Any], expected: list[tuple[tuple[Condition, ...], dict[str, int]]]) -> None:
    builder = built(ingress("a", "x.io / web:80"), ingress("b", "x.io / api:80", canary="true", **annotations))
    routes = server_of(builder, "x.io").locations[0].routes
    assert [(route.conditions, {target.backend: target.weight for target in route.targets}) for route in routes] == expected


@pytest.mark.parametrize(
    ("objects", "problem"),
    [
        pytest.param([ingress("b", "x.io / api:80", age=9)], "is already defined in Ingress shop/a, which is older", id="a conflict"),
        pytest.param(
            [ingress("b", "x.io /b api:80", canary="true")], "no other Ingress defines host 'x.io' and path '/b'", id="a canary of nothing"
        ),
        pytest.param([ingress("b", f"{'h' * 300}.io / api:80")], "is not the name of a host", id="a host that is too long"),
        pytest.param([ingress("b", "y.io /a;b api:80")], "has the character ';'", id="a path that NGINX could read as syntax"),
        pytest.param([ingress("b", f"y.io /{'a' * 1024} api:80")], "has more than 1024 characters", id="a path that is too long"),
        pytest.param(
            [ingress("b", "y.io ~/( api:80", use_regex="true")],
            "is not a regular expression; check its parentheses",
            id="an expression that does not compile",
        ),
        pytest.param([ingress("b", "y.io / none:80")], "service shop/none does not exist", id="a missing service"),
        pytest.param(
            [ingress("b", "y.io / api:80", server_alias="x.io")], "an Ingress defines the host 'x.io'", id="an alias that is a host"
        ),
    ],
)
def test_a_problem_names_its_reason_and_leaves_the_rest_alone(objects: list[Resource], problem: str) -> None:
    builder = built(ingress("a", "x.io / web:80"), *objects)
    assert any(problem in text for _, text in builder.problems["shop", "b"])
    assert not builder.problems["shop", "a"]
    assert paths_of(server_of(builder, "x.io")) == ["/ shop-web-80"]


def test_an_ingress_follows_its_class() -> None:
    table = ClusterTable(*WEB, ingress("a", "x.io / web:80"))
    builder = IngressBuilder(table)
    builder.rebuild()
    builder.update(table.set(ingress_class("kubeloop", "example.com/other")))
    assert ((), "x.io") not in builder.configuration.servers
    assert "belongs to the controller 'example.com/other'" in builder.ignored["shop", "a"]
    builder.update(table.set(ingress_class("kubeloop")))
    assert ((), "x.io") in builder.configuration.servers
    builder.update(table.delete(IngressClass, "", "kubeloop"))
    assert builder.ignored["shop", "a"] == "its class 'kubeloop' does not exist"


def test_the_old_annotation_chooses_the_class() -> None:
    found = ingress("a", "x.io / web:80", ingress_class_name=None)
    found.metadata.annotations["kubernetes.io/ingress.class"] = "kubeloop"
    assert ((), "x.io") in built(found).configuration.servers


def test_ingresses_without_a_class_are_served_where_the_option_says_so() -> None:
    found = ingress("a", "x.io / web:80", ingress_class_name=None)
    assert ((), "x.io") not in built(found).configuration.servers
    assert ((), "x.io") in built(found, options=BuilderOptions(ClassRules(without_class=True))).configuration.servers


def test_a_change_of_endpoints_changes_the_backend_only() -> None:
    table = ClusterTable(*WEB, ingress("a", "x.io / web:80"))
    builder = IngressBuilder(table)
    builder.rebuild()
    changes = builder.update(table.set(slice_of("web", "10.0.0.7")))
    assert (changes.servers, changes.backends, changes.certificates) == (set(), {"shop-web-80"}, set())
    assert not builder.update(table.set(slice_of("web", "10.0.0.7")))


def test_a_secret_that_comes_after_its_ingress_is_served() -> None:
    table = ClusterTable(*WEB, ingress("a", "x.io / web:80", tls=["late x.io"]))
    builder = IngressBuilder(table)
    builder.rebuild()
    assert builder.reads(("Secret", "shop", "late"))
    assert not builder.reads(("Secret", "shop", "unrelated"))
    changes = builder.update(table.set(tls_secret("late", "x.io")))
    assert changes.certificates == {"shop/late"}
    assert not builder.problems["shop", "a"]


def test_a_service_that_comes_after_its_ingress_is_served() -> None:
    table = ClusterTable(ingress("a", "x.io / web:80"))
    builder = IngressBuilder(table)
    builder.rebuild()
    assert builder.problems["shop", "a"]
    assert builder.update(table.set(*WEB)).backends == {"shop-web-80"}
    assert not builder.problems["shop", "a"]


def test_nothing_of_a_deleted_ingress_stays() -> None:
    table = ClusterTable(*WEB, ingress("a", "x.io / web:80", tls=["one x.io"]), tls_secret("one", "x.io"))
    builder = IngressBuilder(table)
    builder.rebuild()
    builder.update(table.delete(Ingress, "shop", "a"))
    found = builder.configuration
    assert (set(found.servers), set(found.backends), set(found.certificates)) == ({((), CATCH_ALL)}, set(), set())


def test_the_default_backend_is_the_first_port_of_its_service() -> None:
    builder = built(options=BuilderOptions(default_service=("shop", "api")))
    assert builder.configuration.backends[DEFAULT_BACKEND].endpoints == (Endpoint("10.0.1.1", 8080),)


def test_a_default_backend_replaces_a_service_without_endpoints() -> None:
    table = ClusterTable(*WEB, service("api"), ingress("a", "x.io / api:80", default_backend="web"))
    builder = IngressBuilder(table)
    builder.rebuild()
    assert paths_of(server_of(builder, "x.io")) == ["/ shop-web-80"]
    builder.update(table.set(slice_of("api", "10.0.1.1")))
    assert paths_of(server_of(builder, "x.io")) == ["/ shop-api-80"]
    builder.update(table.delete(Service, "shop", "api"))
    assert paths_of(server_of(builder, "x.io")) == ["/ shop-web-80"]


def test_a_secret_that_changes_while_no_ingress_uses_it_is_read_again() -> None:
    web = ingress("a", "x.io / web:80", tls=["one x.io"])
    table = ClusterTable(*WEB, web, tls_secret("one", "x.io"))
    builder = IngressBuilder(table)
    builder.rebuild()
    old = builder.configuration.certificates["shop/one"]
    builder.update(table.delete(Ingress, "shop", "a"))
    changed = table.set(tls_secret("one", "x.io"))
    # The controller reports only changes that the builder asks for.
    builder.update([ref for ref in changed if builder.reads(ref)])
    builder.update(table.set(web))
    assert builder.configuration.certificates["shop/one"] != old
