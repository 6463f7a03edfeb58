"""The README's snippets run, and what it names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from kubeloop.api.core.v1 import Container, Namespace, Pod, PodSpec
from kubeloop.client import Client
from kubeloop.meta import ObjectMeta
from kubeloop.testing import LocalCluster

pytestmark = pytest.mark.embedded

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PROGRAM, READING, WATCHING, TESTING = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


async def run(snippet: str, names: dict[str, Any]) -> dict[str, Any]:
    """As it stands, with ``await`` outside of functions; the names that it leaves behind."""
    code = compile(snippet, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await eval(code, names)
    return names


@pytest.fixture
async def shop(local_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(local_cluster.kubeconfig))
    async with Client.from_config() as client:
        await client.create(Namespace(metadata=ObjectMeta(name="shop")))
        spec = PodSpec(node_name="node-7", containers=[Container(name="web", image="nginx")])
        await client.create(Pod(metadata=ObjectMeta(name="web-0", namespace="shop", labels={"app": "web"}), spec=spec))


async def test_reading_and_watching_work_as_printed(shop: None, capsys: pytest.CaptureFixture[str]) -> None:
    await run(READING, {})
    assert capsys.readouterr().out.splitlines() == ["web-0 Pending", "ADDED web-0"]
    async with Client.from_config() as client:
        assert (await client.get(Pod, "web-0", namespace="shop")).metadata.labels == {"app": "web", "seen": "yes"}

    left = await run(WATCHING, {})
    assert capsys.readouterr().out.splitlines() == ["added shop/web-0"]
    assert [pod.metadata.name for pod in left["on_node"]] == ["web-0"]


async def test_the_test_that_it_shows_passes() -> None:
    names: dict[str, Any] = {}
    exec(compile(TESTING, "README.md", "exec"), names)
    await names["test_a_fresh_cluster_has_its_namespaces"]()


def test_the_controller_that_it_shows_is_the_example() -> None:
    """This part has its own test."""
    assert (ROOT / "examples" / "greeting" / "greeting.py").read_text() == PROGRAM


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^)]+)\)", README))))
def test_what_it_points_at_is_there(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\bmake ([a-z-]+)", README))))
def test_what_it_says_to_make_is_a_target(target: str) -> None:
    assert re.search(rf"^{target}:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
