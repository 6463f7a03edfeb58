"""Writing: nothing that was read is lost, whatever the models know of it."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.coordination.v1 import Lease, LeaseSpec
from kubeloop.api.core.v1 import Container, Pod, PodSpec, Secret, Toleration
from kubeloop.codec import decode, encode, require_document, to_dict
from kubeloop.meta import IncompleteObject, ObjectMeta, OwnerReference, Quantity, Unstructured

SOURCE = """{"kind": "Pod", "apiVersion": "v1", "future": {"a": 1.0},
 "metadata": {"name": "web", "labels": null, "uid": "u", "resourceVersion": "7", "future": 12345678901234567890123},
 "spec": {"future": null, "containers": [
   {"name": "a", "image": "x", "futureA": 1e2, "ports": [
      {"containerPort": 80, "protocol": "TCP", "future80": 1}, {"containerPort": 53, "protocol": "UDP", "future53": 1}]},
   {"name": "b", "image": "y", "futureB": {"deep": [1, null]}, "resources": {"limits": {"cpu": "1000m"}}}],
  "tolerations": [{"key": "k1", "operator": "Exists", "future1": 1}, {"key": "k2", "operator": "Exists", "future2": 1}]}}"""

Path = list[str | int]


def pod() -> Pod:
    return decode(Pod, SOURCE.encode())


def tree() -> dict[str, Any]:
    result: dict[str, Any] = json.loads(SOURCE)
    return result


def test_an_unchanged_object_is_sent_as_it_came() -> None:
    assert encode(pod()) == SOURCE.encode()


def rename(pod: Pod, tree: Any) -> None:
    pod.spec.containers[0].name = tree["spec"]["containers"][0]["name"] = "renamed"


def reverse(pod: Pod, tree: Any) -> None:
    pod.spec.containers.reverse()
    tree["spec"]["containers"].reverse()


def insert(pod: Pod, tree: Any) -> None:
    pod.spec.containers.insert(1, Container(name="new", image="x"))
    tree["spec"]["containers"].insert(1, {"name": "new", "image": "x", "resources": {}})


def remove(pod: Pod, tree: Any) -> None:
    del pod.spec.containers[0], tree["spec"]["containers"][0]


def replace_by_another(pod: Pod, tree: Any) -> None:
    pod.spec.containers[0] = Container(name="other", image="other")
    tree["spec"]["containers"][0] = {"name": "other", "image": "other", "resources": {}}


def change_two_keys_deep(pod: Pod, tree: Any) -> None:
    pod.spec.containers[0].ports[1].name = tree["spec"]["containers"][0]["ports"][1]["name"] = "dns"


def move_and_change(pod: Pod, tree: Any) -> None:
    reverse(pod, tree)
    pod.spec.containers[0].image = tree["spec"]["containers"][0]["image"] = "z"


def change_unkeyed(pod: Pod, tree: Any) -> None:
    pod.spec.tolerations[0].key = tree["spec"]["tolerations"][0]["key"] = "changed"


def insert_unkeyed(pod: Pod, tree: Any) -> None:
    pod.spec.tolerations.insert(0, Toleration(key="k0", operator="Exists"))
    tree["spec"]["tolerations"].insert(0, {"key": "k0", "operator": "Exists"})


def remove_unkeyed(pod: Pod, tree: Any) -> None:
    del pod.spec.tolerations[0], tree["spec"]["tolerations"][0]


def label(pod: Pod, tree: Any) -> None:
    pod.metadata.labels["a"] = "b"
    tree["metadata"]["labels"] = {"a": "b"}


def empty_list(pod: Pod, tree: Any) -> None:
    pod.spec.tolerations = []
    tree["spec"]["tolerations"] = []


def remove_optional(pod: Pod, tree: Any) -> None:
    pod.spec.containers[0].image = None
    del tree["spec"]["containers"][0]["image"]


def quantity(pod: Pod, tree: Any) -> None:
    resources = pod.spec.containers[1].resources
    assert resources is not None
    resources.limits["memory"] = Quantity("1Gi")
    tree["spec"]["containers"][1]["resources"]["limits"]["memory"] = "1Gi"


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(rename, id="renaming an item keeps its unknown fields"),
        pytest.param(reverse, id="items that move take their unknown fields along"),
        pytest.param(insert, id="a new item gets no unknown fields"),
        pytest.param(remove, id="an item that goes takes its unknown fields along"),
        pytest.param(replace_by_another, id="another item in its place inherits nothing"),
        pytest.param(change_two_keys_deep, id="an item with two keys is found by both"),
        pytest.param(move_and_change, id="a moved item may change as well"),
        pytest.param(change_unkeyed, id="an item without keys is followed by likeness"),
        pytest.param(insert_unkeyed, id="a new item without keys pushes the others down"),
        pytest.param(remove_unkeyed, id="of items without keys the right one goes"),
        pytest.param(label, id="a map that was null is filled"),
        pytest.param(empty_list, id="a list that was emptied is sent empty"),
        pytest.param(remove_optional, id="None removes an optional field"),
        pytest.param(quantity, id="a quantity that did not change keeps its spelling"),
    ],
)
def test_only_the_change_is_sent(edit: Callable[[Pod, Any], None]) -> None:
    typed, plain = pod(), tree()
    edit(typed, plain)
    assert to_dict(typed) == plain


def test_numbers_keep_their_spelling_beside_a_change() -> None:
    typed = pod()
    typed.spec.containers[0].image = "z"
    body = encode(typed)
    assert b'"futureA":1e2' in body
    assert b'"future": {"a": 1.0}' in body or b'"future":{"a": 1.0}' in body
    assert b"12345678901234567890123" in body


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda obj: pickle.loads(pickle.dumps(obj))])
def test_a_copy_is_sent_with_all_unknown_fields(twin: Callable[[Pod], Pod]) -> None:
    changed = twin(pod())
    changed.spec.node_name = "n"
    plain = tree()
    plain["spec"]["nodeName"] = "n"
    assert to_dict(changed) == plain
    assert require_document(changed) == encode(changed)


def test_an_object_made_here_is_sent_as_it_is() -> None:
    made = Pod(metadata=ObjectMeta(name="a"), spec=PodSpec(containers=[Container(name="c")]))
    assert to_dict(made)["spec"] == {"containers": [{"name": "c", "resources": {}}]}
    assert encode(made).startswith(b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}')


def test_an_object_made_here_is_no_update() -> None:
    with pytest.raises(IncompleteObject, match='Pod "n/a" was made here, not read from the server'):
        require_document(Pod(metadata=ObjectMeta(name="a", namespace="n")))


def test_a_tree_made_here_is_an_update_as_it_stands() -> None:
    made = Unstructured.from_dict({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    assert json.loads(require_document(made)) == made.to_dict()


def test_a_part_of_an_object_is_neither_sent_nor_updated() -> None:
    part = decode(Pod, SOURCE.encode(), partial="the informer keeps only spec.nodeName")
    for send in (encode, require_document):
        with pytest.raises(IncompleteObject, match=r'Pod "web" is not whole: the informer keeps only spec.nodeName. Get the object'):
            send(part)


def test_micro_times_have_six_digits_and_times_have_none() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    lease = Lease(metadata=ObjectMeta(creation_timestamp=moment), spec=LeaseSpec(renew_time=moment))
    assert to_dict(lease)["spec"]["renewTime"] == "2026-01-02T03:04:05.000000Z"
    assert to_dict(lease)["metadata"]["creationTimestamp"] == "2026-01-02T03:04:05Z"
    again = decode(Lease, encode(lease))
    assert again.spec is not None
    again.spec.renew_time = moment.replace(second=6)
    assert to_dict(again)["spec"]["renewTime"] == "2026-01-02T03:04:06.000000Z"


def test_bytes_are_base64_on_the_wire() -> None:
    assert to_dict(Secret(data={"k": b"\0x"}))["data"] == {"k": "AHg="}


def test_a_change_from_one_to_true_in_a_free_tree_is_a_change() -> None:
    source = b'{"kind":"Widget","apiVersion":"example.com/v1","spec":{"a":1,"b":1.0}}'
    widget = decode(Unstructured.for_kind("example.com/v1", "Widget"), source)
    widget["spec"]["a"] = True
    assert encode(widget) == b'{"kind":"Widget","apiVersion":"example.com/v1","spec":{"a":true,"b":1.0}}'


def test_a_value_that_json_cannot_say_is_refused() -> None:
    deployment = Deployment()
    deployment.metadata.labels["a"] = object()  # type: ignore[assignment]  # the point of the test
    with pytest.raises(TypeError, match="a field holds a object, which JSON cannot represent"):
        encode(deployment)


def test_an_object_made_here_says_its_kind_also_beside_an_owner_of_the_same_kind() -> None:
    owned = Pod(metadata=ObjectMeta(name="a", owner_references=[OwnerReference(api_version="v1", kind="Pod", name="b", uid="u")]))
    assert encode(owned).startswith(b'{"apiVersion":"v1","kind":"Pod",')
