"""Links between the pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The fragments that a page offers: GitHub's names of its headings, and explicit ids."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return set(re.findall(r'<a id="([^"]+)"', text)) | {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    lost = []
    for target in re.findall(r"\]\(([^)\s]+)\)", _CODE.sub("", page.read_text())):
        if "://" in target:
            continue
        path, _, fragment = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (fragment and file.suffix == ".md" and fragment not in anchors(file)):
            lost.append(target)
    assert lost == []


def test_a_number_of_a_behaviour_is_a_link() -> None:
    bare = re.compile(r"(?<!\])\([A-X]\d{1,3}(?:, [A-X]\d{1,3})*\)")
    pages = [page for page in (ROOT / "docs").glob("*.md") if page.name not in ("behaviours.md", "decisions.md")]
    assert [found for page in pages for found in bare.findall(_CODE.sub("", page.read_text()))] == []
