"""Claims of devices: made from the templates of pods, reserved for pods, and released after them."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.api.core.v1 import Event, Pod
from kubeloop.api.resource.v1 import ResourceClaim, ResourceClaimTemplate
from kubeloop.client import Client
from kubeloop.controlplane.devices.resource_claims import FINALIZER, POD_CLAIM, ResourceClaimController
from kubeloop.meta import Resource
from tests.controlplane.kills import KillScenario, assert_survives_kills
from tests.controlplane.simulated import FakeTimeCluster, simulation
from tests.controlplane.workloads import read

DEVICES = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
TEMPLATE = {"metadata": {"name": "gpu"}, "spec": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": DEVICES}}
RESULT = {"request": "gpu", "driver": "gpu.example.com", "pool": "p", "device": "d"}
ALLOCATION = {"devices": {"results": [RESULT]}}


def template() -> ResourceClaimTemplate:
    return read(ResourceClaimTemplate, TEMPLATE)


def claim(name: str = "shared") -> ResourceClaim:
    return read(ResourceClaim, {"metadata": {"name": name}, "spec": DEVICES})


def pod(name: str = "p", *, node: str = "", **source: str) -> Pod:
    entry = {"name": "gpu", **(source or {"resourceClaimTemplateName": "gpu"})}
    containers = [{"name": "c", "image": "x:1", "resources": {"claims": [{"name": "gpu"}]}}]
    spec: dict[str, Any] = {"containers": containers, "resourceClaims": [entry], "terminationGracePeriodSeconds": 0}
    return read(Pod, {"metadata": {"name": name}, "spec": spec | ({"nodeName": node} if node else {})})


async def create(cluster: FakeTimeCluster, *objects: Resource) -> None:
    for one in objects:
        await cluster.client.create(one)
    await cluster.pass_time(5)


async def allocate(cluster: FakeTimeCluster, name: str, *pods: Pod) -> None:
    """Write what a scheduler writes: finalizer, allocation and reservations."""
    reserved = [{"resource": "pods", "name": one.metadata.name, "uid": one.metadata.uid} for one in pods]
    await cluster.client.patch(ResourceClaim, name, {"metadata": {"finalizers": [FINALIZER]}})
    await cluster.client.patch(ResourceClaim, name, {"status": {"allocation": ALLOCATION, "reservedFor": reserved}}, subresource="status")
    await cluster.pass_time(5)


async def reserved(cluster: FakeTimeCluster, name: str = "shared") -> list[str]:
    return [one.name for one in (await cluster.client.get(ResourceClaim, name)).status.reserved_for]


async def test_a_pod_gets_the_claim_of_its_template() -> None:
    async with simulation(ResourceClaimController()) as cluster:
        await create(cluster, template(), pod())
        (made,) = await cluster.client.list(ResourceClaim)
        user = await cluster.client.get(Pod, "p")
        assert made.metadata.name.startswith("p-gpu-")
        assert made.metadata.generate_name == "p-gpu-"
        assert (made.metadata.labels, made.metadata.annotations) == ({"a": "b"}, {"c": "d", POD_CLAIM: "gpu"})
        (owner,) = made.metadata.owner_references
        assert (owner.kind, owner.uid, owner.controller, owner.block_owner_deletion) == ("Pod", user.metadata.uid, True, None)
        assert [(one.name, one.resource_claim_name) for one in user.status.resource_claim_statuses] == [("gpu", made.metadata.name)]
        await cluster.client.delete(ResourceClaim, made.metadata.name)
        await cluster.pass_time(5)
        (again,) = await cluster.client.list(ResourceClaim)
        assert again.metadata.uid != made.metadata.uid


async def test_a_pod_waits_for_its_template() -> None:
    async with simulation(ResourceClaimController()) as cluster:
        await create(cluster, pod())
        (event,) = await cluster.client.list(Event, namespace="default")
        text = 'PodResourceClaim gpu: resource claim template "gpu": resourceclaimtemplate.resource.k8s.io "gpu" not found'
        assert (event.source.component, event.reason, event.message) == ("resource_claim", "FailedResourceClaimCreation", text)
        await create(cluster, template())
        assert len(await cluster.client.list(ResourceClaim)) == 1


async def test_a_claim_of_the_same_name_is_left_alone() -> None:
    async with simulation() as cluster:
        await create(cluster, template(), pod())
        await cluster.start(ResourceClaimController())
        await cluster.pass_time(5)
        (made,) = await cluster.client.list(ResourceClaim)
        await cluster.stop()
        await cluster.client.delete(ResourceClaim, made.metadata.name)
        await create(cluster, claim(made.metadata.name))
        await cluster.start(ResourceClaimController())
        await cluster.pass_time(5)
        names = {one.metadata.name: bool(one.metadata.owner_references) for one in await cluster.client.list(ResourceClaim)}
        assert sorted(names.values()) == [False, True]
        assert names[made.metadata.name] is False


async def test_an_allocated_claim_is_reserved_for_a_pod_that_has_a_node() -> None:
    async with simulation(ResourceClaimController()) as cluster:
        await create(cluster, claim(), pod("p", node="n", resourceClaimName="shared"))
        assert await reserved(cluster) == []
        await allocate(cluster, "shared")
        assert await reserved(cluster) == ["p"]


async def test_reservations_end_with_their_pods_and_the_allocation_with_the_last() -> None:
    async with simulation(ResourceClaimController()) as cluster:
        await create(cluster, claim(), *(pod(name, node="n", resourceClaimName="shared") for name in ("a", "b", "c")))
        await allocate(cluster, "shared", *[await cluster.client.get(Pod, name) for name in ("a", "b", "c")])
        await cluster.client.patch(Pod, "a", {"status": {"phase": "Succeeded"}}, subresource="status")
        await cluster.pass_time(5)
        assert await reserved(cluster) == ["b", "c"]
        await cluster.client.delete(Pod, "b", grace_period_seconds=0)
        await create(cluster, pod("b"))
        assert await reserved(cluster) == ["c"]
        await cluster.client.delete(Pod, "c", grace_period_seconds=0)
        await cluster.pass_time(5)
        found = await cluster.client.get(ResourceClaim, "shared")
        assert (found.status.reserved_for, found.status.allocation, found.metadata.finalizers) == ([], None, [])


async def test_a_generated_claim_goes_when_its_pod_is_finished() -> None:
    async with simulation(ResourceClaimController()) as cluster:
        await create(cluster, template(), pod(node="n"))
        (made,) = await cluster.client.list(ResourceClaim)
        await allocate(cluster, made.metadata.name)
        assert await reserved(cluster, made.metadata.name) == ["p"]
        await cluster.client.patch(Pod, "p", {"status": {"phase": "Succeeded"}}, subresource="status")
        await cluster.pass_time(5)
        assert await cluster.client.list(ResourceClaim) == []


async def test_a_deleted_claim_without_consumers_loses_its_allocation() -> None:
    async with simulation(ResourceClaimController()) as cluster:
        await create(cluster, claim())
        await allocate(cluster, "shared")
        await cluster.client.delete(ResourceClaim, "shared")
        await cluster.pass_time(5)
        assert await cluster.client.list(ResourceClaim) == []


async def live(cluster: FakeTimeCluster) -> None:
    await create(cluster, template(), claim(), pod("a", node="n"), pod("b", node="n", resourceClaimName="shared"))
    (made,) = [one for one in await cluster.client.list(ResourceClaim) if one.metadata.owner_references]
    for name in (made.metadata.name, "shared"):
        await allocate(cluster, name)
    await cluster.client.patch(Pod, "a", {"status": {"phase": "Succeeded"}}, subresource="status")
    await cluster.pass_time(5)
    await cluster.client.delete(ResourceClaim, "shared")
    for name in ("a", "b"):
        await cluster.client.delete(Pod, name, grace_period_seconds=0)
    await create(cluster, pod("c"))


async def test_it_survives_a_kill_after_each_write_and_a_second_replica() -> None:
    writes = await assert_survives_kills(KillScenario(lambda: [ResourceClaimController()], live, (ResourceClaim, Pod)))
    assert len(writes) >= 7


@pytest.mark.server
async def test_a_server_with_controllers_makes_claims_from_templates(client: Client) -> None:
    await client.create(template())
    await client.create(pod())
    found = await client.wait_for(Pod, "p", lambda pod: pod.status.resource_claim_statuses, timeout=60)
    name = found.status.resource_claim_statuses[0].resource_claim_name
    made = await client.get(ResourceClaim, str(name))
    assert (made.metadata.labels, made.metadata.annotations) == ({"a": "b"}, {"c": "d", POD_CLAIM: "gpu"})


async def test_the_claim_of_extended_resources_goes_when_its_pod_is_finished() -> None:
    async with simulation(ResourceClaimController()) as cluster:
        resources = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
        spec = {"containers": [{"name": "c", "image": "x:1", "resources": resources}], "nodeName": "n"}
        user = await cluster.client.create(read(Pod, {"metadata": {"name": "p"}, "spec": spec}))
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": user.metadata.uid, "controller": True}
        await create(cluster, read(ResourceClaim, {"metadata": {"name": "x", "ownerReferences": [owner]}, "spec": DEVICES}))
        mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "gpu"}
        named = {"resourceClaimName": "x", "requestMappings": [mapping]}
        await cluster.client.patch(Pod, "p", {"status": {"extendedResourceClaimStatus": named}}, subresource="status")
        await allocate(cluster, "x", user)
        assert await reserved(cluster, "x") == ["p"]
        await cluster.client.patch(Pod, "p", {"status": {"phase": "Succeeded"}}, subresource="status")
        await cluster.pass_time(5)
        assert list(await cluster.client.list(ResourceClaim)) == []
