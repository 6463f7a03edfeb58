"""Server-side apply: typed configurations of only the set fields, conflicts, ownership that is taken out, given up and moved."""

from __future__ import annotations

import pytest

from kubeloop.api.apps.v1 import Deployment, DeploymentSpec
from kubeloop.api.autoscaling.v2 import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus
from kubeloop.api.core.v1 import ConfigMap, Container, EmptyDirVolumeSource, EnvVar, Pod, PodSpec, PodTemplateSpec, Service, Volume
from kubeloop.client import Client, WriteOptions, extract
from kubeloop.client.managed_fields import upgrade_patch
from kubeloop.meta import Conflict, IncompleteObject, LabelSelector, NotFound, ObjectMeta, Resource, Unstructured

pytestmark = pytest.mark.server


def deployment(**spec: object) -> Deployment:
    return Deployment(metadata=ObjectMeta(name="web"), spec=DeploymentSpec(**spec))  # type: ignore[arg-type]  # fields by name


def whole() -> Deployment:
    template = PodTemplateSpec(metadata=ObjectMeta(labels={"app": "web"}), spec=PodSpec(containers=[Container(name="c", image="nginx")]))
    return deployment(selector=LabelSelector(match_labels={"app": "web"}), template=template)


def owned(obj: Resource, manager: str) -> dict[str, object]:
    [entry] = [one for one in obj.metadata.managed_fields if one.manager == manager]
    return entry.fields()


async def test_apply_creates_and_owns_only_what_was_set(client: Client, namespace: str) -> None:
    applied = await client.apply(whole(), field_manager="ops")
    assert isinstance(applied, Deployment)
    assert applied.spec.replicas == 1  # the server's default, and the server's own
    container = 'k:{"name":"c"}'
    assert owned(applied, "ops") == {
        "f:spec": {
            "f:selector": {},
            "f:template": {
                "f:metadata": {"f:labels": {"f:app": {}}},
                "f:spec": {"f:containers": {container: {".": {}, "f:image": {}, "f:name": {}}}},
            },
        }
    }


async def test_a_part_with_defaults_of_its_class_overwrites_nothing(client: Client, namespace: str) -> None:
    await client.apply(whole(), field_manager="ops")
    scaled = await client.apply(deployment(replicas=0), field_manager="scaler")
    assert scaled.spec.replicas == 0
    assert scaled.spec.selector == LabelSelector(match_labels={"app": "web"})
    assert [one.name for one in scaled.spec.template.spec.containers] == ["c"]
    assert owned(scaled, "scaler") == {"f:spec": {"f:replicas": {}}}


async def test_an_empty_struct_that_was_set_is_sent(client: Client, namespace: str) -> None:
    spec = PodSpec(containers=[Container(name="c", image="nginx")], volumes=[Volume(name="v", empty_dir=EmptyDirVolumeSource())])
    pod = await client.apply(Pod(metadata=ObjectMeta(name="p"), spec=spec), field_manager="ops")
    assert 'k:{"name":"v"}' in str(owned(pod, "ops"))
    assert pod.spec is not None
    assert next(one for one in pod.spec.volumes if one.name == "v").empty_dir is not None


async def test_a_field_that_is_no_longer_applied_is_removed(client: Client, namespace: str) -> None:
    await client.apply(ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "1", "y": "1"}), field_manager="ops")
    applied = await client.apply(ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "2"}), field_manager="ops")
    assert applied.data == {"x": "2"}


async def test_fields_of_another_manager_conflict_by_name_and_force_takes_them(client: Client, namespace: str) -> None:
    await client.apply(ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "1"}), field_manager="ops")
    other = ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "2"})
    with pytest.raises(Conflict) as raised:
        await client.apply(other, field_manager="dev")
    assert [(cause.field, cause.message) for cause in raised.value.causes] == [(".data.x", 'conflict with "ops"')]
    taken = await client.apply(other, field_manager="dev", force=True)
    assert taken.data == {"x": "2"}
    assert owned(taken, "dev") == {"f:data": {"f:x": {}}}


