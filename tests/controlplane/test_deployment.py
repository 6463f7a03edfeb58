"""Deployments over an API server: rollout, history, scaling, Recreate, pause, status (recorded in the scenario c-deployment)."""

import pytest

from kubeloop.api.apps.v1 import Deployment, DeploymentStrategy, ReplicaSet
from kubeloop.api.core.v1 import Pod
from kubeloop.client import Client
from kubeloop.controlplane.workloads.rollout import DESIRED, HISTORY, MOST, REVISION
from kubeloop.controlplane.workloads.template import HASH_LABEL
from tests.controlplane.workloads import deployment, is_rolled_out

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]


async def rolled_out(client: Client, name: str = "d") -> Deployment:
    return await client.wait_for(Deployment, name, is_rolled_out, timeout=60)


async def sets_by_revision(client: Client) -> dict[str, ReplicaSet]:
    return {one.metadata.annotations[REVISION]: one for one in await client.list(ReplicaSet, namespace=client.namespace)}


async def set_image(client: Client, image: str, name: str = "d") -> None:
    change = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}
    await client.patch(Deployment, name, change, type="strategic")


async def test_a_deployment_gets_a_replica_set_named_after_its_template_and_pods_that_become_ready(client: Client) -> None:
    made = await client.create(deployment("d"))
    done = await rolled_out(client)
    assert done.metadata.annotations[REVISION] == "1"
    assert (done.metadata.generation, done.status.observed_generation) == (1, 1)
    (found,) = await client.list(ReplicaSet, namespace=client.namespace)
    value = found.metadata.labels[HASH_LABEL]
    assert found.metadata.name == f"d-{value}"
    assert found.spec.selector.match_labels == {"app": "d", HASH_LABEL: value}
    assert found.metadata.annotations == {DESIRED: "2", MOST: "3", REVISION: "1"}
    (owner,) = found.metadata.owner_references
    assert (owner.kind, owner.uid, owner.controller, owner.block_owner_deletion) == ("Deployment", made.metadata.uid, True, True)
    pods = await client.list(Pod, namespace=client.namespace)
    assert [one.metadata.generate_name for one in pods] == [f"d-{value}-"] * 2
    assert all(one.metadata.labels == {"app": "d", HASH_LABEL: value} for one in pods)


