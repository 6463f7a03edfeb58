import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.merge import PatchError, strategic_merge
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.schema import builtin
from kubeloop.types import JSONObject


def pod(**spec: Any) -> JSONObject:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def merged(doc: JSONObject, patch: Any) -> JSONObject:
    gvk = GroupVersionKind.from_api_version(doc["apiVersion"], doc["kind"])
    return strategic_merge(doc, patch, builtin().kind(gvk), builtin())


def spec_of(doc: JSONObject, patch: JSONObject) -> JSONObject:
    result: JSONObject = merged(doc, {"spec": patch})["spec"]
    return result


C, SIDE = {"name": "c", "image": "x:1", "args": ["a"]}, {"name": "side", "image": "y:1"}
POD = pod(
    containers=[C, SIDE],
    nodeSelector={"disk": "ssd"},
    volumes=[{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "s"}}],
)


@pytest.mark.parametrize(
    ("patch", "containers"),
    [
        pytest.param([{"name": "c", "image": "x:2"}], [C | {"image": "x:2"}, SIDE], id="an element is found by its merge key and merged"),
        pytest.param([{"name": "side", "image": "y:2"}], [C, SIDE | {"image": "y:2"}], id="an element keeps its place"),
        pytest.param([{"name": "n"}], [{"name": "n"}, C, SIDE], id="a new element without an order comes first"),
        pytest.param([{"name": "c", "args": ["b", "c"]}], [C | {"args": ["b", "c"]}, SIDE], id="an atomic list inside is replaced"),
        pytest.param([{"name": "c", "args": None}], [{"name": "c", "image": "x:1"}, SIDE], id="null removes a field of an element"),
        pytest.param([{"name": "c", "$patch": "delete"}], [SIDE], id="an element is deleted by its merge key"),
        pytest.param([{"name": "zz", "$patch": "delete"}], [C, SIDE], id="deleting a missing element changes nothing"),
        pytest.param([{"$patch": "replace"}, {"name": "n"}], [{"name": "n"}], id="replace makes the patch's elements the list"),
        pytest.param([{"name": "n"}, {"$patch": "replace"}], [{"name": "n"}], id="replace holds wherever it stands"),
        pytest.param([{"$patch": "replace"}], [], id="replace by nothing empties the list"),
        pytest.param([{"name": "c", "$patch": "replace", "image": "q"}], [], id="replace in an element is about the list"),
        pytest.param([], [C, SIDE], id="an empty list changes nothing"),
        pytest.param(
            [{"name": "c", "ports": [{"containerPort": 1, "protocol": None}]}],
            [C | {"ports": [{"containerPort": 1}]}, SIDE],
            id="a new list comes without nulls",
        ),
        pytest.param(
            [{"name": "c", "env": [{"$patch": "delete", "name": "A"}]}],
            [C | {"env": []}, SIDE],
            id="a new list comes without the items to delete",
        ),
    ],
)
def test_a_list_that_merges_by_key(patch: list[Any], containers: list[Any]) -> None:
    assert spec_of(POD, {"containers": patch})["containers"] == containers


@pytest.mark.parametrize(
    ("order", "patch", "names"),
    [
        pytest.param(["side", "c"], None, ["side", "c"], id="an order alone sorts the list"),
        pytest.param(["side", "c", "n"], ["n"], ["side", "c", "n"], id="a new element takes its place in the order"),
        pytest.param(["n", "side"], ["n"], ["n", "c", "side"], id="an element that only the server has stays before its successor"),
        pytest.param(["n"], ["n"], ["n", "c", "side"], id="elements that only the server has follow when nothing places them"),
        pytest.param([], None, ["c", "side"], id="an empty order changes nothing"),
    ],
)
def test_set_element_order(order: list[str], patch: list[str] | None, names: list[str]) -> None:
    spec: JSONObject = {"$setElementOrder/containers": [{"name": name} for name in order]}
    if patch is not None:
        spec["containers"] = [{"name": name} for name in patch]
    result = spec_of(POD, spec)
    assert [container["name"] for container in result["containers"]] == names
    assert not any(key.startswith("$") for key in result)


def test_scalars_that_an_order_lacks_are_turned_around_as_upstream_does() -> None:
    patch = {"finalizers": ["d", "b"], "$setElementOrder/finalizers": []}
    assert merged(FINALIZERS, {"metadata": patch})["metadata"]["finalizers"] == ["a", "b", "c", "d"]


def test_elements_to_be_deleted_need_not_stand_in_the_order() -> None:
    patch = {"$setElementOrder/containers": [{"name": "side"}], "containers": [{"name": "c", "$patch": "delete"}]}
    assert spec_of(POD, patch)["containers"] == [SIDE]


