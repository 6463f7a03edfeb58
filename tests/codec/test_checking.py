"""Values that cannot be sent are refused before they are, by the name of their field."""

from __future__ import annotations

import json
from typing import Annotated, Any, cast

import msgspec
import pytest

from kubeloop.api.apps.v1 import Deployment, DeploymentSpec
from kubeloop.api.core.v1 import ConfigMap, Container, EnvVar, Pod, PodSpec, ResourceRequirements, Secret
from kubeloop.codec import decode, encode, require_document
from kubeloop.codec.checking import checked
from kubeloop.meta import LabelSelector, ObjectMeta, Quantity, Resource, Unstructured, custom_resource

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
            'Pod "shop/x": spec.containers[1].resources.requests.cpu: a object was given, which JSON cannot say',
            id="something that JSON cannot say",
        ),
        pytest.param(
            ConfigMap(metadata=NAME, data={"x": "a\ud800"}),
            'ConfigMap "shop/x": data.x: half a character (a lone surrogate) was given, which JSON cannot say',
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
            Unstructured.of("v1", "ConfigMap").from_dict({"metadata": {"name": "x"}, "spec": {"a": [1, {"b": object()}]}}),
            'ConfigMap "x": spec.a[1].b: a object was given, which JSON cannot say',
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
    def test_one_that_was_not_changed_is_its_document(self) -> None:
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
