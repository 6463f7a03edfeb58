"""CEL rules as a Kubernetes 1.36 API server answered them: what it said of expressions, of their values, of what they may cost.

``recorded_expressions.json`` was recorded by writing a definition whose rule is ``false`` and whose messageExpression is the expression,
then an object of it, so that the object's cause shows the value; ``recorded_rules.json`` holds definitions
and their causes, and writes of objects of a definition before and after its rules were tightened. Causes are
sorted, since upstream's order follows a Go map; the generated name of the type of ``self`` reads ``selfType0``.
"""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kubeloop.apiserver.crd import definition as defaults
from kubeloop.apiserver.crd import validation
from kubeloop.apiserver.crd.strategies import CustomResourceStrategy
from kubeloop.meta.field_error import FieldError
from kubeloop.meta.kinds import GroupResource
from kubeloop.types import JSONObject
from tests.apiserver.write_requests import write_request


@cache
def _recorded(name: str) -> Any:
    return json.loads((Path(__file__).parent / f"recorded_{name}.json").read_text())


def _definition(schema: JSONObject) -> JSONObject:
    names = {"plural": "tdrys", "singular": "tdry", "kind": "Tdry", "listKind": "TdryList"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "tdrys.cel.example.com"},
        "spec": {"group": "cel.example.com", "scope": "Cluster", "names": names, "versions": [version]},
        "status": {"storedVersions": ["v1"]},
    }
    defaults.apply(crd)
    return crd


def _with_rule(expression: str) -> JSONObject:
    rule = {"rule": "false", "message": "no message", "messageExpression": expression}
    spec = {**_recorded("expressions")["spec"], "x-kubernetes-validations": [rule]}
    return {"type": "object", "properties": {"spec": spec}}


def _causes(faults: list[FieldError]) -> list[list[str]]:
    return sorted([fault.field, fault.type.value, fault.body] for fault in faults)


def _expressions() -> list[Any]:
    return [pytest.param(one, id=f"as recorded: {one['expression']}") for one in _recorded("expressions")["expressions"]]


@pytest.mark.parametrize("recorded", _expressions())
def test_expression(recorded: JSONObject) -> None:
    schema = _with_rule(recorded["expression"])
    assert _causes(validation.check_create(_definition(schema))) == sorted(recorded.get("causes", []))
    if "message" not in recorded:
        return
    strategy = CustomResourceStrategy({"name": "v1", "schema": {"openAPIV3Schema": schema}}, GroupResource("cel.example.com", "tdrys"))
    obj = {"apiVersion": "cel.example.com/v1", "kind": "Tdry", "metadata": {"name": "x"}}
    obj["spec"] = copy.deepcopy(_recorded("expressions")["value"])
    assert [fault.body for fault in strategy.validate_create(write_request(), obj)] == [recorded["message"]]


def _definitions() -> list[Any]:
    return [
        pytest.param(one, id=f"rules of a definition are answered as recorded: {one['name']}") for one in _recorded("rules")["definitions"]
    ]


@pytest.mark.parametrize("recorded", _definitions())
def test_definition(recorded: JSONObject) -> None:
    assert _causes(validation.check_create(_definition(copy.deepcopy(recorded["schema"])))) == sorted(recorded["causes"])


def _writes() -> list[Any]:
    return [pytest.param(one, id=f"{one['verb']}, as recorded: {one['name']}") for one in _recorded("rules")["writes"]]


@cache
def _strategy(stage: str) -> CustomResourceStrategy:
    schema = _recorded("rules")["schemas"][stage]
    version = {"name": "v1", "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
    return CustomResourceStrategy(version, GroupResource("cel.example.com", "tgates"))


@pytest.mark.parametrize("recorded", _writes())
def test_write(recorded: JSONObject) -> None:
    """``old`` and ``new`` as the server stored and got them; a write that it took has no causes."""
    strategy, context = _strategy(recorded["stage"]), write_request()
    new, old = copy.deepcopy(recorded["new"]), copy.deepcopy(recorded["old"])
    unknown = strategy.conform(new)
    match recorded["verb"]:
        case "create":
            strategy.prepare_create(context, new)
            faults = strategy.validate_create(context, new)
        case "update":
            strategy.prepare_update(context, new, old)
            faults = strategy.validate_update(context, new, old)
        case _:
            strategy.prepare_status_update(context, new, old)
            faults = strategy.validate_status_update(context, new, old)
    assert _causes(faults) == sorted(recorded["causes"])
    warnings = [f'unknown field "{path}"' for path in unknown] + context.warnings
    assert sorted(f"299 - {json.dumps(text, ensure_ascii=False)}" for text in warnings) == recorded["warnings"]
