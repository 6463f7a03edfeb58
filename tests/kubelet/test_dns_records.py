"""DNS records of services and pods, and resolver configurations of pods: tables after Kubernetes' specification and kubelet's rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kubeloop.kubelet.dns_records import ClusterRecords, Lookup, ServiceEndpoint
from kubeloop.kubelet.resolver_config import ResolverConfig, parse_resolver_config, pod_resolver_config

ZONE = "svc.cluster.local"
PORTS = [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]
SERVICES: dict[tuple[str, str], dict[str, Any]] = {
    ("shop", "web"): {"clusterIP": "127.96.0.7", "clusterIPs": ["127.96.0.7", "fd00::7"], "ports": PORTS},
    ("shop", "db"): {"clusterIP": "None", "ports": [{"name": "sql", "port": 5432}]},
    ("shop", "none"): {"clusterIP": "None", "ports": [{"name": "sql", "port": 5432}]},
    ("shop", "bare"): {"clusterIP": "None"},
    ("shop", "far"): {"type": "ExternalName", "externalName": "example.org"},
    ("shop", "wrong"): {"type": "ExternalName", "externalName": "10.0.0.1"},
    ("shop", "pending"): {"type": "ClusterIP", "ports": PORTS},
}
SQL = (("sql", "TCP", 5432),)
ENDPOINTS = {
    ("shop", "db"): [
        ServiceEndpoint("127.64.0.1", "db-0", SQL),
        ServiceEndpoint("127.64.0.2", "db-1", SQL),
        ServiceEndpoint("127.64.0.3", "", SQL),
    ],
    ("shop", "bare"): [ServiceEndpoint("127.64.0.9", "", (("", "TCP", -1),))],
    ("shop", "web"): [ServiceEndpoint("127.64.0.5", "", (("http", "TCP", 8080),))],
}


class View:
    def service(self, namespace: str, name: str) -> dict[str, Any] | None:
        spec = SERVICES.get((namespace, name))
        return None if spec is None else {"metadata": {"namespace": namespace, "name": name}, "spec": spec}

    def endpoints(self, namespace: str, name: str) -> Iterable[ServiceEndpoint]:
        return ENDPOINTS.get((namespace, name), [])

    def by_address(self, address: str) -> Iterable[tuple[str, str, ServiceEndpoint | None]]:
        for (namespace, name), spec in SERVICES.items():
            if address in spec.get("clusterIPs", ()):
                yield namespace, name, None
        for (namespace, name), endpoints in ENDPOINTS.items():
            yield from ((namespace, name, endpoint) for endpoint in endpoints if endpoint.address == address)


def find(name: str, kind: str = "A") -> Lookup | None:
    return ClusterRecords(View(), "127.64.255.254").find(name, kind)


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        pytest.param(f"web.shop.{ZONE}", "A", ["127.96.0.7"], id="a service has its cluster IP"),
        pytest.param(f"web.shop.{ZONE}", "AAAA", ["fd00::7"], id="and its IPv6 address as AAAA"),
        pytest.param(f"web.shop.{ZONE}", "TXT", [], id="a name that exists has no records of other types"),
        pytest.param(f"db.shop.{ZONE}", "A", ["127.64.0.1", "127.64.0.2", "127.64.0.3"], id="a headless service has its ready endpoints"),
        pytest.param(f"bare.shop.{ZONE}", "A", ["127.64.0.9"], id="also without ports"),
        pytest.param(f"bare.shop.{ZONE}", "SRV", [], id="which has no SRV records then"),
        pytest.param(f"db-1.db.shop.{ZONE}", "A", ["127.64.0.2"], id="an endpoint has its host name"),
        pytest.param(f"127-64-0-3.db.shop.{ZONE}", "A", ["127.64.0.3"], id="or its address with dashes"),
        pytest.param(f"127-64-0-5.web.shop.{ZONE}", "A", ["127.64.0.5"], id="also below a service with a cluster IP"),
        pytest.param(
            f"_http._tcp.web.shop.{ZONE}", "SRV", [f"0 100 80 web.shop.{ZONE}."], id="a named port of a service leads to its name"
        ),
        pytest.param(f"_dns._udp.web.shop.{ZONE}", "SRV", [f"0 100 53 web.shop.{ZONE}."], id="by its protocol"),
        pytest.param(
            f"_sql._tcp.db.shop.{ZONE}",
            "SRV",
            [f"0 33 5432 {label}.db.shop.{ZONE}." for label in ("db-0", "db-1", "127-64-0-3")],
            id="a named port of a headless service leads to each endpoint",
        ),
        pytest.param(f"far.shop.{ZONE}", "A", ["example.org."], id="an ExternalName is an alias"),
        pytest.param("10-1-2-3.shop.pod.cluster.local", "A", ["10.1.2.3"], id="a pod has its address with dashes"),
        pytest.param("fd00--1.shop.pod.cluster.local", "AAAA", ["fd00::1"], id="also of IPv6"),
        pytest.param("7.0.96.127.in-addr.arpa", "PTR", [f"web.shop.{ZONE}."], id="a cluster IP has the name of its service"),
        pytest.param("1.0.64.127.in-addr.arpa", "PTR", [f"db-0.db.shop.{ZONE}."], id="an endpoint's address has its name"),
        pytest.param(".".join(reversed("fd00" + "0" * 27 + "7")) + ".ip6.arpa", "PTR", [f"web.shop.{ZONE}."], id="also an IPv6 address"),
        pytest.param("dns-version.cluster.local", "TXT", ['"1.1.0"'], id="the version of the specification is a TXT record"),
        pytest.param("cluster.local", "NS", ["ns.dns.cluster.local."], id="the zone has a name server"),
        pytest.param("ns.dns.cluster.local", "A", ["127.64.255.254"], id="which has an address"),
        pytest.param(ZONE, "A", [], id="the zone of services exists"),
        pytest.param(f"shop.{ZONE}", "A", [], id="the names of namespaces exist"),
    ],
)
def test_a_name_has_records(name: str, kind: str, expected: list[str]) -> None:
    lookup = find(name, kind)
    assert lookup is not None
    assert lookup.exists
    assert [record.data for record in lookup.records] == expected


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(f"none.shop.{ZONE}", id="a headless service without ready endpoints"),
        pytest.param(f"unknown.shop.{ZONE}", id="a service that does not exist"),
        pytest.param(f"web.other.{ZONE}", id="a service of another namespace"),
        pytest.param(f"pending.shop.{ZONE}", id="a service without a cluster IP"),
        pytest.param(f"wrong.shop.{ZONE}", id="an ExternalName that is an address"),
        pytest.param(f"x.far.shop.{ZONE}", id="a name below an ExternalName"),
        pytest.param(f"db-9.db.shop.{ZONE}", id="an endpoint that does not exist"),
        pytest.param(f"_none._tcp.web.shop.{ZONE}", id="a port that does not exist"),
        pytest.param(f"_http._udp.web.shop.{ZONE}", id="a port of another protocol"),
        pytest.param(f"a.b.c.web.shop.{ZONE}", id="a name that is too long"),
        pytest.param("web.shop.svc2.cluster.local", id="another zone below the cluster's domain"),
        pytest.param("no-address.shop.pod.cluster.local", id="a pod without an address"),
        pytest.param("9.9.9.127.in-addr.arpa", id="a loopback address that nothing has"),
    ],
)
def test_a_name_does_not_exist(name: str) -> None:
    lookup = find(name)
    assert lookup is not None
    assert (lookup.exists, lookup.records) == (False, [])


@pytest.mark.parametrize("name", ["example.org", "local", "8.8.8.8.in-addr.arpa", "x.in-addr.arpa", "cluster.local.example.org", ""])
def test_other_names_belong_to_other_servers(name: str) -> None:
    assert find(name) is None


def test_srv_records_come_with_the_addresses_of_their_names() -> None:
    lookup = find(f"_sql._tcp.db.shop.{ZONE}", "SRV")
    assert lookup is not None
    assert [record.data for record in lookup.additional] == ["127.64.0.1", "127.64.0.2", "127.64.0.3"]
    assert lookup.additional[0].name == f"db-0.db.shop.{ZONE}"


MACHINE = parse_resolver_config(
    "# comment\nnameserver 10.0.0.2\nnameserver\nsearch example.org. .\noptions timeout:1\noptions timeout:2 rotate\n"
)
CLUSTER = ("shop.svc.cluster.local", "svc.cluster.local", "cluster.local")


def test_the_file_of_this_machine_is_read() -> None:
    assert ResolverConfig(("10.0.0.2",), ("example.org",), ("timeout:2", "rotate")) == MACHINE
    assert MACHINE.text == "search example.org\nnameserver 10.0.0.2\noptions timeout:2 rotate\n"
    assert ResolverConfig(("::1", "10.0.0.1", "name")).resolvers() == [("::1", 53), ("10.0.0.1", 53)]


@pytest.mark.parametrize(
    ("spec", "server", "expected"),
    [
        pytest.param({}, "127.64.9.9", ResolverConfig(("127.64.9.9",), (*CLUSTER, "example.org"), ("ndots:5",)), id="ClusterFirst"),
        pytest.param({}, "", MACHINE, id="ClusterFirst without cluster DNS is Default"),
        pytest.param(
            {"dnsPolicy": "ClusterFirst", "hostNetwork": True}, "127.64.9.9", MACHINE, id="ClusterFirst of the host network is Default"
        ),
        pytest.param(
            {"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": True},
            "127.64.9.9",
            ResolverConfig(("127.64.9.9",), (*CLUSTER, "example.org"), ("ndots:5",)),
            id="ClusterFirstWithHostNet",
        ),
        pytest.param({"dnsPolicy": "Default"}, "127.64.9.9", MACHINE, id="Default"),
        pytest.param(
            {
                "dnsPolicy": "None",
                "dnsConfig": {
                    "nameservers": ["9.9.9.9"],
                    "searches": ["a"],
                    "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
                },
            },
            "127.64.9.9",
            ResolverConfig(("9.9.9.9",), ("a",), ("ndots:2", "edns0")),
            id="None has the pod's own configuration only",
        ),
        pytest.param(
            {
                "dnsPolicy": "Default",
                "dnsConfig": {"nameservers": ["10.0.0.2", "9.9.9.9"], "searches": ["a"], "options": [{"name": "timeout", "value": "9"}]},
            },
            "127.64.9.9",
            ResolverConfig(("10.0.0.2", "9.9.9.9"), ("example.org", "a"), ("timeout:9", "rotate")),
            id="the pod's own configuration is added",
        ),
    ],
)
def test_the_resolver_of_a_pod_follows_its_policy(spec: dict[str, Any], server: str, expected: ResolverConfig) -> None:
    assert pod_resolver_config({"metadata": {"namespace": "shop"}, "spec": spec}, MACHINE, server) == (expected, [])


@pytest.mark.parametrize(
    ("pod_config", "servers", "searches", "warning"),
    [
        pytest.param({"nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3"]}, 3, 1, "Nameserver limits were exceeded", id="four name servers"),
        pytest.param({"searches": [f"s{number}" for number in range(40)]}, 1, 32, "Search Line limits were exceeded", id="forty domains"),
        pytest.param({"searches": ["x" * 254]}, 1, 1, "Search Line limits were exceeded", id="a domain that is too long"),
        pytest.param(
            {"searches": [f"{number}" * 100 for number in range(10, 22)]}, 1, 11, "Search Line limits were exceeded", id="2,048 characters"
        ),
    ],
)
def test_a_resolver_beyond_the_limits_is_cut_with_a_warning(pod_config: dict[str, Any], servers: int, searches: int, warning: str) -> None:
    pod = {"metadata": {"namespace": "shop"}, "spec": {"dnsPolicy": "Default", "dnsConfig": pod_config}}
    config, [text] = pod_resolver_config(pod, MACHINE, "")
    assert (len(config.servers), len(config.searches)) == (servers, searches)
    assert text.startswith(warning)
