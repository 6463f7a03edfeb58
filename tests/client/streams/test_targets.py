"""Which pod, container and port are meant, by kubectl's rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubeloop.api.core.v1 import (
    Container,
    ContainerPort,
    EphemeralContainer,
    Pod,
    PodSpec,
    ReplicationController,
    ReplicationControllerSpec,
    Service,
    ServicePort,
    ServiceSpec,
)
from kubeloop.client.streams import StreamError
from kubeloop.client.streams.targets import TargetPod, all_containers, container_of, find_pod, pod_port
from kubeloop.meta import DeadlineError, ObjectMeta
from tests.client.streams.peer import Peer, UpgradeRequest

SERVICE = Service(metadata=ObjectMeta(name="web", namespace="shop"), spec=ServiceSpec(selector={"app": "web"}))


def _pod(name: str, **options: Any) -> dict[str, Any]:
    """Running, ready since noon, never restarted, made in the morning, by default."""
    ready = {"type": "Ready", "status": options.get("ready", "True"), "lastTransitionTime": options.get("since", "2026-01-01T12:00:00Z")}
    restarts = [{"name": "main", "restartCount": options.get("restarts", 0), "ready": True, "image": "x", "imageID": ""}]
    metadata = {"name": name, "namespace": "shop", "creationTimestamp": options.get("made", "2026-01-01T06:00:00Z")}
    if options.get("deleting"):
        metadata["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    spec = {"nodeName": options.get("node", "n1"), "containers": [{"name": "main"}]}
    status = {"phase": options.get("phase", "Running"), "conditions": [ready], "containerStatuses": restarts}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def _lists(*pods: dict[str, Any], then: dict[str, Any] | None = None) -> Callable[[UpgradeRequest], Awaitable[None]]:
    """A server with these pods, and a pod that comes later."""

    async def serve(call: UpgradeRequest) -> None:
        assert "labelSelector=app%3Dweb" in call.target
        if "watch=true" not in call.target:
            listed = {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": list(pods)}
            call.say("200 OK", json.dumps(listed).encode(), Content_Type="application/json")
            return
        if then is not None:
            event = json.dumps({"type": "ADDED", "object": then}).encode() + b"\n"
            call.writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n" + event)
        else:
            call.writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
        await call.reader.read()

    return serve


@pytest.mark.parametrize(
    "worse",
    [
        pytest.param({"node": ""}, id="one on a node before one without"),
        pytest.param({"phase": "Pending"}, id="a running pod before one in another phase"),
        pytest.param({"ready": "False"}, id="a ready pod before an unready one"),
        pytest.param({"deleting": True}, id="a pod that stays before a terminating one"),
        pytest.param({"since": "2026-01-01T13:00:00Z"}, id="a pod that has been ready for longer"),
        pytest.param({"restarts": 3}, id="a pod that was restarted less often"),
        pytest.param({"made": "2026-01-01T07:00:00Z"}, id="an older one"),
    ],
)
async def test_of_several_pods_the_best_is_taken(worse: dict[str, Any]) -> None:
    async with Peer(_lists(_pod("worse", **worse), _pod("better"))) as peer:
        assert (await find_pod(peer.client, SERVICE, None)).pod.metadata.name == "better"


async def test_a_workload_without_pods_is_waited_for() -> None:
    controller = ReplicationController(
        metadata=ObjectMeta(name="web", namespace="shop"), spec=ReplicationControllerSpec(selector={"app": "web"})
    )
    async with asyncio.timeout(30), Peer(_lists(then=_pod("first"))) as peer:
        assert (await find_pod(peer.client, controller, None)).pod.metadata.name == "first"


async def test_the_waiting_for_a_first_pod_has_an_end() -> None:
    async with asyncio.timeout(30), Peer(_lists()) as peer:
        with pytest.raises(DeadlineError, match=r'Service "web" in namespace "shop": no pod of it was created within 0.1 s'):
            await find_pod(peer.client, SERVICE, None, timeout=0.1)


async def test_what_selects_nothing_has_no_pods() -> None:
    bare = Service(metadata=ObjectMeta(name="bare", namespace="shop"))
    async with Peer(_lists()) as peer:
        with pytest.raises(StreamError, match=r'Service "bare" in namespace "shop" has no selector, so it has no pods; name a pod'):
            await find_pod(peer.client, bare, None)
        with pytest.raises(ValueError, match="not a pod that was read from a server"):
            await find_pod(peer.client, Pod(metadata=ObjectMeta(name="web")), None)


def _made(**annotations: str) -> Pod:
    spec = PodSpec(
        init_containers=[Container(name="before")],
        containers=[
            Container(
                name="main",
                ports=[
                    ContainerPort(name="http", container_port=8080),
                    ContainerPort(name="dns", container_port=53, protocol="UDP"),
                ],
            ),
            Container(name="side"),
        ],
        ephemeral_containers=[EphemeralContainer(name="debug")],
    )
    return Pod(metadata=ObjectMeta(name="web", namespace="shop", annotations=annotations), spec=spec)


def test_containers_of_every_sort_can_be_named_and_logs_come_in_the_order_of_their_start() -> None:
    pod = _made()
    assert [container_of(pod, name).name for name in (None, "side", "before", "debug")] == ["main", "side", "before", "debug"]
    assert [one.name for one in all_containers(pod)] == ["before", "main", "side", "debug"]
    chosen = _made(**{"kubectl.kubernetes.io/default-container": "side"})
    assert container_of(chosen, None).name == "side"
    with pytest.raises(StreamError, match=r'has no container "none"; it has: main, side, debug \(ephemeral\), before \(init\)'):
        container_of(pod, "none")
    with pytest.raises(StreamError, match=r'Pod "empty" has no containers'):
        container_of(Pod(metadata=ObjectMeta(name="empty")), None)


def _service(target: int | str | None, cluster_ip: str = "10.0.0.1") -> Service:
    ports = [ServicePort(name="main", port=80, target_port=target), ServicePort(name="dns", port=53, protocol="UDP")]
    return Service(metadata=ObjectMeta(name="web", namespace="shop"), spec=ServiceSpec(cluster_ip=cluster_ip, ports=ports))


@pytest.mark.parametrize(
    ("service", "remote", "port"),
    [
        pytest.param(None, "1234", 1234, id="any number of a pod"),
        pytest.param(None, "http", 8080, id="a name in a pod"),
        pytest.param(_service(9090), "80", 9090, id="a number of a service is led on to its target"),
        pytest.param(_service(9090), "main", 9090, id="a name of a service"),
        pytest.param(_service("http"), "80", 8080, id="a target that is a name in the pod"),
        pytest.param(_service(None), "80", 80, id="no target is the same port"),
        pytest.param(_service(9090, "None"), "80", 80, id="a service without an address does not lead on"),
    ],
)
def test_ports(service: Service | None, remote: str, port: int) -> None:
    assert pod_port(TargetPod(_made(), service), remote) == port


@pytest.mark.parametrize(
    ("service", "remote", "says"),
    [
        pytest.param(None, "none", 'pod "web" has no port named "none"', id="a name that no container has"),
        pytest.param(None, "dns", 'the port "dns" of pod "web" is for UDP', id="a name for UDP"),
        pytest.param(None, "53", "port 53 is for UDP", id="a number for UDP"),
        pytest.param(_service(80), "81", r'Service "web" has no port 81; it has: 80 \(main\), 53 \(dns\)', id="a port the service has not"),
        pytest.param(_service(80), "dns", "port 53 is for UDP", id="a port of the service for UDP"),
        pytest.param(_service("none"), "80", 'pod "web" has no port named "none"', id="a target that the pod has not"),
    ],
)
def test_ports_that_are_none_are_named(service: Service | None, remote: str, says: str) -> None:
    with pytest.raises(StreamError, match=says):
        pod_port(TargetPod(_made(), service), remote)
