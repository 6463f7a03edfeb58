"""Patches: as trees, as typed parts, and as the changes made to what was read; each on the server, and seen by others."""

from __future__ import annotations

import copy

import pytest

from kubeloop.api.apps.v1 import Deployment, DeploymentSpec
from kubeloop.api.autoscaling.v2 import CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec
from kubeloop.api.core.v1 import (
    ConfigMap,
    ConfigMapVolumeSource,
    Container,
    EmptyDirVolumeSource,
    EnvVar,
    Pod,
    PodSpec,
    PodTemplateSpec,
    Service,
    ServicePort,
    ServiceSpec,
    Volume,
)
from kubeloop.client import Client, WriteOptions
from kubeloop.client.verbs.patch import changes_of
from kubeloop.codec import decode
from kubeloop.meta import BadRequest, Conflict, IncompleteObject, Invalid, LabelSelector, ObjectMeta, Unstructured

pytestmark = pytest.mark.server


def config_map(**data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name="a", labels={"app": "web", "tier": "front"}), data=data)


def deployment() -> Deployment:
    labels = {"app": "web"}
    container = Container(name="c", image="nginx:1", env=[EnvVar(name="X", value="1")])
    template = PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=PodSpec(containers=[container]))
    spec = DeploymentSpec(replicas=1, selector=LabelSelector(match_labels=labels), template=template)
    return Deployment(metadata=ObjectMeta(name="web"), spec=spec)


