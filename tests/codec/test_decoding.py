"""Reading: lenient where Kubernetes is, and clear where it cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal, cast

import msgspec
import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import Pod
from kubeloop.codec import decode, decode_bookmark, decode_list, document_of, encode
from kubeloop.meta import DecodeError, IncompleteObject, Model, PartialObject, Quantity, Resource, Unstructured, custom_resource


class WidgetSpec(Model):
    size: int
    names: list[str]
    limit: Quantity
    colour: str | None


@custom_resource("example.com/v1", plural="widgets")
class Widget(Resource):
    spec: WidgetSpec


def read_pod(**parts: Any) -> Pod:
    return decode(Pod, json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, **parts}).encode())


@pytest.mark.parametrize("spec", [{}, {"containers": None}, {"containers": []}])
def test_a_list_that_is_null_or_missing_is_empty(spec: dict[str, Any]) -> None:
    assert read_pod(spec=spec).spec.containers == []


@pytest.mark.parametrize("labels", [{}, {"labels": None}, {"labels": {}}])
def test_a_map_that_is_null_or_missing_is_empty(labels: dict[str, Any]) -> None:
    assert read_pod(metadata={"name": "a", **labels}).metadata.labels == {}


@pytest.mark.parametrize("parts", [{}, {"spec": None}])
def test_a_required_struct_that_is_null_or_missing_is_empty(parts: dict[str, Any]) -> None:
    deployment = decode(Deployment, json.dumps({"kind": "Deployment", "apiVersion": "apps/v1", **parts}).encode())
    assert deployment.spec.template.spec.containers == []


def test_a_null_selector_is_none_and_an_empty_one_is_there() -> None:
    def selector(value: Any) -> Any:
        body = {"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": value}]}}}}
        affinity = read_pod(**body).spec.affinity
        assert affinity is not None
        assert affinity.pod_affinity is not None
        return affinity.pod_affinity.required_during_scheduling_ignored_during_execution[0].label_selector

    assert selector(None) is None
    assert selector({}) is not None


def test_nulls_inside_lists_and_maps_are_empty_values() -> None:
    pod = read_pod(metadata={"annotations": {"a": None}}, spec={"containers": [None, {"name": "b", "args": [None]}]})
    assert pod.metadata.annotations == {"a": ""}
    assert [container.name for container in pod.spec.containers] == ["", "b"]
    assert pod.spec.containers[1].args == [""]


def test_a_required_field_of_a_class_without_default_may_be_missing() -> None:
    widget = decode(Widget, b'{"kind":"Widget","apiVersion":"example.com/v1","spec":{"size":3.0}}')
    assert widget.spec == WidgetSpec(size=3, names=[], limit=Quantity("0"), colour=None)


class Inner(Model):
    image: str
    mode: Literal["Fast", "Safe"]
    size: Annotated[int, msgspec.Meta(ge=1)]


class Outer(Model):
    inner: Inner
    others: list[Inner] = msgspec.field(default_factory=list)


@custom_resource("example.com/v1", plural="nests")
class Nest(Resource):
    """Its defaults cannot be made, as their classes have required fields."""

    spec: Outer = msgspec.field(default_factory=cast("Callable[[], Outer]", Outer))
    status: Inner = msgspec.field(default_factory=cast("Callable[[], Inner]", Inner))


EMPTY = {"image": "", "mode": "", "size": 0}


@pytest.mark.parametrize(
    ("parts", "spec", "status"),
    [
        pytest.param({}, {"inner": EMPTY, "others": []}, EMPTY, id="nothing"),
        pytest.param({"spec": None, "status": None}, {"inner": EMPTY, "others": []}, EMPTY, id="nulls"),
        pytest.param({"spec": {"inner": None}, "status": {}}, {"inner": EMPTY, "others": []}, EMPTY, id="nulls within"),
        pytest.param(
            {"spec": {"others": [{"image": "a"}, None]}},
            {"inner": EMPTY, "others": [EMPTY | {"image": "a"}, EMPTY]},
            EMPTY,
            id="items that lack fields",
        ),
    ],
)
def test_missing_parts_whose_default_cannot_be_made_are_empty(parts: dict[str, Any], spec: dict[str, Any], status: dict[str, Any]) -> None:
    document = json.dumps({"apiVersion": "example.com/v1", "kind": "Nest", "metadata": {"name": "a"}, **parts}, separators=(",", ":"))
    nest = decode(Nest, document.encode())
    assert msgspec.to_builtins(nest.status) == status
    assert {"inner": msgspec.to_builtins(nest.spec.inner), "others": [msgspec.to_builtins(one) for one in nest.spec.others]} == spec
    assert encode(nest) == document.encode(), "what was not there is not written"


def test_a_wrong_type_beside_a_missing_part_is_named() -> None:
    with pytest.raises(DecodeError, match=r"^Nest: spec\.inner\.image: expected str, got int$"):
        decode(Nest, b'{"kind":"Nest","apiVersion":"example.com/v1","spec":{"inner":{"image":3}}}')


def test_a_class_that_names_an_unknown_type_is_the_programmers_fault() -> None:
    class LocalSpec(Model):
        size: int = 0

    @custom_resource("example.com/v1", plural="locals")
    class Local(Resource):
        spec: LocalSpec

    with pytest.raises(TypeError, match="Local: name 'LocalSpec' is not defined; models must be defined in a module, not in a function"):
        decode(Local, b"{}")


def test_a_quantity_may_be_a_number() -> None:
    pod = read_pod(spec={"containers": [{"name": "a", "resources": {"limits": {"cpu": 1.5, "memory": "1.5Gi"}}}]})
    resources = pod.spec.containers[0].resources
    assert resources is not None
    assert {name: str(limit) for name, limit in resources.limits.items()} == {"cpu": "1500m", "memory": "1536Mi"}


def test_unknown_values_of_enums_and_integers_beyond_doubles_are_read() -> None:
    pod = read_pod(metadata={"generation": 2**53 + 1}, spec={"restartPolicy": "WhenTheMoonIsFull"})
    assert (pod.metadata.generation, pod.spec.restart_policy) == (2**53 + 1, "WhenTheMoonIsFull")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[{"name":3}]}}',
            'Pod "shop/web": spec.containers[0].name: expected str, got int',
            id="a field of another type is named with its object",
        ),
        pytest.param(
            b'{"kind":"Pod","apiVersion":"v1","spec":{"containers":[{"resources":{"limits":{"cpu":"many"}}}]}}',
            "Pod: spec.containers[0].resources.limits.cpu: quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            id="a broken quantity says so in Kubernetes' words",
        ),
        pytest.param(b'{"kind":"Status","apiVersion":"v1"}', "expected v1, Kind=Pod, got v1, Kind=Status", id="another kind"),
        pytest.param(b'{"kind":"Pod","apiVersion":"v2"}', "expected v1, Kind=Pod, got v2, Kind=Pod", id="another version"),
        pytest.param(b'{"kind":"Pod"', "Pod: the body is not JSON: Input data was truncated", id="half a body"),
        pytest.param(b"[]", "Pod: Expected `object`, got `array`", id="no object"),
        pytest.param(
            b"<html>\n<title>Log in",
            'Pod: the body is not JSON: JSON is malformed: invalid character (byte 0); it begins with "<html> <title>Log in": '
            "does a proxy or a login page answer in the server's place?",
            id="a proxy's page",
        ),
        pytest.param(b"", "Pod: the body is empty where JSON was expected", id="nothing"),
    ],
)
def test_what_cannot_be_read_is_explained(body: bytes, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(Pod, body)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("page", "message"),
    [
        pytest.param(b'{"kind":"Pod","apiVersion":"v1","metadata":{}}', "expected a PodList, got v1, Kind=Pod", id="one object"),
        pytest.param(b'{"kind":"Status","apiVersion":"v1","code":200}', "expected a PodList, got v1, Kind=Status", id="a status"),
        pytest.param(
            b'{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[]}', "expected a PodList, got meta.k8s.io/v1, Kind=Table", id="a table"
        ),
    ],
)
def test_an_invalid_list_is_not_taken_for_an_empty_one(page: bytes, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_list(Pod, page)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":null}', id="null, as Go writes no items"),
        pytest.param(b'{"kind":"PodList","apiVersion":"v1","metadata":{}}', id="left out"),
        pytest.param(b'{"kind":"Pods","apiVersion":"v1","metadata":{},"items":[]}', id="a list kind of a custom kind's own"),
        pytest.param(b'{"metadata":{},"items":[]}', id="without a kind"),
    ],
)
def test_an_empty_list_may_be_written_in_several_ways(page: bytes) -> None:
    assert decode_list(Pod, page)[0] == []


def test_a_list_gives_its_items_with_their_own_documents_and_its_metadata() -> None:
    page = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"c"},'
    page += b'"items":[{"metadata":{"name":"a"},"new":1}]}'
    (pod,), metadata = decode_list(Pod, page)
    assert (metadata.resource_version, metadata.continue_) == ("7", "c")
    assert document_of(pod) == b'{"metadata":{"name":"a"},"new":1}'
    assert encode(pod) == b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"new":1}'


def test_a_list_without_items_is_empty() -> None:
    assert decode_list(Pod, b'{"metadata":{},"items":null}')[0] == []


def test_a_bookmark_is_read_as_metadata_only() -> None:
    body = b'{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9","creationTimestamp":null,'
    body += b'"annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":17},"status":3}'
    bookmark = decode_bookmark(body)
    assert (bookmark.metadata.resource_version, bookmark.ends_initial_events) == ("9", True)


def test_bytes_that_are_only_borrowed_are_copied() -> None:
    buffer = bytearray(b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}')
    pod = decode(Pod, memoryview(buffer))
    buffer[:] = b" " * len(buffer)
    assert document_of(pod) == b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}'


def test_metadata_of_any_kind_is_read_and_never_sent() -> None:
    partial = decode(PartialObject, b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}')
    assert partial.metadata.name == "a"
    with pytest.raises(IncompleteObject, match='"a" is only metadata'):
        encode(partial)


def test_a_tree_is_read_for_a_kind_without_a_class() -> None:
    widget = decode(Unstructured.for_kind("example.com/v1", "Widget"), b'{"kind":"Widget","apiVersion":"example.com/v1","spec":{"a":1e2}}')
    assert widget["spec"] == {"a": 100.0}
    assert encode(widget) == b'{"kind":"Widget","apiVersion":"example.com/v1","spec":{"a":1e2}}'


def test_fields_of_managers_stay_json_until_read() -> None:
    pod = read_pod(metadata={"managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}]})
    assert isinstance(pod.metadata.managed_fields[0].fields_v1, msgspec.Raw)
    assert pod.metadata.managed_fields[0].fields() == {"f:spec": {}}


_THREADS = """
import sys, threading
from kubeloop.api.core.v1 import Pod
from kubeloop.codec.decoding import decode

sys.setswitchinterval(1e-6)
document = b'{"apiVersion":"v1","kind":"Pod","spec":{"volumes":[{"name":"v","projected":{"sources":[{"configMap":{"name":"c"}}]}}]}}'
barrier, names = threading.Barrier(4), []

def read():
    barrier.wait()
    for _ in range(20):
        names.append(decode(Pod, document).spec.volumes[0].projected.sources[0].config_map.name)

threads = [threading.Thread(target=read) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert names == ["c"] * 80
"""


def test_threads_may_decode_a_class_for_the_first_time_at_once() -> None:
    """In a separate process: there the class has no decoder yet, and a fault ends the process with a segmentation fault."""
    done = subprocess.run([sys.executable, "-c", _THREADS], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