async def test_kinds_without_a_class_are_applied_alike(client: Client, namespace: str) -> None:
    kind = Unstructured.for_kind("v1", "ConfigMap")
    tree = {"metadata": {"name": "a", "namespace": namespace}, "data": {"x": "1"}}
    applied = await client.apply(kind.from_dict(tree), field_manager="ops")
    assert applied["data"] == {"x": "1"}
    changed = extract(applied, "ops")
    assert changed.to_dict() == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": namespace},
        "data": {"x": "1"},
    }
    changed["data"]["x"] = "2"
    assert (await client.apply(changed, field_manager="ops"))["data"] == {"x": "2"}


async def test_a_dry_run_of_an_apply_stores_nothing(client: Client, namespace: str) -> None:
    answer = await client.apply(ConfigMap(metadata=ObjectMeta(name="a")), field_manager="ops", options=WriteOptions(dry_run=True))
    assert answer.metadata.uid
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "a")


async def test_status_is_applied_apart(client: Client, namespace: str) -> None:
    spec = {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}
    kind = Unstructured.for_kind("autoscaling/v2", "HorizontalPodAutoscaler")
    await client.apply(kind.from_dict({"metadata": {"name": "web"}, "spec": spec}), field_manager="ops")
    part = HorizontalPodAutoscaler(metadata=ObjectMeta(name="web"), status=HorizontalPodAutoscalerStatus(desired_replicas=2))
    read = await client.apply(part, field_manager="watcher", subresource="status")
    assert (read.status.desired_replicas, read.spec.max_replicas) == (2, 3)
    assert extract(read, "watcher", subresource="status").status.desired_replicas == 2
    assert extract(read, "watcher").status.desired_replicas == 0


class TestExtract:
    async def test_an_extracted_configuration_that_is_applied_again_changes_nothing(self, client: Client, namespace: str) -> None:
        await client.apply(whole(), field_manager="ops")
        before = await client.apply(deployment(replicas=3), field_manager="scaler")
        mine = extract(before, "ops")
        assert (mine.spec.replicas, mine.metadata.name, mine.metadata.namespace) == (None, "web", namespace)
        again = await client.apply(mine, field_manager="ops")
        # Not the version: a controller may write the status at any time.
        assert (again.spec, again.metadata.generation) == (before.spec, before.metadata.generation)
        assert (owned(again, "ops"), owned(again, "scaler")) == (owned(before, "ops"), owned(before, "scaler"))

    async def test_a_change_of_what_was_extracted_is_sent_and_the_rest_stays_owned(self, client: Client, namespace: str) -> None:
        await client.apply(whole(), field_manager="ops")
        mine = await client.get_owned(Deployment, "web", field_manager="ops")
        assert mine.spec.template.spec is not None
        mine.spec.template.spec.containers[0].env.append(EnvVar(name="X", value="1"))
        changed = await client.apply(mine, field_manager="ops")
        assert changed.spec.template.spec is not None
        assert changed.spec.template.spec.containers[0].env == [EnvVar(name="X", value="1")]
        assert changed.spec.template.spec.containers[0].image == "nginx"
        given_up = extract(changed, "ops")
        assert given_up.spec.template.spec is not None
        given_up.spec.template.spec.containers[0].env.clear()
        final = await client.apply(given_up, field_manager="ops")
        assert final.spec.template.spec is not None
        assert final.spec.template.spec.containers[0].env == []

    async def test_list_items_are_extracted_by_their_keys(self, client: Client, namespace: str) -> None:
        ports = [{"port": 80, "name": "http"}, {"port": 53, "protocol": "UDP", "name": "dns"}]
        tree = {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": ports}}
        await client.apply(Unstructured.for_kind("v1", "Service").from_dict(tree), field_manager="ops")
        part = {"metadata": {"name": "web", "labels": {"a": "b"}}, "spec": {"ports": [{"port": 53, "protocol": "UDP", "targetPort": 5353}]}}
        await client.apply(Unstructured.for_kind("v1", "Service").from_dict(part), field_manager="dns")
        mine = await client.get_owned(Service, "web", field_manager="dns")
        assert mine.spec is not None
        assert [(one.port, one.protocol, one.target_port, one.name) for one in mine.spec.ports] == [(53, "UDP", 5353, None)]
        assert (mine.spec.selector, mine.spec.cluster_ip, mine.metadata.labels) == ({}, None, {"a": "b"})

    async def test_a_manager_that_owns_nothing_gets_a_name_only(self, client: Client, namespace: str) -> None:
        await client.create(ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "1"}))
        mine = await client.get_owned(ConfigMap, "a", field_manager="ops")
        assert (mine.metadata.name, mine.data) == ("a", {})

    async def test_an_empty_map_that_others_filled_is_not_taken_over(self, client: Client, namespace: str) -> None:
        kind = Unstructured.for_kind("v1", "ConfigMap")
        empty = kind.from_dict({"metadata": {"name": "a", "labels": {}}, "data": {}})
        await client.apply(empty, field_manager="ops")
        found = await client.patch(kind, "a", {"data": {"x": "1"}}, options=WriteOptions(field_manager="dev"))
        mine = extract(found, "ops")
        assert mine.get("data") in (None, {})

    async def test_it_is_never_enough_for_an_update(self, client: Client, namespace: str) -> None:
        await client.apply(ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "1"}), field_manager="ops")
        with pytest.raises(IncompleteObject, match='only the fields that are owned by field manager "ops"'):
            await client.update(await client.get_owned(ConfigMap, "a", field_manager="ops"))

    async def test_an_object_without_managed_fields_says_so(self, client: Client, namespace: str) -> None:
        with pytest.raises(ValueError, match=r"has no metadata\.managedFields"):
            extract(ConfigMap(metadata=ObjectMeta(name="a")), "ops")


