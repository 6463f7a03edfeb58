"""Which routes attach to which listeners, and which listeners are valid: tables of objects and conditions."""

from __future__ import annotations

from typing import Any

import pytest

from examples.ingress_nginx.gateway.addresses import AddressPool
from examples.ingress_nginx.gateway.attach import common_hosts, intersection
from examples.ingress_nginx.gateway.objects import GatewayOptions
from examples.ingress_nginx.model.configuration import CATCH_ALL, Listener
from examples.ingress_nginx.tests.gateway_objects import (
    attached,
    build,
    gateway,
    gateway_conditions,
    gateway_of,
    grant,
    grpc_route,
    http_route,
    listener,
    listener_conditions,
    moved,
    route_conditions,
    server_at,
)
from examples.ingress_nginx.tests.objects import tls_secret
from kubeloop.api.core.v1 import Namespace, Secret
from kubeloop.meta import ObjectMeta, Resource

POOL = GatewayOptions(pool=AddressPool("127.1.0.0/16"))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param("", "", "", id="all hosts"),
        pytest.param("", "a.test", "a.test", id="all hosts and a name"),
        pytest.param("a.test", "a.test", "a.test", id="equal names"),
        pytest.param("a.test", "b.test", None, id="other names"),
        pytest.param("*.test", "a.test", "a.test", id="a wildcard and a name below it"),
        pytest.param("*.test", "a.b.test", "a.b.test", id="a wildcard stands for more than one label"),
        pytest.param("*.test", "test", None, id="a wildcard does not stand for no label"),
        pytest.param("*.test", "atest", None, id="a wildcard stands for whole labels"),
        pytest.param("*.test", "*.b.test", "*.b.test", id="a wildcard below a wildcard"),
        pytest.param("*.a.test", "*.b.test", None, id="wildcards of other domains"),
    ],
)
def test_hosts_that_two_names_have_in_common(first: str, second: str, expected: str | None) -> None:
    assert intersection(first, second) == expected
    assert intersection(second, first) == expected


def test_hosts_of_a_listener_that_a_route_has() -> None:
    assert common_hosts("", []) == (CATCH_ALL,)
    assert common_hosts("a.test", []) == ("a.test",)
    assert common_hosts("*.test", ["a.test", "a.other", "*.b.test"]) == ("a.test", "*.b.test")
    assert common_hosts("a.test", ["*.test", "a.test"]) == ("a.test",)
    assert common_hosts("a.test", ["b.test"]) == ()


# HTTP/2 without TLS


@pytest.mark.parametrize(
    ("beside", "routes", "accepted", "only"),
    [
        pytest.param(True, [http_route()], "True/Accepted", False, id="a new NGINX serves both kinds on a port"),
        pytest.param(False, [], "True/Accepted", True, id="an old NGINX serves a port of GRPCRoutes with HTTP/2 only"),
        pytest.param(False, [http_route()], "False/UnsupportedValue", False, id="an old NGINX leaves the port to HTTPRoutes"),
        pytest.param(
            False, [http_route(parents=[{"name": "front", "port": 81}])], "True/Accepted", True, id="an HTTPRoute on another port"
        ),
    ],
)
def test_grpc_routes_without_tls(beside: bool, routes: list[Resource], accepted: str, only: bool) -> None:
    calls = grpc_route(parents=[{"name": "front", "port": 80}])
    result = build(gateway("front", listener(), listener("other", 81)), calls, *routes, http2_beside_http1=beside)
    assert route_conditions(result, "calls")["Accepted"] == accepted
    assert [socket.http2_only for (sockets, _) in result.servers for socket in sockets if socket.port == 80] == [only]


def test_grpc_routes_of_https_listeners_do_not_depend_on_the_version_of_nginx() -> None:
    secure = listener("web", 443, protocol="HTTPS", certificates=["tls"])
    result = build(gateway("front", secure), tls_secret("tls", "a.test"), grpc_route(), http_route(), http2_beside_http1=False)
    assert route_conditions(result, "calls")["Accepted"] == "True/Accepted"


TEAM = Namespace(metadata=ObjectMeta(name="team", labels={"tier": "front"}))
SELECTED = {"namespaces": {"from": "Selector", "selector": {"matchLabels": {"tier": "front"}}}}


