"""Headers come before weights, weights are exact, and each mistake is named."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml
from multidict import CIMultiDict

from examples.ingress_nginx.ingress.classes import CONTROLLER
from examples.traffic_router.routes import RoutesError, RouteTable, WeightedRotation
from kubeloop.proxy import RuleSet

_FOLDER = Path(__file__).parents[1]
_TABLE = """\
routes:
- host: web.example
  headers: [{name: X-Version, value: v2, service: web-v2}, {name: X-Version, value: v3, service: web-v3}]
  weights: {web-v1: 1}
"""


@pytest.mark.parametrize(
    ("host", "headers", "expected"),
    [
        pytest.param("web.example", {}, "web-v1", id="a request without headers goes by weight"),
        pytest.param("web.example", {"x-version": "v2"}, "web-v2", id="a header chooses, in any case"),
        pytest.param("web.example", {"X-Version": "v3"}, "web-v3", id="the first choice that matches decides"),
        pytest.param("web.example", {"X-Version": "v4"}, "web-v1", id="another value goes by weight"),
        pytest.param("WEB.example:8080", {}, "web-v1", id="case and port of the host do not count"),
        pytest.param("", {}, None, id="a request without a host has no route"),
        pytest.param("[::1]", {}, None, id="an address has no route"),
    ],
)
def test_service_for(host: str, headers: dict[str, str], expected: str | None) -> None:
    assert RouteTable.parse(_TABLE).service_for(host, CIMultiDict(headers)) == expected


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        pytest.param({"a": 1}, "aaaa", id="one name"),
        pytest.param({"a": 1, "b": 0}, "aaaa", id="a name of weight 0 has no turn"),
        pytest.param({"a": 1, "b": 1}, "abab", id="equal names alternate"),
        pytest.param({"a": 3, "b": 1}, "aabaaaba", id="the turns of a light name lie between those of a heavy one"),
    ],
)
def test_weighted_rotation(weights: dict[str, int], expected: str) -> None:
    rotation = WeightedRotation(weights)
    assert "".join(rotation.next() for _ in expected) == expected


def test_shares_are_exact() -> None:
    rotation = WeightedRotation({"a": 70, "b": 25, "c": 5})
    assert Counter(rotation.next() for _ in range(300)) == {"a": 210, "b": 75, "c": 15}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("routes: [", "expected the node content", id="no YAML"),
        pytest.param("", "Expected `object`, got `null`", id="an empty file"),
        pytest.param("routes: [{host: a}]", "missing required field `weights` - at `$.routes[0]`", id="a host without weights"),
        pytest.param("routes: [{host: a, weights: {}}]", "weights of a: at least one must be positive", id="no weight"),
        pytest.param("routes: [{host: a, weights: {b: 0}}]", "at least one must be positive", id="weights of 0"),
        pytest.param("routes: [{host: a, weights: {b: 2, c: -1}}]", "none negative", id="a negative weight"),
        pytest.param("routes: [{host: a, weights: {b: 1}, header: []}]", "unknown field `header`", id="an unknown field"),
    ],
)
def test_a_mistake_is_named(text: str, message: str) -> None:
    with pytest.raises(RoutesError) as error:
        RouteTable.parse(text)
    assert message in str(error.value)


def test_the_files_of_the_demo_are_valid() -> None:
    RouteTable.parse((_FOLDER / "routes.yaml").read_text())
    rules = _FOLDER / "rules.yaml"
    assert [rule.name for rule in RuleSet.load(rules).rules] == ["router"]
    assert len(rules.read_text().splitlines()) <= 10
    documents = {document["kind"]: document for document in yaml.safe_load_all((_FOLDER / "manifests.yaml").read_text())}
    assert documents["IngressClass"]["spec"]["controller"] == CONTROLLER
