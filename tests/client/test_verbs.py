"""The verbs, on typed kinds, kinds declared in Python, and kinds without a class."""

from __future__ import annotations

import msgspec
import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import ConfigMap, Namespace, Pod, Secret
from kubeloop.api.networking.v1 import Ingress, IngressLoadBalancerIngress, IngressLoadBalancerStatus, IngressStatus
from kubeloop.client import ALL_NAMESPACES, Client, DeleteOptions, ObjectList, WriteOptions
from kubeloop.meta import (
    AlreadyExists,
    BadRequest,
    Conflict,
    IncompleteObject,
    Invalid,
    NotFound,
    ObjectMeta,
    PartialObject,
    RequestEntityTooLarge,
    Resource,
    UnknownKind,
    Unstructured,
    custom_resource,
)

pytestmark = pytest.mark.server


def config_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, labels={"app": "web"}), data=data)


def pod(name: str) -> Pod:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}, Pod)


DEPLOYMENT = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}},
    },
}


async def test_a_created_object_can_be_read(client: Client, namespace: str) -> None:
    created = await client.create(config_map("a", x="1"))
    assert created.metadata.namespace == namespace
    assert created.metadata.uid
    read = await client.get(ConfigMap, "a")
    assert (read, read.data) == (created, {"x": "1"})


async def test_a_generated_name_comes_back(client: Client, namespace: str) -> None:
    created = await client.create(ConfigMap(metadata=ObjectMeta(generate_name="job-")))
    assert created.metadata.name.startswith("job-")


async def test_the_same_name_twice_is_refused(client: Client, namespace: str) -> None:
    await client.create(config_map("a"))
    with pytest.raises(AlreadyExists, match=f'configmaps "a" already exists .create configmaps in namespace "{namespace}"'):
        await client.create(config_map("a"))


async def test_a_missing_object_is_named_with_its_namespace(client: Client, namespace: str) -> None:
    with pytest.raises(NotFound) as raised:
        await client.get(Pod, "absent")
    assert str(raised.value) == f'NotFound: pods "absent" not found (get pods "absent" in namespace "{namespace}")'


async def test_an_update_sends_the_change_and_keeps_the_rest(client: Client, namespace: str) -> None:
    created = await client.create(config_map("a", x="1"))
    created.data["y"] = "2"
    updated = await client.update(created)
    assert updated.data == {"x": "1", "y": "2"}
    assert updated.metadata.labels == {"app": "web"}
    assert updated.metadata.resource_version != created.metadata.resource_version


async def test_an_update_of_an_old_version_is_a_conflict(client: Client, namespace: str) -> None:
    first = await client.create(config_map("a"))
    second = await client.get(ConfigMap, "a")
    second.data["x"] = "1"
    await client.update(second)
    first.data["x"] = "2"
    with pytest.raises(Conflict, match="the object has been modified"):
        await client.update(first)


async def test_an_object_made_here_is_not_sent_as_an_update(client: Client, namespace: str) -> None:
    await client.create(config_map("a", x="1"))
    with pytest.raises(IncompleteObject, match="was made here, not read from the server"):
        await client.update(config_map("a", y="2"))
    assert (await client.get(ConfigMap, "a")).data == {"x": "1"}


async def test_metadata_alone_can_be_read_but_not_sent_back(client: Client, namespace: str) -> None:
    created = await client.create(config_map("a", x="1"))
    partial = await client.get_metadata(ConfigMap, "a")
    assert isinstance(partial, PartialObject)
    assert partial.metadata.uid == created.metadata.uid
    assert [one.metadata.name async for one in client.list_metadata(ConfigMap, namespace=namespace, label_selector="app=web")] == ["a"]


async def test_a_merge_patch_changes_parts(client: Client, namespace: str) -> None:
    await client.create(config_map("a", x="1", y="1"))
    assert (await client.patch(ConfigMap, "a", {"data": {"x": None, "z": "3"}})).data == {"y": "1", "z": "3"}


async def test_a_json_patch_is_a_list_of_operations(client: Client, namespace: str) -> None:
    await client.create(config_map("a", x="1"))
    operations = [{"op": "test", "path": "/data/x", "value": "1"}, {"op": "replace", "path": "/data/x", "value": "2"}]
    assert (await client.patch(ConfigMap, "a", operations, type="json")).data == {"x": "2"}