class TestChangesOfAnObject:
    async def test_only_what_was_changed_is_sent_so_that_others_may_write_meanwhile(self, client: Client, namespace: str) -> None:
        mine = await client.create(config_map(x="1", y="1"))
        await client.patch(ConfigMap, "a", {"data": {"theirs": "1"}})
        mine.data["x"] = "2"
        del mine.data["y"]
        mine.metadata.labels["tier"] = "back"
        patched = await client.patch(mine)
        assert patched.data == {"x": "2", "theirs": "1"}
        assert patched.metadata.labels == {"app": "web", "tier": "back"}

    async def test_lists_with_keys_are_patched_item_by_item_so_that_others_may_add_theirs(self, client: Client, namespace: str) -> None:
        mine = await client.create(deployment())
        sidecar = PodTemplateSpec(spec=PodSpec(containers=[Container(name="side", image="busybox")]))
        await client.patch(Deployment, "web", Deployment(spec=DeploymentSpec(template=sidecar)), type="strategic")
        assert mine.spec.template.spec is not None
        mine.spec.template.spec.containers[0].image = "nginx:2"
        mine.spec.template.spec.containers[0].env.append(EnvVar(name="Y", value="2"))
        del mine.spec.template.spec.containers[0].env[0]
        mine.spec.template.spec.volumes.append(Volume(name="v", empty_dir=EmptyDirVolumeSource()))
        patched = await client.patch(mine)
        assert patched.spec.template.spec is not None
        found = {one.name: one for one in patched.spec.template.spec.containers}
        assert {name: one.image for name, one in found.items()} == {"c": "nginx:2", "side": "busybox"}
        assert found["c"].env == [EnvVar(name="Y", value="2")]

    async def test_one_of_several_alternatives_pushes_out_the_other(self, client: Client, namespace: str) -> None:
        made = deployment()
        assert made.spec.template.spec is not None
        made.spec.template.spec.volumes = [Volume(name="v", empty_dir=EmptyDirVolumeSource())]
        mine = await client.create(made)
        assert mine.spec.template.spec is not None
        mine.spec.template.spec.volumes[0].empty_dir = None
        mine.spec.template.spec.volumes[0].config_map = ConfigMapVolumeSource(name="settings")
        patched = await client.patch(mine)
        assert patched.spec.template.spec is not None
        [volume] = patched.spec.template.spec.volumes
        assert (volume.empty_dir, volume.config_map and volume.config_map.name) == (None, "settings")

    async def test_a_list_that_is_replaced_whole_is_bound_to_the_version_that_was_read(self, client: Client, namespace: str) -> None:
        mine = await client.create(deployment())
        await client.patch(Deployment, "web", {"metadata": {"labels": {"theirs": "1"}}})
        assert mine.spec.template.spec is not None
        mine.spec.template.spec.containers[0].command = ["sh"]
        with pytest.raises(Conflict):
            await client.patch(mine)
        patched = await client.patch(mine, optimistic_lock=False)
        assert patched.spec.template.spec is not None
        assert (patched.spec.template.spec.containers[0].command, patched.metadata.labels) == (["sh"], {"theirs": "1"})

    async def test_items_that_their_key_does_not_tell_apart_are_replaced_together(self, client: Client, namespace: str) -> None:
        ports = [ServicePort(name="tcp", port=53, protocol="TCP"), ServicePort(name="udp", port=53, protocol="UDP")]
        made = Service(metadata=ObjectMeta(name="dns"), spec=ServiceSpec(selector={"app": "dns"}, ports=ports))
        mine = await client.create(made)
        assert mine.spec is not None
        mine.spec.ports[1].target_port = 5353
        patched = await client.patch(mine)
        assert patched.spec is not None
        assert [(one.name, one.protocol, one.target_port) for one in patched.spec.ports] == [("tcp", "TCP", 53), ("udp", "UDP", 5353)]

    async def test_the_version_can_be_demanded_always(self, client: Client, namespace: str) -> None:
        mine = await client.create(config_map(x="1"))
        await client.patch(ConfigMap, "a", {"data": {"theirs": "1"}})
        mine.data["x"] = "2"
        with pytest.raises(Conflict):
            await client.patch(mine, optimistic_lock=True)

    async def test_a_successor_of_the_same_name_is_left_alone(self, client: Client, namespace: str) -> None:
        mine = await client.create(config_map(x="1"))
        await client.delete(mine)
        await client.create(config_map(x="1"))
        mine.data["x"] = "2"
        with pytest.raises((Conflict, Invalid)):
            await client.patch(mine)
        assert (await client.get(ConfigMap, "a")).data == {"x": "1"}

    async def test_an_optional_field_that_became_none_is_removed(self, client: Client, namespace: str) -> None:
        mine = await client.create(deployment())
        mine.spec.min_ready_seconds = 5
        mine = await client.patch(mine)
        mine.spec.min_ready_seconds = None
        assert (await client.patch(mine)).spec.min_ready_seconds is None

    async def test_of_nothing_changed_nothing_is_sent(self, client: Client, namespace: str) -> None:
        mine = await client.create(deployment())
        assert await client.patch(mine) is mine
        assert changes_of(copy.deepcopy(mine)).patch == {}

    async def test_status_is_patched_apart(self, client: Client, namespace: str) -> None:
        target = CrossVersionObjectReference(api_version="apps/v1", kind="Deployment", name="web")
        spec = HorizontalPodAutoscalerSpec(max_replicas=3, scale_target_ref=target)
        mine = await client.create(HorizontalPodAutoscaler(metadata=ObjectMeta(name="web"), spec=spec))
        mine.status.desired_replicas = 2
        assert (await client.patch(mine, subresource="status")).status.desired_replicas == 2

    async def test_kinds_without_a_class_too(self, client: Client, namespace: str) -> None:
        await client.create(config_map(x="1"))
        mine = await client.get(Unstructured.for_kind("v1", "ConfigMap"), "a")
        assert await client.patch(mine) is mine
        mine["data"]["x"] = "2"
        mine.metadata.labels.pop("tier")
        patched = await client.patch(mine)
        assert (patched["data"], patched.metadata.labels) == ({"x": "2"}, {"app": "web"})

    async def test_metadata_alone_can_be_changed(self, client: Client, namespace: str) -> None:
        await client.create(config_map(x="1"))
        partial = await client.get_metadata(ConfigMap, "a")
        partial.metadata.labels["tier"] = "back"
        partial.metadata.finalizers.append("example.com/hold")
        patched = await client.patch_metadata(ConfigMap, partial)
        assert (patched.metadata.labels["tier"], patched.metadata.finalizers) == ("back", ["example.com/hold"])
        cleared = await client.patch_metadata(ConfigMap, "a", {"metadata": {"finalizers": None}})
        assert cleared.metadata.finalizers == []
        assert (await client.get(ConfigMap, "a")).data == {"x": "1"}

    async def test_renaming_is_refused(self, client: Client, namespace: str) -> None:
        mine = await client.create(config_map())
        mine.metadata.name = "b"
        with pytest.raises(ValueError, match=r'metadata\.name: changed from "a"'):
            await client.patch(mine)

    async def test_an_object_made_here_has_no_changes(self, client: Client, namespace: str) -> None:
        with pytest.raises(IncompleteObject, match="there is nothing to compare it with"):
            await client.patch(config_map())


