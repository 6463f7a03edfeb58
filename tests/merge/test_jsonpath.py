from typing import Any

import pytest

from kubeloop.merge import JSONPath, JSONPathError
from kubeloop.merge.jsonpath_parser import parse

DOC = {
    "odd": {"z": [1, 2], "a": "<&"},
    "million": 1000000.0,
    "kind": "List",
    "metadata": {"name": "x", "labels": {"app.kubernetes.io/name": "web", "a": "1"}},
    "spec": {"replicas": 3, "paused": False, "ratio": 0.5, "empty": [], "nothing": None},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "age": 5},
            {"type": "Live", "status": "False", "age": 9},
            {"type": "Odd (quoted)", "status": "x"},
        ],
        "addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}, {"ip": "10.0.0.3"}],
    },
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param("{.metadata.name}", ["x"], id="members by name"),
        pytest.param(".metadata.name", ["x"], id="braces may be left out"),
        pytest.param("metadata.name", ["x"], id="so may the first dot"),
        pytest.param("{$.metadata.name}", ["x"], id="a dollar is the document"),
        pytest.param("{.metadata['name']}", ["x"], id="a quoted member"),
        pytest.param(r"{.metadata.labels.app\.kubernetes\.io/name}", ["web"], id="escaped dots belong to the name"),
        pytest.param(r"{.metadata.labels['app\.kubernetes\.io/name']}", ["web"], id="escaped dots in a quoted name"),
        pytest.param("{.status.addresses[0].ip}", ["10.0.0.1"], id="an index"),
        pytest.param("{.status.addresses[-1].ip}", ["10.0.0.3"], id="an index from the end"),
        pytest.param("{.status.addresses[0:2].ip}", ["10.0.0.1", "10.0.0.2"], id="a slice without its end"),
        pytest.param("{.status.addresses[1:].ip}", ["10.0.0.2", "10.0.0.3"], id="an open slice"),
        pytest.param("{.status.addresses[::2].ip}", ["10.0.0.1", "10.0.0.3"], id="a slice with steps"),
        pytest.param("{.status.addresses[0,2].ip}", ["10.0.0.1", "10.0.0.3"], id="a union of indexes"),
        pytest.param("{.metadata['name','labels'].a}", ["1"], id="a union of members"),
        pytest.param("{.status.addresses[*].ip}", ["10.0.0.1", "10.0.0.2", "10.0.0.3"], id="all elements"),
        pytest.param("{.metadata.labels.*}", ["web", "1"], id="all members"),
        pytest.param("{..ip}", ["10.0.0.1", "10.0.0.2", "10.0.0.3"], id="members at any depth"),
        pytest.param('{.status.conditions[?(@.type=="Ready")].status}', ["True"], id="a filter by a text"),
        pytest.param("{.status.conditions[?(@.type!='Ready')].status}", ["False", "x"], id="a filter by inequality, single quotes"),
        pytest.param("{.status.conditions[?(@.age>5)].type}", ["Live"], id="a filter by a number; elements without it are passed over"),
        pytest.param("{.status.conditions[?(@.age)].type}", ["Ready", "Live"], id="a filter by presence"),
        pytest.param('{.status.conditions[?(@.type=="Odd (quoted)")].status}', ["x"], id="brackets inside quotes do not end a filter"),
        pytest.param("{.spec.empty[*]}", [], id="all of an empty list is nothing"),
        pytest.param("{.spec.nothing}", [None], id="a null is a value"),
    ],
)
def test_values(template: str, expected: list[Any]) -> None:
    assert JSONPath(template).values(DOC) == expected


def test_a_bare_word_is_a_text_in_a_filter_too_where_any_word_is() -> None:
    template = "{.conditions[?(ready)]}"
    assert parse(template, any_word=True)
    with pytest.raises(JSONPathError, match="unrecognized identifier ready"):
        parse(template)


