"""The client's types, as a user's type checker sees them; and the same calls run."""

from __future__ import annotations

from typing import assert_type

import msgspec
import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.autoscaling.v1 import Scale
from kubeloop.api.core.v1 import ConfigMap, Pod
from kubeloop.client import (
    ALL_NAMESPACES,
    Client,
    CreateOrUpdateResult,
    DeleteResult,
    Event,
    ListCall,
    ListOptions,
    ObjectList,
    ResourceMapping,
    Subresource,
    Watch,
    extract,
)
from kubeloop.meta import ObjectMeta, PartialObject, Resource, Status, Unstructured, custom_resource
from kubeloop.transport import Response, Stream

pytestmark = pytest.mark.server


class WidgetSpec(msgspec.Struct):
    size: int = 0


@custom_resource("example.com/v1", plural="widgets")
class Widget(Resource):
    spec: WidgetSpec = msgspec.field(default_factory=WidgetSpec)


async def test_reading_gives_the_kind_that_was_asked_for(client: Client, namespace: str) -> None:
    created = assert_type(await client.create(ConfigMap(metadata=ObjectMeta(name="a"))), ConfigMap)
    assert_type(await client.get(ConfigMap, "a"), ConfigMap)
    assert_type(await client.get_metadata(ConfigMap, "a"), PartialObject)
    assert_type(await client.update(created), ConfigMap)
    assert_type(await client.patch(ConfigMap, "a", {"data": {"x": "1"}}), ConfigMap)
    assert_type(await client.mapping(ConfigMap), ResourceMapping)
    plain = Unstructured.for_kind("v1", "ConfigMap")
    assert_type(plain, type[Unstructured])
    assert_type(await client.get(plain, "a"), Unstructured)


async def test_lists_know_their_items(client: Client, namespace: str) -> None:
    call = assert_type(client.list(Pod, namespace=namespace), ListCall[Pod])
    assert_type(await call, ObjectList[Pod])
    async for pod in client.list(Pod, namespace=namespace):
        assert_type(pod, Pod)
    async for partial in client.list_metadata(Pod, namespace=namespace):
        assert_type(partial, PartialObject)
    page = await client.list_page(Pod, options=ListOptions(limit=1), namespace=namespace)
    assert_type(page, ObjectList[Pod])
    assert_type(page.resource_version, str)


async def test_watches_know_their_events(client: Client, namespace: str) -> None:
    await client.create(ConfigMap(metadata=ObjectMeta(name="a")))
    watch = assert_type(client.watch(ConfigMap, namespace=namespace), Watch[ConfigMap])
    async with watch as events:
        async for event in events:
            assert_type(event, Event[ConfigMap])
            assert_type(event.object.data, dict[str, str])
            break


async def test_what_deletion_gives_is_either_the_object_or_a_status(client: Client, namespace: str) -> None:
    created = await client.create(ConfigMap(metadata=ObjectMeta(name="a")))
    await client.create(ConfigMap(metadata=ObjectMeta(name="b")))
    assert_type(await client.delete(created), DeleteResult[ConfigMap])
    assert_type(await client.delete(ConfigMap, "b"), DeleteResult[ConfigMap])
    assert_type(await client.delete_collection(ConfigMap), ObjectList[ConfigMap])


async def test_waiting_gives_the_object(client: Client, namespace: str) -> None:
    await client.create(ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "1"}))
    assert_type(await client.wait_for(ConfigMap, "a", lambda obj: assert_type(obj, ConfigMap).data, timeout=20), ConfigMap)


async def test_patches_and_applies_give_what_they_were_given(client: Client, namespace: str) -> None:
    applied = assert_type(await client.apply(ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "1"}), field_manager="ops"), ConfigMap)
    assert_type(extract(applied, "ops"), ConfigMap)
    assert_type(await client.get_owned(ConfigMap, "a", field_manager="ops"), ConfigMap)
    applied.data["y"] = "1"
    assert_type(await client.patch(applied), ConfigMap)
    assert_type(await client.patch(ConfigMap, "a", ConfigMap(data={"z": "1"})), ConfigMap)
    partial = assert_type(await client.get_metadata(ConfigMap, "a"), PartialObject)
    assert_type(await client.patch_metadata(ConfigMap, partial), PartialObject)
    assert_type(await client.patch_metadata(ConfigMap, "a", {"metadata": {"labels": {"a": "b"}}}), PartialObject)


async def test_changes_say_what_they_did(client: Client, namespace: str) -> None:
    def wanted(config_map: ConfigMap) -> None:
        assert_type(config_map, ConfigMap).data["x"] = "1"

    changed = assert_type(await client.create_or_update(ConfigMap(metadata=ObjectMeta(name="a")), wanted), CreateOrUpdateResult[ConfigMap])
    assert_type(changed.object, ConfigMap)
    obj, _ = await client.create_or_patch(ConfigMap(metadata=ObjectMeta(name="a")), wanted)
    assert_type(obj, ConfigMap)
    assert_type(await client.update_with_retry(ConfigMap, "a", wanted), ConfigMap)


async def test_views_are_clients(client: Client, namespace: str) -> None:
    assert_type(client.in_namespace(namespace), Client)
    assert_type(client.with_options(field_manager="ops", dry_run=True, field_validation="Strict"), Client)


async def test_below_the_client_are_bytes(client: Client) -> None:
    answer = assert_type(await client.transport.request("GET", "/version"), Response)
    assert_type(answer.body, bytes)
    async with client.transport.stream("GET", "/version") as stream:
        assert_type(stream, Stream)
        async for chunk in stream.chunks():
            assert_type(chunk, bytes)
    async for page in client.list(ConfigMap, namespace=ALL_NAMESPACES).pages():
        assert_type(page, ObjectList[ConfigMap])


async def scaling(client: Client) -> None:
    """Only for the type checker."""
    assert_type(await client.get_scale(Deployment, "web"), Scale)
    assert_type(await client.set_scale(Deployment, "web", 2), Scale)
    assert_type((await client.get(Widget, "w")).spec.size, int)
    assert_type(client.subresource(Deployment, "web", "scale"), Subresource)
    assert_type(await client.subresource(Deployment, "web", "scale").get(Scale), Scale)
    assert_type(await client.subresource(Deployment, "web", "scale").update(Scale()), Scale)
    assert_type(await client.subresource(Deployment, "web", "scale").create(Scale()), Scale | Status)
    assert_type(await client.wait_for(Pod, "web-0", "condition=Ready", timeout=1), Pod)
    assert_type(await client.wait_ready(Deployment, "web", timeout=1), Deployment)
    assert_type(await client.wait_rollout(Deployment, "web", timeout=1), str)
    async for line in client.rollout_status(Deployment, "web", timeout=1):
        assert_type(line, str)
    assert_type(await client.wait_for_events(Pod, lambda event: event.object.status.phase, timeout=1, namespace=ALL_NAMESPACES), Event[Pod])
    assert_type(client.watch_metadata(Pod, namespace=ALL_NAMESPACES), Watch[PartialObject])


async def mistakes(client: Client) -> None:
    """Only for the type checker: each line must be an error."""
    await client.create_or_update(Pod(), lambda obj: obj.data)  # type: ignore[attr-defined]  # a field that a Pod has not
    await client.patch(Pod, "a")  # type: ignore[call-overload]  # no patch
    await client.delete(Pod)  # type: ignore[call-overload]  # no name
