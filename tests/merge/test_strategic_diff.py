"""Strategic merge patches between two states: merged in they give the second state, and they leave alone what only others know."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.merge import PatchError, strategic_merge
from kubeloop.merge.strategic_diff import StrategicDiff, create_strategic_patch
from kubeloop.meta import GroupVersionKind
from kubeloop.schema import builtin
from kubeloop.types import JSONObject


def diff(old: JSONObject, new: JSONObject, kind: str = "Pod") -> StrategicDiff:
    schema = builtin().kind(GroupVersionKind("", "v1", kind))
    assert schema is not None
    return create_strategic_patch(old, new, schema, builtin())


def merged(doc: JSONObject, patch: JSONObject) -> JSONObject:
    return strategic_merge(doc, patch, builtin().kind(GroupVersionKind("", "v1", "Pod")), builtin())


def pod(**spec: Any) -> JSONObject:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def test_a_field_that_becomes_null_is_deleted() -> None:
    patch, replaces = diff(pod(nodeName="a"), pod(nodeName=None))
    assert (patch, replaces) == ({"spec": {"nodeName": None}}, False)
    assert merged(pod(nodeName="a"), patch) == pod()


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        pytest.param(pod(nodeName="a"), pod(nodeName="a"), {}, id="equal"),
        pytest.param(pod(nodeName="a"), pod(nodeName="b"), {"spec": {"nodeName": "b"}}, id="a field"),
        pytest.param(pod(nodeName="a"), pod(), {"spec": {"nodeName": None}}, id="a field that is gone"),
        pytest.param(pod(nodeName=None), pod(), {"spec": {"nodeName": None}}, id="a null that is gone"),
        pytest.param(pod(nodeName=None), pod(nodeName=None), {}, id="a null that stays"),
        pytest.param(
            pod(nodeSelector={"a": "1", "b": "1"}),
            pod(nodeSelector={"a": "2"}),
            {"spec": {"nodeSelector": {"b": None, "a": "2"}}},
            id="a map",
        ),
        pytest.param(
            pod(containers=[{"name": "a", "image": "1"}, {"name": "b"}]),
            pod(containers=[{"name": "a", "image": "2"}, {"name": "c"}]),
            {
                "spec": {
                    "containers": [{"name": "a", "image": "2"}, {"name": "c"}, {"name": "b", "$patch": "delete"}],
                    "$setElementOrder/containers": [{"name": "a"}, {"name": "c"}],
                }
            },
            id="items by their key",
        ),
        pytest.param(
            pod(volumes=[{"name": "v", "emptyDir": {}}]),
            pod(volumes=[{"name": "v", "configMap": {"name": "c"}}]),
            {
                "spec": {
                    "volumes": [{"name": "v", "emptyDir": None, "configMap": {"name": "c"}, "$retainKeys": ["configMap", "name"]}],
                    "$setElementOrder/volumes": [{"name": "v"}],
                }
            },
            id="an alternative names what it keeps",
        ),
    ],
)
def test_the_patch_between(old: JSONObject, new: JSONObject, patch: JSONObject) -> None:
    assert diff(old, new) == (patch, False)
    assert merged(old, patch) == new


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(
            pod(containers=[{"name": "a", "command": ["x"]}]), pod(containers=[{"name": "a", "command": ["y"]}]), id="without keys"
        ),
        pytest.param(pod(containers=[{"name": "a"}, {"name": "a"}]), pod(containers=[{"name": "a"}]), id="whose keys repeat"),
        pytest.param(pod(containers=[{"image": "a"}]), pod(containers=[{"name": "a"}]), id="whose items lack their key"),
        pytest.param(pod(containers=[{"name": "a"}]), pod(containers=[{"name": "a", "args": ["x"]}]), id="that was not there"),
    ],
)
def test_a_list_is_replaced_whole(old: JSONObject, new: JSONObject) -> None:
    found = diff(old, new)
    assert found.replaces
    assert merged(old, found.patch) == new


def test_a_list_that_was_not_there_is_merged_with_what_others_began_meanwhile() -> None:
    found = diff(pod(), pod(containers=[{"name": "a"}]))
    assert not found.replaces
    assert found.patch["spec"] == {"containers": [{"name": "a"}]}
    result = merged(pod(containers=[{"name": "theirs"}]), found.patch)
    assert {one["name"] for one in result["spec"]["containers"]} == {"a", "theirs"}


def test_what_the_schema_does_not_know_cannot_be_said() -> None:
    with pytest.raises(PatchError):
        diff(pod(odd={"a": [1]}), pod(odd={"a": [2]}))


NAMES = st.sampled_from(["a", "b", "c", "d"])
ENV = st.lists(NAMES, unique=True, max_size=3).map(lambda names: [{"name": name, "value": name * 2} for name in names])
RESOURCES = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "2"]), max_size=2)
CONTAINER = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "image": NAMES,
        "env": ENV,
        "command": st.lists(NAMES, max_size=2),
        "resources": st.fixed_dictionaries({}, optional={"limits": RESOURCES}),
        "ports": st.lists(st.sampled_from([80, 81]), max_size=2).map(lambda ports: [{"containerPort": port} for port in ports]),
    },
)
VOLUME = st.one_of(
    st.fixed_dictionaries({"name": NAMES, "emptyDir": st.just({})}),
    st.fixed_dictionaries({"name": NAMES, "configMap": st.fixed_dictionaries({"name": NAMES})}),
)
POD = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {}, optional={"labels": st.dictionaries(NAMES, NAMES, max_size=3), "finalizers": st.lists(NAMES, unique=True, max_size=3)}
        ),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "containers": st.lists(CONTAINER, max_size=3, unique_by=lambda item: str(item["name"])),
                "volumes": st.lists(VOLUME, max_size=3, unique_by=lambda item: str(item["name"])),
                "nodeName": NAMES,
            },
        ),
    }
)


@given(POD, POD)
def test_merging_the_difference_gives_the_second_state(old: JSONObject, new: JSONObject) -> None:
    before = copy.deepcopy((old, new))
    assert merged(old, diff(old, new).patch) == new
    assert (old, new) == before
    assert diff(new, new) == ({}, False)


@given(POD, POD)
def test_additions_of_another_writer_stay(old: JSONObject, new: JSONObject) -> None:
    found = diff(old, new)
    theirs = copy.deepcopy(old)
    theirs["spec"].setdefault("containers", []).append({"name": "theirs"})
    theirs["metadata"].setdefault("labels", {})["theirs"] = "1"
    result = merged(theirs, found.patch)
    # A patch that removes a whole map or list removes the additions of other writers too.
    if "labels" in new["metadata"] or "labels" not in old["metadata"]:
        assert result["metadata"]["labels"]["theirs"] == "1"
    if "containers" in new["spec"] or "containers" not in old["spec"]:
        assert "theirs" in {one["name"] for one in result["spec"]["containers"]}