def test_an_escaped_dot_may_end_a_name() -> None:
    assert JSONPath(r"{.a\..b}").values({"a.": {"b": 1}, "a..b": 2}) == [1]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        pytest.param("{.spec.replicas}", "3", id="numbers print as JSON"),
        pytest.param("{.spec.paused} {.spec.ratio}", "False 0.5".replace("False", "false"), id="text stands between expressions"),
        pytest.param("{.status.addresses[0]}", '{"ip":"10.0.0.1"}', id="objects print as JSON"),
        pytest.param("{.odd}", '{"a":"\\u003c\\u0026","z":[1,2]}', id="keys of objects are in order, and signs of HTML are escaped"),
        pytest.param("{.million}", "1e+06", id="numbers with a point print as Go prints them"),
        pytest.param("{.status.addresses[*].ip}", "10.0.0.1 10.0.0.2 10.0.0.3", id="several values are parted by spaces"),
        pytest.param('{.kind}{"\\n"}', "List\n", id="quoted text is printed with its escapes"),
    ],
)
def test_render(template: str, text: str) -> None:
    assert JSONPath(template).render(DOC) == text


@pytest.mark.parametrize(
    ("template", "message"),
    [
        pytest.param("{.a", "unclosed action", id="a brace stays open"),
        pytest.param("{.a[0}", "unterminated array", id="a bracket stays open"),
        pytest.param("{.a[x]}", "invalid array index x", id="an index that is none"),
        pytest.param("{.a[?(@.b=='c']}", "unterminated filter", id="a filter stays open"),
        pytest.param("{.a[?(@.b) ]}", "unclosed array expect ]", id="something between filter and bracket"),
        pytest.param("{.a[?(@.b=~'c')]}", "unrecognized filter operator =", id="regular expressions are not in this dialect"),
        pytest.param("{.a[?(@.b===1)]}", "unrecognized filter operator ===", id="an unknown operator"),
        pytest.param("{.....a}", "invalid multiple recursive descent", id="dots upon dots"),
        pytest.param("{'a}", "unterminated quoted string", id="a quote stays open"),
        pytest.param("{range .items[*]}", '"range" is not supported here', id="range is refused with a way out"),
        pytest.param("{foo}", "unrecognized identifier foo", id="a word that is no path"),
        pytest.param("{#}", "unrecognized character in action: U+0023 '#'", id="a sign that means nothing"),
        pytest.param("{1.2.3}", "cannot parse number 1.2.3", id="a number that is none"),
    ],
)
def test_a_malformed_template_is_refused(template: str, message: str) -> None:
    with pytest.raises(JSONPathError) as caught:
        JSONPath(template)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        pytest.param("{.spec.missing}", "missing is not found", id="a missing member"),
        pytest.param("{.status.addresses[3]}", "array index out of bounds: index 3, length 3", id="an index beyond the end"),
        pytest.param("{.status.addresses[2:1]}", "starting index 2 is greater than ending index 1", id="a slice backwards"),
        pytest.param("{.spec[0]}", "map[string]interface {} is not array or slice", id="an index into an object"),
        pytest.param("{.spec[?(@.a)]}", "is not array or slice and cannot be filtered", id="a filter on an object"),
        pytest.param('{.status.conditions[?(@.age=="5")]}', "incompatible types for comparison", id="a number against a text"),
    ],
)
def test_what_a_document_lacks_is_named(template: str, message: str) -> None:
    with pytest.raises(JSONPathError) as caught:
        JSONPath(template).values(DOC)
    assert message in str(caught.value)


@pytest.mark.parametrize("template", ["{.spec.missing}", "{.status.addresses[3]}", "{.no.where.at.all[0]}"])
def test_missing_is_nothing_when_allowed(template: str) -> None:
    path = JSONPath(template, allow_missing=True)
    assert path.find(DOC) == [[]]
    assert path.first(DOC) is None


def test_find_keeps_the_parts_apart() -> None:
    assert JSONPath("{.kind}: {.status.addresses[*].ip}").find(DOC) == [["List"], [": "], ["10.0.0.1", "10.0.0.2", "10.0.0.3"]]
