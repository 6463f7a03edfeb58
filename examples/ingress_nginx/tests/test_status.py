"""The status of Ingresses: tables of addresses, and the controller on a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from examples.ingress_nginx.ingress.classes import CONTROLLER
from examples.ingress_nginx.options import ControllerOptions
from examples.ingress_nginx.status import (
    PARALLEL_WRITES,
    POLL_SECONDS,
    IngressStatusWriter,
    ReplicaPods,
    address_of_node,
    addresses_of_service,
    published,
)
from examples.ingress_nginx.tests.objects import ingress, ingress_class
from kubeloop import Client
from kubeloop.api.core.v1 import Namespace, Node, Pod, Service
from kubeloop.api.networking.v1 import Ingress
from kubeloop.meta import ObjectMeta
from kubeloop.testing import HandlerServer, consistently, eventually, one
from kubeloop.testing.kube_cluster import OwnServer, own_server
from kubeloop.timing import FakeClock


def texts(entries: Any) -> list[str]:
    return [entry.ip or entry.hostname for entry in entries]


def front(kind: str, *, entries: list[dict[str, str]] | None = None, **spec: Any) -> Service:
    status = {"loadBalancer": {"ingress": entries or []}}
    ports = [{"port": 80}]
    return Service.from_dict(
        {"metadata": {"name": "front", "namespace": "shop"}, "spec": {"type": kind, "ports": ports, **spec}, "status": status}
    )


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        pytest.param(front("ExternalName", externalName="lb.example.com"), ["lb.example.com"], id="the name of an ExternalName"),
        pytest.param(front("ClusterIP", clusterIP="10.96.0.7"), ["10.96.0.7"], id="the cluster IP"),
        pytest.param(front("ClusterIP", clusterIP="None"), [], id="a headless service has no address"),
        pytest.param(
            front("NodePort", clusterIP="10.96.0.7", externalIPs=["192.0.2.2", "192.0.2.1"]),
            ["192.0.2.1", "192.0.2.2"],
            id="the external addresses of a NodePort, sorted",
        ),
        pytest.param(front("NodePort", clusterIP="10.96.0.7"), ["10.96.0.7"], id="the cluster IP of a NodePort without external addresses"),
        pytest.param(
            front("LoadBalancer", entries=[{"hostname": "lb.example.com"}, {"ip": "192.0.2.9"}], externalIPs=["192.0.2.1"]),
            ["lb.example.com", "192.0.2.1", "192.0.2.9"],
            id="the addresses of a load balancer and the external ones",
        ),
        pytest.param(front("LoadBalancer"), [], id="a load balancer without an address yet"),
    ],
)
def test_the_addresses_of_a_service(service: Service, expected: list[str]) -> None:
    assert texts(addresses_of_service(service)) == expected


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        pytest.param([("InternalIP", "10.0.0.1"), ("ExternalIP", "192.0.2.1")], "192.0.2.1", id="the external address comes first"),
        pytest.param(
            [("Hostname", "a"), ("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.2")], "10.0.0.1", id="then the first internal one"
        ),
        pytest.param([("Hostname", "a")], "", id="a name is no address"),
    ],
)
def test_the_address_of_a_node(addresses: list[tuple[str, str]], expected: str) -> None:
    status = {"addresses": [{"type": kind, "address": address} for kind, address in addresses]}
    assert address_of_node(Node.from_dict({"metadata": {"name": "n"}, "status": status})) == expected


def test_published_addresses_are_sorted_and_each_once() -> None:
    assert texts(published(["b.example.com", "192.0.2.2 ", "192.0.2.1", "", "192.0.2.2"])) == ["b.example.com", "192.0.2.1", "192.0.2.2"]


class FakePods:
    """Replicas of the controller. ``nodes``: nodes of the ready ones."""

    def __init__(self, *nodes: str, peers: int = 0) -> None:
        self.nodes = list(nodes)
        self.peers = peers

    async def ready_nodes(self) -> list[str]:
        return self.nodes

    async def others(self) -> int:
        return self.peers


class StatusStage:
    """A server with classes and Ingresses, and the status writer."""

    def __init__(self, cluster: OwnServer) -> None:
        self.cluster = cluster
        self.client: Client = cluster.client("shop")

    async def start(self, writer: IngressStatusWriter, *names: str) -> None:
        for name in names or ("web",):
            await self.client.create(ingress(name, f"{name}.test / web:80"))
        await self.cluster.start_manager(writer)

    async def shown(self, expected: list[str], name: str = "web") -> None:
        """Return when the status of an Ingress has these addresses."""
        found = one(self.client, Ingress, name)
        await eventually(found, lambda shown: texts(shown.status.load_balancer.ingress) == expected, within=2 * POLL_SECONDS)

    async def quiet(self) -> None:
        await consistently(one(self.client, Namespace, "shop"), bool, seconds=2 * POLL_SECONDS)

    @property
    def writes(self) -> list[tuple[str, str | None, str | None]]:
        return [(call.verb, call.name, call.subresource) for call in self.cluster.actions if call.kind == "Ingress"]


@pytest.fixture
async def at() -> AsyncIterator[StatusStage]:
    async with own_server(FakeClock()) as cluster:
        found = StatusStage(cluster)
        await found.client.create(Namespace(metadata=ObjectMeta(name="shop")))
        await found.client.create(ingress_class("kubeloop", CONTROLLER))
        await found.client.create(ingress_class("other", "example.com/other"))
        yield found


FIXED = ControllerOptions(status_addresses=("192.0.2.1", "lb.example.com"))


async def test_the_addresses_of_the_options_are_written_once(at: StatusStage) -> None:
    await at.start(IngressStatusWriter(FIXED, pods=FakePods(peers=1)))
    await at.shown(["lb.example.com", "192.0.2.1"])
    await at.quiet()
    assert at.writes == [("patch", "web", "status")]


async def test_an_ingress_of_another_class_is_left_alone(at: StatusStage) -> None:
    await at.client.create(ingress("other", "o.test / web:80", ingress_class_name="other"))
    await at.start(IngressStatusWriter(FIXED, pods=FakePods(peers=1)))
    await at.shown(["lb.example.com", "192.0.2.1"])
    await at.quiet()
    await at.shown([], "other")


async def test_an_ingress_that_gets_the_class_later_gets_the_addresses(at: StatusStage) -> None:
    await at.start(IngressStatusWriter(FIXED, pods=FakePods(peers=1)))
    await at.client.create(ingress("late", "l.test / web:80", ingress_class_name="new"))
    await at.client.create(ingress_class("new", CONTROLLER))
    await at.shown(["lb.example.com", "192.0.2.1"], "late")


async def test_a_status_that_another_program_changed_is_written_again(at: StatusStage) -> None:
    await at.start(IngressStatusWriter(FIXED, pods=FakePods(peers=1)))
    await at.shown(["lb.example.com", "192.0.2.1"])
    await at.client.patch(Ingress, "web", {"status": {"loadBalancer": None}}, subresource="status")
    await at.shown(["lb.example.com", "192.0.2.1"])


async def test_the_addresses_follow_the_published_service(at: StatusStage) -> None:
    await at.start(IngressStatusWriter(ControllerOptions(publish_service=("shop", "front")), pods=FakePods(peers=1)))
    await at.quiet()
    await at.shown([])
    await at.client.create(front("LoadBalancer", externalIPs=["192.0.2.7"]))
    await at.shown(["192.0.2.7"])
    status = {"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}}}
    await at.client.patch(Service, "front", status, subresource="status")
    await at.shown(["lb.example.com", "192.0.2.7"])


async def test_the_addresses_follow_the_nodes_of_the_ready_replicas(at: StatusStage) -> None:
    for name, address in (("a", "10.0.0.1"), ("b", "10.0.0.2")):
        await at.client.create(Node(metadata=ObjectMeta(name=name)))
        status = {"addresses": [{"type": "InternalIP", "address": address}]}
        await at.client.patch(Node, name, {"status": status}, subresource="status")
    pods = FakePods("a", "gone", peers=1)
    await at.start(IngressStatusWriter(pods=pods))
    await at.shown(["10.0.0.1"])
    pods.nodes = ["a", "b"]
    await at.shown(["10.0.0.1", "10.0.0.2"])


@pytest.mark.parametrize(
    ("peers", "clear", "left"),
    [
        pytest.param(0, True, [], id="the last replica removes the addresses"),
        pytest.param(1, True, ["lb.example.com", "192.0.2.1"], id="the addresses stay while another replica runs"),
        pytest.param(0, False, ["lb.example.com", "192.0.2.1"], id="the addresses stay without --update-status-on-shutdown"),
    ],
)
async def test_the_end_of_a_replica(at: StatusStage, peers: int, clear: bool, left: list[str]) -> None:
    names = [f"web-{number}" for number in range(2 * PARALLEL_WRITES)]
    await at.start(IngressStatusWriter(FIXED, clear_on_shutdown=clear, pods=FakePods(peers=peers)), *names)
    await at.shown(["lb.example.com", "192.0.2.1"], names[-1])
    await at.quiet()
    await at.cluster.stop_managers()
    for name in names:
        await at.shown(left, name)


async def test_replicas_are_the_running_pods_with_the_labels_of_this_one() -> None:
    async with HandlerServer() as server:
        client = server.client("shop")
        await client.create(Namespace(metadata=ObjectMeta(name="shop")))
        for name, app, phase, ready in (
            ("self", "ingress", "Running", "True"),
            ("peer", "ingress", "Running", "False"),
            ("done", "ingress", "Succeeded", "False"),
            ("else", "web", "Running", "True"),
        ):
            labels = {"app": app, "pod-template-hash": name}
            spec = {"nodeName": f"node-of-{name}", "containers": [{"name": "c", "image": "i"}]}
            pod = await client.create(Pod.from_dict({"metadata": {"name": name, "labels": labels}, "spec": spec}))
            status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
            await client.patch(Pod, pod.metadata.name, {"status": status}, subresource="status")
        pods = ReplicaPods(client, "shop", "self")
        assert (await pods.ready_nodes(), await pods.others()) == (["node-of-self"], 1)
        outside = ReplicaPods(client, "", "")
        assert (await outside.ready_nodes(), await outside.others()) == ([], 0)
