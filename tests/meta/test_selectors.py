"""Label and field selectors: what they select, how they print, how they fail. Failures are answers of a real API server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.meta import (
    EVERYTHING,
    NOTHING,
    FieldSelector,
    LabelSelector,
    LabelSelectorRequirement,
    parse_field_selector,
    parse_label_selector,
    selector_from,
    selector_from_labels,
)

NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.mark.parametrize(
    ("text", "labels", "selected"),
    [
        pytest.param("", {}, True, id="no requirement selects everything"),
        pytest.param("app=web", {"app": "web"}, True, id="one equals sign"),
        pytest.param("app==web", {"app": "db"}, False, id="two equals signs"),
        pytest.param("app!=web", {}, True, id="unequal holds for a missing label"),
        pytest.param("app in (web, db)", {"app": "db"}, True, id="in takes blanks around values"),
        pytest.param("app in (web)", {}, False, id="in wants the label"),
        pytest.param("app notin (web)", {}, True, id="notin holds for a missing label"),
        pytest.param("app notin (web)", {"app": "web"}, False, id="notin refuses its values"),
        pytest.param("app in ()", {"app": ""}, True, id="nothing in parentheses is the empty value"),
        pytest.param("app in (a,,b)", {"app": ""}, True, id="nothing between commas is the empty value"),
        pytest.param("app", {"app": ""}, True, id="a key alone wants the label"),
        pytest.param("!app", {"app": ""}, False, id="a mark refuses the label"),
        pytest.param("app=", {"app": ""}, True, id="no value is the empty value"),
        pytest.param("cpus>3", {"cpus": "4"}, True, id="greater compares numbers"),
        pytest.param("cpus>3", {"cpus": "many"}, False, id="greater refuses a text that is no number"),
        pytest.param("cpus<3", {}, False, id="less wants the label"),
        pytest.param("a=1,b=2", {"a": "1"}, False, id="all requirements must hold"),
        pytest.param("in in (in)", {"in": "in"}, True, id="in may be a key and a value"),
    ],
)
def test_a_label_selector_selects(text: str, labels: dict[str, str], selected: bool) -> None:
    assert parse_label_selector(text).matches(labels) is selected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("app gt 1", "unable to parse requirement: found 'gt', expected: in, notin, =, ==, !=, gt, lt", id="no such operator"),
        pytest.param("app in (a", "unable to parse requirement: found '', expected: ',' or ')'", id="an open parenthesis"),
        pytest.param("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier", id="only an open parenthesis"),
        pytest.param("a in b", "unable to parse requirement: found 'b' expected: '('", id="in without parentheses"),
        pytest.param("app=a=b", "found '=', expected: ',' or 'end of string'", id="two values"),
        pytest.param("=", "found '=', expected: !, identifier, or 'end of string'", id="no key"),
        pytest.param("!", "unable to parse requirement: found '', expected: identifier", id="a mark without a key"),
        pytest.param("a,,b", "found ',', expected: identifier after ','", id="nothing between commas"),
        pytest.param("-a=x", f'unable to parse requirement: <nil>: Invalid value: "-a": {NAME_RULE}', id="a key that is no label key"),
        pytest.param(
            "a=-b", f'unable to parse requirement: values[0][a]: Invalid value: "-b": {VALUE_RULE}', id="a value that is no label value"
        ),
        pytest.param(
            "a in (-a,-b)",
            f'unable to parse requirement: [values[0][a]: Invalid value: "-a": {VALUE_RULE}, '
            f'values[1][a]: Invalid value: "-b": {VALUE_RULE}]',
            id="several faults are listed in brackets",
        ),
        pytest.param(
            "a>b",
            "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer",
            id="greater than a word",
        ),
    ],
)
def test_a_broken_label_selector_fails_in_kubernetes_words(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_label_selector(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        pytest.param("b=2 , a==1", "a==1,b=2", id="keys are sorted, blanks go"),
        pytest.param("x in (b,a,b)", "x in (a,b)", id="values are sorted and unique"),
        pytest.param("!old,new", "new,!old", id="existence"),
        pytest.param("a>1,b<2,c!=d", "a>1,b<2,c!=d", id="comparisons"),
    ],
)
def test_a_label_selector_prints_as_kubernetes_prints_it(text: str, printed: str) -> None:
    assert str(parse_label_selector(text)) == printed


_WORDS = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)
_REQUIREMENTS = st.one_of(
    st.builds("{}{}{}".format, _WORDS, st.sampled_from(["=", "==", "!="]), _WORDS),
    st.builds("{} {} ({})".format, _WORDS, st.sampled_from(["in", "notin"]), st.lists(_WORDS, max_size=3).map(",".join)),
    st.builds("{}{}".format, st.sampled_from(["", "!"]), _WORDS),
    st.builds("{}{}{}".format, _WORDS, st.sampled_from("<>"), st.integers(0, 99)),
)


@given(st.lists(_REQUIREMENTS, max_size=4).map(",".join))
def test_what_a_label_selector_prints_reads_as_the_same_selector(text: str) -> None:
    selector = parse_label_selector(text)
    assert parse_label_selector(str(selector)) == selector


def test_a_missing_label_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert selector_from(None) == NOTHING
    assert selector_from({}) == selector_from(LabelSelector()) == EVERYTHING
    assert not NOTHING.matches({})
    assert EVERYTHING.matches({})


def test_a_typed_label_selector_and_its_tree_mean_the_same() -> None:
    typed = LabelSelector(
        match_labels={"app": "web"}, match_expressions=[LabelSelectorRequirement(key="tier", operator="NotIn", values=["x", "y"])]
    )
    tree = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x", "y"]}]}
    assert selector_from(typed) == selector_from(tree)
    assert str(selector_from(tree)) == "app=web,tier notin (x,y)"


@pytest.mark.parametrize(
    ("operator", "values", "message"),
    [
        pytest.param("Near", [], '"Near" is not a valid label selector operator', id="an operator that there is not"),
        pytest.param("In", [], "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty", id="in nothing"),
        pytest.param(
            "Exists",
            ["x"],
            'values: Invalid value: ["x"]: values set must be empty for exists and does not exist',
            id="exists as something",
        ),
    ],
)
def test_an_impossible_expression_is_refused(operator: str, values: list[str], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        selector_from({"matchExpressions": [{"key": "k", "operator": operator, "values": values}]})
    assert str(caught.value) == message


def test_a_selector_tells_the_value_that_it_pins() -> None:
    assert parse_label_selector("a=1,b in (x,y)").exact_value("a") == "1"
    assert parse_label_selector("a=1,b in (x,y)").exact_value("b") is None
    assert selector_from_labels({"app": "web"}).exact_value("app") == "web"


@pytest.mark.parametrize(
    ("text", "fields", "selected"),
    [
        pytest.param("metadata.name=a", {"metadata.name": "a"}, True, id="equal"),
        pytest.param("metadata.name==a", {"metadata.name": "b"}, False, id="two equals signs"),
        pytest.param("status.phase!=Running", {}, True, id="a missing field is empty text"),
        pytest.param("a=1,b=2", {"a": "1", "b": "3"}, False, id="all terms must hold"),
        pytest.param(r"a=x\,y\=z\\", {"a": "x,y=z\\"}, True, id="escaped signs stand for themselves"),
        pytest.param("", {}, True, id="no term selects everything"),
    ],
)
def test_a_field_selector_selects(text: str, fields: dict[str, str], selected: bool) -> None:
    selector = parse_field_selector(text)
    assert selector.matches(fields) is selected
    assert parse_field_selector(str(selector)) == selector


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'", id="no operator"),
        pytest.param("a=b\\x", "invalid field selector: invalid escape sequence: \\x", id="a backslash before a letter"),
        pytest.param("a=b\\", "invalid field selector: invalid escape sequence: \\", id="a backslash at the end"),
        pytest.param("a=b=c", "invalid field selector: unescaped character in value: 61", id="an equals sign in a value"),
    ],
)
def test_a_broken_field_selector_fails_in_kubernetes_words(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_field_selector(text)
    assert str(caught.value) == message


def test_a_transform_renames_drops_and_refuses_terms() -> None:
    def transform(field: str, value: str) -> tuple[str, str]:
        if field == "drop":
            return "", ""
        return field.upper(), value

    assert str(parse_field_selector("a=1,drop=2").transformed(transform)) == "A=1"
    assert FieldSelector().everything
