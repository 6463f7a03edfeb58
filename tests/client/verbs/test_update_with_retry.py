"""Read, change, write in one call; and what it says it did."""

from __future__ import annotations

from typing import assert_type

import pytest

from kubeloop.api.autoscaling.v2 import (
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerSpec,
)
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client, CreateOrUpdateResult
from kubeloop.meta import Conflict, NotFound, ObjectMeta, Unstructured

pytestmark = pytest.mark.server


def config_map(**data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name="a"), data=data)


def autoscaler() -> HorizontalPodAutoscaler:
    """A kind with a status that no controller of the test's server writes."""
    target = CrossVersionObjectReference(api_version="apps/v1", kind="Deployment", name="web")
    spec = HorizontalPodAutoscalerSpec(max_replicas=3, scale_target_ref=target)
    return HorizontalPodAutoscaler(metadata=ObjectMeta(name="web"), spec=spec)


def wanted(config_map: ConfigMap) -> None:
    config_map.data["x"] = "1"


def rename(config_map: ConfigMap) -> None:
    config_map.metadata.name = "b"


@pytest.mark.parametrize("verb", ["create_or_update", "create_or_patch"])
class TestBoth:
    async def test_s229_it_is_created_then_left_alone_and_updated_only_when_something_changed(
        self, client: Client, namespace: str, verb: str
    ) -> None:
        bring = getattr(client, verb)
        first = await bring(config_map(), wanted)
        assert (first.operation, first.object.data) == ("created", {"x": "1"})
        again = await bring(config_map(), wanted)
        assert (again.operation, again.object.metadata.resource_version) == ("unchanged", first.object.metadata.resource_version)
        await client.patch(ConfigMap, "a", {"data": {"x": "2", "theirs": "1"}})
        mended = await bring(config_map(), wanted)
        assert (mended.operation, mended.object.data) == ("updated", {"x": "1", "theirs": "1"})

    async def test_s229_a_mutation_that_renames_is_refused_existing_or_not(self, client: Client, namespace: str, verb: str) -> None:
        bring = getattr(client, verb)
        for _ in range(2):
            with pytest.raises(ValueError, match=r'ConfigMap .*a" was renamed to .*b" by mutate'):
                await bring(config_map(), rename)
            await client.create_or_update(config_map(), wanted)

    async def test_kinds_without_a_class_are_compared_as_trees(self, client: Client, namespace: str, verb: str) -> None:
        def set_x(obj: Unstructured) -> None:
            obj["data"] = {"x": "1"}

        tree = {"metadata": {"name": "a", "namespace": namespace}}
        kind = Unstructured.for_kind("v1", "ConfigMap")
        did = [(await getattr(client, verb)(kind.from_dict({**tree}), set_x)).operation for _ in range(2)]
        assert did == ["created", "unchanged"]


async def test_a_patch_leaves_alone_what_others_wrote_meanwhile(client: Client, namespace: str) -> None:
    await client.create(config_map())

    def late(config_map: ConfigMap) -> None:
        config_map.data["x"] = "1"

    result = assert_type(await client.create_or_patch(config_map(), late), CreateOrUpdateResult[ConfigMap])
    changed, did = result
    assert (assert_type(changed, ConfigMap).data, did) == ({"x": "1"}, "updated")


async def test_status_and_the_rest_are_patched_and_reported_separately(client: Client, namespace: str) -> None:
    await client.create(autoscaler())

    def both(autoscaler: HorizontalPodAutoscaler) -> None:
        autoscaler.spec.max_replicas = 5
        autoscaler.status.desired_replicas = 4
        autoscaler.status.conditions = [HorizontalPodAutoscalerCondition(type="AbleToScale", status="True")]

    def status(autoscaler: HorizontalPodAutoscaler) -> None:
        autoscaler.status.desired_replicas = 2

    first = await client.create_or_patch(autoscaler(), both)
    assert (first.operation, first.object.spec.max_replicas, first.object.status.desired_replicas) == ("updatedStatus", 5, 4)
    second = await client.create_or_patch(autoscaler(), status)
    assert (second.operation, second.object.status.desired_replicas) == ("updatedStatusOnly", 2)
    assert (await client.create_or_patch(autoscaler(), status)).operation == "unchanged"


class TestChange:
    async def test_it_reads_again_after_a_conflict_and_changes_that(self, client: Client, namespace: str) -> None:
        await client.create(config_map())
        calls: list[str] = []
        other = client.in_namespace(namespace)

        class Disturbed(Client):
            """Another client writes between the first read and the update."""

            async def _read(self, kind, name, namespace):  # type: ignore[no-untyped-def]
                found = await super()._read(kind, name, namespace)
                calls.append(found.metadata.resource_version)
                if len(calls) == 1:
                    await other.patch(ConfigMap, "a", {"data": {"theirs": "1"}})
                return found

        disturbed = Disturbed(client.transport, namespace=namespace)
        changed = await disturbed.update_with_retry(ConfigMap, "a", wanted)
        assert (changed.data, len(calls)) == ({"theirs": "1", "x": "1"}, 2)

    async def test_nothing_is_written_where_nothing_changed(self, client: Client, namespace: str) -> None:
        created = await client.create(config_map(x="1"))
        assert (await client.update_with_retry(ConfigMap, "a", wanted)).metadata.resource_version == created.metadata.resource_version

    async def test_status_is_changed_apart(self, client: Client, namespace: str) -> None:
        await client.create(autoscaler())

        def observe(autoscaler: HorizontalPodAutoscaler) -> None:
            autoscaler.status.desired_replicas = 7

        changed = await client.update_with_retry(HorizontalPodAutoscaler, "web", observe, subresource="status")
        assert changed.status.desired_replicas == 7

    async def test_a_missing_object_is_not_created(self, client: Client, namespace: str) -> None:
        with pytest.raises(NotFound):
            await client.update_with_retry(ConfigMap, "a", wanted)

    async def test_a_conflict_that_does_not_end_is_the_error(self, client: Client, namespace: str) -> None:
        created = await client.create(config_map())
        await client.patch(ConfigMap, "a", {"data": {"theirs": "1"}})

        def stale(config_map: ConfigMap) -> None:
            config_map.metadata.resource_version = created.metadata.resource_version
            config_map.data["x"] = "1"

        with pytest.raises(Conflict):
            await client.update_with_retry(ConfigMap, "a", stale)
