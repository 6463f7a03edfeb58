"""Tables and folded lines of a given width: no word is broken, no name is cut off."""

from __future__ import annotations

import pytest

from kubeloop.meta.columns import aligned, folded


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        pytest.param("one two three", 9, ["  one two", "  three"], id="between words"),
        pytest.param("a registry.example.com/app", 12, ["  a", "  registry.example.com/app"], id="a long word has a line to itself"),
        pytest.param("well-known name", 9, ["  well-known", "  name"], id="a name is not broken at its hyphens"),
        pytest.param("one\n\n  two", 80, ["  one two"], id="whitespace counts as one space"),
        pytest.param("", 80, [], id="nothing has no line"),
    ],
)
def test_a_text_is_folded(text: str, width: int, lines: list[str]) -> None:
    assert folded(text, width, "  ") == lines


def test_columns_are_aligned_and_numbers_at_the_right() -> None:
    rows = [("web", "1", "ok"), ("backup", "120", "not synced")]
    assert aligned(("NAME", "SIZE", "STATE"), rows, right=("SIZE",)) == [
        ["NAME    SIZE  STATE"],
        ["web        1  ok"],
        ["backup   120  not synced"],
    ]


def test_a_name_that_is_too_long_has_a_line_to_itself() -> None:
    name = "certificatesigningrequests.certificates.k8s.io"
    rows = [("web", "1"), (name, "120")]
    assert aligned(("NAME", "SIZE"), rows, right=("SIZE",), width=40) == [["NAME  SIZE"], ["web      1"], [name, "       120"]]
