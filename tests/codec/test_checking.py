"""Values that cannot be sent are refused before they are, by the name of their field."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal, cast

import msgspec
import pytest

from kubeloop.api.apps.v1 import Deployment, DeploymentSpec
from kubeloop.api.core.v1 import ConfigMap, Container, EnvVar, Pod, PodSpec, ResourceRequirements, Secret
from kubeloop.codec import decode, encode, require_document
from kubeloop.codec.encoding_checks import checked, checked_changes
from kubeloop.meta import LabelSelector, Model, ObjectMeta, Quantity, Resource, Unstructured, custom_resource

NAME = ObjectMeta(name="x", namespace="shop")


@custom_resource("example.com/v1", plural="bounded")
class Bounded(Resource):
    size: Annotated[int, msgspec.Meta(le=5)] = 0


def wrong(cls: Any, **fields: Any) -> Any:
    """A constructor that a type checker would not let pass."""
    return cls(**fields)


def pod(**container: Any) -> Pod:
    return Pod(metadata=NAME, spec=PodSpec(containers=[Container(name="a"), wrong(Container, name="c", **container)]))


@pytest.mark.parametrize(
    ("obj", "fault"),
    [
        pytest.param(
            Deployment(metadata=NAME, spec=wrong(DeploymentSpec, replicas="3")),
            'Deployment "shop/x": spec.replicas: expected int | null, got str',
            id="text for a number",
        ),
        pytest.param(
            Deployment(metadata=NAME, spec=wrong(DeploymentSpec, replicas=True)),
            'Deployment "shop/x": spec.replicas: expected int | null, got bool',
            id="a boolean for a number",
        ),
        pytest.param(
            pod(resources=EnvVar(name="x")),
            'Pod "shop/x": spec.containers[1].resources: expected ResourceRequirements, got EnvVar',
            id="a struct of another place",
        ),
        pytest.param(
            wrong(Pod, metadata=NAME, spec=DeploymentSpec()), 'Pod "shop/x": spec: expected PodSpec, got DeploymentSpec', id="an empty one"
        ),
        pytest.param(pod(image=5), 'Pod "shop/x": spec.containers[1].image: expected str | null, got int', id="a number within a list"),
        pytest.param(pod(command="sh"), 'Pod "shop/x": spec.containers[1].command: expected array, got str', id="text for a list"),
        pytest.param(
            pod(env=[wrong(EnvVar, name="X", value=True)]),
            'Pod "shop/x": spec.containers[1].env[0].value: expected str | null, got bool',
            id="deep",
        ),
        pytest.param(
            pod(resources=ResourceRequirements(requests=wrong(dict, cpu=object()))),
            'Pod "shop/x": spec.containers[1].resources.requests.cpu: a object was given, which JSON cannot represent',
            id="something that JSON cannot say",
        ),
        pytest.param(
            ConfigMap(metadata=NAME, data={"x": "a\ud800"}),
            'ConfigMap "shop/x": data.x: half a character (a lone surrogate) was given, which JSON cannot represent',
            id="text that UTF-8 cannot say",
        ),
        pytest.param(
            wrong(ConfigMap, metadata=NAME, data={"x": 1}), 'ConfigMap "shop/x": data.x: expected str, got int', id="a value of a map"
        ),
        pytest.param(
            Pod(metadata=wrong(ObjectMeta, name="x", annotations={"a": "b", "example.com/c d": 5})),
            'Pod "x": metadata.annotations["example.com/c d"]: expected str, got int',
            id="a key that is no plain word",
        ),
        pytest.param(
            wrong(ConfigMap, metadata=NAME, data={"x": {1, 2}}),
            'ConfigMap "shop/x": data.x: expected str, got array',
            id="a set for text",
        ),
        pytest.param(
            wrong(Secret, metadata=NAME, data={"x": "not base64!"}), 'Secret "shop/x": data.x: invalid base64 encoded string', id="bytes"
        ),
        pytest.param(wrong(Pod, metadata=NAME, spec="x"), 'Pod "shop/x": spec: expected object, got str', id="text for a struct"),
        pytest.param(
            Unstructured.for_kind("v1", "ConfigMap").from_dict({"metadata": {"name": "x"}, "spec": {"a": [1, {"b": object()}]}}),
            'ConfigMap "x": spec.a[1].b: a object was given, which JSON cannot represent',
            id="a tree",
        ),
    ],
)
def test_refused(obj: Resource, fault: str) -> None:
    with pytest.raises(ValueError) as raised:
        checked(obj, encode)
    assert str(raised.value) == fault


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(pod(resources=ResourceRequirements(requests={"cpu": Quantity("100m")})), id="quantities"),
        pytest.param(wrong(ConfigMap, metadata=NAME, data=None), id="nothing where a map is expected, as servers send it"),
        pytest.param(Secret(metadata=NAME, data={"x": b"\x00"}), id="bytes"),
        pytest.param(Deployment(metadata=NAME, spec=DeploymentSpec(selector=LabelSelector(match_labels={"a": "b"}))), id="nested structs"),
    ],
)
def test_sent(obj: Resource) -> None:
    assert json.loads(checked(obj, encode))["kind"] == obj.kind


DOCUMENT = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","creationTimestamp":null},"spec":{"containers":null,"odd":1.0}}'


class TestObjectsThatWereRead:
    def test_an_unchanged_object_is_its_document(self) -> None:
        assert checked(decode(Pod, DOCUMENT), require_document) == DOCUMENT

    def test_nulls_that_came_from_a_server_are_no_faults(self) -> None:
        read = decode(Pod, DOCUMENT)
        read.metadata.labels["a"] = "b"
        assert json.loads(checked(read, require_document))["metadata"]["labels"] == {"a": "b"}

    def test_what_breaks_the_declared_rules_at_the_server_already_is_the_servers_to_judge(self) -> None:
        read = decode(Bounded, b'{"apiVersion":"example.com/v1","kind":"Bounded","metadata":{"name":"x"},"size":9}')
        read.metadata.labels["a"] = "b"
        assert json.loads(checked(read, require_document))["size"] == 9
        read.size = wrong(str)
        with pytest.raises(ValueError, match='Bounded "x": size: expected int, got str'):
            checked(read, require_document)

    def test_a_wrong_change_is_named(self) -> None:
        read = decode(Pod, DOCUMENT)
        read.metadata.labels["a"] = cast("str", 1)
        with pytest.raises(ValueError, match=r'Pod "x": metadata\.labels'):
            checked(read, require_document)


class Phased(Model):
    phase: Literal["Up", "Down"]
    count: int = 0
    spec: str = ""
    inner: Container | None = None


class Required(Model):
    image: str


@custom_resource("example.com/v1", plural="machines")
class Machine(Resource):
    spec: Required
    status: Phased | None = None


def machine(status: str = "null") -> Machine:
    head = b'{"apiVersion":"example.com/v1","kind":"Machine","metadata":{"name":"x"},"spec":{"image":"a"},"status":'
    return decode(Machine, head + status.encode() + b"}")


class TestOneFieldOfAnObject:
    def test_an_object_made_here_has_no_changes(self) -> None:
        assert checked_changes(Machine(spec=Required(image="a")), "status") is None

    @pytest.mark.parametrize("status", ["null", '{"phase":"Up"}', '{"phase":"Sideways","count":2}'])
    def test_an_unchanged_object_passes(self, status: str) -> None:
        trees = checked_changes(machine(status), "status")
        assert trees is not None
        assert trees[0] == trees[1]

    def test_the_field_may_hold_names_that_objects_have_and_the_rest_of_the_object_is_not_checked(self) -> None:
        read = machine()
        read.status = Phased(phase="Up", spec="x")
        read.spec = wrong(Required, image=3)
        trees = checked_changes(read, "status")
        assert trees is not None
        assert trees[1]["status"] == {"phase": "Up", "spec": "x"}

    @pytest.mark.parametrize(
        ("changes", "fault"),
        [
            pytest.param({"count": "3"}, "status.count: expected int, got str", id="a wrong type"),
            pytest.param({"phase": "Left"}, "status.phase: invalid enum value 'Left'", id="no choice of the class"),
            pytest.param({"inner": EnvVar(name="x")}, "status.inner: expected Container, got EnvVar", id="a struct of another place"),
            pytest.param({"spec": {1}}, "status.spec: expected str, got array", id="a set"),
            pytest.param({"spec": object()}, "status.spec: a object was given, which JSON cannot represent", id="no JSON"),
        ],
    )
    def test_a_wrong_change_is_named(self, changes: dict[str, Any], fault: str) -> None:
        read = machine('{"phase":"Up"}')
        assert read.status is not None
        for name, value in changes.items():
            setattr(read.status, name, value)
        with pytest.raises(ValueError, match=f'^Machine "x": {re.escape(fault)}$'):
            checked_changes(read, "status")

    def test_a_value_that_broke_the_rules_before_goes_back_but_not_one_of_another_type(self) -> None:
        read = machine('{"phase":"Sideways"}')
        assert read.status is not None
        read.status.count = 3
        trees = checked_changes(read, "status")
        assert trees is not None
        assert trees[1]["status"] == {"phase": "Sideways", "count": 3}
        read.status.count = wrong(str)
        with pytest.raises(ValueError, match=r"status\.count: expected int, got str"):
            checked_changes(read, "status")
