"""The how-tos run: each page from its first block to its last, against a server of its own."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

from kubeloop.testing import LocalCluster
from tests.docs.pages import ROOT, blocks

pytestmark = pytest.mark.embedded

#: Pages that are read, not followed: they show parts of programs.
REFERENCE = {
    "architecture.md",
    "conformance.md",
    "decisions.md",
    "deviations.md",
    "informers.md",
    "observability.md",
    "performance.md",
    "security.md",
    "server.md",
}
#: Their blocks need nodes with kubelets, which the tests beside those parts have.
WITH_KUBELET = {"streams.md"}
#: Its blocks are shell commands for Go projects, which tests/envtest and tests/foreign run.
IN_SHELL = {"envtest.md"}
PAGES = sorted(page.name for page in (ROOT / "docs").glob("*.md") if page.name not in REFERENCE | WITH_KUBELET | IN_SHELL)


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_does_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / name
    found = list(blocks(page.read_text()))
    assert any(block.use == "run" for block in found), "a how-to without a block that runs"
    names: dict[str, Any] = {"__name__": "__page__"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    async with LocalCluster() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        for block in found:
            if block.use.startswith("file "):
                (tmp_path / block.use.removeprefix("file ")).write_text(block.code)
                continue
            # Lines are those of the page, so that a fault is found there.
            code = compile("\n" * (block.line - 1) + block.code, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            if block.use == "run":
                result = eval(code, names)
                if inspect.isawaitable(result):
                    await result


@pytest.mark.parametrize("name", ["kopf_operator.py", "kubeloop_operator.py"])
def test_the_operators_beside_each_other_are_those_that_are_measured(name: str) -> None:
    page = (ROOT / "docs" / "coming-from-kopf.md").read_text()
    assert f"```python\n{(ROOT / 'bench' / 'peers' / 'operators' / name).read_text()}```" in page


CASES = [
    pytest.param("```python\nx = 1\n```\n", [("x = 1\n", "run", 2)], id="a block runs"),
    pytest.param("a\n<!-- block: compiled -->\n```python\nx\n```\n", [("x\n", "compiled", 4)], id="a block is only compiled"),
    pytest.param("<!-- block: file a.py -->\n```python\nx\n```\n", [("x\n", "file a.py", 3)], id="a block is a file"),
    pytest.param(
        "<!-- setup\nx = 1\n-->\n```sh\nls\n```\n", [("x = 1\n", "run", 2)], id="what readers do not see runs, and other languages do not"
    ),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_blocks_of_a_page(text: str, expected: list[tuple[str, str, int]]) -> None:
    assert [(block.code, block.use, block.line) for block in blocks(text)] == expected


def test_another_use_is_refused() -> None:
    with pytest.raises(ValueError, match="line 3: no block is used as 'skipped'"):
        list(blocks("<!-- block: skipped -->\n```python\n```\n"))
