"""StatefulSets over an API server with all controllers, ours or the real kube-controller-manager: order, updates, claims, Events."""

from __future__ import annotations

import pytest

from kubeloop.api.apps.v1 import ControllerRevision, StatefulSet
from kubeloop.api.core.v1 import PersistentVolumeClaim, Pod
from kubeloop.client import Client
from kubeloop.controller import controller_of
from tests.controlplane.test_statefulset import GATE, is_rolled_out, names, retention, set_image, stateful_set
from tests.controlplane.workloads import is_ready

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

_LONG = 90.0


async def open_gate(client: Client, name: str) -> None:
    await client.wait_for(Pod, name, lambda pod: pod.status.phase == "Running", timeout=_LONG)
    change = {"status": {"conditions": [{"type": GATE, "status": "True"}]}}
    await client.patch(Pod, name, change, type="strategic", subresource="status")
    await client.wait_for(Pod, name, is_ready, timeout=_LONG)


async def test_pods_of_a_stateful_set_come_one_after_the_other_and_go_in_the_opposite_order(client: Client) -> None:
    await client.create(stateful_set("web", 2, gate=True))
    await client.wait_for(Pod, "web-0", lambda pod: pod.status.phase == "Running", timeout=_LONG)
    assert await names(client) == ["web-0"]
    await open_gate(client, "web-0")
    await open_gate(client, "web-1")
    done = await client.wait_for(StatefulSet, "web", lambda stateful_set: stateful_set.status.ready_replicas == 2, timeout=_LONG)
    assert (done.status.replicas, done.status.current_replicas, done.status.available_replicas) == (2, 2, 2)
    (revision,) = await client.list(ControllerRevision, namespace=client.namespace)
    assert done.status.current_revision == done.status.update_revision == revision.metadata.name
    pod = await client.get(Pod, "web-1")
    assert pod.metadata.labels["apps.kubernetes.io/pod-index"] == "1"
    assert (pod.spec.hostname, pod.spec.subdomain) == ("web-1", "web")
    await client.set_scale(StatefulSet, "web", 1)
    await client.wait_gone(Pod, "web-1", timeout=_LONG)
    await client.wait_for(StatefulSet, "web", lambda stateful_set: stateful_set.status.replicas == 1, timeout=_LONG)
    assert await names(client) == ["web-0"]


async def test_a_stateful_set_makes_its_claims_and_rolls_out_from_the_last_pod(client: Client) -> None:
    made = stateful_set("db", 2, gate=True, pod_management_policy="Parallel")
    await client.create(made)
    for name in ("db-0", "db-1"):
        await open_gate(client, name)
    before = await client.get(Pod, "db-0")
    await client.patch(StatefulSet, "db", {"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}})
    last = await client.wait_for(Pod, "db-1", lambda pod: pod.metadata.annotations.get("v") == "2", timeout=_LONG)
    assert (await client.get(Pod, "db-0")).metadata.uid == before.metadata.uid
    await open_gate(client, last.metadata.name)
    await client.wait_for(Pod, "db-0", lambda pod: pod.metadata.annotations.get("v") == "2", timeout=_LONG)
    await open_gate(client, "db-0")
    await client.wait_for(
        StatefulSet, "db", lambda stateful_set: stateful_set.status.current_revision == stateful_set.status.update_revision, timeout=_LONG
    )
    with_claim = stateful_set("kept", 1, claims=["data"])
    await client.create(with_claim)
    found = await client.wait_for(PersistentVolumeClaim, "data-kept-0", bool, timeout=_LONG)
    assert (found.status.phase, found.metadata.labels) == ("Pending", {"app": "kept"})


async def test_a_rollback_takes_the_earlier_revision_and_gives_it_the_newest_number(client: Client) -> None:
    await client.create(stateful_set("web", 1))
    first = await client.wait_for(StatefulSet, "web", is_rolled_out, timeout=_LONG)
    for image in ("x:2", "x:1"):
        await set_image(client, image)
        done = await client.wait_for(StatefulSet, "web", is_rolled_out, timeout=_LONG)
    assert done.status.update_revision == first.status.update_revision
    found = {one.metadata.name: one.revision for one in await client.list(ControllerRevision, namespace=client.namespace)}
    assert found.pop(done.status.update_revision or "") == 3
    assert list(found.values()) == [2]


async def test_the_retention_policy_decides_the_owner_of_a_claim(client: Client) -> None:
    both = retention("Delete", "Retain")
    await client.create(stateful_set("web", 1, claims=["data"], persistent_volume_claim_retention_policy=both))
    claim = await client.wait_for(PersistentVolumeClaim, "data-web-0", controller_of, timeout=_LONG)
    (reference,) = claim.metadata.owner_references
    assert (reference.kind, reference.name, reference.controller, reference.block_owner_deletion) == ("StatefulSet", "web", True, True)
    await client.delete(StatefulSet, "web")
    await client.wait_gone(PersistentVolumeClaim, "data-web-0", timeout=_LONG)