@pytest.mark.parametrize(
    ("entry", "namespace", "parent", "hosts", "expected"),
    [
        pytest.param({}, "shop", {}, [], "True/Accepted", id="a route of the Gateway's namespace"),
        pytest.param({}, "team", {}, [], "False/NotAllowedByListeners", id="a listener allows its own namespace by default"),
        pytest.param({"allowedRoutes": {"namespaces": {"from": "All"}}}, "team", {}, [], "True/Accepted", id="all namespaces"),
        pytest.param({"allowedRoutes": SELECTED}, "team", {}, [], "True/Accepted", id="a namespace with the selected label"),
        pytest.param({"allowedRoutes": SELECTED}, "shop", {}, [], "False/NotAllowedByListeners", id="a namespace without the label"),
        pytest.param({"allowedRoutes": {"kinds": [{"kind": "HTTPRoute"}]}}, "shop", {}, [], "True/Accepted", id="an allowed kind"),
        pytest.param(
            {"allowedRoutes": {"kinds": [{"kind": "GRPCRoute"}]}}, "shop", {}, [], "False/NotAllowedByListeners", id="another kind only"
        ),
        pytest.param({}, "shop", {"sectionName": "web"}, [], "True/Accepted", id="the name of a listener"),
        pytest.param({}, "shop", {"sectionName": "none"}, [], "False/NoMatchingParent", id="the name of no listener"),
        pytest.param({}, "shop", {"port": 80}, [], "True/Accepted", id="the port of a listener"),
        pytest.param({}, "shop", {"port": 81}, [], "False/NoMatchingParent", id="the port of no listener"),
        pytest.param({"hostname": "a.test"}, "shop", {}, ["a.test"], "True/Accepted", id="the host of the listener"),
        pytest.param({"hostname": "a.test"}, "shop", {}, ["b.test"], "False/NoMatchingListenerHostname", id="another host"),
    ],
)
def test_a_listener_accepts_or_refuses_a_route(
    entry: dict[str, Any], namespace: str, parent: dict[str, Any], hosts: list[str], expected: str
) -> None:
    route = http_route(hosts=hosts, namespace=namespace, parents=[{"name": "front", "namespace": "shop", **parent}])
    result = build(gateway("front", listener(**entry)), TEAM, route)
    assert route_conditions(result, "web")["Accepted"] == expected
    assert attached(result) == {"web": int(expected == "True/Accepted")}


def test_parents_that_are_no_gateway_of_this_controller_have_no_report() -> None:
    foreign = gateway("foreign", gatewayClassName="other")
    route = http_route(
        parents=[{"name": "none"}, {"name": "foreign"}, {"name": "front", "kind": "Service", "group": ""}, {"name": "front"}]
    )
    result = build(gateway(), foreign, route)
    assert route_conditions(result, "web", parent=3)["Accepted"] == "True/Accepted"
    assert [entry.index for report in result.reports if report.object is route for entry in getattr(report, "parents", ())] == [3]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([listener("a"), listener("b", port=81)], {"a": "False", "b": "False"}, id="other ports"),
        pytest.param([listener("a", hostname="a.test"), listener("b", hostname="b.test")], {"a": "False", "b": "False"}, id="other hosts"),
        pytest.param([listener("a"), listener("b")], {"a": "True/HostnameConflict", "b": "True/HostnameConflict"}, id="equal listeners"),
        pytest.param(
            [listener("a", hostname="a.test"), listener("b", hostname="b.test", protocol="HTTPS", certificates=["tls"])],
            {"a": "True/ProtocolConflict", "b": "True/ProtocolConflict"},
            id="a port with two protocols",
        ),
    ],
)
def test_conflicts_within_a_gateway(entries: list[dict[str, Any]], expected: dict[str, str]) -> None:
    result = build(gateway("front", *entries), tls_secret("tls", "b.test"))
    for name, status in expected.items():
        assert listener_conditions(result, name=name)["Conflicted"].startswith(status)