async def test_n184_what_was_owned_by_update_is_owned_by_apply_afterwards_and_given_up_with_it(client: Client, namespace: str) -> None:
    created = ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "1", "old": "1"})
    await client.create(created, options=WriteOptions(field_manager="helm"))
    await client.apply(ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "1"}), field_manager="ops")
    moved = await client.upgrade_ownership(ConfigMap, "a", updaters=["helm"], field_manager="ops")
    assert [(one.manager, one.operation) for one in moved.metadata.managed_fields] == [("ops", "Apply")]
    assert {"f:x", "f:old"} <= set(owned(moved, "ops")["f:data"])  # type: ignore[call-overload]  # a tree
    applied = await client.apply(ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "1"}), field_manager="ops")
    assert applied.data == {"x": "1"}
    assert await client.upgrade_ownership(ConfigMap, "a", updaters=["helm"], field_manager="ops") == applied


async def test_n184_the_patch_holds_at_the_version_that_was_read_and_at_no_other(client: Client, namespace: str) -> None:
    await client.create(ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "1"}), options=WriteOptions(field_manager="helm"))
    patch = upgrade_patch(await client.get(ConfigMap, "a"), ["helm"], "ops")
    written = await client.patch(ConfigMap, "a", {"data": {"x": "2"}}, options=WriteOptions(field_manager="dev"))
    with pytest.raises(Conflict):
        await client.patch(ConfigMap, "a", patch, type="json")
    assert await client.get(ConfigMap, "a") == written
    moved = await client.patch(ConfigMap, "a", upgrade_patch(written, ["helm"], "ops"), type="json")
    assert "ops" in {one.manager for one in moved.metadata.managed_fields}


class TestRefusedBeforeItIsSent:
    async def test_o190_an_object_with_managed_fields(self, client: Client, namespace: str) -> None:
        read = await client.apply(ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "1"}), field_manager="ops")
        with pytest.raises(ValueError, match=r"metadata\.managedFields: ConfigMap .* was read, not made to be applied"):
            await client.apply(read, field_manager="ops")

    async def test_an_object_that_was_read(self, client: Client, namespace: str) -> None:
        read = await client.create(ConfigMap(metadata=ObjectMeta(name="a")))
        read.metadata.managed_fields.clear()
        with pytest.raises(ValueError, match=r"would make all of its fields yours"):
            await client.apply(read, field_manager="ops")

    async def test_no_field_manager(self, client: Client, namespace: str) -> None:
        with pytest.raises(ValueError, match="apply needs a field manager"):
            await client.apply(ConfigMap(metadata=ObjectMeta(name="a")))

    async def test_no_name(self, client: Client, namespace: str) -> None:
        with pytest.raises(ValueError, match=r"metadata\.name: the ConfigMap has none"):
            await client.apply(ConfigMap(metadata=ObjectMeta(generate_name="a-")), field_manager="ops")

    async def test_a_value_of_another_type(self, client: Client, namespace: str) -> None:
        with pytest.raises(ValueError, match=r'Deployment "web": spec\.replicas: expected int \| null, got str'):
            await client.apply(deployment(replicas="3"), field_manager="ops")
