"""Sets of rules: their files and order, their digest, and the cache of selections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeloop.proxy.rules import RuleSet
from kubeloop.proxy.rules.rule_set import MAX_CACHED
from kubeloop.types import JSONObject
from tests.proxy.rules.rule_texts import request, rule, rules_of, text_of


def names_of(rules: RuleSet) -> list[str]:
    return [each.name for each in rules.rules]


def test_a_folder_is_read_in_the_order_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(text_of(rule(name="three"), rule(name="four")))
    (tmp_path / "a.json").write_text(text_of(rule(name="one")))
    (tmp_path / "a.yml").write_text(text_of(rule(name="two")))
    (tmp_path / ".hidden.yaml").write_text("nonsense")
    (tmp_path / "README.md").write_text("nonsense")
    (tmp_path / "folder.yaml").mkdir()
    assert names_of(RuleSet.load(tmp_path)) == ["one", "two", "three", "four"]


def test_a_file_may_be_a_list_and_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("\ufeffapiVersion: v1\nkind: List\nitems:\n- " + text_of(rule(name="a")) + "\n- " + text_of(rule(name="b")))
    assert names_of(RuleSet.load(file)) == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("apiVersion: v1\nkind: List\nitems: []", id="a list without items"),
        pytest.param("apiVersion: v1\nkind: List\nitems:\n", id="a list whose items have no value"),
    ],
)
def test_a_set_without_rules_is(tmp_path: Path, text: str) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(text)
    rules = RuleSet.load(file)
    assert (rules.rules, rules.select(request())) == ((), None)
    (tmp_path / "s.yaml").write_text(text_of(rule(name="one")))
    assert names_of(RuleSet.load(tmp_path)) == ["one"]


def test_yaml_is_read_as_kubectl_does() -> None:
    rules = RuleSet.parse(
        "apiVersion: proxy.kubeloop.dev/v1alpha1\nkind: RewriteRule\nmetadata: {name: r}\nspec:\n"
        "  match: [&entry {verbs: [get]}, {<<: *entry, names: [a]}]\n"
        "  actions:\n  - set: {spec.a: 2026-01-01, spec.b: 1:30, spec.c: on, spec.d: 0o17}\n"
    )
    selection = rules.select(request())
    assert selection is not None
    result = selection.rewrite({"metadata": {}}).object
    assert result is not None
    assert result["spec"] == {"a": "2026-01-01", "b": "1:30", "c": True, "d": 15}


def test_the_digest_is_that_of_the_content() -> None:
    text = text_of(rule())
    assert RuleSet.parse(text).digest == RuleSet.parse(f"# comment\n{text}\n", "other.yaml").digest
    assert RuleSet.parse(text).digest != RuleSet.parse(text_of(rule(writes="Pass"))).digest


def test_the_digest_tells_the_order_of_fields_that_are_set() -> None:
    one, other = ({"set": {"a.b": 1, "a": {}}}, {"set": {"a": {}, "a.b": 1}})
    assert rules_of(rule(one)).digest != rules_of(rule(other)).digest


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(rule(), False, id="a rule for everybody"),
        pytest.param(rule(match=[{}, {"users": ["a"]}]), True, id="a user"),
        pytest.param(rule(match=[{"userGroups": ["a"]}]), True, id="a group"),
        pytest.param(rule(match=[{"userAgents": ["a"]}]), False, id="a user agent is no user"),
        pytest.param(rule(when="user.name == 'a'"), True, id="the variable user"),
        pytest.param(rule(when="request.verb == 'get' && object.user == 1"), False, id="a field of this name"),
        pytest.param(rule({"python": {"callable": "operator:or_"}}), True, id="a callable gets the user"),
    ],
)
def test_a_set_knows_whether_it_depends_on_users(document: JSONObject, expected: bool) -> None:
    assert rules_of(document).uses_users is expected


@pytest.mark.parametrize(
    ("group", "resource", "expected"),
    [
        pytest.param("", "pods", True, id="the resource, although only some users and namespaces match"),
        pytest.param("", "pods/status", True, id="a subresource that returns the object"),
        pytest.param("", "pods/log", False, id="another subresource"),
        pytest.param("apps", "pods", False, id="another group"),
        pytest.param("", "nodes", False, id="another resource"),
    ],
)
def test_a_set_knows_which_resources_it_could_touch(group: str, resource: str, expected: bool) -> None:
    rules = rules_of(rule(match=[{"groups": [""], "resources": ["pods"], "users": ["bob"], "namespaces": ["x"], "verbs": ["list"]}]))
    assert rules.could_match(group, "v1", resource) is expected


@pytest.mark.parametrize(
    ("document", "parts", "shared"),
    [
        pytest.param(rule(), {"user": "bob", "namespace": "x", "name": "y", "user_agent": "z"}, True, id="parts that no rule reads"),
        pytest.param(rule(), {"verb": "list"}, False, id="the verb"),
        pytest.param(rule(), {"resource": "nodes"}, False, id="the resource"),
        pytest.param(rule(match=[{"users": ["*"]}]), {"user": "bob"}, False, id="the user if a rule reads it"),
        pytest.param(rule(match=[{"users": ["*"]}]), {"groups": ("x",)}, False, id="the groups if a rule reads users"),
        pytest.param(rule(when="size(user.extra) < 9"), {"extra": {"a": ("b",)}}, False, id="extra attributes if a rule reads users"),
        pytest.param(rule(match=[{"names": ["*"]}]), {"name": "y"}, False, id="the name if a rule reads names"),
        pytest.param(rule(match=[{"namespaces": ["*"]}]), {"namespace": "y"}, False, id="the namespace if a rule reads namespaces"),
        pytest.param(rule(match=[{"userAgents": ["*"]}]), {"user_agent": "y"}, False, id="the user agent if a rule reads it"),
        pytest.param(rule(when="request.name != ''"), {"name": "y"}, False, id="the name if a condition reads the request"),
    ],
)
def test_selections_are_cached_by_the_parts_that_matter(document: JSONObject, parts: dict[str, Any], shared: bool) -> None:
    rules = rules_of(document)
    assert rules.select(request()) is rules.select(request())
    assert (rules.select(request()) is rules.select(request(**parts))) is shared


def test_a_cached_selection_is_that_of_its_user() -> None:
    rules = rules_of(rule(match=[{"users": ["ann"]}]))
    assert [rules.select(request(user)) is None for user in ("ann", "bob", "ann", "bob")] == [False, True, False, True]


def test_the_cache_is_bounded() -> None:
    rules = rules_of(rule(match=[{"names": ["a*"]}]))
    for number in range(MAX_CACHED + 10):
        rules.select(request(name=f"b{number}"))
    assert len(rules._selections) == MAX_CACHED