def test_gateways_that_share_addresses_conflict_and_the_oldest_wins() -> None:
    old, young = gateway("old", listener(hostname="a.test"), age=1), gateway("young", listener(hostname="a.test"), age=2)
    other = gateway("other", listener(hostname="b.test"), age=3)
    tls = gateway("tls", listener(hostname="c.test", protocol="HTTPS", certificates=["tls"]), age=4)
    result = build(young, old, other, tls, tls_secret("tls", "c.test"))
    conflicts = {name: listener_conditions(result, gateway=name)["Conflicted"] for name in ("old", "young", "other", "tls")}
    assert conflicts == {
        "old": "False/NoConflicts",
        "young": "True/HostnameConflict",
        "other": "False/NoConflicts",
        "tls": "True/ProtocolConflict",
    }
    assert gateway_conditions(result, "young") == {
        "Accepted": "False/ListenersNotValid",
        "Programmed": "False/Invalid",
        "ResolvedRefs": "True/ResolvedRefs",
    }


def test_gateways_with_addresses_from_a_pool_do_not_conflict() -> None:
    result = build(gateway("old", age=1), gateway("young", age=2), options=POOL)
    addresses = {name: gateway_of(result, name).addresses[0][1] for name in ("old", "young")}
    assert len(set(addresses.values())) == 2
    assert set(result.servers) == {((Listener(address, 80),), CATCH_ALL) for address in addresses.values()}


def test_a_gateway_keeps_the_address_of_its_status() -> None:
    first, second = gateway("first", age=1), gateway("second", age=2)
    document = second.to_dict() | {"status": {"addresses": [{"type": "IPAddress", "value": "127.1.7.7"}]}}
    pool = AddressPool("127.1.0.0/16")
    assigned = pool.assign([first, type(second).from_dict(document)])
    assert assigned["shop", "second"] == "127.1.7.7"
    assert pool.assign([first]) == {("shop", "first"): assigned["shop", "first"]}


def test_a_small_pool_runs_out_of_addresses() -> None:
    pool = AddressPool("127.1.0.0/30")
    assigned = pool.assign([gateway(f"front-{index}", age=index) for index in range(3)])
    assert sorted(assigned.values()) == ["127.1.0.1", "127.1.0.2"]
    assert ("shop", "front-2") not in assigned
    with pytest.raises(ValueError, match="fewer than four"):
        AddressPool("127.1.0.0/31")


@pytest.mark.parametrize(
    ("address", "accepted", "programmed"),
    [
        pytest.param({"value": "127.1.4.4"}, "True/Accepted", "True/Programmed", id="an address of the pool"),
        pytest.param({"type": "IPAddress"}, "True/Accepted", "True/Programmed", id="any address"),
        pytest.param({"value": "127.9.4.4"}, "True/Accepted", "False/AddressNotUsable", id="an address of another network"),
        pytest.param({"type": "example.com/rack", "value": "7"}, "False/UnsupportedAddress", "False/Invalid", id="another type of address"),
    ],
)
def test_requested_addresses(address: dict[str, str], accepted: str, programmed: str) -> None:
    result = build(gateway(addresses=[address]), options=POOL)
    assert gateway_conditions(result)["Accepted"] == accepted
    assert gateway_conditions(result)["Programmed"] == programmed
    if address.get("value") == "127.1.4.4":
        assert gateway_of(result).addresses == (("IPAddress", "127.1.4.4"),)


def test_a_gateway_that_is_not_accepted_is_not_served() -> None:
    infrastructure = {"parametersRef": {"group": "example.com", "kind": "Settings", "name": "fast"}}
    result = build(gateway(infrastructure=infrastructure, age=1), gateway("other", age=2))
    assert gateway_conditions(result)["Accepted"] == "False/InvalidParameters"
    assert listener_conditions(result)["Programmed"] == "False/Pending"
    assert gateway_conditions(result, "other")["Programmed"] == "True/Programmed"


def _https(*certificates: Any) -> dict[str, Any]:
    return listener(hostname="a.test", port=443, protocol="HTTPS", certificates=list(certificates))


ELSEWHERE = moved(tls_secret("tls", "a.test"), "certs")
BROKEN = Secret(metadata=ObjectMeta(name="broken", namespace="shop"), data={"tls.crt": b"?", "tls.key": b"?"})


