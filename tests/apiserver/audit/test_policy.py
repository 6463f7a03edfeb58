"""Audit policies: which rule counts, and which faults of a file are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.apiserver.audit.policy import LEVELS, AuditPolicy
from kubeloop.endpoints.access import User
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.meta.errors import ConfigError

HEAD = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"
ALICE = User("alice", ("devs",))
LOGS = RequestInfo("get", "", True, "", "v1", "pods", "log", "shop", "web")
PODS = RequestInfo("list", "", True, "", "v1", "pods", namespace="shop")
SCALE = RequestInfo("update", "", True, "apps", "v1", "deployments", "scale", "shop", "web")
NODES = RequestInfo("get", "", True, "", "v1", "nodes", name="one")
VERSION = RequestInfo("get", "/version")
OPENAPI = RequestInfo("get", "/openapi/v2")


def policy(folder: Path, text: str, head: str = HEAD) -> AuditPolicy:
    path = folder / "policy.yaml"
    path.write_text(head + text)
    return AuditPolicy.read(path)


@pytest.mark.parametrize(
    ("rule", "info", "matches"),
    [
        pytest.param("{}", PODS, True, id="a rule that says nothing matches everything"),
        pytest.param("{users: [alice]}", PODS, True, id="a user by name"),
        pytest.param("{users: [bob]}", PODS, False, id="another user"),
        pytest.param("{userGroups: [ops, devs]}", PODS, True, id="one of the groups is enough"),
        pytest.param("{verbs: [get]}", PODS, False, id="another verb"),
        pytest.param("{namespaces: [shop]}", PODS, True, id="a namespace"),
        pytest.param("{namespaces: [shop]}", VERSION, False, id="a namespace is of resources only"),
        pytest.param('{namespaces: [""]}', NODES, True, id="no namespace is an empty one"),
        pytest.param("{resources: [{resources: [pods]}]}", PODS, True, id="a resource of the core group"),
        pytest.param("{resources: [{resources: [pods]}]}", LOGS, False, id="a resource is not its subresources"),
        pytest.param("{resources: [{resources: [pods/log]}]}", LOGS, True, id="a subresource"),
        pytest.param("{resources: [{resources: ['pods/*']}]}", LOGS, True, id="all subresources of one"),
        pytest.param("{resources: [{resources: ['pods/*']}]}", PODS, True, id="all subresources of one, and itself"),
        pytest.param("{resources: [{group: apps, resources: ['*/scale']}]}", SCALE, True, id="one subresource of all"),
        pytest.param("{resources: [{resources: ['*/scale']}]}", SCALE, False, id="of all of another group"),
        pytest.param("{resources: [{group: '*'}]}", SCALE, True, id="every group"),
        pytest.param("{resources: [{resources: [pods/log], resourceNames: [web]}]}", LOGS, True, id="an object by name"),
        pytest.param("{resources: [{resources: [pods/log], resourceNames: [db]}]}", LOGS, False, id="another object"),
        pytest.param("{nonResourceURLs: ['/openapi*']}", OPENAPI, True, id="paths by their beginning"),
        pytest.param("{nonResourceURLs: [/openapi]}", OPENAPI, False, id="a path is not what lies below"),
        pytest.param("{nonResourceURLs: ['*']}", PODS, False, id="paths are of no resources"),
    ],
)
def test_a_rule_matches(tmp_path: Path, rule: str, info: RequestInfo, *, matches: bool) -> None:
    found = policy(tmp_path, f"rules:\n- {rule.replace('{', '{level: Request, ', 1).replace(', }', '}')}\n")
    assert LEVELS[found.decide(ALICE, info).level] == ("Request" if matches else "None")


def test_the_first_rule_that_matches_decides(tmp_path: Path) -> None:
    rules = "rules: [{level: None, users: [alice]}, {level: RequestResponse}]\nomitStages: [RequestReceived]\nomitManagedFields: true\n"
    found = policy(tmp_path, rules)
    assert found.decide(ALICE, PODS).level == 0
    other = found.decide(User("bob"), PODS)
    assert (LEVELS[other.level], other.omit_stages, other.omit_managed_fields) == ("RequestResponse", frozenset({"RequestReceived"}), True)


def test_a_rule_adds_stages_and_overrides_managed_fields(tmp_path: Path) -> None:
    rule = "{level: Metadata, omitStages: [Panic], omitManagedFields: false}"
    logged = policy(tmp_path, f"omitManagedFields: true\nomitStages: [RequestReceived]\nrules: [{rule}]").decide(ALICE, PODS)
    assert (logged.omit_stages, logged.omit_managed_fields) == (frozenset({"RequestReceived", "Panic"}), False)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("rules: []", "rules: a policy needs at least one", id="no rule"),
        pytest.param("rules: [{}]", "rules[0].level: wanted one of None, Metadata, Request, RequestResponse", id="no level"),
        pytest.param("rules: [{level: All}]", "rules[0].level: unknown 'All'", id="an unknown level"),
        pytest.param("rules: [{level: None, omitStages: [Begin]}]", "rules[0].omitStages[0]: 'Begin': allowed stages are", id="a stage"),
        pytest.param("rules: [{level: None, nonResourceURLs: [x]}]", "must begin with a '/' character", id="a path without a slash"),
        pytest.param("rules: [{level: None, nonResourceURLs: ['/*/x']}]", "must be the final character", id="a star within a path"),
        pytest.param("rules: [{level: None, nonResourceURLs: [/x], namespaces: [a]}]", "cannot apply to both", id="paths and resources"),
        pytest.param("rules: [{level: None, resources: [{group: apps/v1}]}]", "rules[0].resources[0].group: 'apps/v1'", id="a version"),
        pytest.param("rules: [{level: None, resources: [{resourceNames: [a]}]}]", "requires at least one resource", id="names alone"),
        pytest.param("rules: [{level: None, users: alice}]", "rules[0].users: is not a list of texts", id="a text for a list"),
        pytest.param("rules: [", "policy.yaml", id="no YAML"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        policy(tmp_path, text)
    assert fault in str(refused.value)
    assert "policy.yaml" in str(refused.value)


def test_a_file_that_is_no_policy_or_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"wanted apiVersion audit.k8s.io/v1, kind Policy"):
        policy(tmp_path, "rules: [{level: None}]", head="apiVersion: v1\nkind: Policy\n")
    with pytest.raises(ConfigError, match="nosuch"):
        AuditPolicy.read(tmp_path / "nosuch")


def test_unknown_fields_are_passed_over_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert policy(tmp_path, "rules: [{level: Metadata, user: [alice]}]").decide(ALICE, PODS).level == 1
    assert "rules[0].user" in caplog.text
