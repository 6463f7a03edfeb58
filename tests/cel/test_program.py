"""Programs: what compiling and evaluating promise, whatever the expression."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.cel import CompileError, CostExceeded, Environment, EvalError, InstantiationError, Program, compile_expression, types
from kubeloop.cel.values import AccessCheck, AuthorizerDecision, AuthorizerValue, Timestamp

ANYTHING = Environment({"object": types.DYN, "n": types.INT, "authorizer": types.AUTHORIZER})


def compiled(text: str) -> Program:
    return compile_expression(text, ANYTHING)


def test_a_program_is_evaluated_with_values_for_its_variables() -> None:
    program = compiled("object.items.all(x, x < n)")
    assert program.eval({"object": {"items": [1, 2]}, "n": 3}) is True
    assert program.eval({"object": {"items": [1, 9]}, "n": 3}) is False


def test_evaluating_leaves_the_values_alone() -> None:
    value = {"items": [3, 1], "map": {"a": [1]}}
    program = compiled("(object.items + [4]).size() + object.map.a.size() + object.items.map(x, x * 2).size()")
    assert program.eval({"object": value}) == 6
    assert value == {"items": [3, 1], "map": {"a": [1]}}


def test_the_variables_that_a_program_uses_are_known() -> None:
    program = compiled("object.a == 1 || [1].exists(n, n == 2)")
    assert (program.uses("object"), program.uses("authorizer")) == (True, False)


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(EvalError, match=r"^no such key: b$"):
        compiled("object.b == 1").eval({"object": {"a": 1}})


def test_a_program_stops_at_its_limit() -> None:
    program = compile_expression("object.all(x, object.all(y, x < y || x >= y))", ANYTHING, limit=1000)
    with pytest.raises(CostExceeded):
        program.eval({"object": list(range(1000))})
    outcome = program.run({"object": list(range(1000))})
    assert 1000 < outcome.cost < 1100
    assert isinstance(outcome.error, CostExceeded)


def test_an_error_that_another_element_outweighs_does_not_matter() -> None:
    assert compiled("[0, 1].exists(x, 1 / x == 1)").eval({}) is True
    assert compiled("1 / 0 > 1 || true").eval({}) is True


def test_the_limit_is_no_error_that_could_be_outweighed() -> None:
    program = compile_expression("[1, 2, 3].all(x, x > 0) || true", ANYTHING, limit=1)
    with pytest.raises(CostExceeded):
        program.eval({})


def test_an_impossible_constant_is_reported_when_the_program_is_made() -> None:
    with pytest.raises(InstantiationError, match="type conversion error from 'string' to 'int'"):
        compiled("int('a') == n")


@pytest.mark.parametrize("text", ["null in {null: 1}", "duration('60s') in {duration('1m'): 1}"])
def test_map_keys_may_be_null_or_durations(text: str) -> None:
    assert compile_expression(text, Environment({})).eval({}) is True


def test_no_constant_index_is_null() -> None:
    with pytest.raises(CompileError, match=r"invalid qualifier type: types\.Null"):
        compile_expression("{null: 1}[null] == 1", Environment({}))


def test_every_fault_is_named_with_its_place() -> None:
    with pytest.raises(CompileError) as caught:
        compiled("n + 'a' > 1 &&\n  nowhere.size() > 2")
    assert str(caught.value).split("\n") == [
        "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'",
        " | n + 'a' > 1 &&",
        " | ..^",
        "ERROR: <input>:2:3: undeclared reference to 'nowhere' (in container '')",
        " |   nowhere.size() > 2",
        " | ..^",
    ]


def test_marks_stand_below_wide_characters() -> None:
    with pytest.raises(CompileError, match="\\| 'é字' \\+ 1\n \\| \\.\\.．\\.\\.\\^"):
        compiled("'é字' + 1")


def test_the_authorizer_is_asked_with_what_the_expression_says() -> None:
    asked: list[tuple[AccessCheck, str]] = []

    def decide(question: AccessCheck, verb: str) -> AuthorizerDecision:
        asked.append((question, verb))
        return AuthorizerDecision(question.resource == "pods", "because")

    program = compiled(
        "authorizer.serviceAccount('ns', 'sa').group('').resource('pods').subresource('log').namespace('a').name('b')"
        ".check('get').allowed()"
        " && authorizer.path('/healthz').check('get').reason() == 'because'"
    )
    assert program.eval({"authorizer": AuthorizerValue(decide)}) is True
    (pods, verb), (path, _) = asked
    assert (pods.resource, pods.subresource, pods.namespace, pods.name, verb) == ("pods", "log", "a", "b", "get")
    assert pods.by.service_account == "system:serviceaccount:ns:sa"
    assert path.path == "/healthz"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        pytest.param("^(a+)+$", "a" * 5000 + "!", id="nested repetition"),
        pytest.param("(a|aa)+$", "a" * 5000 + "!", id="alternatives that overlap"),
        pytest.param("^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 5000, id="a pattern known to be evil"),
    ],
)
def test_no_pattern_takes_exponential_time(pattern: str, text: str) -> None:
    assert (
        compile_expression("object.matches(n)", Environment({"object": types.STRING, "n": types.STRING})).eval(
            {"object": text, "n": pattern}
        )
        is False
    )


def test_moments_compare_as_moments_however_they_are_written() -> None:
    assert Timestamp(5, 3600) == Timestamp(5)
    assert compiled("timestamp('2020-01-01T02:00:00+02:00') == timestamp('2020-01-01T00:00:00Z')").eval({}) is True


ATOMS = st.sampled_from(
    ["1", "2u", "1.5", "'a'", "b'x'", "true", "null", "n", "object", "object.a", "[]", "[1, 2]", "{}", "{'a': n}", "x", "duration('1s')"]
)
TEMPLATES = st.sampled_from(
    ["({0} + {1})", "({0} - {1})", "({0} / {1})", "({0} == {1})", "({0} < {1})", "({0} && {1})", "({0} || {1})", "({0} in {1})", "!{0}",
     "-{0}", "({0} ? {1} : {0})", "{0}[{1}]", "{0}.size()", "size({0})", "{0}.all(x, {1})", "{0}.exists(x, {1})", "{0}.map(x, {1})",
     "{0}.filter(x, {1})", "{0}.a", "has({0}.a)", "{0}.?a", "string({0})", "int({0})", "dyn({0})", "type({0})", "[{0}, {1}]",
     "{{'k': {0}}}", "{0}.matches({1})", "{0}.sum()", "{0}.join({1})", "{0}.all(i, x, {1})", "{0}.sortBy(x, {1})", "optional.of({0})",
     "{0}.orValue({1})", "'%s'.format([{0}])", "quantity({0})", "{0}.indexOf({1})", "{0}.flatten()", "sets.contains({0}, {1})"]
)  # fmt: skip
EXPRESSIONS = st.recursive(ATOMS, lambda inner: st.builds(str.format, TEMPLATES, inner, inner), max_leaves=8)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS, JSON)
def test_any_expression_is_refused_or_evaluates_to_a_value_or_an_error(text: str, value: Any) -> None:
    program = _compiled_or_refused(text)
    if program is None:
        return
    assert program.most_cost(lambda path: None) >= 0
    outcome = program.run({"object": value, "n": 3})
    assert outcome.cost >= 0
    assert outcome.error is None or isinstance(outcome.error, EvalError)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40) | st.text("()[]{}.,?:'\"\\`&|!+-*/% \nabx019", max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    _compiled_or_refused(text)


def _compiled_or_refused(text: str) -> Program | None:
    try:
        return compiled(text)
    except InstantiationError:
        return None
    except CompileError as exc:
        if not str(exc).startswith("ERROR: <input>:"):
            raise AssertionError(f"{text!r} is refused without a place: {exc}") from exc
        return None
