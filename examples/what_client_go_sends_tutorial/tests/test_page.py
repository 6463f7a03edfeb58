"""The page of the tutorial has the files of the tutorial, and its links lead somewhere."""

from __future__ import annotations

from tests.docs.pages import ROOT
from tests.docs.test_links import test_every_link_of_a_page_leads_to_a_file_and_a_heading as check_links
from tests.docs.tutorials import sections, with_sources

PAGE = ROOT / "docs" / "tutorials" / "what-client-go-sends.md"
FOLDER = ROOT / "examples" / "what_client_go_sends_tutorial"


def test_the_sources_of_the_page_are_the_files() -> None:
    """``python -m tests.docs.tutorials`` copies them."""
    assert with_sources(PAGE.read_text(), FOLDER) == PAGE.read_text()


def test_the_page_shows_each_file_once() -> None:
    shown = [step.use for steps in sections(PAGE.read_text()).values() for step in steps if step.use.startswith("source ")]
    files = [path for path in FOLDER.rglob("*") if path.suffix in (".py", ".go") and path.name not in ("__init__.py", "compare.py")]
    assert sorted(shown) == sorted(f"source {path.relative_to(FOLDER)}" for path in files if path.parent.name != "tests")


def test_the_links_of_the_page_lead_somewhere() -> None:
    check_links(PAGE)