async def test_a_strategic_patch_merges_lists_by_key(client: Client, namespace: str) -> None:
    await client.create(msgspec.convert(DEPLOYMENT, Deployment))
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "busybox"}]}}}}
    patched = await client.patch(Deployment, "web", patch, type="strategic")
    assert patched.spec is not None
    assert {one.name for one in patched.spec.template.spec.containers} == {"c", "side"}


async def test_a_patch_at_an_old_version_is_a_conflict(client: Client, namespace: str) -> None:
    old = await client.create(config_map("a"))
    await client.patch(ConfigMap, "a", {"data": {"x": "1"}})
    with pytest.raises(Conflict):
        await client.patch(ConfigMap, "a", {"metadata": {"resourceVersion": old.metadata.resource_version}, "data": {"x": "2"}})


async def test_a_dry_run_stores_nothing(client: Client, namespace: str) -> None:
    await client.create(config_map("a"), options=WriteOptions(dry_run=True))
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "a")


async def test_status_is_written_apart(client: Client, namespace: str) -> None:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    created = await client.create(msgspec.convert({"metadata": {"name": "web"}, "spec": {"defaultBackend": backend}}, Ingress))
    created.spec.ingress_class_name = "ignored"
    created.status = IngressStatus(load_balancer=IngressLoadBalancerStatus(ingress=[IngressLoadBalancerIngress(ip="192.0.2.1")]))
    await client.update_status(created)
    updated = await client.get(Ingress, "web")
    assert updated.status.load_balancer.ingress[0].ip == "192.0.2.1"
    assert updated.spec.ingress_class_name != "ignored"


async def test_scale_is_read_and_set(client: Client, namespace: str) -> None:
    await client.create(msgspec.convert(DEPLOYMENT, Deployment))
    scaled = await client.set_scale(Deployment, "web", 4)
    assert scaled.spec is not None
    assert scaled.spec.replicas == 4
    read = await client.get_scale(Deployment, "web")
    assert read.spec is not None
    assert read.spec.replicas == 4
    with pytest.raises(NotFound):
        await client.get_scale(Deployment, "absent")


async def test_an_invalid_object_is_refused_with_a_cause_per_field(client: Client, namespace: str) -> None:
    with pytest.raises(Invalid) as raised:
        await client.create(config_map("Not_A_Name"))
    assert [cause.field for cause in raised.value.causes] == ["metadata.name"]
    assert "Invalid value" in str(raised.value)


async def test_an_unknown_field_is_refused_if_asked_for(client: Client, namespace: str) -> None:
    kind = Unstructured.for_kind("v1", "ConfigMap")
    odd = kind.from_dict({"metadata": {"name": "a"}, "dta": {"x": "1"}})
    with pytest.raises(BadRequest, match='unknown field "dta"'):
        await client.create(odd, options=WriteOptions(field_validation="Strict"))


async def test_an_object_too_large_is_refused_with_its_cause(client: Client, namespace: str) -> None:
    with pytest.raises(RequestEntityTooLarge) as raised:
        await client.create(config_map("a", x="x" * (4 << 20)))
    assert "limit is 3145728" in str(raised.value)


async def test_deleting_by_name(client: Client, namespace: str) -> None:
    await client.create(config_map("a"))
    answer = await client.delete(ConfigMap, "a")
    assert (answer.gone, answer.object) == (True, None)
    assert answer.status is not None
    assert answer.status.status == "Success"
    with pytest.raises(NotFound):
        await client.delete(ConfigMap, "a")


async def test_deleting_an_object_does_not_touch_its_successor(client: Client, namespace: str) -> None:
    old = await client.create(config_map("a"))
    await client.delete(old)
    new = await client.create(config_map("a"))
    with pytest.raises(Conflict, match="UID in the precondition"):
        await client.delete(old)
    assert (await client.get(ConfigMap, "a")).metadata.uid == new.metadata.uid


async def test_a_precondition_on_the_version_holds(client: Client, namespace: str) -> None:
    old = await client.create(config_map("a"))
    await client.patch(ConfigMap, "a", {"data": {"x": "1"}})
    with pytest.raises(Conflict):
        await client.delete(ConfigMap, "a", options=DeleteOptions(resource_version=old.metadata.resource_version))


async def test_an_object_with_a_finalizer_stays_until_it_is_taken_off(client: Client, namespace: str) -> None:
    held = config_map("a")
    held.metadata.finalizers = ["example.com/hold"]
    await client.create(held)
    going = await client.delete(ConfigMap, "a")
    assert not going.gone
    assert going.object is not None
    assert going.object.metadata.deletion_timestamp is not None
    await client.patch(ConfigMap, "a", {"metadata": {"finalizers": None}})
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "a")


