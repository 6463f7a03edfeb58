"""Definitions, objects and updates as a Kubernetes 1.36 API server answered them: the same causes, warnings and results here.

The recordings (``recorded_*.json``) hold what was sent and what came back; causes are sorted, since upstream's order follows a Go map.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kubeloop.apiserver.crd import definition as defaults
from kubeloop.apiserver.crd import validation
from kubeloop.apiserver.crd.strategies import CustomResourceStrategy, DefinitionStrategy
from kubeloop.meta.errors import DecodeError
from kubeloop.meta.field_error import FieldError
from kubeloop.meta.kinds import GroupResource
from kubeloop.timing import FakeClock
from kubeloop.types import JSONObject
from tests.apiserver.write_requests import write_request

Causes = list[tuple[str, str, str]]

RESOURCE = GroupResource("kl.example.com", "objs")


@cache
def _recorded(name: str) -> Any:
    return json.loads((Path(__file__).parent / f"recorded_{name}.json").read_text())


def _causes(faults: Sequence[FieldError]) -> Causes:
    return sorted((fault.field, fault.type.value, fault.body) for fault in faults)


def _expected(causes: list[list[str]]) -> Causes:
    return sorted((field, reason, message) for field, reason, message in causes)


def _short(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))[:90]


def _definitions() -> list[Any]:
    return [
        pytest.param(one, id=f"definition {at} is answered as recorded: {_short(one['causes'])}")
        for at, one in enumerate(_recorded("definitions"))
    ]


def _objects() -> list[Any]:
    return [
        pytest.param(one, id=f"object {at} is answered as recorded: {_short(one['spec'])}")
        for at, one in enumerate(_recorded("objects")["objects"])
    ]


def _updates() -> list[Any]:
    return [
        pytest.param(one, id=f"update {at} is answered as recorded: {_short(one['new'])}")
        for at, one in enumerate(_recorded("updates")["updates"])
    ]


@pytest.mark.parametrize("recorded", _definitions())
def test_definition(recorded: JSONObject) -> None:
    crd = copy.deepcopy(recorded["definition"])
    crd["status"] = {}
    defaults.apply(crd)
    faults = validation.check_create(crd)
    assert _causes(faults) == _expected(recorded["causes"])
    if not faults:
        warnings = DefinitionStrategy(FakeClock()).warnings(write_request(), crd)
        assert sorted(f"299 - {json.dumps(text)}" for text in warnings) == recorded["warnings"]


@cache
def _strategy(name: str) -> CustomResourceStrategy:
    return CustomResourceStrategy(_recorded(name)["version"], RESOURCE)


def _object(spec: Any) -> JSONObject:
    return {"apiVersion": "kl.example.com/v1", "kind": "Obj", "metadata": {"name": "x"}, "spec": copy.deepcopy(spec)}


@pytest.mark.parametrize("recorded", _objects())
def test_object(recorded: JSONObject) -> None:
    strategy, obj = _strategy("objects"), _object(recorded["spec"])
    if recorded["status"] == 400:
        with pytest.raises(DecodeError) as refused:
            strategy.conform(obj)
        assert str(refused.value) in recorded["message"]
        return
    unknown = strategy.conform(obj)
    strategy.default(obj)
    assert _causes(strategy.validate_create(write_request(), obj)) == _expected(recorded["causes"])
    assert sorted(f"299 - {json.dumps(f'unknown field {json.dumps(path)}')}" for path in unknown) == recorded["warnings"]
    if recorded["status"] == 201:
        assert obj.get("spec") == recorded["result"]


@pytest.mark.parametrize("recorded", _updates())
def test_update_after_the_schema_was_tightened(recorded: JSONObject) -> None:
    old = _object(_recorded("updates")["old"])
    faults = _strategy("updates").validate_update(write_request(), _object(recorded["new"]), old)
    assert _causes(faults) == _expected(recorded["causes"])
