"""The tables of docs/server.md hold every flag of ``kubeloop server``, each with an example that the command line takes."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from kubeloop.cli.server import server
from tests.docs.pages import ROOT

_ROW = re.compile(r"^\| ((?:`-[^`]*`(?:, )?)+) \| (.+) \| `kubeloop server ([^`]*)` \|$", re.MULTILINE)
_PAGE = (ROOT / "docs" / "server.md").read_text()
_ROWS = [(re.findall(r"`(--?[a-z-]+)", flags), example) for flags, _, example in _ROW.findall(_PAGE)]


def _flags() -> set[str]:
    options = [one for one in server.params if isinstance(one, click.Option) and not one.hidden]
    return {flag for one in options for flag in one.opts}


def test_every_flag_is_in_a_table_and_every_row_is_of_a_flag() -> None:
    assert {flag for flags, _ in _ROWS for flag in flags} == _flags()


@pytest.mark.parametrize(("flags", "example"), [pytest.param(flags, example, id=" ".join(flags)) for flags, example in _ROWS])
def test_an_example_is_of_its_flag_and_is_a_command_line(flags: list[str], example: str) -> None:
    words = shlex.split(example)
    assert [flag for flag in flags if any(word == flag or word.startswith(f"{flag}=") for word in words)]
    context = server.make_context("server", words, resilient_parsing=False)
    context.close()


def test_links_within_the_page_lead_somewhere() -> None:
    titles = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.+)$", _PAGE, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", _PAGE)) <= titles