def test_explicit_nulls_that_stay_untouched_are_no_changes() -> None:
    document = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","creationTimestamp":null,"uid":"u"},"spec":{"containers":null}}'
    pod = decode(Pod, document)
    assert changes_of(pod).patch == {}
    pod.metadata.labels["a"] = "b"
    assert changes_of(pod).patch == {"metadata": {"labels": {"a": "b"}, "uid": "u"}}


class TestTypedParts:
    async def test_a_part_of_an_object_sends_only_what_it_sets(self, client: Client, namespace: str) -> None:
        await client.create(deployment())
        patched = await client.patch(Deployment, "web", Deployment(spec=DeploymentSpec(replicas=0)))
        assert (patched.spec.replicas, patched.spec.selector.match_labels) == (0, {"app": "web"})

    async def test_a_strategic_part_reaches_into_lists_by_key(self, client: Client, namespace: str) -> None:
        await client.create(deployment())
        template = PodTemplateSpec(spec=PodSpec(containers=[Container(name="c", image="nginx:2")]))
        patched = await client.patch(Deployment, "web", Deployment(spec=DeploymentSpec(template=template)), type="strategic")
        assert patched.spec.template.spec is not None
        [container] = patched.spec.template.spec.containers
        assert (container.image, container.env) == ("nginx:2", [EnvVar(name="X", value="1")])

    async def test_an_object_that_was_read_is_refused(self, client: Client, namespace: str) -> None:
        read = await client.create(deployment())
        with pytest.raises(ValueError, match=r"would write all of its fields. Send its changes, client\.patch\(obj\)"):
            await client.patch(Deployment, "web", read)

    async def test_a_part_of_another_kind_is_refused(self, client: Client) -> None:
        with pytest.raises(TypeError, match="a part of a ConfigMap was given for a Deployment"):
            await client.patch(Deployment, "web", config_map())

    async def test_a_value_of_another_type_is_refused_before_it_is_sent(self, client: Client) -> None:
        part = Deployment(spec=DeploymentSpec(replicas="3"))  # type: ignore[arg-type]  # on purpose
        with pytest.raises(ValueError, match=r"spec\.replicas: expected int \| null, got str"):
            await client.patch(Deployment, "web", part)


class TestForms:
    async def test_a_patch_must_be_of_its_types_form(self, client: Client) -> None:
        with pytest.raises(ValueError, match="a json patch is a list of operations, a dict was given"):
            await client.patch(ConfigMap, "a", {"data": {}}, type="json")
        with pytest.raises(ValueError, match="a merge patch is an object, a list was given"):
            await client.patch(ConfigMap, "a", [], type="merge")

    async def test_an_operation_that_does_not_apply_is_invalid(self, client: Client, namespace: str) -> None:
        await client.create(config_map(x="1"))
        with pytest.raises(Invalid):
            await client.patch(ConfigMap, "a", [{"op": "test", "path": "/data/x", "value": "2"}], type="json")

    async def test_strict_validation_refuses_a_field_that_the_server_does_not_know(self, client: Client, namespace: str) -> None:
        await client.create(deployment())
        with pytest.raises((BadRequest, Invalid), match="unknown field"):
            await client.patch(Deployment, "web", {"spec": {"replcas": 3}}, options=WriteOptions(field_validation="Strict"))

    async def test_a_dry_run_answers_with_what_would_be_and_stores_nothing(self, client: Client, namespace: str) -> None:
        await client.create(config_map(x="1"))
        assert (await client.patch(ConfigMap, "a", {"data": {"x": "2"}}, options=WriteOptions(dry_run=True))).data == {"x": "2"}
        assert (await client.get(ConfigMap, "a")).data == {"x": "1"}

    async def test_the_field_manager_is_who_owns_what_was_patched(self, client: Client, namespace: str) -> None:
        await client.create(config_map(x="1"))
        patched = await client.patch(ConfigMap, "a", {"data": {"x": "2"}}, options=WriteOptions(field_manager="ops"))
        assert "ops" in {one.manager for one in patched.metadata.managed_fields}
