"""The page of the tutorial has the files of the tutorial, and its links lead somewhere."""

from __future__ import annotations

import re

import pytest

from examples.api_proxy_tutorial.tests.pages import FOLDER, PAGE, SECTIONS
from tests.docs.pages import ROOT
from tests.docs.test_links import test_every_link_of_a_page_leads_to_a_file_and_a_heading as check_links
from tests.docs.tutorials import with_sources

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
    assert len((FOLDER / name).read_text().splitlines()) <= 100


def test_the_links_of_the_page_lead_somewhere() -> None:
    check_links(PAGE)


def test_each_file_of_the_repository_that_the_page_names_exists() -> None:
    named = set(re.findall(r"examples/api_proxy[\w/.-]+\w", PAGE.read_text()))
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
