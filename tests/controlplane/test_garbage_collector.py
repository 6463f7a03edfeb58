"""Garbage collection over an API server: background, orphaning, foreground (recorded in the scenario c-gc); custom owners."""

import asyncio
import os
from typing import Any

import msgspec
import pytest

from kubeloop.api.apps.v1 import ReplicaSet
from kubeloop.api.core.v1 import ConfigMap, Namespace, Pod
from kubeloop.api.scheduling.v1 import PriorityClass
from kubeloop.cache import Informer
from kubeloop.client import Client
from kubeloop.controller import Manager, set_owner_reference
from kubeloop.controlplane.garbage_collection.garbage_collector import GarbageCollector
from kubeloop.meta import GroupVersionKind, ObjectMeta, OwnerReference, Resource, Unstructured
from kubeloop.transport import Transport
from tests.controlplane.workloads import replica_set
from tests.servers import ServerUnderTest

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]

Definition = Unstructured.for_kind(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", plural="customresourcedefinitions", namespaced=False
)


def config(name: str, *owners: Resource, **metadata: object) -> ConfigMap:
    made = ConfigMap(metadata=ObjectMeta(name=name, **metadata))  # type: ignore[arg-type]  # any field of metadata
    for owner in owners:
        made.metadata.namespace = owner.metadata.namespace
        set_owner_reference(owner, made)
    return made


async def gone(client: Client, name: str) -> None:
    await client.wait_gone(ConfigMap, name, timeout=60)


async def test_an_object_whose_owner_never_was_is_deleted(client: Client) -> None:
    lost = config("lost")
    lost.metadata.owner_references = [
        OwnerReference(api_version="v1", kind="ConfigMap", name="nobody", uid="00000000-0000-0000-0000-000000000000")
    ]
    await client.create(lost)
    await gone(client, "lost")


async def test_an_object_whose_owner_was_replaced_by_a_namesake_is_deleted(client: Client) -> None:
    owner = await client.create(config("owner"))
    await client.create(config("child", owner))
    await client.delete(owner)
    await client.create(config("owner"))
    await gone(client, "child")


async def test_dependents_go_with_their_owner_and_theirs_too(client: Client) -> None:
    owner = await client.create(config("owner"))
    child = await client.create(config("child", owner))
    await client.create(config("grandchild", child))
    await client.delete(owner)
    await gone(client, "child")
    await gone(client, "grandchild")


async def test_an_object_with_another_owner_left_stays_and_loses_the_reference_to_the_deleted_owner(client: Client) -> None:
    first, second = await client.create(config("first")), await client.create(config("second"))
    await client.create(config("child", first, second))
    await client.delete(first)
    child = await client.wait_for(ConfigMap, "child", lambda config_map: len(config_map.metadata.owner_references) == 1, timeout=60)
    assert child.metadata.owner_references[0].uid == second.metadata.uid


async def test_orphaned_dependents_stay_without_owner_and_may_be_adopted(client: Client) -> None:
    await client.create(replica_set("r", 1))
    await client.wait_for(ReplicaSet, "r", lambda replica_set: replica_set.status.ready_replicas == 1, timeout=60)
    (pod,) = await client.list(Pod, namespace=client.namespace)
    await client.delete(ReplicaSet, "r", propagation_policy="Orphan")
    await client.wait_gone(ReplicaSet, "r", timeout=60)
    assert (await client.get(Pod, pod.metadata.name)).metadata.owner_references == []
    again = await client.create(replica_set("again", 1))
    await client.patch(Pod, pod.metadata.name, {"metadata": {"labels": {"app": "again"}}})
    adopted = await client.wait_for(Pod, pod.metadata.name, lambda pod: pod.metadata.owner_references, timeout=60)
    assert adopted.metadata.owner_references[0].uid == again.metadata.uid


async def test_an_owner_deleted_in_the_foreground_waits_for_the_dependents_that_block_it(client: Client) -> None:
    owner = await client.create(config("owner"))
    child = config("child", owner, finalizers=["example.com/hold"])
    child.metadata.owner_references[0].block_owner_deletion = True
    await client.create(child)
    await client.delete(ConfigMap, "owner", propagation_policy="Foreground")
    await client.wait_for(ConfigMap, "child", lambda config_map: config_map.metadata.deletion_timestamp, timeout=60)
    waiting = await client.get(ConfigMap, "owner")
    assert waiting.metadata.finalizers == ["foregroundDeletion"]
    await client.patch(ConfigMap, "child", {"metadata": {"finalizers": None}})
    await gone(client, "child")
    await gone(client, "owner")


async def test_an_owner_deleted_in_the_foreground_does_not_wait_for_others(client: Client) -> None:
    owner = await client.create(config("owner"))
    await client.create(config("child", owner, finalizers=["example.com/hold"]))
    await client.delete(ConfigMap, "owner", propagation_policy="Foreground")
    await gone(client, "owner")
    await client.patch(ConfigMap, "child", {"metadata": {"finalizers": None}})
    await gone(client, "child")


async def test_owners_that_own_each_other_go_together_also_in_the_foreground(client: Client) -> None:
    for policy in ("Background", "Foreground"):
        first = await client.create(config("first"))
        second = await client.create(config("second", first))
        third = await client.create(config("third", second))
        references = [reference_to(third)]
        await client.patch(ConfigMap, "first", {"metadata": {"ownerReferences": references}})
        for name, owner in (("second", first), ("third", second)):
            await client.patch(ConfigMap, name, {"metadata": {"ownerReferences": [reference_to(owner)]}})
        await client.delete(ConfigMap, "first", propagation_policy=policy)
        for name in ("first", "second", "third"):
            await gone(client, name)


