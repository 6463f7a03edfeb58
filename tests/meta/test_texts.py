"""Objects as trees and YAML and back, and what Python itself does with them: nothing is lost on the way."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest

import kubeloop
from kubeloop.api.core.v1 import Container, Pod, PodSpec, ResourceRequirements, Secret
from kubeloop.client import Event, ObjectList
from kubeloop.codec import decode, encode
from kubeloop.meta import DecodeError, Invalid, ListMeta, ObjectMeta, PartialObject, Quantity, Resource, Unstructured, set_source
from kubeloop.meta.model import DocumentSource, Model
from kubeloop.meta.status import Status

DOCUMENT = (
    b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"shop","newer":{"x":null},"managedFields":[{"manager":"m"}]},'
    b'"spec":{"nodeName":"n","containers":[{"name":"web","newer":1.50,"resources":{"limits":{"cpu":"1000m"}}}]},"newest":[1]}'
)


def read() -> Pod:
    return decode(Pod, DOCUMENT)


def test_a_tree_has_wire_names_and_what_the_models_do_not_know() -> None:
    tree = read().to_dict()
    assert tree["newest"] == [1]
    assert tree["metadata"]["newer"] == {"x": None}
    assert tree["spec"]["containers"][0]["newer"] == 1.5


def test_a_tree_is_the_callers_own() -> None:
    pod = read()
    pod.to_dict()["spec"]["nodeName"] = "other"
    assert pod.spec.node_name == "n"


def test_changes_are_in_the_tree() -> None:
    pod = read()
    pod.spec.node_name = "other"
    assert pod.to_dict()["spec"] == read().to_dict()["spec"] | {"nodeName": "other"}


ROUND_TRIPS: list[Any] = [
    pytest.param(Pod(metadata=ObjectMeta(name="a"), spec=PodSpec(node_name="n")), id="an object"),
    pytest.param(PodSpec(containers=[Container(name="c", resources=ResourceRequirements(limits={"cpu": Quantity("1")}))]), id="a part"),
    pytest.param(Secret(metadata=ObjectMeta(name="a"), data={"p": b"\x00\xff"}), id="bytes"),
    pytest.param(Unstructured.from_dict({"apiVersion": "a.b/v1", "kind": "Foo", "metadata": {"name": "a"}, "x": [None]}), id="a tree"),
    pytest.param(PartialObject(metadata=ObjectMeta(name="a", labels={"x": "y"})), id="metadata only"),
]


@pytest.mark.parametrize("value", ROUND_TRIPS)
def test_there_and_back(value: Model) -> None:
    assert type(value).from_dict(value.to_dict()) == value
    assert type(value).from_yaml(value.to_yaml()) == value
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.copy(value) == copy.deepcopy(value) == value


def test_yaml_leaves_out_managed_fields_by_default_as_kubectl_does() -> None:
    assert "managedFields" not in read().to_yaml()
    assert "managedFields" in read().to_yaml(managed_fields=True)
    assert "newest" in read().to_yaml()


def test_an_object_from_yaml_keeps_unknown_fields() -> None:
    pod = Pod.from_yaml("metadata:\n  name: a\nspec:\n  newer: 1\n")
    pod.spec.node_name = "n"
    assert b'"newer":1' in encode(pod)
    assert b'"kind":"Pod"' in encode(pod)


def test_an_unknown_kind_is_a_tree() -> None:
    found = Resource.from_yaml("apiVersion: a.b/v1\nkind: Foo\nmetadata:\n  name: a\n")
    assert isinstance(found, Unstructured)
    assert (found.kind, found.metadata.name) == ("Foo", "a")


def test_a_partly_known_object_is_shown_in_part() -> None:
    part = Pod(metadata=ObjectMeta(name="a"), spec=PodSpec(node_name="n"))
    set_source(part, DocumentSource(Pod, b'{"metadata":{"name":"a"}}', "only a part"))
    assert part.to_dict()["spec"]["nodeName"] == "n"


FAULTS: list[Any] = [
    pytest.param(lambda: Pod.from_yaml("kind: Service\napiVersion: v1\n"), "Service", id="another kind"),
    pytest.param(lambda: Pod.from_yaml("a: {"), "YAML", id="no YAML"),
    pytest.param(lambda: Pod.from_yaml("a: 1\n---\nb: 1\n"), "Pod: 2 documents where one is wanted", id="several documents"),
    pytest.param(lambda: Pod.from_yaml(""), "Pod: 0 documents where one is wanted", id="nothing"),
    pytest.param(lambda: Pod.from_dict({"spec": {"nodeName": 3}}), "nodeName", id="a field of another type"),
    pytest.param(lambda: PodSpec.from_dict({"containers": 3}), "PodSpec", id="a part with a field of another type"),
    pytest.param(lambda: Pod.from_dict({"spec": object()}), "Pod: the tree holds a value that JSON cannot represent", id="no JSON"),
]


@pytest.mark.parametrize(("make", "message"), FAULTS)
def test_what_cannot_be_read_says_why(make: Callable[[], object], message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        make()


KEEPING: list[Any] = [
    pytest.param(copy.copy, id="copy"),
    pytest.param(copy.deepcopy, id="deepcopy"),
    pytest.param(lambda pod: pickle.loads(pickle.dumps(pod)), id="pickle"),
    pytest.param(lambda pod: kubeloop.replace(pod, status=pod.status), id="kubeloop.replace"),
    pytest.param(lambda pod: pickle.loads(pickle.dumps(ObjectList([pod])))[0], id="pickle of a list"),
    pytest.param(lambda pod: pickle.loads(pickle.dumps(Event("ADDED", pod))).object, id="pickle of an event"),
]
if sys.version_info >= (3, 13):
    KEEPING.append(pytest.param(lambda pod: copy.replace(pod, status=pod.status), id="copy.replace"))


@pytest.mark.parametrize("twin", KEEPING)
def test_what_the_models_do_not_know_survives(twin: Callable[[Pod], Pod]) -> None:
    found = twin(read())
    found.spec.node_name = "other"
    assert b'"newer":1.50' in encode(found)
    assert b'"newest":[1]' in encode(found)
    assert found.spec.containers[0].name == "web"


def test_replace_makes_a_copy_with_other_values() -> None:
    spec = PodSpec(node_name="a", hostname="h")
    assert kubeloop.replace(spec, node_name="b") == PodSpec(node_name="b", hostname="h")
    assert spec.node_name == "a"
    with pytest.raises(TypeError, match="nodename"):
        kubeloop.replace(spec, nodename="b")


def test_lists_keep_their_metadata_when_pickled() -> None:
    found = pickle.loads(pickle.dumps(ObjectList([read()], ListMeta(resource_version="7"))))
    assert (found.resource_version, len(found)) == ("7", 1)


def test_errors_are_pickled_with_all_that_they_say() -> None:
    error = Invalid(Status(reason="Invalid", message="m", code=422), "create pods")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert pickle.loads(pickle.dumps(error)).status == error.status


def test_pattern_matching() -> None:
    match Event("ADDED", read()):
        case Event("ADDED", Pod(metadata=ObjectMeta(name=name), spec=PodSpec(node_name=node, containers=[Container(name=first)]))):
            assert (name, node, first) == ("web-0", "n", "web")
        case _:
            pytest.fail("did not match")


def test_an_object_is_not_hashable_and_the_error_names_a_hashable_key() -> None:
    for value in (read(), Unstructured.from_dict({"apiVersion": "v1", "kind": "Pod"})):
        with pytest.raises(TypeError, match=r"a Pod can be changed, so it has no hash; use its object_key\(\) or metadata.uid"):
            hash(value)


def test_equality_is_of_fields() -> None:
    assert read() == read()
    assert read() != kubeloop.replace(read(), spec=PodSpec())
    assert Pod() != kubeloop.replace(Pod(), metadata=ObjectMeta(name="a"))


def test_tab_completion_shows_fields_and_methods() -> None:
    shown = {name for name in dir(Pod()) if not name.startswith("_")}
    assert {"metadata", "spec", "status", "kind", "api_version", "object_key", "to_yaml", "to_dict", "from_yaml", "from_dict"} == shown
    tree = Unstructured.from_dict({"apiVersion": "v1", "kind": "Pod", "spec": {}})
    assert tree._ipython_key_completions_() == ["apiVersion", "kind", "spec"]
