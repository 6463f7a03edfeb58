"""The actions of rules: their results, what they share with their input, and the fields that they may change."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubeloop.proxy.rules import RuleFailed
from kubeloop.types import JSONObject
from tests.proxy.rules.rule_texts import pod, rule, selection_of

STATUS = {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "hostIP": "10.9.9.9", "hostIPs": [{"ip": "10.9.9.9"}]}


@pytest.mark.parametrize(
    ("action", "field", "expected"),
    [
        pytest.param({"set": {"spec.nodeName": "hidden"}}, ("spec", "nodeName"), "hidden", id="set replaces a field"),
        pytest.param(
            {"set": {"spec.containers[*].image": "i"}},
            ("spec", "containers"),
            [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}],
            id="set changes every item",
        ),
        pytest.param({"remove": ["metadata.labels"]}, ("metadata", "labels"), None, id="remove removes a field"),
        pytest.param(
            {"jsonPatch": [{"op": "replace", "path": "/spec/nodeName", "value": "p"}]},
            ("spec", "nodeName"),
            "p",
            id="a JSON patch replaces a field",
        ),
        pytest.param(
            {"jsonPatch": [{"op": "add", "path": "/extra", "value": [1]}]},
            ("extra",),
            [1],
            id="a JSON patch adds a field of the first level",
        ),
        pytest.param(
            {"jsonPatch": [{"op": "remove", "path": "/spec"}]}, ("spec",), None, id="a JSON patch removes a field of the first level"
        ),
        pytest.param(
            {"jsonPatch": [{"op": "copy", "from": "/metadata/name", "path": "/spec/host"}]},
            ("spec", "host"),
            "web-0",
            id="a JSON patch copies a field",
        ),
        pytest.param(
            {"jsonPatch": [{"op": "move", "from": "/spec/nodeName", "path": "/moved"}]},
            ("moved",),
            "node-7",
            id="a JSON patch moves a field",
        ),
        pytest.param(
            {"jsonPatch": [{"op": "test", "path": "/kind", "value": "Pod"}, {"op": "add", "path": "/a~1b", "value": 1}]},
            ("a/b",),
            1,
            id="a JSON patch tests a field and escapes names",
        ),
        pytest.param(
            {"mergePatch": {"metadata": {"labels": {"seen": "yes"}}}},
            ("metadata", "labels"),
            {"tier": "back", "seen": "yes"},
            id="a merge patch adds a label",
        ),
        pytest.param({"mergePatch": {"spec": {"nodeName": None}}}, ("spec", "nodeName"), None, id="a merge patch removes a field"),
        pytest.param({"mergePatch": {"new": {"a": None, "b": 1}}}, ("new",), {"b": 1}, id="a merge patch creates no nulls"),
        pytest.param(
            {"mapAddresses": {"to": "127.0.0.9"}},
            ("status",),
            {"podIP": "127.0.0.9", "podIPs": [{"ip": "127.0.0.9"}], "hostIP": "127.0.0.9", "hostIPs": [{"ip": "127.0.0.9"}]},
            id="addresses of a pod and its host are mapped",
        ),
    ],
)
def test_an_action_changes_an_object(action: JSONObject, field: tuple[str, ...], expected: Any) -> None:
    selection, tree = selection_of(rule(action)), pod(status=STATUS)
    before = copy.deepcopy(tree)
    result = selection.rewrite(tree)
    found: Any = result.object
    for name in field:
        found = found.get(name)
    assert found == expected
    assert (result.changed, result.rules) == (True, ("r",))
    assert tree == before
    assert selection.may_change_path(*field)


@pytest.mark.parametrize(
    "action",
    [
        pytest.param({"set": {"spec.nodeName": "node-7"}}, id="set of an equal value"),
        pytest.param({"remove": ["spec.zzz", "zzz[0].a"]}, id="remove of missing fields"),
        pytest.param({"jsonPatch": [{"op": "test", "path": "/kind", "value": "Pod"}]}, id="a patch that only tests"),
        pytest.param({"jsonPatch": [{"op": "test", "path": "", "value": pod()}]}, id="a patch that tests the whole object"),
        pytest.param({"jsonPatch": [{"op": "replace", "path": "/spec/nodeName", "value": "node-7"}]}, id="a patch with an equal value"),
        pytest.param({"mergePatch": {"spec": {"nodeName": "node-7", "gone": None}}}, id="a merge patch with equal values"),
        pytest.param({"mapAddresses": {"to": "127.0.0.9"}}, id="addresses of an object without any"),
        pytest.param({"set": {"spec.nodeName": "node-7", "spec.containers[9].image": "x"}}, id="set of an item that is missing"),
    ],
)
def test_an_action_without_effect_leaves_the_object_as_it_is(action: JSONObject) -> None:
    tree = pod()
    result = selection_of(rule(action)).rewrite(tree)
    assert result.object is tree
    assert (result.changed, result.rules) == (False, ())


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        pytest.param({"set": {"spec.nodeName.x": 1}}, "spec.nodeName.x: spec.nodeName is text, expected a mapping", id="set below a text"),
        pytest.param(
            {"jsonPatch": [{"op": "remove", "path": "/spec/x"}]},
            "jsonPatch: error in remove for path: '/spec/x': Unable to remove nonexistent key: x: missing value",
            id="a patch of a missing field",
        ),
        pytest.param(
            {"jsonPatch": [{"op": "test", "path": "/kind", "value": "Node"}]},
            "jsonPatch: testing value /kind failed: test failed",
            id="a patch whose test fails",
        ),
    ],
)
def test_an_action_that_cannot_be_applied_fails(action: JSONObject, reason: str) -> None:
    with pytest.raises(RuleFailed) as caught:
        selection_of(rule(action)).rewrite(pod())
    assert (caught.value.rule, caught.value.reason) == ("r", reason)


ENDPOINTS = {
    "subsets": [
        {
            "addresses": [{"ip": "10.0.0.1", "targetRef": {"name": "a"}}, {"ip": "10.0.0.2"}],
            "notReadyAddresses": [{"ip": "10.0.0.3"}],
            "ports": [{"name": "http", "port": 80}],
        }
    ]
}
SLICE = {
    "addressType": "IPv6",
    "endpoints": [{"addresses": ["fd00::1", "fd00::2"]}, {"addresses": []}],
    "ports": [{"port": 80}, {"port": 81}],
}


@pytest.mark.parametrize(
    ("parts", "to", "tree", "expected"),
    [
        pytest.param(
            {"resource": "endpoints"},
            {"to": "127.0.0.9", "port": 8080},
            ENDPOINTS,
            {
                "subsets": [
                    {
                        "addresses": [{"ip": "127.0.0.9", "targetRef": {"name": "a"}}, {"ip": "127.0.0.9"}],
                        "notReadyAddresses": [{"ip": "127.0.0.9"}],
                        "ports": [{"name": "http", "port": 8080}],
                    }
                ]
            },
            id="addresses and ports of Endpoints, also of pods that are not ready",
        ),
        pytest.param(
            {"resource": "endpointslices", "group": "discovery.k8s.io"},
            {"to": "127.0.0.9"},
            SLICE,
            {"addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.9"]}, {"addresses": []}], "ports": [{"port": 80}, {"port": 81}]},
            id="addresses of an EndpointSlice with their family, without ports",
        ),
        pytest.param(
            {"resource": "endpointslices", "group": "discovery.k8s.io"},
            {"to": "fd00::9", "port": 1},
            SLICE,
            {"addressType": "IPv6", "endpoints": [{"addresses": ["fd00::9"]}, {"addresses": []}], "ports": [{"port": 1}, {"port": 1}]},
            id="every port of an EndpointSlice",
        ),
        pytest.param({"resource": "services"}, {"to": "127.0.0.9"}, ENDPOINTS, ENDPOINTS, id="another resource is left alone"),
        pytest.param(
            {"resource": "endpoints"}, {"to": "127.0.0.9"}, {"subsets": None}, {"subsets": None}, id="Endpoints without addresses"
        ),
    ],
)
def test_addresses_are_mapped(parts: dict[str, Any], to: JSONObject, tree: JSONObject, expected: JSONObject) -> None:
    before = copy.deepcopy(tree)
    assert selection_of(rule({"mapAddresses": to}), **parts).rewrite(tree).object == expected
    assert tree == before


@pytest.mark.parametrize(
    ("parts", "tree"),
    [
        pytest.param({}, {"status": {"podIP": "1.1.1.1", "podIPs": [{"ip": "1.1.1.1"}], "hostIP": ""}}, id="a pod"),
        pytest.param({}, {"status": {"podIPs": []}}, id="a pod that has no address yet"),
        pytest.param({"resource": "endpoints"}, {"subsets": [{"addresses": [{"ip": "1.1.1.1"}], "ports": [{"port": 8}]}]}, id="Endpoints"),
        pytest.param(
            {"resource": "endpointslices", "group": "discovery.k8s.io"},
            {"addressType": "IPv4", "endpoints": [{"addresses": ["1.1.1.1"]}], "ports": [{"port": 8}]},
            id="an EndpointSlice",
        ),
    ],
)
def test_mapped_addresses_stay_as_they_are(parts: dict[str, Any], tree: JSONObject) -> None:
    result = selection_of(rule({"mapAddresses": {"to": "1.1.1.1", "port": 8}}), **parts).rewrite(tree)
    assert (result.object is tree, result.rules) == (True, ())


@pytest.mark.parametrize(
    ("action", "path", "expected"),
    [
        pytest.param({"set": {"metadata.labels.a": "x"}}, ("metadata", "labels"), True, id="set of a label may change the labels"),
        pytest.param({"set": {"metadata.labels.a": "x"}}, ("metadata", "labels", "b"), False, id="set of a label changes no other label"),
        pytest.param(
            {"set": {"spec.containers[*].image": "x"}}, ("spec", "containers", "name"), True, id="set in a list may change all of it"
        ),
        pytest.param({"set": {"spec.a": 1}}, ("status",), False, id="set of the specification changes no status"),
        pytest.param({"set": {"spec.a": 1}}, ("metadata", "managedFields"), True, id="every change removes managedFields"),
        pytest.param({"set": {"spec.a": 1}}, ("metadata", "annotations"), True, id="every change may remove an annotation"),
        pytest.param({"drop": True}, ("metadata", "managedFields"), False, id="hiding changes nothing"),
        pytest.param({"remove": ["spec"]}, ("spec", "replicas"), True, id="remove of a field may change the fields in it"),
        pytest.param(
            {"jsonPatch": [{"op": "add", "path": "/spec/l/0", "value": 1}]},
            ("spec", "l", "x"),
            True,
            id="a patch of an item may change all of the list",
        ),
        pytest.param({"jsonPatch": [{"op": "test", "path": "/spec", "value": 1}]}, ("spec",), False, id="a test changes nothing"),
        pytest.param(
            {"jsonPatch": [{"op": "copy", "from": "/status", "path": "/spec/x"}]},
            ("status",),
            False,
            id="a copy does not change its source",
        ),
        pytest.param(
            {"jsonPatch": [{"op": "move", "from": "/status", "path": "/spec/x"}]}, ("status",), True, id="a move changes its source"
        ),
        pytest.param(
            {"mergePatch": {"metadata": {"labels": {"a": "x"}}}},
            ("metadata", "labels"),
            True,
            id="a merge patch may change the fields around its own",
        ),
        pytest.param(
            {"mergePatch": {"metadata": {"labels": {"a": "x"}}}},
            ("metadata", "labels", "b"),
            False,
            id="a merge patch changes no other label",
        ),
        pytest.param({"mergePatch": {"spec": None}}, ("spec", "a", "b"), True, id="a merge patch that removes a field changes all in it"),
        pytest.param({"mapAddresses": {"to": "1.1.1.1"}}, ("status", "phase"), False, id="mapped addresses change no phase"),
        pytest.param({"mapAddresses": {"to": "1.1.1.1"}}, ("status", "podIP"), True, id="mapped addresses change the pod's address"),
        pytest.param({"python": {"callable": "operator:or_"}}, ("any",), True, id="a callable may change everything"),
    ],
)
def test_a_selection_knows_what_it_may_change(action: JSONObject, path: tuple[str, ...], expected: bool) -> None:
    assert selection_of(rule(action)).may_change_path(*path) is expected


def test_a_patch_copies_only_the_fields_that_it_names() -> None:
    tree = pod(status=STATUS)
    result = selection_of(rule({"jsonPatch": [{"op": "add", "path": "/spec/x", "value": 1}]}, {"mergePatch": {"spec": {"y": 1}}})).rewrite(
        tree
    )
    assert result.object is not None
    assert result.object["status"] is tree["status"]
    assert list(result.object) == list(tree)
