"""Services, pods with addresses, and slices for the tests of the controllers of Services."""

from __future__ import annotations

from typing import Any

from kubeloop.api.core.v1 import Pod, PodCondition, PodIP, Service, ServicePort, ServiceSpec
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.client import Client
from kubeloop.controlplane.services.backends import PodBackend
from kubeloop.meta import ObjectMeta
from tests.controlplane.simulated import FakeTimeCluster
from tests.controlplane.workloads import pod

OF_SERVICE = "kubernetes.io/service-name"


def service(name: str = "s", *ports: ServicePort, labels: dict[str, str] | None = None, **spec: Any) -> Service:
    """Select ``app: d``, with port 80 on 8080 unless ports are given."""
    options: dict[str, Any] = {"selector": {"app": "d"}, "cluster_ip": "10.0.0.9", "ip_families": ["IPv4"]} | spec
    chosen = list(ports) or [ServicePort(port=80, target_port=8080, protocol="TCP")]
    metadata = ObjectMeta(name=name, namespace="default", uid="service-uid", labels=labels or {})
    return Service(metadata=metadata, spec=ServiceSpec(ports=chosen, **options))


def new_service(name: str = "s", *ports: ServicePort, **spec: Any) -> Service:
    """A Service to create: the server chooses its addresses."""
    chosen = list(ports) or [ServicePort(port=80, target_port=8080, protocol="TCP")]
    return Service(metadata=ObjectMeta(name=name), spec=ServiceSpec(ports=chosen, **({"selector": {"app": "d"}} | spec)))


def backend(number: int, *, ready: bool = True, **fields: Any) -> PodBackend:
    values: dict[str, Any] = {
        "namespace": "default",
        "name": f"p{number}",
        "uid": f"u{number}",
        "addresses": (f"10.1.{number // 250}.{number % 250}",),
        "ready": ready,
        "terminating": False,
        "finished": False,
        "node": "n",
        "hostname": "",
        "subdomain": "",
        "changed_at": "",
    }
    return PodBackend(**(values | fields))


async def run_pod(client: Client, name: str, address: str, *, ready: bool = True, **spec: Any) -> Pod:
    """Create a pod on a node, and write the status that a kubelet would write."""
    made = await client.create(pod(name, {"app": "d"}, **({"node_name": "n"} | spec)))
    return await set_status(client, made, address, ready=ready)


async def set_status(client: Client, slice_: Pod, address: str, *, ready: bool = True) -> Pod:
    slice_.status.phase = "Running"
    slice_.status.pod_ip, slice_.status.pod_ips = address, [PodIP(ip=address)]
    slice_.status.conditions = [PodCondition(type="Ready", status="True" if ready else "False")]
    return await client.update_status(slice_)


async def slices(cluster: FakeTimeCluster, name: str = "s") -> list[EndpointSlice]:
    """Return the slices of a Service once the controllers have nothing to do."""
    await cluster.pass_time(3)
    found = await cluster.client.list(EndpointSlice, namespace="default", label_selector=f"{OF_SERVICE}={name}")
    return sorted(found, key=lambda slice_: slice_.metadata.name)


def addresses(slices: list[EndpointSlice]) -> list[str]:
    return sorted(address for one in slices for endpoint in one.endpoints for address in endpoint.addresses)
