"""Path elements: one spelling, the order and the texts that Kubernetes uses."""

import pytest

from kubeloop.merge.fields.elements import ElementError, canonical, element_text, json_text, key_element, order, path_text, value_element


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        pytest.param("f:spec", "f:spec", id="a field is kept as it is"),
        pytest.param('f:a"b', 'f:a"b', id="a field's name is not JSON"),
        pytest.param("v:80.0", "v:80", id="a whole number has no point"),
        pytest.param("v: 1", "v:1", id="blanks go"),
        pytest.param('k:{"proto":"TCP","port":80.0}', 'k:{"port":80,"proto":"TCP"}', id="keys are sorted by name"),
        pytest.param('v:"<a&b>"', 'v:"\\u003ca\\u0026b\\u003e"', id="HTML characters are escaped, as Go does"),
        pytest.param('v:"\\u00e9"', 'v:"é"', id="other characters are not"),
        pytest.param("i:007", "i:7", id="an index is a number"),
        pytest.param("x:1", None, id="an unknown type is dropped"),
        pytest.param("v:1e-7", "v:1e-7", id="a small number has an exponent of one digit"),
        pytest.param("v:0.00001", "v:0.00001", id="a number from 1e-6 on has none"),
        pytest.param("v:1e21", "v:1e+21", id="a large number has an exponent"),
        pytest.param("v:true", "v:true", id="a truth value"),
        pytest.param("v:null", "v:null", id="null"),
    ],
)
def test_canonical(written: str, kept: str | None) -> None:
    assert canonical(written) == kept


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("f", id="a type alone"),
        pytest.param("field", id="no colon"),
        pytest.param("k:{", id="keys that are no JSON"),
        pytest.param("k:[]", id="keys that are no object"),
        pytest.param('k:{"a":{}}', id="a key that is no scalar"),
        pytest.param("v:[1]", id="a value that is no scalar"),
        pytest.param("v:NaN", id="a number that JSON does not have"),
        pytest.param("v:" + "[" * 100_000, id="deep nesting"),
        pytest.param("i:one", id="an index that is no number"),
    ],
)
def test_an_invalid_element_is_refused(text: str) -> None:
    with pytest.raises(ElementError):
        canonical(text)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param(("f:spec", "f:replicas"), ".spec.replicas", id="fields"),
        pytest.param(("f:c", 'k:{"name":"a"}', "f:image"), '.c[name="a"].image', id="an item by its key"),
        pytest.param(("f:p", 'k:{"port":80,"protocol":"TCP"}'), '.p[port=80,protocol="TCP"]', id="several keys"),
        pytest.param(("f:finalizers", 'v:"a\\"b"'), '.finalizers[="a\\"b"]', id="an item of a set, quoted as Go does"),
        pytest.param(("f:a", "i:3"), ".a[3]", id="an index"),
        pytest.param(("f:a", "v:2097152"), ".a[=2.097152e+06]", id="large numbers as Go shows floating ones"),
        pytest.param(("f:a", "v:true"), ".a[=true]", id="a truth value"),
        pytest.param(("f:a", "v:null"), ".a[=null]", id="null"),
        pytest.param(("f:a", 'v:"\\u0007\\u0001\\u2028"'), '.a[="\\a\\x01\\u2028"]', id="an unprintable character is escaped"),
    ],
)
def test_path_text(path: tuple[str, ...], text: str) -> None:
    assert path_text(path) == text


def test_numbers_that_were_not_stored_are_shown_in_full() -> None:
    assert element_text("v:2097152") == "[=2097152]"


def test_elements_are_ordered_by_type_and_then_by_value() -> None:
    ordered = ["f:a", "f:b", 'k:{"n":2}', 'k:{"n":10}', 'k:{"n":"1"}', 'k:{"n":true}', "v:2", "v:10", 'v:"1"', "v:false", "i:2", "i:10"]
    assert sorted([*ordered[7:], *ordered[:7]], key=order) == ordered


def test_equal_values_have_equal_elements() -> None:
    assert value_element(1) == value_element(1.0) != value_element(True)
    assert key_element([("a", 1)]) == key_element([("a", 1.0)])


def test_unpaired_surrogates_are_replaced_as_go_does() -> None:
    assert json_text("a\ud800") == '"a\\ufffd"'