def test_new_elements_take_the_places_that_deleted_ones_left_in_the_servers_order() -> None:
    patch = {
        "$setElementOrder/containers": [{"name": "n"}],
        "containers": [{"name": "side", "$patch": "delete"}, {"name": "n", "image": "z"}],
    }
    assert [container["name"] for container in spec_of(POD, patch)["containers"]] == ["c", "n"]


def test_an_order_for_a_list_that_is_nowhere_is_dropped() -> None:
    assert spec_of(POD, {"$setElementOrder/initContainers": [{"name": "x"}]}) == POD["spec"]


def test_an_ordered_list_may_be_new() -> None:
    patch = {"$setElementOrder/initContainers": [{"name": "x"}], "initContainers": [{"name": "x"}]}
    assert spec_of(POD, patch)["initContainers"] == [{"name": "x"}]


FINALIZERS = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "finalizers": ["a", "b", "c"]}}


@pytest.mark.parametrize(
    ("patch", "finalizers"),
    [
        pytest.param({"finalizers": ["b", "d"]}, ["a", "b", "d", "c"], id="a set of scalars grows, in the patch's order"),
        pytest.param({"finalizers": ["d", "d"]}, ["d", "a", "b", "c"], id="a set never has a value twice"),
        pytest.param({"$deleteFromPrimitiveList/finalizers": ["a", "z"]}, ["b", "c"], id="values are deleted by a list beside it"),
        pytest.param({"$setElementOrder/finalizers": ["c", "a"]}, ["b", "c", "a"], id="an order sorts scalars"),
        pytest.param(
            {"$setElementOrder/finalizers": ["d", "c", "b"], "finalizers": ["d"], "$deleteFromPrimitiveList/finalizers": ["a"]},
            ["d", "c", "b"],
            id="all three together",
        ),
    ],
)
def test_a_list_of_scalars_that_merges(patch: JSONObject, finalizers: list[str]) -> None:
    assert merged(FINALIZERS, {"metadata": patch})["metadata"]["finalizers"] == finalizers


def test_deleting_from_a_list_that_is_not_there_changes_nothing() -> None:
    doc = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
    assert merged(doc, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}) == doc


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        pytest.param({"nodeSelector": {"cpu": "x"}}, {"disk": "ssd", "cpu": "x"}, id="a map merges"),
        pytest.param({"nodeSelector": {"disk": None}}, {}, id="null removes a key"),
        pytest.param({"nodeSelector": {"$patch": "replace", "only": "x"}}, {"only": "x"}, id="replace makes the patch the map"),
        pytest.param({"nodeSelector": {"$patch": "delete"}}, {}, id="delete empties the map"),
        pytest.param({"nodeSelector": None}, None, id="null removes the map"),
    ],
)
def test_a_map(patch: JSONObject, expected: Any) -> None:
    assert spec_of(POD, patch).get("nodeSelector") == expected


def test_a_new_object_that_is_marked_for_deletion_is_left_out() -> None:
    assert "affinity" not in spec_of(POD, {"affinity": {"$patch": "delete"}})


def test_retain_keys_pushes_out_the_other_members_of_a_union() -> None:
    patch = {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/h"}}]}
    assert spec_of(POD, patch)["volumes"][0] == {"name": "v", "hostPath": {"path": "/h"}}


def test_replicas_of_a_deployment_become_null_by_being_removed() -> None:
    doc = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 3, "paused": True}}
    assert merged(doc, {"spec": {"replicas": None}})["spec"] == {"paused": True}


