"""Three texts become one, or none if both sides changed the same lines."""

from __future__ import annotations

import pytest

from kubeloop.cli.new.changes import merge_text

BASE = "a\nb\nc\nd\n"


@pytest.mark.parametrize(
    ("mine", "theirs", "merged"),
    [
        pytest.param(BASE, "a\nb\nc\nd\ne\n", "a\nb\nc\nd\ne\n", id="an unchanged file becomes the new one"),
        pytest.param("A\nb\nc\nd\n", "a\nb\nc\nd\ne\n", "A\nb\nc\nd\ne\n", id="changes of different lines are joined"),
        pytest.param("a\nb\nc\nD\n", "0\na\nb\nc\nd\n", "0\na\nb\nc\nD\n", id="also where theirs comes first"),
        pytest.param("a\nb\nx\nc\nd\n", "a\nb\ny\nc\nd\n", "a\nb\nx\ny\nc\nd\n", id="insertions at one place are both taken"),
        pytest.param("a\nb\ny\nc\nd\n", "a\nb\ny\nc\nd\n", "a\nb\ny\nc\nd\n", id="an insertion that both made is made once"),
        pytest.param(
            "a\nb\nx\ny\nc\nd\n", "a\nb\ny\nc\nd\n", "a\nb\nx\ny\nc\nd\n", id="theirs' insertion is not repeated where mine has it"
        ),
        pytest.param("a\nc\nd\n", "a\nb\nc\nd\ne\n", "a\nc\nd\ne\n", id="a line that mine removed stays away"),
        pytest.param("a\nX\nc\nd\n", "a\nY\nc\nd\n", None, id="different changes of one line are a conflict"),
        pytest.param("a\nX\nc\nd\n", "a\nc\nd\n", None, id="a change of a line that theirs removes is a conflict"),
        pytest.param("a\nX\nc\nd\n", "a\nb\ny\nc\nd\n", None, id="an insertion beside a changed line is a conflict"),
    ],
)
def test_merge(mine: str, theirs: str, merged: str | None) -> None:
    assert merge_text(BASE, mine, theirs) == merged
