"""Parts of objects: what was set is sent, what a class has as a default is not; and what was taken out of an object is sent back whole."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kubeloop.api import find
from kubeloop.api.apps.v1 import Deployment, DeploymentSpec
from kubeloop.api.core.v1 import Container, ContainerPort, EmptyDirVolumeSource, Pod, PodSpec, PodTemplateSpec, Volume
from kubeloop.api.meta.v1 import Condition
from kubeloop.codec import encode
from kubeloop.codec.apply_configuration import encode_applied, read_owned, set_fields
from kubeloop.meta import Model, ObjectMeta, Resource, Unstructured, custom_resource
from kubeloop.schema import builtin


class PlainSpec(msgspec.Struct):
    """Not a Model: msgspec writes all of it."""

    size: int = 3
    on: bool = True
    tags: list[str] = msgspec.field(default_factory=lambda: ["a"])


class WidgetSpec(Model):
    size: int = 3
    count: int | None = None
    plain: PlainSpec = msgspec.field(default_factory=PlainSpec)
    parts: list[PlainSpec] = msgspec.field(default_factory=list)
    named: dict[str, PlainSpec] = msgspec.field(default_factory=dict)


@custom_resource("example.com/v1", plural="widgets")
class Widget(Resource):
    spec: WidgetSpec = msgspec.field(default_factory=WidgetSpec)


def applied(obj: Resource) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(encode_applied(obj))
    assert (tree.pop("apiVersion"), tree.pop("kind")) == (obj.api_version, obj.kind)
    return tree


NAMED = {"metadata": {"name": "x"}}


def widget(**spec: Any) -> Widget:
    return Widget(metadata=ObjectMeta(name="x"), spec=WidgetSpec(**spec))


@pytest.mark.parametrize(
    ("obj", "sent"),
    [
        pytest.param(Deployment(metadata=ObjectMeta(name="x")), NAMED, id="nothing but its name"),
        pytest.param(
            Deployment(metadata=ObjectMeta(name="x"), spec=DeploymentSpec(replicas=0)),
            {**NAMED, "spec": {"replicas": 0}},
            id="a zero where the class has None, and no selector, strategy or template",
        ),
        pytest.param(
            Deployment(
                metadata=ObjectMeta(name="x"),
                spec=DeploymentSpec(template=PodTemplateSpec(spec=PodSpec(containers=[Container(name="c", image="i")]))),
            ),
            {**NAMED, "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}},
            id="a container without the resources that its class makes up",
        ),
        pytest.param(
            Pod(metadata=ObjectMeta(name="x"), spec=PodSpec(volumes=[Volume(name="v", empty_dir=EmptyDirVolumeSource())])),
            {**NAMED, "spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
            id="an empty struct where the class has None",
        ),
        pytest.param(widget(), NAMED, id="a class whose struct writes its defaults"),
        pytest.param(widget(plain=PlainSpec(size=3, on=False)), {**NAMED, "spec": {"plain": {"on": False}}}, id="one of its fields"),
        pytest.param(widget(plain=PlainSpec(tags=[])), {**NAMED, "spec": {"plain": {"tags": []}}}, id="emptiness that is no default"),
        pytest.param(widget(parts=[PlainSpec(size=4)]), {**NAMED, "spec": {"parts": [{"size": 4}]}}, id="within a list"),
        pytest.param(widget(named={"a": PlainSpec()}), {**NAMED, "spec": {"named": {"a": {}}}}, id="within a map, whose keys stay"),
        pytest.param(
            Unstructured.for_kind("v1", "ConfigMap").from_dict({"metadata": {"name": "x"}, "data": {}}),
            {**NAMED, "data": {}},
            id="a tree as it is",
        ),
    ],
)
def test_of_an_object_made_here_is_sent(obj: Resource, sent: dict[str, Any]) -> None:
    assert applied(obj) == sent


def test_an_object_of_any_built_in_kind_that_sets_only_its_name_sends_only_its_name() -> None:
    kinds = [cls for gvk, _ in builtin().kinds() if (cls := find(gvk)) is not None]
    assert len(kinds) > 80
    assert [applied(cls(metadata=ObjectMeta(name="x"))) for cls in kinds] == [NAMED] * len(kinds)


def test_a_part_is_a_tree_without_its_kind() -> None:
    assert set_fields(DeploymentSpec(replicas=2)) == {"replicas": 2}


def owned(**spec: Any) -> Deployment:
    tree = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": spec}
    return read_owned(Deployment, json.dumps(tree).encode(), "ops")


class TestOwned:
    def test_fields_that_the_models_do_not_know_stay(self) -> None:
        obj = owned(replicas=1, future={"a": 1.50})
        obj.spec.replicas = 2
        assert applied(obj) == {**NAMED, "spec": {"replicas": 2, "future": {"a": 1.5}}}

    def test_a_default_that_is_owned_stays_owned(self) -> None:
        tree = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"}, "spec": {"size": 3}}
        obj = read_owned(Widget, json.dumps(tree).encode(), "ops")
        obj.metadata.labels["a"] = "b"
        assert applied(obj)["spec"] == {"size": 3}

    def test_a_new_value_brings_no_defaults_along(self) -> None:
        obj = owned(replicas=1)
        obj.spec.template = PodTemplateSpec(spec=PodSpec(containers=[Container(name="c", ports=[ContainerPort(container_port=80)])]))
        template = {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}}
        assert applied(obj) == {**NAMED, "spec": {"replicas": 1, "template": template}}

    @pytest.mark.parametrize(
        "twin", [copy.copy, copy.deepcopy, lambda obj: pickle.loads(pickle.dumps(obj))], ids=["copy", "deepcopy", "pickle"]
    )
    def test_a_copy_is_as_good(self, twin: Callable[[Deployment], Deployment]) -> None:
        assert applied(twin(owned(replicas=1, future=2))) == {**NAMED, "spec": {"replicas": 1, "future": 2}}

    def test_what_became_none_is_given_up(self) -> None:
        obj = owned(replicas=1, minReadySeconds=5)
        obj.spec.replicas = None
        assert applied(obj) == {**NAMED, "spec": {"minReadySeconds": 5}}

    def test_trees_are_sent_with_their_changes(self) -> None:
        kind = Unstructured.for_kind("v1", "ConfigMap")
        obj = read_owned(kind, b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"1"}}', "ops")
        obj["data"] = {"a": "2"}
        assert applied(obj) == {**NAMED, "data": {"a": "2"}}


class ReportedStatus(Model):
    conditions: list[Condition] = msgspec.field(default_factory=list)


@custom_resource("example.com/v1", plural="reported")
class Reported(Resource):
    status: ReportedStatus = msgspec.field(default_factory=ReportedStatus)


def test_a_field_that_is_required_and_may_be_empty_is_always_sent() -> None:
    said = Reported(metadata=ObjectMeta(name="x"), status=ReportedStatus(conditions=[Condition(type="Ready", status="True", reason="Up")]))
    wanted = {"type": "Ready", "status": "True", "reason": "Up", "message": ""}
    assert applied(said) == NAMED | {"status": {"conditions": [wanted]}}
    assert json.loads(encode(said))["status"]["conditions"] == [wanted]
