"""Objects of which only the parts that rules need are decoded: rules have the same effect on them as on whole trees."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.proxy.encodings import Form
from kubeloop.proxy.lists import ListRewriter
from kubeloop.proxy.partial_objects import PartialDecoder
from kubeloop.proxy.rules.selection import LAST_APPLIED
from kubeloop.proxy.watches import WatchRewriter
from kubeloop.types import JSONObject
from tests.proxy.rules.rule_texts import rule, selection_of
from tests.proxy.samples import JSON_TYPE, frame, view_of

MANAGED = [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}]
POD: JSONObject = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "web-0", "namespace": "shop", "labels": {"tier": "back"}, "resourceVersion": "7", "managedFields": MANAGED},
    "spec": {"nodeName": "node-7", "containers": [{"name": "a", "image": "x:1"}], "priority": 1e3},
    "status": {"podIP": "10.0.0.7", "hostIP": "10.0.0.1", "phase": "Running"},
}

MERGED = {"spec": {"nodeName": None}, "status": None, "metadata": {"labels": {"a": "b"}}}
RULES = [
    pytest.param([rule({"set": {"spec.nodeName": "hidden"}})], True, id="a field is set"),
    pytest.param([rule({"set": {"spec.nodeName": "node-7"}})], True, id="a field is set to the value that it has"),
    pytest.param([rule({"set": {"spec.containers[*].image": "y"}})], True, id="a field of each item is set"),
    pytest.param([rule({"set": {"metadata.labels.seen": "yes"}})], True, id="a label is added"),
    pytest.param([rule({"set": {"other.deep.field": 1}})], True, id="a field in missing mappings is set"),
    pytest.param([rule({"remove": ["metadata.managedFields"]})], True, id="managedFields are removed"),
    pytest.param([rule({"remove": ["status", "spec.tolerations"]})], True, id="a present and a missing field are removed"),
    pytest.param(
        [rule({"mergePatch": {"spec": {"nodeName": None}, "status": None, "metadata": {"labels": {"a": "b"}}}})], True, id="a merge"
    ),
    pytest.param([rule({"mergePatch": {"spec": {}}})], True, id="a merge of an empty mapping"),
    pytest.param([rule({"jsonPatch": [{"op": "move", "from": "/spec/nodeName", "path": "/status/node"}]})], True, id="a JSON patch moves"),
    pytest.param([rule({"jsonPatch": [{"op": "test", "path": "", "value": {}}]}, onError="Pass")], False, id="a test of everything"),
    pytest.param([rule({"mapAddresses": {"to": "127.0.0.9"}})], True, id="addresses are mapped"),
    pytest.param([rule({"set": {"spec.priority": 5}}, when="object.status.phase == 'Running'")], False, id="a condition reads the object"),
    pytest.param(
        [rule({"set": {"spec.nodeName": "a"}}, name="one"), rule({"remove": ["spec"]}, name="two")], True, id="a part and then the whole"
    ),
    pytest.param([rule(match=[{"labelSelector": "tier=back"}])], True, id="a label hides the object"),
]


@pytest.mark.parametrize(("rules", "is_partial"), RULES)
@pytest.mark.parametrize("pod", [POD, POD | {"spec": None}, POD | {"spec": []}, {"metadata": POD["metadata"]}])
async def test_events_and_items_are_those_of_whole_trees(rules: list[JSONObject], is_partial: bool, pod: JSONObject) -> None:
    selection = selection_of(*rules, verb="list", name="")
    assert (selection.paths is not None) is is_partial
    try:
        expected = selection.rewrite(pod)
    except Exception:  # noqa: BLE001 - the failure of a rule is that of both ways
        with pytest.raises(Exception, match="failed"):
            WatchRewriter(view_of(*rules), Form(JSON_TYPE), {("shop", "web-0")}).event(frame("MODIFIED", pod).removesuffix(b"\n"))
        return
    event = WatchRewriter(view_of(*rules), Form(JSON_TYPE), set()).event(frame("ADDED", pod).removesuffix(b"\n"))
    assert event is None or isinstance(event, bytes)
    assert (None if event is None else json.loads(event)["object"]) == expected.object
    rewriter = ListRewriter(view_of(*rules), Form(JSON_TYPE), collect=False)
    body = json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [pod, pod]}, separators=(",", ":")).encode()
    items = json.loads(await rewriter.feed(body) + await rewriter.finish())["items"]
    assert items == ([] if expected.object is None else [expected.object] * 2)


def test_what_no_path_names_stays_as_it_was_written() -> None:
    tree = PartialDecoder([("spec", "nodeName"), ("status",)]).decode(json.dumps(POD).encode())
    kept: Any = tree["spec"]["priority"]
    assert bytes(kept) == b"1000.0"
    assert tree["spec"]["nodeName"] == "node-7"
    assert tree["status"] == POD["status"]
    assert "managedFields" not in tree["metadata"]


def test_managed_fields_are_decoded_for_a_rule_that_names_them() -> None:
    for path in (("metadata",), ("metadata", "managedFields")):
        tree = PartialDecoder([path]).decode(json.dumps(POD).encode())
        assert tree["metadata"]["managedFields"] == MANAGED
    assert PartialDecoder([("metadata",)]).decode(json.dumps(POD).encode())["metadata"] == POD["metadata"]


def test_annotations_are_decoded_if_they_contain_the_object_as_it_was_applied() -> None:
    decoder = PartialDecoder([("spec", "nodeName")])
    for notes, decoded in (({LAST_APPLIED: "{}", "a": "b"}, True), ({"a": "b"}, False)):
        found = decoder.decode(json.dumps({"metadata": {"annotations": notes}}).encode())["metadata"]["annotations"]
        assert (found == notes) is decoded
        assert decoded or json.loads(bytes(found)) == notes


ODD_NAMES = ['a"b', "a\\b", "a\nb", "\x7f", "\u200b"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_name_that_no_structure_can_have_concerns_its_own_object_alone(name: str) -> None:
    decoder = PartialDecoder([("spec", "nodeName")])
    with pytest.raises(msgspec.ValidationError):
        decoder.decode(json.dumps({"metadata": {}, name: 1}).encode())
    assert json.loads(msgspec.json.encode(decoder.decode(b'{"metadata":{},"data":{}}'))) == {"metadata": {}, "data": {}}
    assert decoder.decode_event(b'{"type":"ADDED","object":{"metadata":{},"status":{}}}')[1].keys() == {"metadata", "status"}


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_lists_with_an_odd_name_are_rewritten_and_rules_may_name_it(name: str) -> None:
    for each in (rule({"set": {"spec.nodeName": "hidden"}}), rule({"mergePatch": {name: {"x": 1}}})):
        tree = {"metadata": {"name": "a"}, name: {"y": 2}, "spec": {"nodeName": "s"}}
        rewriter = ListRewriter(view_of(each), Form(JSON_TYPE), collect=False)
        things = {"kind": "ThingList", "apiVersion": "x/v1", "metadata": {}, "items": [tree, tree]}
        body = json.dumps(things, separators=(",", ":")).encode()
        items = json.loads(await rewriter.feed(body) + await rewriter.finish())["items"]
        assert items == [selection_of(each, verb="list", name="").rewrite(tree).object] * 2


@pytest.mark.parametrize("key", [LAST_APPLIED.replace("/", "\\/"), LAST_APPLIED.replace("-", "\\u002d")])
async def test_the_object_as_it_was_applied_is_removed_however_its_name_is_written(key: str) -> None:
    raw = b'{"metadata":{"name":"a","annotations":{"%b":"secret"}},"spec":{"nodeName":"s"}}' % key.encode()
    event = WatchRewriter(view_of(rule({"set": {"spec.nodeName": "hidden"}})), Form(JSON_TYPE), set()).event(
        b'{"type":"ADDED","object":%b}' % raw
    )
    assert isinstance(event, bytes)
    assert json.loads(event)["object"] == {"metadata": {"name": "a", "annotations": {}}, "spec": {"nodeName": "hidden"}}


NAMES = ["kind", "apiVersion", "metadata", "spec", "status", "data", "items", "a b", "\u00e4", *(f"x{number}" for number in range(70))]
VALUES = st.dictionaries(st.sampled_from(["name", "nodeName", "x"]), st.text(max_size=2))
FIELDS = st.dictionaries(st.sampled_from(NAMES), st.one_of(st.none(), st.text(max_size=3), st.integers(0, 9), VALUES), max_size=12)


@given(st.lists(FIELDS, min_size=1, max_size=8))
def test_a_decoder_meets_objects_of_all_shapes_and_loses_no_field(objects: list[dict[str, Any]]) -> None:
    decoder = PartialDecoder([("spec", "nodeName"), ("status",)])
    for each in objects:
        data = json.dumps(each).encode()
        try:
            tree = decoder.decode(data)
            type_, of_event = decoder.decode_event(b'{"type":"ADDED","object":%b}' % data)
        except msgspec.ValidationError:
            continue  # the caller decodes the whole object
        assert (json.loads(msgspec.json.encode(tree)), type_) == (each, "ADDED")
        assert of_event.keys() == tree.keys() == each.keys()