async def test_deleting_a_collection_by_label(client: Client, namespace: str) -> None:
    for name in ("a", "b"):
        await client.create(config_map(name))
    await client.create(ConfigMap(metadata=ObjectMeta(name="other", labels={"app": "db"})))
    deleted = await client.delete_collection(ConfigMap, label_selector={"app": "web"})
    assert isinstance(deleted, ObjectList)
    assert [one.metadata.name async for one in client.list(ConfigMap, namespace=namespace, label_selector="app")] == ["other"]


async def test_a_pod_deleted_without_grace_is_gone(client: Client, namespace: str) -> None:
    await client.create(pod("web-0"))
    await client.delete(Pod, "web-0", grace_period_seconds=0)
    with pytest.raises(NotFound):
        await client.get(Pod, "web-0")


async def test_a_pod_is_bound_once(client: Client, namespace: str) -> None:
    gated = pod("web-0")
    gated.spec.scheduler_name = "absent"
    created = await client.create(gated)
    with pytest.raises(Conflict):
        await client.pods.bind("web-0", "node-1", uid="another")
    await client.pods.bind("web-0", "node-1", uid=created.metadata.uid)
    bound = await client.get(Pod, "web-0")
    assert bound.spec is not None
    assert bound.spec.node_name == "node-1"
    with pytest.raises(Conflict, match="is already assigned to node"):
        await client.pods.bind("web-0", "node-2")


async def test_a_pod_is_evicted(client: Client, namespace: str) -> None:
    gated = pod("web-0")
    gated.spec.scheduler_name = "absent"
    await client.create(gated)
    await client.pods.evict("web-0", grace_period_seconds=0)
    with pytest.raises(NotFound):
        await client.get(Pod, "web-0")


async def test_bytes_stay_bytes(client: Client, namespace: str) -> None:
    await client.create(Secret(metadata=ObjectMeta(name="s"), data={"key": b"\x00\xff"}))
    assert (await client.get(Secret, "s")).data == {"key": b"\x00\xff"}


async def test_a_kind_without_a_class_is_found_by_discovery(client: Client, namespace: str) -> None:
    kind = Unstructured.for_kind("apps/v1", "Deployment")
    created = await client.create(kind.from_dict(DEPLOYMENT | {"metadata": {"name": "plain", "namespace": namespace}}))
    created["spec"]["replicas"] = 2
    updated = await client.update(created)
    assert updated["spec"]["replicas"] == 2
    assert (await client.mapping(kind)).path(namespace, "plain") == f"/apis/apps/v1/namespaces/{namespace}/deployments/plain"


async def test_an_unknown_kind_names_the_kind_and_the_way_out(client: Client) -> None:
    with pytest.raises(UnknownKind, match=r'serves no kind "Deploymnet" in apps/v1; did you mean Deployment'):
        await client.get(Unstructured.for_kind("apps/v1", "Deploymnet"), "x")
    with pytest.raises(UnknownKind, match=r"it serves Deployment in apps/v1: correct apiVersion"):
        await client.get(Unstructured.for_kind("extensions/v1beta1", "Deployment"), "x")
    with pytest.raises(UnknownKind, match=r"install the CustomResourceDefinition that defines it"):
        await client.get(Unstructured.for_kind("example.com/v1", "Qqqqqq"), "x")


class WidgetSpec(msgspec.Struct, omit_defaults=True):
    size: int = 0


@custom_resource("example.com/v1", plural="widgets")
class Widget(Resource):
    spec: WidgetSpec = msgspec.field(default_factory=WidgetSpec)


async def test_a_declared_kind_that_is_not_installed_says_so(client: Client, namespace: str) -> None:
    with pytest.raises(NotFound, match=r"CustomResourceDefinition installed\? .404 page not found. .list widgets.example.com"):
        await client.list(Widget, namespace=ALL_NAMESPACES)


async def test_a_cluster_scoped_kind_takes_no_namespace(client: Client) -> None:
    assert (await client.get(Namespace, "default")).metadata.name == "default"
    with pytest.raises(ValueError, match="Namespace is cluster-scoped"):
        await client.get(Namespace, "default", namespace="shop")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2fb", "a b", "ä", "a?b"])
async def test_a_name_that_would_reach_another_path_is_refused_before_any_request(client: Client, name: str) -> None:
    with pytest.raises(ValueError):
        await client.get(ConfigMap, name, namespace="default")