@pytest.mark.parametrize(
    ("entry", "objects", "resolved", "programmed"),
    [
        pytest.param(_https("tls"), [tls_secret("tls", "a.test")], "True/ResolvedRefs", "True", id="a Secret of the namespace"),
        pytest.param(_https("none"), [], "False/InvalidCertificateRef", "False", id="no such Secret"),
        pytest.param(_https("broken"), [BROKEN], "False/InvalidCertificateRef", "False", id="a Secret without certificate"),
        pytest.param(_https(), [], "False/InvalidCertificateRef", "False", id="no reference"),
        pytest.param(_https({"name": "tls", "kind": "ConfigMap"}), [], "False/InvalidCertificateRef", "False", id="another kind"),
        pytest.param(
            _https({"name": "tls", "namespace": "certs"}), [ELSEWHERE], "False/RefNotPermitted", "False", id="another namespace, no grant"
        ),
        pytest.param(
            _https({"name": "tls", "namespace": "certs"}),
            [ELSEWHERE, grant("certs", "Gateway", "shop", "Secret")],
            "True/ResolvedRefs",
            "True",
            id="another namespace with a grant",
        ),
        pytest.param(
            _https({"name": "tls", "namespace": "certs"}),
            [ELSEWHERE, grant("certs", "Gateway", "shop", "Secret", "other")],
            "False/RefNotPermitted",
            "False",
            id="a grant for another Secret",
        ),
        pytest.param(
            _https({"name": "tls", "namespace": "certs"}),
            [ELSEWHERE, grant("certs", "HTTPRoute", "shop", "Secret")],
            "False/RefNotPermitted",
            "False",
            id="a grant for another kind",
        ),
        pytest.param(
            listener(allowedRoutes={"kinds": [{"kind": "HTTPRoute"}, {"kind": "TCPRoute"}]}),
            [],
            "False/InvalidRouteKinds",
            "True",
            id="an unknown kind of routes",
        ),
    ],
)
def test_references_of_listeners(entry: dict[str, Any], objects: list[Resource], resolved: str, programmed: str) -> None:
    result = build(gateway("front", entry), *objects)
    conditions = listener_conditions(result)
    assert conditions["Accepted"] == "True/Accepted"
    assert conditions["ResolvedRefs"] == resolved
    assert conditions["Programmed"].startswith(programmed)
    assert (gateway_conditions(result)["ResolvedRefs"] == "True/ResolvedRefs") == (resolved == "True/ResolvedRefs")
    if programmed == "True" and entry["protocol"] == "HTTPS":
        assert server_at(result, "a.test", 443, tls=True).certificate in result.certificates


def test_supported_kinds_are_the_kinds_that_the_listener_names_and_nginx_serves() -> None:
    mixed = listener(allowedRoutes={"kinds": [{"kind": "HTTPRoute"}, {"kind": "TCPRoute"}]})
    result = build(gateway("front", mixed, listener("tcp", 82, protocol="TCP"), listener("all", 83)))
    kinds = {entry.name: [kind for _, kind in entry.kinds] for entry in gateway_of(result).listeners}
    assert kinds == {"web": ["HTTPRoute"], "tcp": [], "all": ["HTTPRoute", "GRPCRoute"]}
    assert listener_conditions(result, name="tcp")["Accepted"] == "False/UnsupportedProtocol"
    assert gateway_conditions(result)["Accepted"] == "True/ListenersNotValid"
    assert gateway_conditions(result)["Programmed"] == "True/Programmed"


def test_client_certificates_are_not_ignored() -> None:
    frontend = {"default": {"validation": {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}}}
    result = build(gateway("front", _https("tls"), tls={"frontend": frontend}), tls_secret("tls", "a.test"))
    assert listener_conditions(result)["Accepted"] == "False/UnsupportedValue"
    assert not result.servers


def test_overlapping_hosts_of_https_listeners_are_noted() -> None:
    wide = listener("wide", 443, "*.test", "HTTPS", certificates=["tls"])
    narrow = listener("narrow", 443, "a.test", "HTTPS", certificates=["tls"])
    result = build(gateway("front", wide, narrow), tls_secret("tls", "*.test"))
    assert listener_conditions(result, name="wide")["OverlappingTLSConfig"] == "True/OverlappingHostnames"
    assert listener_conditions(result, name="narrow")["OverlappingTLSConfig"] == "True/OverlappingHostnames"


def test_attached_routes_of_all_kinds_are_counted_also_at_unresolved_listeners() -> None:
    result = build(gateway("front", _https("none"), listener("plain")), http_route(), grpc_route(parents=[{"name": "front"}]))
    assert attached(result) == {"web": 2, "plain": 2}
