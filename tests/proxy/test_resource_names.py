"""Warnings about rules that name resources which the API server does not serve."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeloop.proxy.resource_names import ResourceNames
from kubeloop.proxy.rules import RuleSet
from kubeloop.timing import FakeClock
from kubeloop.types import JSONObject

_RULE = """\
apiVersion: proxy.kubeloop.dev/v1alpha1
kind: RewriteRule
metadata: {{name: hide}}
spec:
  match:
  - {match}
  actions:
  - drop: true
"""


def _resource(plural: str, kind: str, *short_names: str) -> JSONObject:
    return {"resource": plural, "singularResource": kind.lower(), "responseKind": {"kind": kind}, "shortNames": [*short_names]}


def _group(name: str, *resources: JSONObject) -> JSONObject:
    return {"metadata": {"name": name}, "versions": [{"version": "v1", "resources": [*resources]}]}


class ScriptedDiscovery:
    """An API server that serves pods, secrets and deployments."""

    async def read(self, target: str, headers: Any) -> bytes:
        del headers
        groups = [_group("", _resource("pods", "Pod", "po"), _resource("secrets", "Secret"))]
        if target == "/apis":
            groups = [_group("apps", _resource("deployments", "Deployment", "deploy"))]
        return msgspec.json.encode({"kind": "APIGroupDiscoveryList", "items": groups})


@pytest.mark.parametrize(
    ("match", "texts"),
    [
        pytest.param("{resources: [pods, pods/log, deployments]}", [], id="served resources"),
        pytest.param("{}", [], id="an entry for everything"),
        pytest.param('{groups: ["*"], resources: ["*"]}', [], id="patterns"),
        pytest.param('{groups: [""], resources: [pods]}', [], id="the core group"),
        pytest.param("{resources: [pod]}", ['rule hide: the cluster has no resource "pod"; did you mean pods?'], id="a singular"),
        pytest.param(
            "{resources: [deploy]}", ['rule hide: the cluster has no resource "deploy"; did you mean deployments?'], id="a short name"
        ),
        pytest.param("{resources: [widgets]}", ['rule hide: the cluster has no resource "widgets"'], id="an unknown resource"),
        pytest.param(
            "{groups: [apps], resources: [pods]}",
            ['rule hide: the cluster has no resource "pods" in the groups "apps"'],
            id="a resource of another group",
        ),
        pytest.param(
            "{groups: [core], resources: [pods]}",
            ['rule hide: the cluster has no API group "core", write "" for the core group'],
            id="the core group by another name",
        ),
        pytest.param("{groups: [example.com]}", ['rule hide: the cluster has no API group "example.com"'], id="an unknown group"),
    ],
)
async def test_a_rule_that_can_match_nothing_is_named(match: str, texts: list[str]) -> None:
    names = ResourceNames(ScriptedDiscovery(), FakeClock())  # type: ignore[arg-type]  # the one method that it needs
    assert await names.unserved(RuleSet.parse(_RULE.format(match=match)).rules) == texts