def reference_to(owner: Resource) -> dict[str, object]:
    name, uid = owner.metadata.name, owner.metadata.uid
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": name, "uid": uid, "blockOwnerDeletion": True}


def named(reference: dict[str, object]) -> OwnerReference:
    return msgspec.convert(reference, OwnerReference)


async def test_the_dependents_of_a_cluster_scoped_owner_go_with_it(client: Client) -> None:
    owner = await client.create(PriorityClass(metadata=ObjectMeta(name=f"owner-{client.namespace}"), value=1))
    child = config("child")
    child.metadata.owner_references = [named(reference_to(owner))]
    await client.create(child)
    await client.delete(owner)
    await gone(client, "child")


async def test_a_cluster_scoped_object_with_a_namespaced_owner_is_never_deleted_for_it(client: Client) -> None:
    owner = await client.create(config("owner"))
    lost = PriorityClass(metadata=ObjectMeta(name=f"lost-{client.namespace}"), value=1)
    lost.metadata.owner_references = [named(reference_to(owner))]
    await client.create(lost)
    await client.create(config("sibling", owner))
    await client.delete(owner)
    await gone(client, "sibling")
    assert (await client.get(PriorityClass, lost.metadata.name)).metadata.deletion_timestamp is None
    await client.delete(PriorityClass, lost.metadata.name)


async def test_an_owner_in_another_namespace_or_of_another_name_is_no_owner(client: Client) -> None:
    other = f"{client.namespace}-other"
    await client.create(Namespace(metadata=ObjectMeta(name=other)))
    elsewhere = await client.create(ConfigMap(metadata=ObjectMeta(name="owner", namespace=other)))
    here = await client.create(config("owner"))
    for name, reference in (("lost", reference_to(elsewhere)), ("misled", reference_to(here) | {"name": "another"})):
        child = config(name)
        child.metadata.owner_references = [named(reference)]
        await client.create(child)
        await gone(client, name)
    assert (await client.get(ConfigMap, "owner", namespace=other)).metadata.deletion_timestamp is None
    await client.delete(Namespace, other)


async def define(client: Client) -> Unstructured:
    group = f"{client.namespace}.example.com"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "metadata": {"name": f"gadgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    made = await client.create(Definition.from_dict(definition))
    return await client.wait_for(Definition, made.metadata.name, _established, timeout=60)


async def test_dependents_of_a_custom_kind_that_was_defined_while_the_collector_ran_go_with_their_owner(client: Client) -> None:
    gadget_kind = Unstructured.for_kind(f"{client.namespace}.example.com/v1", "Gadget", plural="gadgets", namespaced=True)
    # Twice: a kind that was deleted and defined again is watched again.
    for name in ("first", "second"):
        definition = await define(client)
        gadget = await client.create(gadget_kind.from_dict({"metadata": {"name": "g"}}))
        await client.create(config(name, gadget))
        await client.delete(gadget)
        await gone(client, name)
        await client.delete(Definition, definition.metadata.name)
        await client.wait_gone(Definition, definition.metadata.name, timeout=60)


async def test_dependents_go_with_the_definition_of_their_owners_kind(client: Client) -> None:
    definition = await define(client)
    gadget_kind = Unstructured.for_kind(f"{client.namespace}.example.com/v1", "Gadget", plural="gadgets", namespaced=True)
    gadget = await client.create(gadget_kind.from_dict({"metadata": {"name": "g"}}))
    await client.create(config("child", gadget))
    await client.delete(Definition, definition.metadata.name)
    await client.wait_gone(Definition, definition.metadata.name, timeout=60)
    await gone(client, "child")


async def test_a_kind_that_went_before_the_collector_looked_is_not_waited_for(bare_server: ServerUnderTest) -> None:
    async with Client(Transport(bare_server.config), namespace=f"before-{os.getpid()}") as own, asyncio.timeout(90):
        definition = await define(own)
        while not any(one.gvr.group == definition.get("spec", "group") for one in await own.mapper.resources()):
            own.mapper.forget()
        await own.delete(Definition, definition.metadata.name)
        await own.wait_gone(Definition, definition.metadata.name, timeout=60)
        # What this client knows of kinds is from before, as discovery of a real server may be.
        async with Manager(own, [GarbageCollector()]) as running:
            assert running.phase == "running"


async def test_the_collector_stops_while_a_definition_goes(bare_server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = GarbageCollector()
    async with Client(Transport(bare_server.config), namespace=f"stops-{os.getpid()}") as own, asyncio.timeout(90):
        async with Manager(own, [collector]) as running:
            remove = running.informers.remove
            others: list[GroupVersionKind] = []

            async def remove_another_first(informer: Informer[Any]) -> None:
                """Stop the informer of another kind meanwhile, as the handler of definitions does."""
                watched = list(collector._watched)
                if watched:
                    others.append(watched[-1])
                    await collector._unwatch(watched[-1])
                await remove(informer)

            monkeypatch.setattr(running.informers, "remove", remove_another_first)
        assert others
        assert not collector._watched


def _established(obj: Unstructured) -> bool:
    conditions = obj.get("status", "conditions", default=[])
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)
