"""The conformance tests of the CEL specification, version 0.25.1 of ``cel.dev/expr``, as Kubernetes 1.36 answers them.

``spec/*.jsonl`` holds upstream's tables (``tools/cel_spec.py`` converts them): 1,548 expressions of the files that use neither protobuf
messages nor extensions that Kubernetes does not enable (bindings, block, encoders, math; proto2, proto3, enums, wrappers, dynamic,
namespace, unknowns).
``spec_on_kubernetes.json`` names each expression that a real API server answered otherwise, as a rule of a CustomResourceDefinition.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kubeloop.cel import CompileError, Environment, EvalError, InstantiationError, compile_expression, types
from kubeloop.cel.types import Type
from kubeloop.cel.values import TypeValue, UInt

_HERE = Path(__file__).parent
_PRIMITIVES = {
    "INT64": types.INT,
    "UINT64": types.UINT,
    "BOOL": types.BOOL,
    "BYTES": types.BYTES,
    "STRING": types.STRING,
    "DOUBLE": types.DOUBLE,
}
#: Reasons for which a case has no meaning here: its name, its section or its file.
_LEFT_OUT = {
    "basic/variables/unbound_is_runtime_error": "Kubernetes checks the types of every expression",
    "basic/functions/unbound_is_runtime_error": "Kubernetes checks the types of every expression",
    "type_deduction/type_parameters": "declares functions",
    "type_deduction/functions": "declares functions",
}


class _HasMessages(Exception):
    """The case uses protobuf messages."""


@cache
def _on_kubernetes() -> dict[str, dict[str, str]]:
    recorded: dict[str, dict[str, str]] = json.loads((_HERE / "spec_on_kubernetes.json").read_text())
    return recorded


def _type(declared: dict[str, Any]) -> Type:
    ((kind, (value, *_)),) = declared.items()
    match kind:
        case "primitive":
            return _PRIMITIVES[value]
        case "list_type":
            return types.list_of(_type(value["elem_type"][0]))
        case "map_type":
            return types.map_of(_type(value["key_type"][0]), _type(value["value_type"][0]))
        case "dyn":
            return types.DYN
        case "null":
            return types.NULL
        case "well_known" if value != "ANY":
            return {"TIMESTAMP": types.TIMESTAMP, "DURATION": types.DURATION}[value]
    raise _HasMessages


def _value(tagged: dict[str, Any]) -> Any:
    ((kind, (value, *_)),) = tagged.items()
    match kind:
        case "int64_value" | "bool_value" | "string_value":
            return value
        case "uint64_value":
            return UInt(value)
        case "double_value":
            return float(value)
        case "bytes_value":
            return value.encode("utf-8", "surrogateescape")
        case "null_value":
            return None
        case "type_value":
            return TypeValue(value)
        case "list_value":
            return [_value(one) for one in value.get("values", [])]
        case "map_value":
            return {_value(one["key"][0]): _value(one["value"][0]) for one in value.get("entries", [])}
    raise _HasMessages


def _is_left_out(name: str) -> bool:
    return name in _LEFT_OUT or name.rpartition("/")[0] in _LEFT_OUT


def _cases() -> Iterator[Any]:
    for file in sorted((_HERE / "spec").glob("*.jsonl")):
        for line in file.read_text().splitlines():
            case = json.loads(line)
            case["name"] = f"{file.stem}/{case['name']}"
            if _is_left_out(case["name"]) or case.get("check_only") or any(text in case["expr"] for text in ("TestAllTypes", "google.")):
                continue
            try:
                variables = {one["name"][0]: _type(one["ident"][0]["type"][0]) for one in case.get("types", [])}
                values = {name: _value(one["value"][0]) for name, one in case.get("bindings", {}).items()}
                expected = None if case.get("error") else _value(case["value"])
            except _HasMessages:
                continue
            yield pytest.param(case, variables, values, expected, id=f"{case['name']}: {case['expr'][:60]}")


def _is_same(value: Any, expected: Any) -> bool:
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(value, float) and math.isnan(value)
    if isinstance(expected, list):
        return isinstance(value, list) and len(value) == len(expected) and all(map(_is_same, value, expected))
    if isinstance(expected, dict):
        return isinstance(value, dict) and len(value) == len(expected)
    return type(value) is type(expected) and bool(value == expected)


@pytest.mark.parametrize(("case", "variables", "values", "expected"), list(_cases()))
def test_an_expression_has_the_value_that_it_has_on_kubernetes(
    case: dict[str, Any], variables: dict[str, Type], values: dict[str, Any], expected: Any
) -> None:
    recorded = _on_kubernetes().get(case["name"], {})
    error = recorded.get("error", "any" if case.get("error") and not recorded else "")
    if error:
        kinds = {
            "compile": (CompileError, InstantiationError),
            "evaluation": (EvalError,),
            "any": (CompileError, InstantiationError, EvalError),
        }
        with pytest.raises(kinds[error]):
            compile_expression(case["expr"], Environment(variables)).eval(values)
        return
    found = compile_expression(case["expr"], Environment(variables)).eval(values)
    if recorded.get("value", "other") != "other":
        expected = recorded["value"]
    if not recorded or recorded["value"] != "other":
        assert _is_same(found, expected), f"{found!r} is not {expected!r}"


def _answers() -> list[Any]:
    lines = (_HERE / "answers_on_kubernetes.jsonl").read_text().splitlines()
    return [pytest.param(*answer, id=answer[0]) for answer in map(json.loads, lines)]


@pytest.mark.parametrize(("expression", "outcome", "text"), _answers())
def test_an_expression_is_answered_as_by_a_real_server(expression: str, outcome: str, text: str) -> None:
    """Operands of the wrong type, indexes, formats, and the expressions of Kubernetes' library tests, as rules on Kubernetes 1.36.3."""
    environment = Environment({})
    if outcome == "refused":
        with pytest.raises((CompileError, InstantiationError)) as refused:
            compile_expression(expression, environment)
        assert str(refused.value) == text
        return
    program = compile_expression(expression, environment)
    if outcome == "error":
        with pytest.raises(EvalError) as failed:
            program.eval({})
        assert str(failed.value) == text
        return
    value = program.eval({})
    assert (str(value).lower() if isinstance(value, bool) else value) == text


def test_most_cases_of_the_tables_are_run() -> None:
    assert len(list(_cases())) > 1350