@pytest.mark.parametrize(
    ("doc", "patch", "message", "code"),
    [
        pytest.param(
            POD,
            {"containers": [{"image": "q"}]},
            "map: map[image:q] does not contain declared merge key: name",
            500,
            id="an element without its merge key",
        ),
        pytest.param(
            POD,
            {"containers": [{"$patch": "delete"}]},
            "map: map[$patch:delete] does not contain declared merge key: name",
            500,
            id="a deletion without its merge key",
        ),
        pytest.param(
            POD,
            {"containers": [{"$patch": "explode", "name": "c"}]},
            "unknown patch type: explode in map: map[$patch:explode name:c]",
            500,
            id="an unknown directive in an element",
        ),
        pytest.param(
            POD,
            {"containers": [{"$patch": "merge", "name": "c"}]},
            "merging lists cannot yet be specified in the patch",
            500,
            id="merge as a directive in an element",
        ),
        pytest.param(
            POD,
            {"nodeSelector": {"$patch": "merge"}},
            "unknown patch type: merge in map: map[$patch:merge]",
            500,
            id="an unknown directive in a map",
        ),
        pytest.param(
            POD,
            {"containers": ["c"]},
            "list element types are not identical: [[map[args:[a] image:x:1 name:c] map[image:y:1 name:side]] [c]]",
            500,
            id="elements of two types",
        ),
        pytest.param(
            POD,
            {"$setElementOrder/containers": [{"name": "c"}], "containers": [{"name": "zz"}]},
            "The order in patch list:\n[map[name:zz]]\n doesn't match $setElementOrder list:\n[map[name:c]]\n",
            500,
            id="an order that lacks an element",
        ),
        pytest.param(
            POD,
            {"$setElementOrder/containers": [{"name": "c"}], "containers": ["c"]},
            "expected a map[string]interface {}, but received a string",
            500,
            id="an ordered element that is no object",
        ),
        pytest.param(
            POD,
            {"$setElementOrder/containers": {}},
            "expected a []interface {}, but received a map[string]interface {}",
            500,
            id="an order that is no list",
        ),
        pytest.param(POD, {"$setElementOrder": []}, "invalid patch format of setElementOrder list", 400, id="an order of nothing"),
        pytest.param(POD, {"$deleteFromPrimitiveList": []}, "invalid patch format of primitive list", 400, id="a deletion from nothing"),
        pytest.param(POD, {"$retainKeys": "x"}, "invalid patch format of retainKeys", 400, id="keys to retain that are no list"),
        pytest.param(
            POD,
            {"$retainKeys": ["containers"], "hostname": "h"},
            "invalid patch format of retainKeys",
            400,
            id="a member that is not to be retained",
        ),
        pytest.param(pod(containers=[["x"]]), {"containers": [["y"]]}, "lists of lists are not supported", 422, id="a list of lists"),
        pytest.param(
            pod(foo={"a": 1}),
            {"foo": {"b": 2}},
            'unable to find api field in struct PodSpec for the json field "foo"',
            500,
            id="a field that the kind does not have",
        ),
        pytest.param(
            pod(nodeSelector={"a": {"b": 1}}),
            {"nodeSelector": {"a": {}}},
            "merging an object in json but data type is not struct, instead is: map",
            500,
            id="an object where a map has scalars",
        ),
        pytest.param(
            pod(affinity=[1]), {"affinity": [2]}, "expected slice or array type, but got: struct", 500, id="a list where an object belongs"
        ),
    ],
)
def test_a_patch_that_cannot_be_merged_says_why(doc: JSONObject, patch: JSONObject, message: str, code: int) -> None:
    with pytest.raises(PatchError) as caught:
        spec_of(doc, patch)
    assert (str(caught.value), caught.value.code) == (message, code)


def test_free_form_data_cannot_be_merged_into() -> None:
    doc = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "data": {"spec": {"a": 1}}}
    with pytest.raises(PatchError, match='unable to find api field in struct RawExtension for the json field "spec"'):
        merged(doc, {"data": {"spec": {"b": 1}}})


def test_a_kind_without_a_schema_is_refused() -> None:
    with pytest.raises(PatchError, match="strategic merge patch format is not supported") as caught:
        strategic_merge({}, {}, None, builtin())
    assert caught.value.code == 400


@pytest.mark.parametrize("patch", [[], "x", None])
def test_a_patch_that_is_no_object_is_refused(patch: Any) -> None:
    with pytest.raises(PatchError, match="invalid JSON document"):
        merged(POD, patch)


NAMES = st.sampled_from(["a", "b", "c", "d"])
CONTAINERS = st.lists(NAMES, unique=True, max_size=4).map(lambda names: [{"name": name, "image": name} for name in names])


@given(CONTAINERS, st.lists(st.tuples(NAMES, st.sampled_from(["set", "delete", "null"])), unique_by=lambda change: change[0], max_size=4))
def test_merging_by_key_is_merging_a_map_of_the_elements(old: list[JSONObject], changes: list[tuple[str, str]]) -> None:
    forms: dict[str, JSONObject] = {"set": {"image": "new"}, "delete": {"$patch": "delete"}, "null": {"image": None}}
    patch = [{"name": name} | forms[change] for name, change in changes]
    doc = pod(containers=old) if old else pod()
    before = copy.deepcopy((doc, patch))
    result = spec_of(doc, {"containers": patch}).get("containers", [])
    expected = {element["name"]: element for element in old}
    for name, change in changes:
        if change == "delete":
            expected.pop(name, None)
        elif change == "null":
            expected[name] = {"name": name}
        else:
            expected[name] = {"name": name, "image": "new"}
    found = {element["name"]: {key: value for key, value in element.items() if value is not None} for element in result}
    assert found == expected
    assert len(result) == len(found)
    assert (doc, patch) == before


@given(st.lists(NAMES, unique=True, min_size=1), st.permutations(["a", "b", "c", "d"]))
def test_a_full_order_is_obeyed_whatever_was_there(old: list[str], order: list[str]) -> None:
    patch = {"$setElementOrder/containers": [{"name": name} for name in order], "containers": [{"name": name} for name in order]}
    result = spec_of(pod(containers=[{"name": name} for name in old]), patch)["containers"]
    assert [element["name"] for element in result] == order
