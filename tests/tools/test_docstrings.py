"""The check of docstrings: what it counts, and that a figure never rises."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.docstrings import figures_of, lacks, lacks_of_classes, problems
from tools.public_api import PACKAGES, classes_for_examples


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        pytest.param('def f(a, b, c):\n    """Do it."""', [], id="three parameters need no list"),
        pytest.param('def f(a, b, c, d):\n    """Do it."""', ["Args"], id="four parameters need a list"),
        pytest.param('def f(a, b, *, c, d):\n    """Do it.\n\n    Args:\n        a: One.\n    """', [], id="a list is enough"),
        pytest.param(
            'def f(a, b, c, d) -> int:\n    """Do it.\n\n    Args:\n        a: One.\n    """', ["Returns"], id="a result is described"
        ),
        pytest.param(
            'def f(a, b, c, d) -> int:\n    """Return it.\n\n    Args:\n        a: One.\n    """',
            [],
            id="a first line may state the result",
        ),
        pytest.param(
            'def f(a, b, c, d):\n    """Do it.\n\n    Args:\n        a: One.\n    """\n    raise ValueError(a)',
            ["Raises"],
            id="a raised error is described",
        ),
        pytest.param(
            'def f(a, b, c, d):\n    """Do it.\n\n    Args:\n        a: One.\n    """\n    raise', [], id="a passed on error is not"
        ),
        pytest.param(
            'def f(a, b, c, d):\n    """Do it; the implementation of ``Verbs.do``."""',
            [],
            id="an implementation leaves the list to the method",
        ),
        pytest.param("def _f(a, b, c, d): ...", [], id="a private function needs nothing"),
        pytest.param("@overload\ndef f(a, b, c, d): ...", [], id="an overload needs nothing"),
        pytest.param("@root.command()\ndef f(a, b, c, d): ...", [], id="a command needs nothing, because its docstring is its help"),
        pytest.param(
            'class C:\n    """A thing: ``C(1)``.\n\n    Args:\n        a: One.\n    """\n\n    def __init__(self, a, b, c, d): ...',
            [],
            id="a class may describe its constructor",
        ),
        pytest.param(
            'class C:\n    """A thing: ``C(1)``."""\n\n    def f(self, a, b, c, d):\n        """Do it."""',
            ["Args"],
            id="a method counts without self",
        ),
    ],
)
def test_it_finds_what_a_docstring_lacks(tmp_path: Path, source: str, kinds: list[str]) -> None:
    path = tmp_path / "package" / "module.py"
    path.parent.mkdir()
    path.write_text(source + "\n")
    assert [lack.kind for lack in lacks([path], tmp_path)] == kinds


class WithExample:
    """A thing.

    >>> WithExample()
    <WithExample>
    """


class WithoutExample:
    """A thing: ``WithoutExample()``."""


def test_it_finds_classes_without_an_example() -> None:
    assert [lack.place for lack in lacks_of_classes([WithExample, WithoutExample])] == ["tests.tools.test_docstrings WithoutExample"]


def test_errors_enums_and_protocols_need_no_example() -> None:
    names = {name for package in PACKAGES for name in classes_for_examples(package)}
    assert "Client" in names
    assert not {"ApiError", "OperationResult", "Clock"} & names


def test_a_figure_that_rises_is_a_problem_that_says_how_to_find_the_places() -> None:
    today = figures_of(lacks_of_classes([WithoutExample]))
    assert today == {"example": 1}
    assert problems(today, today) == []
    assert problems({}, today) == [
        "1 docstrings lack example, allowed 0; python -m tools.docstrings --list PACKAGE prints those of a package"
    ]
