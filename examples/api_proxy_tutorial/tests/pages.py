"""The page of the tutorial, for the tests that follow it."""

from __future__ import annotations

from tests.docs.pages import ROOT
from tests.docs.tutorials import sections

PAGE = ROOT / "docs" / "tutorials" / "api-proxy.md"
PAGE_FOLDER = "/tmp/api-proxy"
FOLDER = ROOT / "examples" / "api_proxy_tutorial"
SECTIONS = sections(PAGE.read_text())
STAGES = {int(title.split()[1].rstrip(":")): steps for title, steps in SECTIONS.items() if title.startswith("Stage ")}
