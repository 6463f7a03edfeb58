"""The README's five minutes end with a controller that reacts."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.quick_start import draw, follow

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(180)]


def test_the_quick_start_prints_what_the_readme_shows(tmp_path: Path) -> None:
    first, second = follow(Path(sys.executable).parent)
    draw(first, second, tmp_path / "picture.svg")
    assert "Hello, you!" in (tmp_path / "picture.svg").read_text().replace("&#160;", " ")


def test_the_picture_of_the_readme_loads_nothing() -> None:
    assert re.findall(r"url\((?!#)[^)]*|href|src=|@import", (ROOT / "docs/plots/quick-start.svg").read_text()) == []
