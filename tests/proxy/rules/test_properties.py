"""Properties of rewriting that hold for any rules and objects, and of reading any text."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.merge import PatchError, json_patch, merge_patch
from kubeloop.proxy.rules import Examination, HeadMetadata, RuleError, RuleFailed, RuleSelection, RuleSet
from kubeloop.types import JSONObject
from tests.effort import effort
from tests.proxy.rules.rule_texts import request, rule, rules_of, selection_of, text_of

_WORDS = st.sampled_from(["a", "b", "spec", "status", "metadata", "labels", "name", "x.y", "0", "kind"])
_SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "b"]) | st.just(1.0)
_VALUES = st.recursive(_SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3), max_leaves=8)
_OBJECTS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.sampled_from(["a", "b"])},
            optional={
                "namespace": st.sampled_from(["", "shop", "team"]),
                "labels": st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["a", "b"]), max_size=2),
                "annotations": st.just({"kubectl.kubernetes.io/last-applied-configuration": "{}"}),
                "managedFields": st.just([{}]),
            },
        )
    },
    optional={"spec": st.dictionaries(_WORDS, _VALUES, max_size=4), "status": _VALUES, "a": _VALUES},
)
_PATHS = st.sampled_from(
    ["spec.a", "spec.a.b", "spec.a[*].b", "spec.a[0]", "spec.b[0].a", "a", "status.a.b", "metadata.labels.a", 'spec["x.y"]']
)
_POINTERS = st.sampled_from(["/spec/a", "/spec/a/0", "/spec/a/-", "/a", "/status", "/metadata/labels/a", "/spec/a/b", "/spec/x.y"])
_OPERATIONS = (
    st.fixed_dictionaries({"op": st.sampled_from(["add", "replace"]), "path": _POINTERS, "value": st.sampled_from(["a", "b"])})
    | st.fixed_dictionaries({"op": st.just("test"), "path": _POINTERS, "value": _VALUES})
    | st.fixed_dictionaries({"op": st.just("remove"), "path": _POINTERS})
    | st.fixed_dictionaries({"op": st.just("copy"), "from": _POINTERS, "path": st.sampled_from(["/spec/b", "/status"])})
)
_ACTIONS = (
    st.just({"drop": True})
    | st.builds(lambda path, value: {"set": {path: value}}, _PATHS, st.sampled_from(["a", "b"]))
    | st.builds(lambda paths: {"remove": paths}, st.lists(_PATHS, min_size=1, max_size=2))
    | st.builds(lambda operations: {"jsonPatch": operations}, st.lists(_OPERATIONS, min_size=1, max_size=3))
    | st.builds(lambda patch: {"mergePatch": {"spec": patch}}, _VALUES)
    | st.builds(lambda resource: {"mapAddresses": {"to": "127.0.0.9"}}, st.just("pods"))
)
_CONDITIONS = st.sampled_from(
    [
        "object.metadata.name == 'a'",
        "object.metadata.namespace == 'shop' || object.metadata.name == 'b'",
        "object.metadata.namespace == ''",
        "has(object.metadata.namespace)",
        "has(object.metadata.labels) && 'a' in object.metadata.labels",
        "has(object.metadata.labels.a)",
        "!(object.metadata.labels.a == 'b') || object.spec.a == 1",
        "['a'].exists(object, object == 'a')",
        "object.metadata.labels.all(key, key == 'a')",
        "user.name == 'ann'",
        "(object.metadata.namespace == 'shop' ? 'a' : 'b') == object.metadata.name",
    ]
)
_ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "namespaces": st.lists(st.sampled_from(["shop", "te*", ""]), min_size=1, max_size=2),
        "names": st.lists(st.sampled_from(["a", "?"]), min_size=1, max_size=2),
        "labelSelector": st.sampled_from(["a=b", "a in (a,b)", "!a", "a!=b,b", ""]),
    },
)
_RULES = st.builds(
    lambda actions, match, spec: rule(*actions, match=match, **spec),
    st.lists(_ACTIONS, min_size=1, max_size=3),
    st.lists(_ENTRIES, min_size=1, max_size=2),
    st.fixed_dictionaries({}, optional={"when": _CONDITIONS, "onError": st.sampled_from(["Fail", "Pass"])}),
)
_RULE_LISTS = st.lists(_RULES, min_size=1, max_size=4).map(
    lambda rules: [{**each, "metadata": {"name": f"r{number}"}} for number, each in enumerate(rules)]
)
_ANY_POD: dict[str, Any] = {"verb": "list", "namespace": "", "name": ""}


def selected(rules: list[JSONObject]) -> RuleSelection | None:
    return rules_of(*rules).select(request(**_ANY_POD))


def head_of(tree: JSONObject) -> HeadMetadata:
    metadata = tree["metadata"]
    return HeadMetadata(metadata["name"], metadata.get("namespace", ""), metadata.get("labels"))


@settings(max_examples=effort(50, 5000), deadline=None)
@given(_RULE_LISTS, _OBJECTS)
def test_rewriting_never_changes_its_input(rules: list[JSONObject], tree: JSONObject) -> None:
    before = copy.deepcopy(tree)
    selection = selected(rules)
    if selection is None:
        return
    outcomes = []
    for _ in range(2):
        try:
            result = selection.rewrite(tree)
        except RuleFailed as error:
            outcomes.append(str(error))
            continue
        outcomes.append(json.dumps([result.object, result.rules, result.changed]))
        if not result.changed:
            assert result.object is tree
            assert result.rules == ()
        elif result.object is not None:
            assert "managedFields" not in result.object["metadata"]
            assert result.object["metadata"]["name"] == tree["metadata"]["name"]
    assert tree == before
    # The rules do not change either: the second result is that of the first time.
    assert outcomes[0] == outcomes[1]


@settings(max_examples=effort(100, 10000), deadline=None)
@given(_RULE_LISTS, _OBJECTS)
def test_examining_never_contradicts_rewriting(rules: list[JSONObject], tree: JSONObject) -> None:
    selection = selected(rules)
    if selection is None:
        return
    match selection.examine(head_of(tree)):
        case Examination.HIDDEN:
            assert selection.rewrite(tree).object is None
        case Examination.UNTOUCHED:
            assert not selection.rewrite(tree).changed
        case _:
            pass


@settings(max_examples=effort(50, 5000), deadline=None)
@given(_RULE_LISTS, _OBJECTS)
def test_the_fields_that_may_change_are_known(rules: list[JSONObject], tree: JSONObject) -> None:
    selection = selected(rules)
    if selection is None:
        return
    try:
        result = selection.rewrite(tree)
    except RuleFailed:
        return
    assert selection.may_hide or result.object is not None
    if result.object is None:
        return
    assert selection.may_change or not result.changed
    for path in [
        ("spec",),
        ("spec", "a"),
        ("spec", "x.y"),
        ("status",),
        ("a",),
        ("metadata",),
        ("metadata", "labels"),
        ("metadata", "annotations"),
    ]:
        if not selection.may_change_path(*path):
            assert _at(result.object, path) == _at(tree, path)


@settings(max_examples=effort(40, 3000), deadline=None)
@given(st.lists(st.lists(_ACTIONS, min_size=1, max_size=2), min_size=1, max_size=4), _OBJECTS)
def test_rules_give_what_their_actions_give_one_after_the_other(parts: list[list[JSONObject]], tree: JSONObject) -> None:
    separate = [{**rule(*actions), "metadata": {"name": f"r{number}"}} for number, actions in enumerate(parts)]
    joined = [rule(*(action for actions in parts for action in actions))]
    assert _outcome(separate, tree) == _outcome(joined, tree)


@settings(max_examples=effort(60, 5000), deadline=None)
@given(_OBJECTS, st.dictionaries(st.sampled_from(["spec", "status", "a"]), _VALUES, min_size=1, max_size=2))
def test_a_merge_patch_gives_the_result_of_the_standard(tree: JSONObject, patch: JSONObject) -> None:
    tree["metadata"] = {"name": "a"}
    result = selection_of(rule({"mergePatch": patch}), **_ANY_POD).rewrite(tree).object
    assert json.dumps(result) == json.dumps(merge_patch(tree, patch))


@settings(max_examples=effort(60, 5000), deadline=None)
@given(_OBJECTS, st.lists(_OPERATIONS, min_size=1, max_size=4))
def test_a_json_patch_gives_the_result_of_the_standard(tree: JSONObject, patch: list[JSONObject]) -> None:
    tree["metadata"] = {"name": "a", "labels": {}}
    selection = selection_of(rule({"jsonPatch": patch}), **_ANY_POD)
    try:
        expected: Any = json_patch(tree, patch)
    except PatchError as error:
        expected = f"jsonPatch: {error}"
    try:
        outcome: Any = selection.rewrite(tree).object
    except RuleFailed as error:
        outcome = error.reason
    assert outcome == expected


_DOCUMENT = rule({"set": {"spec.a": 1}}, {"jsonPatch": [{"op": "remove", "path": "/a"}]}, when="true", writes="Pass", onError="Pass")
_PLACES: list[tuple[str | int, ...]] = [
    (),
    ("kind",),
    ("metadata",),
    ("metadata", "name"),
    ("spec",),
    ("spec", "match"),
    ("spec", "match", 0),
    ("spec", "when"),
    ("spec", "actions"),
    ("spec", "actions", 0),
    ("spec", "actions", 0, "set"),
    ("spec", "actions", 1, "jsonPatch"),
    ("spec", "actions", 1, "jsonPatch", 0),
    ("spec", "actions", 1, "jsonPatch", 0, "path"),
]


@settings(max_examples=effort(60, 10000), deadline=None)
@given(
    st.sampled_from(_PLACES),
    st.recursive(
        _SCALARS | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["drop", "set", "match", "python", "callable", "op", "path", "to", "<<"]) | st.text(max_size=4),
                inner,
                max_size=3,
            )
        ),
        max_leaves=6,
    ),
)
def test_any_value_at_any_place_of_a_document_is_a_rule_or_a_rule_error(place: tuple[str | int, ...], value: Any) -> None:
    document: Any = copy.deepcopy(_DOCUMENT)
    if place:
        inner = document
        for part in place[:-1]:
            inner = inner[part]
        inner[place[-1]] = value
    else:
        document = value
    _parse(text_of(document))


@settings(max_examples=effort(60, 10000), deadline=None)
@given(st.text(max_size=60) | st.text(alphabet="a1:-[]{}&*!<>|'\"\n\t #%,.", max_size=60))
def test_any_text_is_rules_or_a_rule_error(text: str) -> None:
    _parse(text)


def _parse(text: str) -> None:
    try:
        RuleSet.parse(text, "x.yaml")
    except RuleError as error:
        lines = str(error).splitlines()
        assert lines
        assert all(line.startswith("x.yaml:") and line.split(":")[1].isdigit() for line in lines)


def _outcome(rules: list[JSONObject], tree: JSONObject) -> Any:
    try:
        return selection_of(*rules, **_ANY_POD).rewrite(tree).object
    except RuleFailed as error:
        return error.reason


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree
