"""Every cited behaviour exists in docs/behaviours.md, and every behaviour there has a test or a deviation."""

from __future__ import annotations

import functools
import io
import re
import tokenize
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

CATALOGUE = ROOT / "docs" / "behaviours.md"
DEVIATIONS = ROOT / "docs" / "deviations.md"
#: Pages that state rules; the pages of the catalogue itself are no citations.
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if page != CATALOGUE)]
CODE = [*sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "tests").rglob("*.py"))]
NUMBERS = frozenset(found.upper() for found in re.findall(r'<a id="([a-z]\d+)"', CATALOGUE.read_text()))
LETTERS = frozenset(number[0] for number in NUMBERS)

_NUMBER = r"[A-Z][1-9]\d{0,2}"
_SEPARATOR = r"(?:\s*(?:,|;|-|and|to|/)\s*)"
_LIST = rf"{_NUMBER}(?:{_SEPARATOR}{_NUMBER})*"
_NAMES_V = re.compile(r"V\d+")  # Versions of protocols and APIs.
#: How code cites: "behaviour A1", "[A1, A2]", "(A1)", a docstring that begins with "A1", and a test's id "A1: ...".
_TEXT_FORMS = re.compile(rf"[Bb]ehaviours?:?\s+({_LIST})|\[({_LIST})\]|\(({_LIST})\)|(?:\A|\"\"\")({_LIST})(?=[.:\"]|\Z)|\"({_LIST}):")
_NAME_FORM = re.compile(r"_([a-zA-Z]\d{1,3})(?=_|\Z)")
#: How pages cite: as a link, or after the word.
_PAGE_FORMS = re.compile(rf"\[({_NUMBER})\]\(behaviours\.md|[Bb]ehaviours?\s+({_LIST})|\(({_LIST})\)")
_RANGE = re.compile(rf"({_NUMBER})\s*(?:-|to)\s*({_NUMBER})")


#: A module without such a text cites nothing; tokenizing all of them takes half a minute.
_MAY_CITE = re.compile(r"[Bb]ehaviour|[\[(\"][A-Z]\d|def test\w*_[a-zA-Z]\d")


@functools.cache
def citations(path: Path) -> tuple[set[str], set[str]]:
    """What a module of the tree cites."""
    return cited_in_code(path.read_text())


def cited_in_code(source: str) -> tuple[set[str], set[str]]:
    """The numbers that a module cites in comments, texts and names of tests: all, and all but those inside a range."""
    every, single = set[str](), set[str]()
    if not _MAY_CITE.search(source):
        return every, single
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            for match in _TEXT_FORMS.finditer(token.string.lstrip("#").strip() if token.type == tokenize.COMMENT else token.string):
                text = next(group for group in match.groups() if group)
                every |= set(re.findall(_NUMBER, text))
                single |= set(re.findall(_NUMBER, _RANGE.sub("", text)))
        elif token.type == tokenize.NAME and token.string.startswith("test_"):
            named = {found.upper() for found in _NAME_FORM.findall(token.string) if found[0].upper() in LETTERS}
            every |= named
            single |= named
    return _without_versions(every), _without_versions(single)


def cited_in_page(text: str) -> set[str]:
    """The numbers that a page cites outside of its code."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    return _without_versions({number for groups in _PAGE_FORMS.findall(text) for found in groups for number in re.findall(_NUMBER, found)})


def _without_versions(numbers: Iterable[str]) -> set[str]:
    return {number for number in numbers if not _NAMES_V.fullmatch(number)}


def test_the_catalogue_names_each_number_once_and_without_gaps() -> None:
    text = CATALOGUE.read_text()
    lines = re.findall(r'^- <a id="([a-z]\d+)"></a>\*\*([A-Z]\d+)\*\* ', text, re.MULTILINE)
    assert [anchor.upper() for anchor, _ in lines] == [number for _, number in lines]
    assert len(lines) == len(NUMBERS) == text.count("<a id=")
    ordinary = [int(number[1:]) for _, number in lines if number[0] != "X"]
    extra = [int(number[1:]) for _, number in lines if number[0] == "X"]
    assert (ordinary, extra) == (list(range(1, 241)), list(range(1, 13)))


def test_every_number_that_code_or_a_page_cites_is_in_the_catalogue() -> None:
    found = [(path, number) for path in CODE if path != Path(__file__) for number in citations(path)[0]]
    found += [(path, number) for path in PAGES for number in cited_in_page(path.read_text())]
    assert len({number for _, number in found}) > 200, "the check reads the tree"
    assert [f"{path.relative_to(ROOT)}: {number}" for path, number in found if number not in NUMBERS] == []


def test_every_number_of_the_catalogue_has_a_test_or_a_deviation() -> None:
    tests = [path for path in CODE if path.is_relative_to(ROOT / "tests") and path.name.startswith("test_") and path != Path(__file__)]
    covered = set[str]().union(*(citations(path)[1] for path in tests), cited_in_page(DEVIATIONS.read_text()))
    assert sorted(NUMBERS - covered, key=lambda number: (number[0], int(number[1:]))) == []


@pytest.mark.parametrize(
    ("source", "every", "single"),
    [
        pytest.param('"""Rules (behaviours A1, R205)."""', {"A1", "R205"}, {"A1", "R205"}, id="a list in a docstring"),
        pytest.param('"""Rules (behaviours A1-A3, B20)."""', {"A1", "A3", "B20"}, {"B20"}, id="a range tests none of its numbers"),
        pytest.param("# Behaviour Y9: no such letter\n", {"Y9"}, {"Y9"}, id="a comment, also of a number that does not exist"),
        pytest.param('x = f(id="it is so [A1, A2]")', {"A1", "A2"}, {"A1", "A2"}, id="brackets in a test's id"),
        pytest.param('x = f(id="A1: it is so")', {"A1"}, {"A1"}, id="in front of a test's id"),
        pytest.param('"""H116, X11"""', {"H116", "X11"}, {"H116", "X11"}, id="alone in a docstring"),
        pytest.param("def test_r208_it_ends() -> None: ...", {"R208"}, {"R208"}, id="within a test's name"),
        pytest.param("def test_it_ends_K154() -> None: ...", {"K154"}, {"K154"}, id="at the end of a test's name"),
        pytest.param("x = [V5, A1]", set(), set(), id="names of code are no citations"),
        pytest.param('x = {"nodeName": "N1"}', set(), set(), id="a value"),
        pytest.param('agent = "Mozilla/5.0 (X11; Linux)"', set(), set(), id="a text that only looks like it"),
    ],
)
def test_what_counts_as_a_citation_in_code(source: str, every: set[str], single: set[str]) -> None:
    assert cited_in_code(source) == (every, single)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        pytest.param("It holds ([A1](behaviours.md#a1)).", {"A1"}, id="a link"),
        pytest.param("Behaviours H100-H119 and R212 are tests.", {"H100", "H119", "R212"}, id="a range"),
        pytest.param("(T233)", {"T233"}, id="parentheses"),
        pytest.param("`lister[A1]` and SHA1, row 59", set(), id="code and other words"),
    ],
)
def test_what_counts_as_a_citation_in_a_page(text: str, numbers: set[str]) -> None:
    assert cited_in_page(text) == numbers
