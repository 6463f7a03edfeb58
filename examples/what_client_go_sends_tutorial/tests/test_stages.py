"""The commands of the tutorial print what its page shows."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.what_client_go_sends_tutorial.compare import table, table_of_page
from examples.what_client_go_sends_tutorial.tests.test_page import FOLDER, PAGE
from tests.docs.tutorials import Reader, sections, steady

# The first test builds the Go program.
pytestmark = [pytest.mark.embedded, pytest.mark.timeout(900)]

SECTIONS = sections(PAGE.read_text())
START = "Before you start"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's folder, with the Go program: a command of the page may take a minute, and the first build takes longer."""
    folder = tmp_path_factory.mktemp("client-go")
    command = ["go", "build", "-trimpath", "-buildvcs=false", "-o", str(folder / "informer"), "."]
    subprocess.run(command, cwd=FOLDER / "informer", env={**os.environ, "CGO_ENABLED": "0"}, check=True)
    return folder


@pytest.fixture(scope="module")
def reader(folder: Path) -> Iterator[Reader]:
    variables = subprocess.run(["go", "env", "GOCACHE", "GOMODCACHE"], capture_output=True, text=True, check=True).stdout.split()
    with pytest.MonkeyPatch.context() as patch:
        # The reader's home is the page's folder.
        for name, value in zip(("GOCACHE", "GOMODCACHE"), variables, strict=True):
            patch.setenv(name, value)
        reader = Reader(folder, "/tmp/client-go")
    try:
        reader.follow(SECTIONS[START])
        yield reader
    finally:
        reader.close()


@pytest.mark.parametrize("title", [title for title, steps in SECTIONS.items() if steps and title != START])
def test_a_section_prints_what_the_page_shows(reader: Reader, title: str) -> None:
    reader.follow(SECTIONS[title])


@pytest.mark.usefixtures("reader")
def test_the_table_of_the_page_is_made_by_a_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``python -m examples.what_client_go_sends_tutorial.compare INFORMER --write`` makes it."""
    monkeypatch.setenv("KUBECONFIG", str(folder / "kubeconfig"))
    monkeypatch.setenv("HOME", str(folder / "home"))
    assert steady(table(str(folder / "informer"))) == steady(table_of_page())