async def test_its_status_says_what_the_real_controller_says(client: Client) -> None:
    await client.create(deployment("d"))
    status = (await rolled_out(client)).status
    assert (status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas) == (2, 2, 2, 2)
    assert status.unavailable_replicas is None
    found = {one.type: (one.status, one.reason, one.message) for one in status.conditions}
    (name,) = [one.metadata.name for one in await client.list(ReplicaSet, namespace=client.namespace)]
    assert found == {
        "Available": ("True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
        "Progressing": ("True", "NewReplicaSetAvailable", f'ReplicaSet "{name}" has successfully progressed.'),
    }


async def test_a_new_image_is_rolled_out_by_a_second_replica_set_and_the_old_one_stays_for_history(client: Client) -> None:
    await client.create(deployment("d", 3))
    await rolled_out(client)
    await set_image(client, "x:2")
    assert (await rolled_out(client)).metadata.annotations[REVISION] == "2"
    sets = await sets_by_revision(client)
    assert {number: (one.spec.replicas, one.spec.template.spec.containers[0].image) for number, one in sets.items()} == {
        "1": (0, "x:1"),
        "2": (3, "x:2"),
    }
    assert {number: one.metadata.annotations[DESIRED] for number, one in sets.items()} == {"1": "3", "2": "3"}


async def test_going_back_uses_the_old_replica_set_under_a_new_revision_and_keeps_its_history(client: Client) -> None:
    await client.create(deployment("d"))
    await rolled_out(client)
    await set_image(client, "x:2")
    await rolled_out(client)
    await set_image(client, "x:1")
    assert (await rolled_out(client)).metadata.annotations[REVISION] == "3"
    sets = await sets_by_revision(client)
    assert sorted(sets) == ["2", "3"]
    assert sets["3"].spec.replicas == 2
    assert sets["3"].metadata.annotations[HISTORY] == "1"


async def test_old_replica_sets_beyond_the_history_limit_are_deleted(client: Client) -> None:
    await client.create(deployment("d", 1, revision_history_limit=1))
    await rolled_out(client)
    for number in (2, 3, 4):
        await set_image(client, f"x:{number}")
        await rolled_out(client)
    for one in await client.list(ReplicaSet, namespace=client.namespace):
        if one.metadata.annotations[REVISION] not in ("3", "4"):
            await client.wait_gone(ReplicaSet, one.metadata.name, timeout=60)
    assert sorted(await sets_by_revision(client)) == ["3", "4"]


async def test_scaling_changes_the_replica_set_and_what_it_remembers_of_the_size(client: Client) -> None:
    await client.create(deployment("d"))
    await rolled_out(client)
    await client.set_scale(Deployment, "d", 5)
    await rolled_out(client)
    (found,) = await client.list(ReplicaSet, namespace=client.namespace)
    assert found.spec.replicas == 5
    assert found.metadata.annotations == {DESIRED: "5", MOST: "7", REVISION: "1"}
    await client.set_scale(Deployment, "d", 1)
    await rolled_out(client)
    await client.wait_for(ReplicaSet, found.metadata.name, lambda replica_set: replica_set.status.replicas == 1, timeout=60)


async def test_recreate_ends_all_old_pods_before_it_starts_a_new_one(client: Client) -> None:
    await client.create(deployment("d", 2, DeploymentStrategy(type="Recreate")))
    await rolled_out(client)
    async with client.watch(Pod, namespace=client.namespace) as events:
        images: dict[str, str | None] = {}
        await set_image(client, "x:2")
        async for event in events:
            name = event.object.metadata.name
            # A pod whose containers have terminated no longer counts: oldPodsRunning in upstream's pkg/controller/deployment/recreate.go.
            if event.type == "DELETED" or event.object.status.phase in ("Failed", "Succeeded"):
                images.pop(name, None)
            else:
                images[name] = event.object.spec.containers[0].image
            assert len(set(images.values())) <= 1
            if list(images.values()) == ["x:2", "x:2"]:
                break
    await rolled_out(client)


async def test_a_paused_deployment_is_scaled_but_not_rolled_out(client: Client) -> None:
    await client.create(deployment("d"))
    await rolled_out(client)
    await client.patch(Deployment, "d", {"spec": {"paused": True}})
    await set_image(client, "x:2")
    await client.set_scale(Deployment, "d", 3)
    paused = await client.wait_for(Deployment, "d", lambda deployment: deployment.status.available_replicas == 3, timeout=60)
    assert {one.type: one.reason for one in paused.status.conditions}["Progressing"] == "DeploymentPaused"
    (only,) = await client.list(ReplicaSet, namespace=client.namespace)
    assert only.spec.template.spec.containers[0].image == "x:1"
    await client.patch(Deployment, "d", {"spec": {"paused": None}})
    await rolled_out(client)
    assert len(await client.list(ReplicaSet, namespace=client.namespace)) == 2


async def test_fields_of_the_template_that_no_model_knows_reach_the_pods(client: Client) -> None:
    await client.create(deployment("d", 1))
    await rolled_out(client)
    change = {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}, "spec": {"hostname": "h"}}}}
    await client.patch(Deployment, "d", change)
    await rolled_out(client)
    pods = [one for one in await client.list(Pod, namespace=client.namespace) if one.metadata.deletion_timestamp is None]
    assert [(one.metadata.annotations.get("a"), one.spec.hostname) for one in pods if one.metadata.annotations] == [("b", "h")]


async def test_a_deleted_deployment_takes_replica_sets_and_pods_with_it(client: Client) -> None:
    await client.create(deployment("d"))
    await rolled_out(client)
    sets = await client.list(ReplicaSet, namespace=client.namespace)
    pods = await client.list(Pod, namespace=client.namespace)
    await client.delete(Deployment, "d")
    for one in [*sets, *pods]:
        await client.wait_gone(type(one), one.metadata.name, timeout=60)
