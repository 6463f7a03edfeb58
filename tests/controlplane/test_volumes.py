"""Volumes and claims: those in use wait for their users, others go when they are deleted; ephemeral volumes get their claims."""

from __future__ import annotations

import pytest

from kubeloop.api.core.v1 import (
    Event,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimVolumeSource,
    Pod,
    Volume,
    VolumeResourceRequirements,
)
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.controlplane.storage.volumes import (
    CLAIM_FINALIZER,
    VOLUME_FINALIZER,
    ClaimProtectionController,
    EphemeralVolumeController,
    VolumeProtectionController,
    any_uses,
)
from kubeloop.meta import ObjectMeta, Quantity
from tests.controlplane.simulated import simulation
from tests.controlplane.workloads import pod, read


def claim(name: str, **metadata: object) -> PersistentVolumeClaim:
    size = VolumeResourceRequirements(requests={"storage": Quantity("1Gi")})
    spec = PersistentVolumeClaimSpec(access_modes=["ReadWriteOnce"], resources=size)
    return PersistentVolumeClaim(metadata=ObjectMeta(name=name, **metadata), spec=spec)  # type: ignore[arg-type]


def user(name: str, claim_name: str, node: str = "n") -> Pod:
    volume = Volume(name="data", persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name=claim_name))
    return pod(name, volumes=[volume], node_name=node or None)


def volume(name: str) -> PersistentVolume:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}}
    return read(PersistentVolume, {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})


def ephemeral(uid: str, grace: int | None) -> Pod:
    metadata: dict[str, object] = {"name": "p", "uid": uid}
    if grace is not None:
        metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}
    spec = {"nodeName": "n", "containers": [], "volumes": [{"name": "data", "ephemeral": {}}]}
    return read(Pod, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


OWNED = read(
    PersistentVolumeClaim,
    {
        "metadata": {
            "name": "p-data",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}],
        },
        "spec": {},
    },
)


@pytest.mark.parametrize(
    ("pod", "of", "expected"),
    [
        pytest.param(user("p", "a"), claim("a"), True, id="a pod with a node uses the claim that it names"),
        pytest.param(user("p", "a", node=""), claim("a"), False, id="a pod without a node does not"),
        pytest.param(user("p", "b"), claim("a"), False, id="another claim is not used"),
        pytest.param(ephemeral("u", None), OWNED, True, id="the claim made for an ephemeral volume is used"),
        pytest.param(ephemeral("other", None), OWNED, False, id="a claim of the same name that was not made for the pod is not used"),
        pytest.param(ephemeral("u", 30), OWNED, True, id="it is used while the pod terminates"),
        pytest.param(ephemeral("u", 0), OWNED, False, id="it is not used when the kubelet has finished with the pod"),
    ],
)
def test_users_of_a_claim(pod: Pod, of: PersistentVolumeClaim, expected: bool) -> None:
    assert any_uses([pod], of) is expected


async def test_a_deleted_claim_goes_as_soon_as_no_pod_uses_it() -> None:
    async with simulation(ClaimProtectionController()) as cluster:
        await cluster.add_node("n")
        made = await cluster.client.create(claim("data"))
        assert made.metadata.finalizers == [CLAIM_FINALIZER]
        await cluster.client.create(user("p", "data"))
        await cluster.client.delete(PersistentVolumeClaim, "data")
        await cluster.drive(cluster.clock.sleep(60))
        assert (await cluster.client.get(PersistentVolumeClaim, "data")).metadata.deletion_timestamp is not None
        await cluster.client.delete(Pod, "p", grace_period_seconds=0)
        await cluster.drive(cluster.client.wait_gone(PersistentVolumeClaim, "data", timeout=10))


async def test_a_deleted_volume_goes_unless_it_is_bound() -> None:
    async with simulation(VolumeProtectionController()) as cluster:
        for name in ("free", "bound"):
            made = await cluster.client.create(volume(name))
            assert made.metadata.finalizers == [VOLUME_FINALIZER]
        await cluster.client.patch(PersistentVolume, "bound", {"status": {"phase": "Bound"}}, subresource="status")
        for name in ("free", "bound"):
            await cluster.client.delete(PersistentVolume, name)
        await cluster.drive(cluster.client.wait_gone(PersistentVolume, "free", timeout=10))
        await cluster.drive(cluster.clock.sleep(60))
        assert (await cluster.client.get(PersistentVolume, "bound")).metadata.finalizers == [VOLUME_FINALIZER]
        await cluster.client.patch(PersistentVolume, "bound", {"status": {"phase": "Released"}}, subresource="status")
        await cluster.drive(cluster.client.wait_gone(PersistentVolume, "bound", timeout=10))


SCRATCH = {"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}


def with_scratch() -> Pod:
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": SCRATCH}}]
    return read(Pod, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}], "volumes": volumes}})


async def test_a_pod_gets_the_claim_of_its_ephemeral_volume() -> None:
    async with simulation(EphemeralVolumeController()) as cluster:
        made = await cluster.client.create(with_scratch())
        found = await cluster.drive(cluster.client.wait_for(PersistentVolumeClaim, "p-scratch", bool, timeout=10))
        assert (found.metadata.labels, found.metadata.owner_references[0].uid) == ({"a": "b"}, made.metadata.uid)


async def test_a_claim_of_the_same_name_is_left_alone() -> None:
    async with simulation(EphemeralVolumeController()) as cluster:
        await cluster.client.create(claim("p-scratch"))
        await cluster.client.create(with_scratch())
        await cluster.drive(cluster.clock.sleep(10))
        assert not (await cluster.client.get(PersistentVolumeClaim, "p-scratch")).metadata.owner_references
        messages = {
            event.message for event in await cluster.client.list(Event, namespace=ALL_NAMESPACES) if event.reason == "FailedBinding"
        }
        assert messages == {"ephemeral volume scratch: PVC default/p-scratch was not created for pod default/p (pod is not owner)"}


@pytest.mark.server
async def test_a_namespace_that_holds_a_claim_goes(client: Client) -> None:
    name = f"{client.namespace}-held"
    await client.create(Namespace(metadata=ObjectMeta(name=name)))
    await client.create(claim("data", namespace=name))
    await client.delete(Namespace, name)
    await client.wait_gone(Namespace, name, timeout=30)
