"""The how-tos run: each page from its first block to its last, against its own server."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kubeloop.testing import LocalCluster
from tests.docs.pages import ROOT, Block, blocks, compile_block, unexplained_names

pytestmark = pytest.mark.embedded

#: Pages without Python blocks.
WITHOUT_BLOCKS = sorted(
    page.name for page in (ROOT / "docs").glob("*.md") if not any(block.use != "kubelet" for block in blocks(page.read_text()))
)
PAGES = sorted(page.name for page in (ROOT / "docs").glob("*.md") if page.name not in WITHOUT_BLOCKS)


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_does_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / name
    found = list(blocks(page.read_text()))
    assert any(block.use != "compiled" for block in found), "a page without a block that runs"
    names: dict[str, Any] = {"__name__": "__page__"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    async with LocalCluster() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        for block in found:
            code = compile_block(block, str(page))
            if block.use.startswith("file "):
                (tmp_path / block.use.removeprefix("file ")).write_text(block.code)
            elif block.use == "run":
                result = eval(code, names)
                if inspect.isawaitable(result):
                    await result
    if any(tmp_path.glob("test_*.py")):
        await asyncio.to_thread(_run_pytest, tmp_path)


async def test_the_examples_of_the_readme_run(monkeypatch: pytest.MonkeyPatch) -> None:
    section = (ROOT / "README.md").read_text().partition("## Reading and writing")[2].partition("## Working on")[0]
    (commands,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    names: dict[str, Any] = {"__name__": "__page__"}
    async with LocalCluster() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        kubectl = [command for command in commands.splitlines() if command.startswith("kubectl ")]
        await asyncio.to_thread(subprocess.run, ["bash", "-e", "-c", "\n".join(kubectl)], check=True, timeout=60)
        for block in blocks(section):
            result = eval(compile_block(block, "README.md"), names)
            if inspect.isawaitable(result):
                await result
    await names["test_a_fresh_cluster_has_its_namespaces"]()


def _run_pytest(folder: Path) -> None:
    """Run the tests that a page shows, in a separate process."""
    command = [sys.executable, "-m", "pytest", "-q", "--asyncio-mode=auto", "-p", "no:cacheprovider", "--rootdir", str(folder), "."]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "KUBECONFIG"))}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("name", [*PAGES, "streams.md", "../README.md"])
def test_a_reader_finds_where_each_name_of_a_block_comes_from(name: str) -> None:
    assert unexplained_names(blocks((ROOT / "docs" / name).read_text())) == []


@pytest.mark.parametrize("name", [*PAGES, "streams.md"])
def test_a_page_says_how_to_run_its_blocks_before_the_first_one(name: str) -> None:
    before = (ROOT / "docs" / name).read_text().partition("```python")[0]
    assert re.search(r"run\s+(them|as\s+(printed|they\s+are))", before)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_code_that_readers_do_not_see(name: str) -> None:
    assert "<!-- setup" not in (ROOT / "docs" / name).read_text()


@pytest.mark.parametrize("name", ["kopf_operator.py", "kubeloop_operator.py"])
def test_the_operators_beside_each_other_are_the_measured_ones(name: str) -> None:
    page = (ROOT / "docs" / "coming-from-kopf.md").read_text()
    measured = (ROOT / "bench" / "peers" / "operators" / name).read_text()
    # The benchmark's group is that of Kubernetes' sample controller, which is protected: a definition in it needs an annotation.
    assert f"```python\n{measured.replace('samplecontroller.k8s.io', 'example.com')}```" in page


CASES = [
    pytest.param("```python\nx = 1\n```\n", [("x = 1\n", "run", 2)], id="a block runs"),
    pytest.param("a\n<!-- block: compiled -->\n```python\nx\n```\n", [("x\n", "compiled", 4)], id="a block is only compiled"),
    pytest.param("<!-- block: file a.py -->\n```python\nx\n```\n", [("x\n", "file a.py", 3)], id="a block is a file"),
    pytest.param("```python kubelet\nx\n```\n", [("x\n", "kubelet", 2)], id="a block needs a node"),
    pytest.param("<!--\nx = 1\n-->\n```sh\nls\n```\n", [], id="comments and other languages are no blocks"),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_blocks_of_a_page(text: str, expected: list[tuple[str, str, int]]) -> None:
    assert [(block.code, block.use, block.line) for block in blocks(text)] == expected


def test_another_use_is_refused() -> None:
    with pytest.raises(ValueError, match="line 3: no block is used as 'skipped'"):
        list(blocks("<!-- block: skipped -->\n```python\n```\n"))


NAMES = [
    pytest.param([("import os\nos.getcwd()\n", "run")], [], id="an import explains a name"),
    pytest.param([("x = 1\n", "run"), ("print(x)\n", "run")], [], id="a variable of an earlier block explains a name"),
    pytest.param([("class A: ...\n", "run"), ("A()\n", "run")], [], id="a class of an earlier block explains a name"),
    pytest.param([("import os\n", "run"), ("os.getcwd()\n", "run")], ["line 2: os"], id="an import of an earlier block does not"),
    pytest.param([("print(x)\n", "run"), ("x = 1\n", "run")], ["line 1: x"], id="a later block does not"),
    pytest.param([("async def f():\n    await g(h=1)\n", "run")], ["line 1: g"], id="names in functions count"),
    pytest.param(
        [("class A:\n    x = 1\n    def f(self):\n        return x\n", "run")], ["line 1: x"], id="a method does not see its class"
    ),
    pytest.param([("[y async for y in z]\nawait z\n", "run")], ["line 1: z"], id="loop variables are explained, and await is allowed"),
    pytest.param([("x = 1\n", "file a.py"), ("print(x)\n", "run")], ["line 2: x"], id="a file shares nothing with later blocks"),
    pytest.param([("x = 1\n", "run"), ("print(x)\n", "file a.py")], ["line 2: x"], id="earlier blocks share nothing with a file"),
    pytest.param([("print(x)\n", "compiled")], ["line 1: x"], id="blocks that are only compiled count"),
]


@pytest.mark.parametrize(("page", "expected"), NAMES)
def test_names_that_no_reader_can_find(page: list[tuple[str, str]], expected: list[str]) -> None:
    assert unexplained_names(Block(code, use, line) for line, (code, use) in enumerate(page, 1)) == expected
