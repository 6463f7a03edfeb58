"""Generated code is code: strict type checkers, linters and formatters find nothing in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubeloop.codec.yaml import read_yaml
from kubeloop.codegen.typed import ModelSource, render_package, source_of_crd
from kubeloop.codegen.write import write_modules

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

USE = '''"""What users write against generated models, as a type checker sees it."""

from typing import Literal, assert_type

from generated.corpus_c.v1 import Route, RouteSpec, RouteSpecRule

from kubeloop import Client, InformerFactory
from kubeloop.meta import LabelSelector, ObjectMeta
from generated.corpus_b.v1 import Collector
from generated.corpus_f.v1 import Model, ModelSpec, ModelSpecStorage


async def use(client: Client, informers: InformerFactory) -> None:
    route = await client.get(Route, "a", namespace="shop")
    assert_type(route, Route)
    assert_type(route.spec.rules, list[RouteSpecRule])
    assert_type(route.spec.rules[0].matches[0].headers[0].type, Literal["Exact", "RegularExpression"])
    async for one in client.list(Route, label_selector="a=b"):
        assert_type(one, Route)
    informer = informers.for_kind(Route, indexes={"host": "spec.hostnames[*]"})
    assert_type(informer.lister.get("a", namespace="shop"), Route | None)
    await client.create(Route(metadata=ObjectMeta(name="a"), spec=RouteSpec(hostnames=["a.example.com"])))
    storage = ModelSpecStorage(size="1Gi")
    Model(spec=ModelSpec(primary=True, nothing=None, names=[], labels={}, storage=storage))
    ModelSpec(primary=True)  # type: ignore[call-arg]
    assert_type((await client.get(Collector, "a")).spec.pod_monitor_selector, LabelSelector | None)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = ModelSource()
    for file in sorted((HERE / "corpus").glob("*.yaml")):
        for crd in read_yaml(file.read_text()):
            source.add(source_of_crd(crd, file.name))
    found = tmp_path_factory.mktemp("quality")
    write_modules(render_package(source), found / "generated")
    (found / "use.py").write_text(USE)
    return found


def run(*command: str, folder: Path) -> str:
    environment = {"PATH": os.environ.get("PATH", ""), "MYPYPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_ruff_finds_nothing_to_change(folder: Path) -> None:
    run("ruff", "check", "--no-cache", "--config", str(ROOT / "pyproject.toml"), "generated", folder=folder)
    run("ruff", "format", "--no-cache", "--isolated", "--line-length", "120", "--check", "generated", folder=folder)


@pytest.mark.timeout(180)
def test_mypy_strict_finds_nothing_and_knows_every_type(folder: Path) -> None:
    run("mypy", "--strict", "--cache-dir", str(folder / "cache"), "-p", "generated", "-m", "use", folder=folder)
