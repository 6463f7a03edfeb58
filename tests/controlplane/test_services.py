"""Services over a server: the same with our controllers and with kube-controller-manager."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import EndpointAddress, EndpointPort, Endpoints, EndpointSubset, Pod, Service, ServicePort, ServiceSpec
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.client import Client
from kubeloop.meta import ObjectMeta
from tests.controlplane.backends import OF_SERVICE, new_service
from tests.controlplane.workloads import deployment

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

_LONG = 90.0
_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"


async def slices_of(client: Client, name: str, count: int) -> list[EndpointSlice]:
    """Wait until the slices of a Service have this number of endpoints together."""
    async with asyncio.timeout(_LONG):
        while True:
            found = list(await client.list(EndpointSlice, namespace=client.namespace, label_selector=f"{OF_SERVICE}={name}"))
            if found and sum(len(one.endpoints) for one in found) == count:
                return found
            await asyncio.sleep(0.05)


async def test_a_service_has_slices_and_endpoints_of_its_ready_pods(client: Client) -> None:
    ports = [ServicePort(port=80, target_port=8080, protocol="TCP")]
    await client.create(Service(metadata=ObjectMeta(name="s"), spec=ServiceSpec(selector={"app": "d"}, ports=ports)))
    await client.create(deployment("d", 2))
    await client.wait_for(Endpoints, "s", lambda endpoints: endpoints.subsets and len(endpoints.subsets[0].addresses) == 2, timeout=_LONG)
    (one,) = await client.list(EndpointSlice, namespace=client.namespace, label_selector="kubernetes.io/service-name=s")
    found = await client.wait_for(EndpointSlice, one.metadata.name, lambda each: len(each.endpoints) == 2, timeout=_LONG)
    pods = sorted(pod.status.pod_ip or "" for pod in await client.list(Pod, namespace=client.namespace))
    assert sorted(one.addresses[0] for one in found.endpoints) == pods
    assert [port.port for port in found.ports] == [8080]
    await client.delete(Service, "s")
    await client.wait_gone(EndpointSlice, one.metadata.name, timeout=_LONG)


async def test_a_scaled_deployment_changes_the_endpoints_of_its_service(client: Client) -> None:
    await client.create(new_service())
    await client.create(deployment("d", 3))
    await slices_of(client, "s", 3)
    await client.set_scale(Deployment, "d", 1)
    (one,) = await slices_of(client, "s", 1)
    (pod,) = await client.list(Pod, namespace=client.namespace)
    assert one.endpoints[0].target_ref is not None
    assert one.endpoints[0].target_ref.name == pod.metadata.name


async def test_a_headless_service_without_ready_pods_publishes_them_if_it_asks_for_it(client: Client) -> None:
    await client.create(new_service(cluster_ip="None", publish_not_ready_addresses=True))
    template = deployment("d", 1)
    template.spec.template.spec.hostname, template.spec.template.spec.subdomain = "web", "s"
    await client.create(template)
    (one,) = await slices_of(client, "s", 1)
    assert one.endpoints[0].hostname == "web"
    assert one.metadata.labels["service.kubernetes.io/headless"] == ""
    assert one.endpoints[0].conditions.ready is True


async def test_endpoints_of_a_user_are_mirrored_until_they_are_deleted(client: Client) -> None:
    await client.create(new_service("e", selector={}))
    subset = EndpointSubset(addresses=[EndpointAddress(ip="10.2.0.1")], ports=[EndpointPort(port=9376)])
    await client.create(Endpoints(metadata=ObjectMeta(name="e", labels={"team": "shop"}), subsets=[subset]))
    (one,) = await slices_of(client, "e", 1)
    assert one.metadata.labels[_MANAGED_BY] == "endpointslicemirroring-controller.k8s.io"
    assert one.metadata.labels["team"] == "shop"
    await client.delete(Endpoints, "e")
    await client.wait_gone(EndpointSlice, one.metadata.name, timeout=_LONG)


async def test_a_deleted_slice_is_created_again(client: Client) -> None:
    await client.create(new_service())
    await client.create(deployment("d", 1))
    (one,) = await slices_of(client, "s", 1)
    await client.delete(one)
    (other,) = await slices_of(client, "s", 1)
    assert other.metadata.uid != one.metadata.uid
