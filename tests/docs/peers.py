"""Runs the programs of docs/coming-from.md, each in the environment that the benchmark makes for its library.

``python -m tests.docs.peers``. Not a part of the tests: those must not need the other libraries. Run it when the page or the version of
a library changes.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

from bench import prepare
from kubeloop.testing import LocalCluster
from tests.docs.pages import ROOT, blocks

_PYTHONS = {
    "The official client": ("official", prepare.OFFICIAL),
    "kubernetes_asyncio": ("kubernetes_asyncio", prepare.KUBERNETES_ASYNCIO),
    "lightkube": ("lightkube", prepare.LIGHTKUBE),
    "kr8s": ("kr8s", prepare.KR8S),
}
# Top-level await, as in a notebook.
_RUN = """
import ast, asyncio, inspect, sys
async def main():
    found = eval(compile(sys.stdin.read(), "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), {"__name__": "__page__"})
    if inspect.isawaitable(found):
        await found
asyncio.run(main())
"""


def _run(python: Path, code: str, kubeconfig: Path) -> int:
    environment = os.environ | {"KUBECONFIG": str(kubeconfig)}
    return subprocess.run([str(python), "-c", _RUN], input=code, text=True, env=environment, check=False, timeout=180).returncode


async def main() -> int:
    page = (ROOT / "docs" / "coming-from.md").read_text()
    setup = next(blocks(page)).code
    failed = 0
    for title, (needs, python) in _PYTHONS.items():
        if needs in prepare.peers([needs]):
            return 2
        found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
        if found is None:
            raise SystemExit(f"the page has no section {title!r}")
        async with LocalCluster() as cluster:
            assert cluster.kubeconfig is not None
            await asyncio.to_thread(_run, Path(sys.executable), setup, cluster.kubeconfig)
            code = await asyncio.to_thread(_run, python, "".join(block.code for block in blocks(found[1])), cluster.kubeconfig)
        print(f"{title}: {'done' if code == 0 else f'failed with status {code}'}", flush=True)
        failed += code != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
