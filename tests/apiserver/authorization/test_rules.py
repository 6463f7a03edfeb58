"""What a rule of a role matches, and what of one role another covers."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.apiserver.authorization.rbac_rules import RoleRules, describe_rules, missing_rules
from kubeloop.endpoints.access import Access, User

EVE = User("eve")


def rule(verbs: str, groups: str | None, resources: str, *names: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "verbs": verbs.split(),
        "apiGroups": [""] if groups is None else groups.split(),
        "resources": resources.split(),
    }
    return {**found, "resourceNames": list(names)} if names else found


def paths(verbs: str, *urls: str) -> dict[str, Any]:
    return {"verbs": verbs.split(), "nonResourceURLs": list(urls)}


def may(verb: str, resource: str, name: str = "", group: str = "") -> Access:
    main, _, sub = resource.partition("/")
    return Access(EVE, verb, group, "v1", main, sub, "shop", name)


@pytest.mark.parametrize(
    ("rule_tree", "asked", "allowed"),
    [
        pytest.param(rule("get", None, "pods"), may("get", "pods"), True, id="a verb on a resource"),
        pytest.param(rule("get", None, "pods"), may("list", "pods"), False, id="another verb"),
        pytest.param(rule("get", None, "pods"), may("get", "pods", group="x"), False, id="another group"),
        pytest.param(rule("get", None, "pods"), may("get", "pods/log"), False, id="a subresource is not its resource"),
        pytest.param(rule("get", None, "pods/log"), may("get", "pods"), False, id="nor the other way round"),
        pytest.param(rule("get", None, "*/scale"), may("get", "deployments/scale"), True, id="a subresource of any resource"),
        pytest.param(rule("get", None, "*/scale"), may("get", "deployments"), False, id="which is not the resource"),
        pytest.param(rule("get", None, "pods/*"), may("get", "pods/log"), False, id="any subresource of a resource cannot be said"),
        pytest.param(rule("get", None, "*"), may("get", "pods/log"), True, id="all resources and their subresources"),
        pytest.param(rule("*", "*", "pods"), may("fly", "pods", group="x"), True, id="all verbs in all groups"),
        pytest.param(rule("get", None, "pods", "a"), may("get", "pods", "a"), True, id="one by its name"),
        pytest.param(rule("get", None, "pods", "a"), may("get", "pods", "b"), False, id="another name"),
        pytest.param(rule("list", None, "pods", "a"), may("list", "pods"), False, id="names do not allow to ask for all"),
        pytest.param(paths("get", "/x"), Access(EVE, "get", path="/x", is_resource=False), True, id="a path"),
        pytest.param(paths("get", "/x"), Access(EVE, "post", path="/x", is_resource=False), False, id="another verb on a path"),
        pytest.param(paths("get", "/x"), Access(EVE, "get", path="/x/y", is_resource=False), False, id="a path below it"),
        pytest.param(paths("get", "/x/*"), Access(EVE, "get", path="/x/y/z", is_resource=False), True, id="a prefix"),
        pytest.param(paths("get", "/x/*"), Access(EVE, "get", path="/x", is_resource=False), False, id="a prefix without what follows"),
        pytest.param(paths("*", "*"), Access(EVE, "post", path="/any", is_resource=False), True, id="all paths"),
        pytest.param(paths("*", "*"), may("get", "pods"), False, id="all paths are no resources"),
        pytest.param(rule("*", "*", "*"), Access(EVE, "get", path="/x", is_resource=False), False, id="all resources are no paths"),
    ],
)
def test_a_rule_allows(rule_tree: dict[str, Any], asked: Access, allowed: bool) -> None:
    assert RoleRules([rule_tree]).allow(asked) is allowed


@pytest.mark.parametrize(
    ("held", "required", "missing"),
    [
        pytest.param([rule("get list", None, "pods")], [rule("list", None, "pods")], "", id="less than one has"),
        pytest.param(
            [rule("get", None, "pods"), rule("list", None, "services")],
            [rule("get list", None, "pods services")],
            '{APIGroups:[""], Resources:["pods"], Verbs:["list"]}\n{APIGroups:[""], Resources:["services"], Verbs:["get"]}',
            id="each right apart, listed by resource and sorted",
        ),
        pytest.param([rule("get", None, "pods", "a")], [rule("get", None, "pods", "a")], "", id="a name that one has"),
        pytest.param(
            [rule("get", None, "pods", "a")],
            [rule("get", None, "pods", "a", "b")],
            '{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["get"]}',
            id="a name that one has not",
        ),
        pytest.param(
            [rule("get", None, "pods", "a")],
            [rule("get", None, "pods")],
            '{APIGroups:[""], Resources:["pods"], Verbs:["get"]}',
            id="all names where one has some",
        ),
        pytest.param([rule("get", None, "*/scale")], [rule("get", None, "jobs/scale")], "", id="one subresource of those one has"),
        pytest.param(
            [rule("get", None, "jobs */status")],
            [rule("get", None, "jobs/scale")],
            '{APIGroups:[""], Resources:["jobs/scale"], Verbs:["get"]}',
            id="a subresource of a resource that one has",
        ),
        pytest.param(
            [rule("get", None, "*/")],
            [rule("get", None, "jobs")],
            '{APIGroups:[""], Resources:["jobs"], Verbs:["get"]}',
            id="a resource where one has subresources without a name",
        ),
        pytest.param(
            [rule("*", "*", "pods")],
            [rule("*", "*", "*")],
            '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}',
            id="everything where one has much",
        ),
        pytest.param([paths("get", "/logs/*")], [paths("get", "/logs/*", "/logs/a")], "", id="paths below a prefix"),
        pytest.param(
            [paths("get", "/logs")],
            [paths("get put", "/logs")],
            '{NonResourceURLs:["/logs"], Verbs:["put"]}',
            id="another verb on a path",
        ),
    ],
)
def test_a_user_with_rules_lacks(held: list[dict[str, Any]], required: list[dict[str, Any]], missing: str) -> None:
    assert describe_rules(missing_rules(held, required)) == missing
