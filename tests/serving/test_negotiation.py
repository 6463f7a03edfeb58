"""Accept and Content-Type headers, odd ones too, as Go's libraries read them."""

from __future__ import annotations

import pytest

from kubeloop.serving.negotiation import content_media_type, parse_accept


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param("a/b;q=0.3, c/d", [("c/d", 1.0), ("a/b", 0.3)], id="the most wanted comes first"),
        pytest.param("a/b, c/d", [("a/b", 1.0), ("c/d", 1.0)], id="equals stay in their order"),
        pytest.param("*/*, a/b;q=0.1", [("a/b", 0.1), ("*/*", 1.0)], id="a type comes before a wildcard that is wanted more"),
        pytest.param("a/b;q=odd", [("a/b", 0.0)], id="a quality that is no number is none"),
        pytest.param("*", [("*/*", 1.0)], id="a lone star is everything"),
        pytest.param("garbage, ,, a/b/c, a/", [], id="an invalid type is passed over"),
        pytest.param("A/B", [("A/B", 1.0)], id="the case stays"),
    ],
)
def test_clauses_of_an_accept_header(header: str, expected: list[tuple[str, float]]) -> None:
    assert [(one.media_type, one.quality) for one in parse_accept(header)] == expected


def test_parameters_are_kept_as_they_are_written() -> None:
    (clause,) = parse_accept('a/b; as=Table; v="v1"; empty=; odd=1=2')
    assert clause.parameters == (("as", "Table"), ("v", '"v1"'))
    assert clause.parameter("g") == ""


@pytest.mark.parametrize(
    ("clause", "media_type", "accepted"),
    [("a/*", "a/b", True), ("*/*", "a/b", True), ("a/b", "a/b", True), ("a/c", "a/b", False), ("b/*", "a/b", False)],
)
def test_ranges_accept_what_lies_in_them(clause: str, media_type: str, *, accepted: bool) -> None:
    (one,) = parse_accept(clause)
    assert one.accepts(media_type) is accepted


@pytest.mark.parametrize(
    ("header", "media_type"),
    [
        pytest.param("Application/JSON; charset=utf-8", "application/json", id="in lower case, without parameters"),
        pytest.param("a/b;", "a/b", id="a semicolon at the end is no fault"),
        pytest.param("a/b; q", None, id="a parameter without a value is one"),
        pytest.param("; x", None, id="parameters without a type are one"),
        pytest.param("a/b,c/d", None, id="two types are one"),
        pytest.param("a/b/c", None, id="so are three parts"),
        pytest.param("word", "word", id="a word is a type, if an unknown one"),
    ],
)
def test_a_content_type_is(header: str, media_type: str | None) -> None:
    assert content_media_type(header) == media_type


def test_a_header_of_a_million_clauses_is_not_read_to_its_end() -> None:
    clauses = [f"a/b;q=0.{number:06}" for number in range(50_000)]
    found = parse_accept(",".join(clauses))
    assert 100 < len(found) < 200
    assert parse_accept(",".join(clauses[:100]) + ",x/y")[0].media_type == "x/y"
