"""Smaller parts of a node: the service proxy, addresses, use of resources, permissions of the endpoint, status, the folder's lock."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from kubeloop.cli.kubelet import ProcessPods
from kubeloop.kubelet import addresses
from kubeloop.kubelet.access import required_permission
from kubeloop.kubelet.addresses import AddressPool, claim_pod_range, claim_service_range
from kubeloop.kubelet.container_spec import hosts_file, process_command, process_user
from kubeloop.kubelet.environment import ConfigurationError
from kubeloop.kubelet.images import ImageEntry
from kubeloop.kubelet.node import MachineFacts, node_status
from kubeloop.kubelet.service_proxy import (
    PodHostPort,
    ServicePort,
    all_backends,
    backends,
    endpoint_places,
    host_ports,
    listening_places,
    service_hosts,
)
from kubeloop.kubelet.usage import ContainerUsage, ProcessTable, ProcessUsage, resource_metrics, stats_summary
from kubeloop.meta import ConfigError
from tests.kubelet.conftest import free_range

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def service(**spec: Any) -> dict[str, Any]:
    ports = [{"name": "web", "port": 80, "targetPort": "http"}]
    return {"metadata": {"namespace": "shop", "name": "web"}, "spec": {"selector": {"app": "web"}, "ports": ports, **spec}}


def pod(*, ready: str = "True", app: str = "web", namespace: str = "shop", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": namespace, "labels": {"app": app}, **metadata},
        "spec": {"containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        pytest.param(pod(), [("127.64.0.1", 8080)], id="a ready pod"),
        pytest.param(pod(ready="False"), [], id="a pod that is not ready"),
        pytest.param(pod(deletionTimestamp="2026-01-01T00:00:00Z"), [], id="a pod that is being deleted"),
        pytest.param(pod(app="db"), [], id="a pod with other labels"),
        pytest.param(pod(namespace="other"), [], id="a pod of another namespace"),
    ],
)
def test_a_service_leads_to(tree: dict[str, Any], expected: list[tuple[str, int]]) -> None:
    assert backends(service(), "web", [(tree, "127.64.0.1")]) == expected


def test_the_proxy_listens_on_loopback_cluster_ips_and_node_ports() -> None:
    key = ServicePort("shop", "web", "")
    services = [
        service(clusterIP="127.96.0.9", ports=[{"port": 80, "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]),
        service(clusterIP="10.0.0.9"),
        service(clusterIP="None"),
    ]
    assert listening_places(services, "127.0.0.1") == {("127.96.0.9", 80): key, ("127.0.0.1", 30080): key}


@pytest.mark.parametrize(
    ("port", "more", "expected"),
    [
        pytest.param({"hostPort": 80}, {}, ("127.0.0.1", 80, "TCP"), id="the address of the node"),
        pytest.param({"hostPort": 80, "hostIP": "0.0.0.0"}, {}, ("127.0.0.1", 80, "TCP"), id="the address of the node for all addresses"),
        pytest.param({"hostPort": 80, "hostIP": "127.5.0.1"}, {}, ("127.5.0.1", 80, "TCP"), id="the address of the port"),
        pytest.param({"hostPort": 53, "protocol": "UDP"}, {}, ("127.0.0.1", 53, "UDP"), id="a port of another protocol"),
        pytest.param({}, {}, None, id="no host port"),
        pytest.param({"hostPort": 80}, {"hostNetwork": True}, None, id="none with hostNetwork"),
        pytest.param({"hostPort": 80}, {"phase": "Failed"}, None, id="none of a pod that has ended"),
    ],
)
def test_a_pod_is_reached_from_its_node_at(port: dict[str, Any], more: dict[str, Any], expected: tuple[str, int, str] | None) -> None:
    tree = pod(name="web", uid="u")
    tree["spec"] = {"containers": [{"name": "c", "ports": [{"containerPort": 8080, **port}]}], "hostNetwork": more.get("hostNetwork")}
    tree["status"] |= more
    found = host_ports([(tree, "127.64.0.1")], "127.0.0.1")
    assert found == ([PodHostPort("u", "shop/web", expected[:2], ("127.64.0.1", 8080), expected[2])] if expected else [])


def test_services_and_pods_with_a_subdomain_have_names_in_the_hosts_file() -> None:
    member = pod(app="db")
    member["spec"] |= {"hostname": "db-0", "subdomain": "db"}
    headless = service(clusterIP="None", selector={"app": "db"})
    headless["metadata"] = {"namespace": "shop", "name": "db"}
    services = [headless, service(clusterIP="127.96.0.9")]
    assert service_hosts(services, [(member, "127.64.0.5")], "shop") == [
        "127.64.0.5\tdb.shop.svc.cluster.local\tdb.shop.svc\tdb.shop\tdb",
        "127.64.0.5\tdb-0.db.shop.svc.cluster.local\tdb-0.db.shop.svc\tdb-0.db.shop\tdb-0.db",
        "127.96.0.9\tweb.shop.svc.cluster.local\tweb.shop.svc\tweb.shop\tweb",
    ]
    assert service_hosts([service(clusterIP="127.96.0.9")], [], "other")[0].endswith("\tweb.shop")


def test_slices_name_ready_endpoints_of_a_port() -> None:
    endpoints = [
        {"addresses": ["127.70.0.1"], "conditions": {"ready": True}},
        {"addresses": ["127.70.0.2"], "conditions": {"ready": False}},
    ]
    slices = [{"ports": [{"name": "web", "port": 8080}], "endpoints": endpoints}]
    assert endpoint_places(slices, "web") == [("127.70.0.1", 8080)]
    assert endpoint_places(slices, "metrics") == []


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param(
            {"app": "web"}, [("127.70.0.1", 8080)], id="the pods of other nodes, as pods of this node are selected by their state"
        ),
        pytest.param(None, [("127.64.0.1", 8080), ("127.70.0.1", 8080)], id="the pods of this node too if the service has no selector"),
    ],
)
def test_slices_lead_to(selector: dict[str, str] | None, expected: list[tuple[str, int]]) -> None:
    slices = [{"ports": [{"name": "web", "port": 8080}], "endpoints": [{"addresses": ["127.64.0.1"]}, {"addresses": ["127.70.0.1"]}]}]
    unready = pod(ready="False")
    assert all_backends(service(selector=selector), "web", [(unready, "127.64.0.1")], slices) == expected


def test_addresses_return_to_their_pods_and_are_reused_last() -> None:
    pool = AddressPool(IPv4Network("127.70.0.0/29"))
    assert pool.allocate("a", "127.70.0.5") == "127.70.0.5"
    assert [pool.allocate(uid) for uid in ("b", "c", "b")] == ["127.70.0.1", "127.70.0.2", "127.70.0.1"]
    pool.release("b")
    assert [pool.allocate(uid) for uid in ("d", "e", "f", "g")] == ["127.70.0.3", "127.70.0.4", "127.70.0.6", "127.70.0.1"]
    with pytest.raises(ConfigError, match="all 6 addresses are in use"):
        pool.allocate("h")


@pytest.mark.parametrize("text", ["10.0.0.0/16", "127.0.0.0/30", "x", "::1/64"])
def test_a_range_of_pods_that_is_not_of_the_loopback_interface_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"write (one|a range) as 127\.64\.0\.0/16"):
        claim_pod_range(text, "n")


def test_kubelets_of_one_machine_have_different_ranges_also_if_their_nodes_have_one_name() -> None:
    with claim_pod_range("", "kubeloop-node") as first, claim_pod_range("", "kubeloop-node") as second:
        assert not first.network.overlaps(second.network)
        half = next(second.network.subnets())
        for taken in (second.network, half, second.network.supernet()):
            with pytest.raises(ConfigError, match=rf"^--pod-cidr {taken}: a kubelet or server of this machine uses .*; name another range"):
                claim_pod_range(str(taken), "other")
    with claim_pod_range(str(half), "other") as third:
        assert third.network == half


def test_servers_of_one_machine_have_different_cluster_ips(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        first, second = (claim_service_range("") for _ in range(2))
        assert first is not None
        assert second is not None
        stack.enter_context(first)
        stack.enter_context(second)
        assert not first.network.overlaps(second.network)
        with pytest.raises(
            ConfigError, match=r"^--service-cluster-ip-range 127\..*; end that one, or name another range of 127\.96\.0\.0/11"
        ):
            claim_service_range(str(first.network))
        assert claim_service_range("10.0.0.0/24") is None
        monkeypatch.setattr(addresses, "_SERVICE_RANGES", [first.network, second.network])
        with pytest.raises(ConfigError, match=r"^all ranges of 127\.96\.0\.0/11 are in use; name another one"):
            claim_service_range("")


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/containerLogs/shop/web/main", ("get", ["proxy"])),
        ("POST", "/exec/shop/web/main", ("create", ["proxy"])),
        ("GET", "/stats/summary", ("get", ["stats"])),
        ("GET", "/metrics/resource", ("get", ["metrics"])),
        ("GET", "/pods", ("get", ["pods", "proxy"])),
    ],
)
def test_a_request_to_the_endpoint_needs_the_permission_of_kubelet(method: str, path: str, expected: tuple[str, list[str]]) -> None:
    assert required_permission(method, path) == expected


FACTS = MachineFacts(4, 8 << 30, 1 << 40, "6.1", "Debian", "m", "b", "amd64", "127.0.0.1")


def test_the_status_of_a_node_changes_its_transition_times_only_with_its_state() -> None:
    first = node_status({}, FACTS, "127.0.0.1", 10250, NOW)
    second = node_status(first, FACTS, "127.0.0.1", 10250, datetime(2026, 1, 2, tzinfo=UTC))
    ready = [one for one in second["conditions"] if one["type"] == "Ready"]
    assert (ready[0]["lastTransitionTime"], ready[0]["lastHeartbeatTime"]) == ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    assert second["capacity"] == {"cpu": "4", "memory": "8388608Ki", "ephemeral-storage": "1073741824Ki", "pods": "110"}
    assert second["nodeInfo"]["containerRuntimeVersion"].startswith("process://")


def test_the_use_of_containers_is_summed_over_their_processes() -> None:
    table = ProcessTable({10: (1, ProcessUsage(1.0, 100)), 11: (10, ProcessUsage(0.5, 50)), 12: (1, ProcessUsage(9.0, 900))})
    used = ContainerUsage("shop", "web", "u", "main", NOW, table.tree(10))
    summary = stats_summary("n", ProcessUsage(20.0, 2000), [used], {"u/main": 0.25}, NOW)
    assert summary["pods"][0]["containers"][0]["cpu"]["usageNanoCores"] == 250_000_000
    assert summary["pods"][0]["memory"]["workingSetBytes"] == 150
    lines = resource_metrics(ProcessUsage(20.0, 2000), [used], NOW).splitlines()
    assert 'container_cpu_usage_seconds_total{container="main",namespace="shop",pod="web"} 1.5 1767225600000' in lines
    assert 'pod_memory_working_set_bytes{namespace="shop",pod="web"} 150 1767225600000' in lines


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param({}, ["serve", "8080"], id="the image's"),
        pytest.param({"args": ["9090"]}, ["serve", "9090"], id="the image's with other arguments"),
        pytest.param({"command": ["other"]}, ["other"], id="a command without the image's arguments"),
        pytest.param({"command": ["echo"], "args": ["$(COLOR)", "$$(COLOR)"]}, ["echo", "red", "$(COLOR)"], id="variables are replaced"),
    ],
)
def test_the_command_of_a_container(container: dict[str, Any], expected: list[str]) -> None:
    entry = ImageEntry(("serve",), ("8080",))
    assert process_command({"name": "c", **container}, entry, {"COLOR": "red"}) == expected


@pytest.mark.parametrize(
    ("context", "kubelet_uid", "expected"),
    [
        pytest.param({}, 0, (None, None, None), id="the kubelet's user"),
        pytest.param({"runAsUser": 5}, 0, (5, 0, ()), id="another user"),
        pytest.param({"runAsUser": 5, "runAsGroup": 6}, 0, (5, 6, ()), id="another group"),
        pytest.param({"runAsUser": 7}, 7, (None, None, None), id="the user that the kubelet has anyway"),
        pytest.param({"runAsNonRoot": True}, 0, "image will run as root", id="root although not wanted"),
        pytest.param({"runAsUser": 5}, 7, "cannot become another one", id="another user without root"),
    ],
)
def test_the_user_of_a_container(context: dict[str, Any], kubelet_uid: int, expected: Any) -> None:
    tree = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {}}
    container = {"name": "c", "securityContext": context}
    if isinstance(expected, str):
        with pytest.raises(ConfigurationError, match=expected):
            process_user(tree, container, ImageEntry(), kubelet_uid)
        return
    user = process_user(tree, container, ImageEntry(), kubelet_uid)
    assert (user.uid, user.gid, user.groups) == expected


def test_the_hosts_file_names_the_pod_and_its_aliases() -> None:
    spec = {"hostname": "web-0", "subdomain": "web", "hostAliases": [{"ip": "10.1.1.1", "hostnames": ["db", "db.local"]}]}
    text = hosts_file({"metadata": {"name": "x", "namespace": "shop"}, "spec": spec}, "127.64.0.1")
    assert "127.64.0.1\tweb-0.web.shop.svc.cluster.local\tweb-0\n" in text
    assert "10.1.1.1\tdb\tdb.local\n" in text


def test_the_hosts_file_of_a_pod_with_host_network_begins_with_that_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = tmp_path / "hosts"
    monkeypatch.setattr("kubeloop.kubelet.container_spec._MACHINE_HOSTS", machine)
    tree = {"metadata": {"name": "x", "namespace": "shop"}, "spec": {"hostNetwork": True}}
    assert hosts_file(tree, "127.0.0.1", ["127.96.0.1\tweb"]) == "# Kubernetes-managed hosts file (host network).\n"
    machine.write_text("127.0.0.1\tlocalhost\n127.0.1.1\tmachine\n")
    tree["spec"] = {"hostNetwork": True, "hostAliases": [{"ip": "10.1.1.1", "hostnames": ["db"]}]}
    lines = hosts_file(tree, "127.0.0.1").splitlines()
    assert lines[1:] == ["127.0.0.1\tlocalhost", "127.0.1.1\tmachine", "", "# Entries added by HostAliases.", "10.1.1.1\tdb"]


def test_a_server_with_stored_objects_has_its_cluster_ips_again(tmp_path: Path) -> None:
    network = free_range(0)
    own = ProcessPods(None, tmp_path / "kubelet")
    assert own.claim_service_range(network) == network
    with pytest.raises(ConfigError, match=r"a kubelet or server of this machine uses"):
        ProcessPods(None, tmp_path / "kubelet").claim_service_range("")
    own.clean_up()
    again = ProcessPods(None, tmp_path / "kubelet")
    assert again.claim_service_range("") == network
    again.clean_up()
    other = ProcessPods(None, tmp_path / "kubelet")
    assert other.claim_service_range("10.0.0.0/24") == "10.0.0.0/24"
    other.clean_up()
    assert (tmp_path / "kubelet" / "cluster-ips").read_text() == "10.0.0.0/24\n"
