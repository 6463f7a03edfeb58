"""The rules for one request: their order, conditions and failures, the fields that are removed, and facts that need no object."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kubeloop.proxy.rules import Examination, HeadMetadata, RuleFailed
from kubeloop.types import JSONObject
from tests.proxy.rules.rule_texts import DROP, pod, request, rule, rules_of, selection_of

SET = {"set": {"spec.nodeName": "hidden"}}
HEAD = HeadMetadata("web-0", "shop", {"tier": "back"})


def test_rules_and_actions_apply_in_their_order() -> None:
    result = selection_of(
        rule({"set": {"spec.a": 1, "spec.b": 1}}, {"set": {"spec.b": 2}}, name="first"),
        rule({"set": {"spec.b": 3}}, {"remove": ["spec.a"]}, name="second"),
    ).rewrite(pod(spec={}))
    assert result.object is not None
    assert (result.object["spec"], result.rules) == ({"b": 3}, ("first", "second"))


def test_every_rule_matches_the_object_as_the_server_has_it() -> None:
    change = rule({"set": {"metadata.labels.tier": "front", "spec.nodeName": "x"}}, name="change")
    hide = rule(name="hide", match=[{"labelSelector": "tier=front"}])
    hide_by_condition = rule(name="hide-too", when="object.spec.nodeName == 'x'")
    result = selection_of(change, hide, hide_by_condition).rewrite(pod())
    assert result.rules == ("change",)


def test_hiding_ends_the_rules() -> None:
    later = rule({"set": {"spec.nodeName.x": 1}}, name="later")
    result = selection_of(rule(SET, name="first"), rule(name="hide"), later).rewrite(pod())
    assert (result.object, result.rules, result.changed) == (None, ("first", "hide"), True)


NOISY: JSONObject = {
    "name": "a",
    "managedFields": [{}],
    "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "b": "c"},
}


def test_a_change_removes_the_fields_that_repeat_hidden_values() -> None:
    result = selection_of(rule(SET)).rewrite({"metadata": NOISY, "spec": {}})
    assert result.object == {"metadata": {"name": "a", "annotations": {"b": "c"}}, "spec": {"nodeName": "hidden"}}


def test_an_object_without_a_change_has_all_its_fields() -> None:
    tree = {"metadata": NOISY, "spec": {"nodeName": "hidden"}}
    assert selection_of(rule(SET)).rewrite(tree).object is tree


@pytest.mark.parametrize(
    ("expression", "examined", "applies"),
    [
        pytest.param("object.metadata.name == 'web-0'", Examination.HIDDEN, True, id="the name decides"),
        pytest.param("object.metadata.namespace != 'shop'", Examination.UNTOUCHED, False, id="the namespace decides"),
        pytest.param("object.metadata.labels.tier == 'back'", Examination.HIDDEN, True, id="a label decides"),
        pytest.param("has(object.metadata.labels.app)", Examination.UNTOUCHED, False, id="a missing label decides"),
        pytest.param("object.metadata.uid == 'u'", Examination.NEEDS_OBJECT, True, id="the uid needs the object"),
        pytest.param("has(object.metadata.annotations)", Examination.NEEDS_OBJECT, False, id="annotations need the object"),
        pytest.param("has(object.spec)", Examination.NEEDS_OBJECT, True, id="the specification needs the object"),
        pytest.param("has(.object.spec)", Examination.NEEDS_OBJECT, True, id="a dot before the variable is seen"),
        pytest.param("has(object.metadata.namespace)", Examination.NEEDS_OBJECT, True, id="whether the namespace exists needs the object"),
        pytest.param("object['spec'].nodeName == 'node-7'", Examination.NEEDS_OBJECT, True, id="an index needs the object"),
        pytest.param(
            "object.?spec.nodeName.orValue('') == 'node-7'", Examination.NEEDS_OBJECT, True, id="an optional field needs the object"
        ),
        pytest.param("request.verb == 'get' && user.name == 'ann'", Examination.HIDDEN, True, id="the request decides for all objects"),
        pytest.param("'devs' in user.groups || object.metadata.name == 'x'", Examination.UNTOUCHED, False, id="a group of the user"),
        pytest.param("user.extra['team'][0] == 'red' && object.metadata.name != ''", Examination.HIDDEN, True, id="an extra attribute"),
    ],
)
def test_a_condition_decides(expression: str, examined: Examination, applies: bool) -> None:
    selection = selection_of(rule(when=expression), extra={"team": ("red",)})
    assert selection.examine(HEAD) is examined
    assert (selection.rewrite(pod()).object is None) is applies


def test_a_condition_that_the_request_decides_may_leave_no_rule() -> None:
    assert rules_of(rule(when="user.name == 'bob'")).select(request()) is None


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        pytest.param("object.spec.x == 1", "when: no such key: x", id="a missing field"),
        pytest.param("object.spec.nodeName", "when: the expression returned str, expected bool", id="a value that is no boolean"),
        pytest.param("user.extra.nope[0] == 'x'", "when: no such key: nope", id="a missing extra of the user"),
    ],
)
def test_a_condition_that_fails_fails_the_rule(expression: str, reason: str) -> None:
    selection = selection_of(rule(when=expression))
    assert selection.examine(HEAD) is Examination.NEEDS_OBJECT
    with pytest.raises(RuleFailed) as caught:
        selection.rewrite(pod())
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        pytest.param({"metadata": "x"}, "metadata is text, expected a mapping", id="metadata that is text"),
        pytest.param(
            {"metadata": {"name": "a", "labels": ["x"]}}, "metadata.labels is a list, expected a mapping", id="labels that are a list"
        ),
        pytest.param({"metadata": {"name": ["a"]}}, "unhashable type: 'list'", id="a name that is a list"),
    ],
)
def test_an_object_with_broken_metadata_fails_the_rule(tree: JSONObject, reason: str) -> None:
    with pytest.raises(RuleFailed) as caught:
        selection_of(rule(match=[{"labelSelector": "a"}, {"names": ["b"]}]), verb="list").rewrite(tree)
    assert reason in caught.value.reason


def test_an_object_that_nests_too_deeply_fails_the_rule() -> None:
    deep: JSONObject = {}
    for _ in range(20_000):
        deep = {"a": deep}
    with pytest.raises(RuleFailed, match="the object nests too deeply"):
        selection_of(rule({"jsonPatch": [{"op": "add", "path": "/spec/b", "value": 1}]})).rewrite({"spec": deep})


def test_on_error_pass_discards_the_changes_of_the_rule_and_logs_once(caplog: pytest.LogCaptureFixture) -> None:
    broken = rule({"set": {"spec.a": 1}}, {"set": {"spec.nodeName.x": 1}}, name="broken", onError="Pass")
    selection = selection_of(broken, rule({"set": {"spec.b": 2}}, name="good"))
    with caplog.at_level(logging.WARNING, "kubeloop.proxy"):
        results = [selection.rewrite(pod(spec={"nodeName": "n"})) for _ in range(3)]
    assert [(result.object["spec"], result.rules) for result in results if result.object] == [({"nodeName": "n", "b": 2}, ("good",))] * 3
    assert len(caplog.records) == 1
    assert "rule broken discarded its changes" in caplog.text


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param([rule()], Examination.HIDDEN, id="a rule that hides"),
        pytest.param([rule(SET)], Examination.NEEDS_OBJECT, id="a rule that changes"),
        pytest.param([rule(match=[{"names": ["x"]}])], Examination.UNTOUCHED, id="a rule for another object"),
        pytest.param([rule(SET, name="a"), rule(name="b")], Examination.NEEDS_OBJECT, id="a rule before a hiding rule might fail"),
        pytest.param([rule(name="a"), rule(SET, name="b")], Examination.HIDDEN, id="a rule after a hiding rule"),
        pytest.param([rule(SET, DROP)], Examination.NEEDS_OBJECT, id="an action before a hiding action might fail"),
        pytest.param(
            [rule(SET, name="a", match=[{"names": ["x"]}]), rule(name="b")], Examination.HIDDEN, id="a rule for another object before"
        ),
    ],
)
def test_metadata_decides_as_far_as_it_can(rules: list[JSONObject], expected: Examination) -> None:
    assert selection_of(*rules, verb="list").examine(HEAD) is expected


@pytest.mark.parametrize(
    ("spec", "match", "expected"),
    [
        pytest.param({}, [{}], True, id="everything"),
        pytest.param({}, [{"names": ["a*"], "namespaces": ["s*"]}], True, id="name and namespace"),
        pytest.param({}, [{"labelSelector": "a=b"}], False, id="labels"),
        pytest.param({}, [{"labelSelector": "a=b"}, {}], True, id="labels beside an entry for everything"),
        pytest.param({"when": "object.metadata.uid == 'u' && object.kind == 'Pod'"}, [{}], True, id="identity in a condition"),
        pytest.param({"when": "object.metadata.labels.a == 'b'"}, [{}], False, id="labels in a condition"),
        pytest.param({"when": "object.spec.a == 1"}, [{}], False, id="another field in a condition"),
        pytest.param({"when": "object.?spec.hasValue()"}, [{}], False, id="an optional field in a condition"),
        pytest.param({"when": "user.name == 'ann'"}, [{}], True, id="the user in a condition"),
    ],
)
def test_visibility_is_immutable_if_only_identity_and_request_decide(spec: JSONObject, match: list[JSONObject], expected: bool) -> None:
    assert selection_of(rule(match=match, **spec), verb="list", namespace="", name="").immutable_visibility is expected


def test_only_rules_that_hide_count_for_immutable_visibility() -> None:
    assert selection_of(rule(SET, match=[{"labelSelector": "a=b"}])).immutable_visibility


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        pytest.param([None], "Deny", id="the default"),
        pytest.param(["Pass"], "Pass", id="one rule that passes writes"),
        pytest.param(["Pass", "Reverse"], "Reverse", id="reversing is stricter than passing"),
        pytest.param(["Reverse", "Deny", "Pass"], "Deny", id="denying is the strictest"),
    ],
)
def test_the_strictest_rule_decides_about_writes(policies: list[str | None], expected: str) -> None:
    specs: list[dict[str, Any]] = [{"writes": policy} if policy else {} for policy in policies]
    rules = [rule(SET, name=f"r{number}", **spec) for number, spec in enumerate(specs)]
    assert selection_of(*rules).writes == expected


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        pytest.param([DROP], (True, False, True), id="hiding"),
        pytest.param([SET], (False, True, True), id="changing"),
        pytest.param([SET, DROP], (True, True, True), id="both"),
        pytest.param([{"python": {"callable": "operator:or_"}}], (True, True, False), id="a callable"),
    ],
)
def test_a_selection_knows_what_its_actions_do(actions: list[JSONObject], expected: Any) -> None:
    selection = selection_of(rule(*actions))
    assert (selection.may_hide, selection.may_change, selection.synchronous) == expected


async def test_the_asynchronous_function_does_the_same_for_synchronous_rules() -> None:
    selection = selection_of(rule(SET))
    assert await selection.rewrite_async(pod()) == selection.rewrite(pod())
