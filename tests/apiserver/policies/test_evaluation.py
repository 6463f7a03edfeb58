"""Evaluation of several expressions: their budget, and variables that are evaluated on first use."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.apiserver.expressions.compiler import CONDITION, CONFIGURATION, OPERATIONS, CompiledExpression, ExpressionCompiler
from kubeloop.apiserver.expressions.evaluation import CostBudgetExceeded, ExpressionResult, MatchConditionsError, conditions_hold, evaluate
from kubeloop.apiserver.policies.object_types import NotMutable, check_object_types, to_apply_configuration, to_patch_operations
from kubeloop.apiserver.policies.validating import Annotations

VALUES: dict[str, Any] = {"object": {"a": 1}, "oldObject": None}


def compiled(*expressions: str, **variables: str) -> tuple[list[CompiledExpression], dict[str, CompiledExpression]]:
    compiler = ExpressionCompiler(params=False, variables=True)
    known = {name: compiler.variable(name, text) for name, text in variables.items()}
    return [compiler.expression(one, CONDITION) for one in expressions], known


def changed(expression: str, *, operations: bool = False) -> Any:
    program = ExpressionCompiler(params=False, variables=True).change(expression, OPERATIONS if operations else CONFIGURATION).program
    assert program is not None
    return program.eval(VALUES)


def test_a_variable_is_computed_once_however_often_it_is_used() -> None:
    expressions, variables = compiled("variables.v.all(x, x > 0)", "variables.v.all(x, x > 0)", v="[1, 2, 3].map(x, x * 2)")
    both, one = evaluate(expressions, VALUES, 1000, variables)[1], evaluate(expressions[:1], VALUES, 1000, variables)[1]
    assert 1000 - both < 2 * (1000 - one)


def test_an_unused_variable_may_fail() -> None:
    expressions, variables = compiled("true", bad="object.nosuch")
    assert evaluate(expressions, VALUES, 1000, variables)[0] == [ExpressionResult(True)]


def test_the_cost_of_a_variable_counts_for_its_first_user() -> None:
    expressions, variables = compiled("true", "variables.v == 6", v="[1, 2, 3].map(x, x * 2).sum() - 6")
    evaluate(expressions[:1], VALUES, 5, variables)
    with pytest.raises(CostBudgetExceeded):
        evaluate(expressions, VALUES, 5, variables)


@pytest.mark.parametrize(
    ("expressions", "ignore", "outcome"),
    [
        pytest.param(("true", "object.a == 1"), False, True, id="all must be true"),
        pytest.param(("true", "object.a == 2"), False, False, id="a single false condition decides"),
        pytest.param(("object.nosuch == 1", "false"), False, False, id="whatever is wrong with the others"),
        pytest.param(("object.nosuch == 1", "true"), True, False, id="an error that is ignored is as false"),
    ],
)
def test_conditions(expressions: tuple[str, ...], ignore: bool, outcome: bool) -> None:
    assert conditions_hold(compiled(*expressions)[0], VALUES, ignore_failure=ignore) is outcome


def test_each_error_of_conditions_is_reported_once() -> None:
    with pytest.raises(MatchConditionsError) as fault:
        conditions_hold(compiled("object.b == 1", "object.b == 1", "object.c == 1")[0], VALUES, ignore_failure=False)
    text = "expression 'object.{0} == 1' resulted in error: no such key: {0}"
    assert str(fault.value) == f"[{text.format('b')}, {text.format('c')}]"


def test_a_constructed_object_is_called_by_its_place() -> None:
    with pytest.raises(NotMutable, match=r'unexpected type name "Object\.other", expected "Object\.spec\.items"'):
        check_object_types(changed("Object{spec: Object.spec{items: [Object.other{a: 1}]}}"))
    fine = changed("Object{spec: Object.spec{items: [Object.spec.items{a: 1, m: {'k': Object.spec.items.m{}}}]}}")
    check_object_types(fine)
    assert to_apply_configuration(fine) == {"spec": {"items": [{"a": 1, "m": {"k": {}}}]}}


def test_a_field_that_is_optional_and_missing_is_left_out() -> None:
    assert to_apply_configuration(changed("Object{?x: optional.none(), ?y: optional.of(1)}")) == {"y": 1}


def test_values_of_operations_are_as_protobuf_writes_them_in_json() -> None:
    expression = """[JSONPatch{op: 'add', path: '/a', value: {'n': 9007199254740993}}, JSONPatch{op: 'add', path: '/b', value: b'ab'},
        JSONPatch{op: 'add', path: '/c', value: timestamp('2026-01-02T03:04:05Z')}, JSONPatch{op: 'add', path: '/d', value: null},
        JSONPatch{op: 'copy', from: '/a', path: '/e'}]"""
    assert to_patch_operations(changed(expression, operations=True)) == [
        {"op": "add", "path": "/a", "value": {"n": "9007199254740993"}},
        {"op": "add", "path": "/b", "value": "YWI="},
        {"op": "add", "path": "/c", "value": "2026-01-02T03:04:05Z"},
        {"op": "add", "path": "/d", "value": None},
        {"op": "copy", "path": "/e", "from": "/a"},
    ]


def test_annotations_of_several_bindings_stand_in_one_value() -> None:
    found = {"p/kept": "before"}
    annotations = Annotations("p")
    for key, value in (("a", "x"), ("a", "y"), ("a", "x"), ("b", ""), ("kept", "after"), ("long", "z" * 20_000)):
        annotations.add(key, value)
    annotations.publish(found)
    assert found == {"p/kept": "before", "p/a": "x, y", "p/long": "z" * 10_240}
