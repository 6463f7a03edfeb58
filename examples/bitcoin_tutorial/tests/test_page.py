"""The page of the tutorial has the files of the tutorial, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from examples.bitcoin_tutorial.tests.pages import PAGE, SECTIONS
from tests.docs.pages import ROOT
from tests.docs.test_links import test_every_link_of_a_page_leads_to_a_file_and_a_heading as check_links
from tests.docs.tutorials import Reader, TutorialFailed, pattern_of, sections, steady, with_sources

FOLDER = ROOT / "examples" / "bitcoin_tutorial"
FILES = sorted(
    str(path.relative_to(FOLDER))
    for path in FOLDER.rglob("*")
    if path.suffix in (".py", ".yaml") and path.name != "__init__.py" and path.parent.name != "tests"
)


def test_the_sources_of_the_page_are_the_files() -> None:
    """``python -m tests.docs.tutorials`` copies them."""
    assert with_sources(PAGE.read_text(), FOLDER) == PAGE.read_text()


def test_the_page_shows_each_file_once() -> None:
    shown = [step.use.removeprefix("source ") for steps in SECTIONS.values() for step in steps if step.use.startswith("source ")]
    assert sorted(shown) == FILES


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_small(name: str) -> None:
    assert len((FOLDER / name).read_text().splitlines()) <= 150


def test_the_links_of_the_page_lead_somewhere() -> None:
    check_links(PAGE)


def test_each_file_of_the_repository_that_the_page_names_exists() -> None:
    named = set(re.findall(r"examples/bitcoin_[\w/.-]+\w", PAGE.read_text()))
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


OUTPUTS = [
    pytest.param("my-network   3   12s", "my-network 3 4m5s", True, id="ages and columns are not compared"),
    pytest.param("I1124 20:18:44 a] b", "I1231 00:00:00 a] b", True, id="times are not compared"),
    pytest.param("daemon 127.0.0.1 lists 2", "daemon 10.0.0.1 lists 3", False, id="numbers are compared"),
    pytest.param(
        "  0.107   #1 → LIST rv 16  11 ms  ↓ 4.8 kB", "2.100   #1 → LIST rv 7  3 s  ↓ 9 B", True, id="figures of the tap are not compared"
    ),
    pytest.param("a ... c", "a b c", True, id="three points stand for any text"),
    pytest.param("a", "a b", False, id="further text is compared"),
]


@pytest.mark.parametrize(("shown", "printed", "same"), OUTPUTS)
def test_an_output_is_compared_with_the_page(shown: str, printed: str, same: bool) -> None:
    assert bool(pattern_of(shown).fullmatch(steady(printed))) is same


def test_a_command_that_prints_something_else_fails(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    with pytest.raises(TutorialFailed, match=r"block in line 3: \$ echo b"):
        reader.follow(sections("## A\n```console\n$ echo a\na\n$ echo b\nc\n```\n")["A"])


def test_a_program_that_prints_a_traceback_fails(tmp_path: Path) -> None:
    page = "## A\n<!-- block: program -->\n```console\n$ printf 'ready\\nTraceback\\n'\nready\n```\n"
    with pytest.raises(TutorialFailed, match="Traceback"):
        Reader(tmp_path).follow(sections(page)["A"])


def test_another_use_of_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="line 4: no block is used as 'skipped'"):
        sections("## A\n<!-- block: skipped -->\n```console\n$ ls\n```\n")
