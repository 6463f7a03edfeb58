"""Writes of objects that rules touch: denied, passed, or mapped back to the API server's object."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kubeloop.codec import protobuf
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupKind
from kubeloop.proxy.rules import Rewritten, RuleFailed
from kubeloop.proxy.write_mapping import ReversedWrite, check_reverse, decoded_body, mapped_back
from kubeloop.serving.answer import Answer
from kubeloop.types import JSONObject
from tests.proxy.model_server import ModelServer
from tests.proxy.rules.rule_texts import rule, rules_of, selection_of
from tests.proxy.samples import PODS, ScriptedProxy, json_of, pod

MOVE = {"set": {"spec.nodeName": "hidden"}}
NOISE: JSONObject = {"managedFields": [{"manager": "m"}], "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}


def write_under(*actions: JSONObject, name: str = "r") -> ReversedWrite:
    """Return an update of the pod web-0 under a rule."""
    return ReversedWrite(GroupKind("", "Pod"), "web-0", rules_of(rule(*actions, name=name)).rules)


def seen_by_client(tree: JSONObject, *actions: JSONObject) -> JSONObject:
    found = selection_of(rule(*actions)).rewrite(tree).object
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("change", "path", "stored"),
    [
        pytest.param({"status": {"phase": "Failed"}}, ("status",), {"phase": "Failed"}, id="a change elsewhere is stored"),
        pytest.param({}, ("spec", "nodeName"), "node-7", id="a hidden value that is written back is not stored"),
        pytest.param({"extra": [1, {"a": None}]}, ("extra",), [1, {"a": None}], id="a new field is stored"),
    ],
)
def test_a_write_is_mapped_back(change: JSONObject, path: tuple[str, ...], stored: Any) -> None:
    original = pod(**NOISE)
    seen = seen_by_client(original, MOVE)
    result: Any = mapped_back(original, seen, seen | change, write_under(MOVE))
    assert result["metadata"] == original["metadata"]
    for name in path:
        result = result[name]
    assert result == stored


actions = st.sampled_from(
    [
        [{"set": {"spec.nodeName": "hidden"}}],
        [{"remove": ["metadata.annotations"]}],
        [{"remove": ["spec.containers[0].image"]}],
        [{"mergePatch": {"metadata": {"labels": {"seen": "yes"}}}}],
        [{"jsonPatch": [{"op": "add", "path": "/spec/containers/-", "value": {"name": "extra"}}]}],
        [{"set": {"spec.containers[*].image": "x"}}, {"remove": ["status"]}],
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab/~", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b/c", "d~"]), inner, max_size=3),
    max_leaves=4,
)
edits = st.lists(
    st.tuples(
        st.sampled_from(
            [("spec", "nodeName"), ("spec", "containers"), ("metadata", "labels"), ("metadata", "annotations"), ("status",), ("x",)]
        ),
        values,
    ),
    max_size=3,
)


def edited(tree: JSONObject, changes: list[tuple[tuple[str, ...], Any]]) -> JSONObject:
    result: JSONObject = json.loads(json.dumps(tree))
    for path, value in changes:
        target: Any = result
        for name in path[:-1]:
            target = target[name]
        if value is None:
            target.pop(path[-1], None)
        else:
            target[path[-1]] = value
    return result


@given(actions, edits, st.booleans())
def test_a_mapped_write_looks_to_its_client_as_the_client_wrote_it(drawn: list[JSONObject], changes: Any, noisy: bool) -> None:
    original = pod(**(NOISE if noisy else {}))
    before = json.dumps(original)
    seen = seen_by_client(original, *drawn)
    written = edited(seen, changes)
    try:
        result = mapped_back(original, seen, written, write_under(*drawn))
        check_reverse(selection_of(rule(*drawn)).rewrite(result), seen, written, write_under(*drawn))
    except RuleFailed:
        return  # the rule cannot be applied to what the client wrote, which is refused
    except ApiError as error:
        assert (error.status.code, error.status.reason) == (422, "Invalid")  # noqa: PT017 - other errors are failures
        assert all(cause.field and "rule r " in cause.message for cause in error.causes)  # noqa: PT017
        assume(changes)  # without an edit every write can be mapped back
        return
    assert json.dumps(original) == before
    if not changes:
        assert result == original


SETS_NOTE = {"set": {'metadata.annotations["example.com/note"]': "changed"}}
SETS_IMAGES = {"set": {"spec.containers[*].image": "hidden"}}


@pytest.mark.parametrize(
    ("action", "path", "value", "field"),
    [
        pytest.param(MOVE, ("spec", "nodeName"), "mine", "spec.nodeName", id="a value that is set"),
        pytest.param(MOVE, ("spec", "nodeName"), None, "spec.nodeName", id="a value that is set and that the client removes"),
        pytest.param(
            SETS_NOTE,
            ("metadata", "annotations"),
            {"example.com/note": "x"},
            'metadata.annotations["example.com/note"]',
            id="an annotation",
        ),
        pytest.param(
            SETS_IMAGES, ("spec", "containers"), [{"name": "main", "image": "mine"}], "spec.containers[0].image", id="an item of a list"
        ),
        pytest.param(
            {"remove": ["spec.containers[0].image"]},
            ("spec", "containers"),
            [{"name": "main", "image": "mine"}],
            "spec.containers[0].image",
            id="a value that is removed and that the client adds",
        ),
        pytest.param(
            {"set": {"spec.extra": {"a": 1}}}, ("spec", "extra"), {"a": 2}, "spec.extra.a", id="a part that the API server's object lacks"
        ),
    ],
)
def test_a_write_that_cannot_be_mapped_back_names_the_field_and_the_rule(action: JSONObject, path: Any, value: Any, field: str) -> None:
    original, write = pod(), write_under(action, name="hide")
    seen = seen_by_client(original, action)
    written = edited(seen, [(path, value)])
    with pytest.raises(ApiError) as raised:
        check_reverse(selection_of(rule(action)).rewrite(mapped_back(original, seen, written, write)), seen, written, write)
    why = "the proxy's rule hide changes this field for clients (writes: Reverse), so that the write cannot be mapped back"
    assert (raised.value.status.code, raised.value.status.message) == (422, f'Pod "web-0" is invalid: {field}: Forbidden: {why}')
    assert [(cause.field, cause.message) for cause in raised.value.causes] == [(field, f"Forbidden: {why}")]


def test_only_the_rules_that_change_the_field_are_named() -> None:
    write = ReversedWrite(GroupKind("", "Pod"), "web-0", rules_of(rule(MOVE, name="node"), rule(SETS_NOTE, name="note")).rules)
    error = write.refusal(pod(), [{"path": "/spec/nodeName"}, {"path": "/status"}])
    assert [(cause.field, cause.message.partition(" change")[0]) for cause in error.causes] == [
        ("spec.nodeName", "Forbidden: the proxy's rule node"),
        ("status", "Forbidden: the proxy's rules node, note"),
    ]


def test_a_write_that_would_hide_the_object_names_the_changed_fields_and_the_rule() -> None:
    seen, written = pod(), edited(pod(), [(("metadata", "labels"), {"tier": "back"})])
    with pytest.raises(ApiError) as raised:
        check_reverse(Rewritten(None, ("node", "hide-back"), changed=True), seen, written, write_under(MOVE))
    why = "the proxy's rule hide-back hides the object after this write"
    assert raised.value.status.message == f'Pod "web-0" is invalid: metadata.labels.tier: Forbidden: {why}'


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        pytest.param(b'{"a":1}', "", {"a": 1}, id="JSON by default"),
        pytest.param(b'{"a":1}', "application/json; charset=utf-8", {"a": 1}, id="JSON with a parameter"),
        pytest.param(b"a: 1\n", "application/yaml", {"a": 1}, id="YAML"),
        pytest.param(b"a: 1\n", "application/apply-patch+yaml", {"a": 1}, id="an apply patch"),
        pytest.param(protobuf.encode(pod()), protobuf.MEDIA_TYPE, "Pod", id="protobuf"),
        pytest.param(b"[]", "", None, id="no object"),
        pytest.param(b"", "", None, id="nothing"),
        pytest.param(b"rubbish", "", None, id="rubbish"),
        pytest.param(b"a: 1\n---\nb: 1\n", "application/yaml", None, id="two documents"),
        pytest.param(b"k8s\x00rubbish", protobuf.MEDIA_TYPE, None, id="rubbish in protobuf"),
        pytest.param(b"[" * 100_000, "", None, id="nests too deeply"),
    ],
)
def test_the_object_in_a_body(body: bytes, content_type: str, expected: Any) -> None:
    found = decoded_body(body, content_type)
    assert (found and found["kind"] if expected == "Pod" else found) == expected


# Through the pipeline


async def written(
    policy: str, *actions: JSONObject, method: str = "PUT", tier: str = "front", body: Any = None
) -> tuple[Answer, ModelServer]:
    """Write the pod web-0, under a rule with a policy."""
    server = ModelServer()
    await server.write("web-0", pod(tier=tier))
    match = [{"labelSelector": "tier in (front,back)"}] if actions else [{"labelSelector": "tier=back"}]
    proxy = ScriptedProxy(server, rule(*actions, writes=policy, name="r", match=match))
    reply = await proxy(f"{PODS}/web-0", method, body)
    assert isinstance(reply, Answer)
    return reply, server


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
async def test_deny_refuses_every_write_of_a_changed_object_and_names_the_rule(method: str) -> None:
    reply, server = await written("Deny", MOVE, method=method, body=pod(node="mine"))
    tree = await json_of(reply)
    assert (reply.status, tree["reason"], server.version) == (403, "Forbidden", 2)
    begin = 'pods "web-0" is forbidden: the proxy\'s rule r denies this write, because clients see the object changed'
    assert tree["message"].startswith(begin)


async def test_deny_names_the_rules_that_deny_only() -> None:
    server = ModelServer()
    await server.write("web-0", pod())
    passes, denies = rule(MOVE, name="passes", writes="Pass"), rule(SETS_NOTE, name="denies", writes="Deny")
    reply = await ScriptedProxy(server, passes, denies)(f"{PODS}/web-0", "DELETE", None)
    assert isinstance(reply, Answer)
    assert (reply.status, "the proxy's rule denies denies this write" in (await json_of(reply))["message"]) == (403, True)


async def test_a_rule_for_the_verb_of_a_write_denies_it_by_its_name() -> None:
    server = ModelServer()
    await server.write("web-0", pod())
    for_updates = rule(MOVE, name="updates", writes="Deny", match=[{"verbs": ["update"]}])
    reply = await ScriptedProxy(server, rule(SETS_NOTE, name="note", writes="Pass"), for_updates)(f"{PODS}/web-0", "PUT", pod())
    assert isinstance(reply, Answer)
    assert (reply.status, "the proxy's rule updates denies this write" in (await json_of(reply))["message"]) == (403, True)


async def test_the_deletion_of_a_collection_is_denied_by_the_name_of_the_rule() -> None:
    reply = await ScriptedProxy(ModelServer(), rule(MOVE, name="hide", writes="Deny"))(PODS, "DELETE", None)
    assert isinstance(reply, Answer)
    begin = "pods is forbidden: the proxy's rule hide denies the deletion of a collection"
    assert (reply.status, (await json_of(reply))["message"].startswith(begin)) == (403, True)


async def test_deny_passes_writes_of_objects_that_no_rule_touches() -> None:
    reply, server = await written("Deny", method="PUT", body=pod(node="mine"))
    assert (reply.status, server.objects["web-0"]["spec"]["nodeName"]) == (200, "mine")


async def test_pass_stores_what_the_client_wrote_and_answers_with_what_it_may_see() -> None:
    reply, server = await written("Pass", MOVE, body=pod(node="mine"))
    assert (reply.status, server.objects["web-0"]["spec"]["nodeName"]) == (200, "mine")
    assert (await json_of(reply))["spec"]["nodeName"] == "hidden"


async def test_reverse_stores_the_clients_changes_only() -> None:
    reply, server = await written("Reverse", MOVE, body=pod(node="hidden", version="2") | {"status": {"phase": "Failed"}})
    assert reply.status == 200
    stored = server.objects["web-0"]
    assert (stored["spec"]["nodeName"], stored["status"]["phase"]) == ("node-7", "Failed")
    assert (await json_of(reply))["spec"]["nodeName"] == "hidden"


async def test_reverse_refuses_a_change_of_what_the_rule_sets() -> None:
    reply, server = await written("Reverse", MOVE, body=pod(node="mine", version="2"))
    assert (reply.status, server.version) == (422, 2)
    causes = (await json_of(reply))["details"]["causes"]
    assert [(cause["field"], "the proxy's rule r" in cause["message"]) for cause in causes] == [("spec.nodeName", True)]


async def test_a_creation_that_a_rule_would_touch_is_denied() -> None:
    proxy = ScriptedProxy(ModelServer(), rule(MOVE, writes="Deny", match=[{"labelSelector": "tier=back"}]))
    reply = await proxy(PODS, "POST", pod("new", "back"))
    assert isinstance(reply, Answer)
    assert reply.status == 403
    assert proxy.upstream.requests == []
