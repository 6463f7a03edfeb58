"""The commands of docs/proxy.md do what the page shows."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from kubeloop.cli.proxy import proxy
from kubeloop.proxy.rules import RuleSet, rule_schema
from kubeloop.proxy.rules.schema import ACTIONS
from tests.docs.pages import ROOT
from tests.docs.tutorials import Reader, sections

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(120)]

PAGE = (ROOT / "docs" / "proxy.md").read_text()
SECTIONS = sections(PAGE)
START = "Five minutes"
WITH_COMMANDS = [title for title, steps in SECTIONS.items() if steps and title != START]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    reader = Reader(tmp_path_factory.mktemp("proxy"), "/tmp/proxy")
    try:
        reader.follow(SECTIONS[START])
        yield reader
    finally:
        reader.close()


@pytest.mark.parametrize("title", WITH_COMMANDS)
def test_the_commands_of_a_section_print_what_the_page_shows(reader: Reader, title: str) -> None:
    """The fixture follows the section "Five minutes"."""
    reader.follow(SECTIONS[title])


def test_the_rules_of_the_page_are_valid() -> None:
    documents = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    rules = [text for text in documents if "kind: RewriteRule" in text and "name: broken" not in text]
    assert [len(RuleSet.parse(text).rules) for text in rules] == [2, 1]


def test_the_page_has_every_field_of_rules() -> None:
    spec = rule_schema()["properties"]["spec"]["properties"]
    fields = [*spec, *spec["match"]["items"]["properties"], *ACTIONS]
    assert [name for name in fields if not re.search(rf"\b{name}\b", PAGE)] == []


def test_the_page_has_every_flag() -> None:
    flags = {flag for option in proxy.params if isinstance(option, click.Option) and not option.hidden for flag in option.opts}
    table = PAGE.partition("## Flags")[2].partition("\n## ")[0]
    assert {flag for flag in flags if not re.search(rf"`{flag}\b", table)} == set()
