from typing import Any

import pytest

from kubeloop.merge.go_text import copy_tree, go_text, go_type, json_type, same


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param({"b": [1, "x"], "a": {}}, "map[a:map[] b:[1 x]]", id="maps are sorted, lists parted by spaces"),
        pytest.param(None, "<nil>", id="null"),
        pytest.param(True, "true", id="a truth value"),
        pytest.param(1.5, "1.5", id="a fraction"),
        pytest.param(3.0, "3", id="a whole float has no point"),
        pytest.param(1e21, "1e+21", id="a large whole float"),
        pytest.param(1e6, "1e+06", id="an exponent from 1e6 on"),
        pytest.param(1234567.5, "1.2345675e+06", id="an exponent with a fraction"),
        pytest.param(-2097152.0, "-2.097152e+06", id="an exponent of a negative number"),
        pytest.param(999999.0, "999999", id="no exponent below 1e6"),
        pytest.param(0.00001, "1e-05", id="an exponent below 1e-4"),
        pytest.param(0.0001, "0.0001", id="no exponent at 1e-4"),
        pytest.param(1.5e-7, "1.5e-07", id="a small fraction"),
        pytest.param(0.0, "0", id="zero"),
    ],
)
def test_values_print_as_go_prints_them(value: Any, text: str) -> None:
    assert go_text(value) == text


@pytest.mark.parametrize(
    ("value", "go", "json"),
    [
        ({}, "map[string]interface {}", "object"),
        ([], "[]interface {}", "array"),
        ("x", "string", "string"),
        (1, "int64", "number"),
        (1.0, "float64", "number"),
        (True, "bool", "bool"),
        (None, "%!s(<nil>)", "null"),
    ],
)
def test_types_have_gos_names(value: Any, go: str, json: str) -> None:
    assert (go_type(value), json_type(value)) == (go, json)


def test_numbers_of_two_types_are_not_the_same() -> None:
    assert not same(1, 1.0)
    assert not same(1, True)
    assert same({"a": [1, None]}, {"a": [1, None]})
    assert not same({"a": 1}, {"b": 1})


def test_a_copied_tree_shares_no_container() -> None:
    tree: dict[str, Any] = {"a": [{}]}
    copied = copy_tree(tree)
    copied["a"][0]["b"] = 1
    assert tree == {"a": [{}]}
