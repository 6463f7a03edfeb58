"""Expressions that describe a change: what they construct and what that is worth."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.cel import CompileError, Environment, compile_expression, types
from kubeloop.cel.declared import PATCH_FUNCTIONS, patch_messages

_ENVIRONMENT = Environment({"object": types.DYN}, messages=patch_messages, functions=PATCH_FUNCTIONS)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("Object{spec: Object.spec{replicas: object.n + 1}}", {"spec": {"replicas": 3}}, id="an object is a map of fields"),
        pytest.param("Object{?a: optional.none(), ?b: optional.of(1)}", {"b": 1}, id="an optional field is left out when there is none"),
        pytest.param("[JSONPatch{op: 'remove', path: '/x'}]", [{"op": "remove", "path": "/x"}], id="an operation has the given fields"),
        pytest.param("jsonpatch.escapeKey('a/b~c')", "a~1b~0c", id="slashes and tildes of a key are escaped"),
    ],
)
def test_constructs(text: str, value: Any) -> None:
    assert compile_expression(text, _ENVIRONMENT).eval({"object": {"n": 2}}) == value


@pytest.mark.parametrize("text", ["Object{}", "jsonpatch.escapeKey('a')"])
def test_other_environments_construct_nothing(text: str) -> None:
    with pytest.raises(CompileError, match="undeclared reference"):
        compile_expression(text, Environment({}))
