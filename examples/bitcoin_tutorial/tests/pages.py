"""The page of the tutorial, for the tests that follow it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.pages import ROOT
from tests.docs.tutorials import Reader, sections

PAGE = ROOT / "docs" / "tutorials" / "bitcoin.md"
SECTIONS = sections(PAGE.read_text())
STAGES = {int(title.split()[1].rstrip(":")): steps for title, steps in SECTIONS.items() if title.startswith("Stage ")}


@contextmanager
def reader_of(section: str, folder: Path) -> Iterator[Reader]:
    """Follow the section that starts a server. The server runs until the end of the context."""
    reader = Reader(folder)
    try:
        reader.follow(SECTIONS[section])
        yield reader
    finally:
        reader.close()
