"""The page for users of ingress-nginx names the annotations and keys that the parsers know, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from examples.ingress_nginx.annotations.parse import UNSUPPORTED, supported_annotations
from examples.ingress_nginx.annotations.settings import supported_keys

PAGE = (Path(__file__).parents[3] / "docs" / "coming-from-ingress-nginx.md").read_text()


def names(heading: str) -> set[str]:
    """Return the names in the first column of the table below a heading."""
    section = PAGE.split(f"\n{heading}\n", 1)[1]
    section = re.split(r"\n##", section, maxsplit=1)[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_page_names_all_supported_annotations_and_no_others() -> None:
    assert names("## Annotations") == supported_annotations()


def test_the_page_names_all_unsupported_annotations_that_have_an_advice() -> None:
    assert {name.rstrip("*") for name in names("### Not supported")} == set(UNSUPPORTED)


def test_the_page_names_all_keys_of_the_config_map() -> None:
    assert names("## Settings") == supported_keys()
