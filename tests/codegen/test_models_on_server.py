"""Models of a live server's custom kinds: typed client, informer and lister, without a line of generated boilerplate."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import kubeloop.api
from kubeloop.cache import InformerFactory
from kubeloop.cli.generate import generate
from kubeloop.client import Client
from kubeloop.codegen.models import render
from kubeloop.codegen.sources import read_builtins
from kubeloop.meta import GroupVersionKind, ObjectMeta
from tests.kubectl.conftest import kubectl as kubectl
from tests.kubectl.conftest import kubectl_home as kubectl_home
from tests.kubectl.runner import Kubectl
from tests.servers import ServerUnderTest

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]

CORPUS = Path(__file__).with_name("corpus")
CRD = "routes.corpus-c.example.com"


@pytest.fixture
def installed(kubectl: Kubectl) -> Iterator[Kubectl]:
    kubectl("apply", "-f", str(CORPUS / "gateways.yaml"))
    kubectl("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=30s")
    kubectl.wait_published("corpus-c.example.com", "v1", "routes")
    yield kubectl
    kubectl("delete", "crd", CRD, "--wait")


@pytest.fixture
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "models_of_a_cluster"
    for name in [name for name in sys.modules if name.startswith("models_of_a_cluster")]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def builtin_models(server: ServerUnderTest) -> dict[str, str]:
    return render(asyncio.run(read_builtins(server.kubeconfig, None)))


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(generate, ["models", *arguments])
    assert result.exit_code == code, result.output
    return result.output


async def test_a_clusters_kinds_are_read_and_used(client: Client, installed: Kubectl, generated: Path) -> None:
    live = ["--kubeconfig", str(installed.kubeconfig), "--group", "corpus-c.example.com", "--out", str(generated)]
    said = await asyncio.to_thread(run, *live, "-v")
    assert f"{CRD}: v1, v1beta1" in said
    assert "corpus-c.example.com/v1, Kind=Route: com.example.corpus-c.v1.Route" in said
    assert "up to date" in await asyncio.to_thread(run, *live, "--check")

    models: Any = importlib.import_module("models_of_a_cluster.corpus_c.v1")
    package: Any = importlib.import_module("models_of_a_cluster")
    assert package.find(GroupVersionKind("corpus-c.example.com", "v1", "Route")) is models.Route

    route = models.Route(metadata=ObjectMeta(name="shop"), spec=models.RouteSpec(hostnames=["shop.example.com"]))
    made = await client.create(route)
    assert made.spec.rules[0].matches[0].path.type == "PathPrefix"
    assert (await client.get(models.Route, "shop")).spec == made.spec
    async with InformerFactory(client) as informers:
        routes = informers.for_kind(models.Route, namespace=client.namespace, indexes={"host": "spec.hostnames[*]"})
        await informers.wait_synced()
        assert [found.metadata.name for found in routes.lister.by_index("host", "shop.example.com")] == ["shop"]
        found = routes.lister.get("shop", namespace=client.namespace)
        assert isinstance(found, models.Route)
        assert found.spec == made.spec


def test_a_server_accepts_the_corpus(kubectl: Kubectl) -> None:
    said = kubectl("apply", "--server-side", "--dry-run=server", "-f", str(CORPUS))
    assert said.count("serverside-applied (server dry run)") >= 12


@pytest.mark.parametrize("module", ["core/v1.py", "apps/v1.py", "batch/v1.py", "networking/v1.py", "admissionregistration/v1.py"])
def test_built_in_models_of_a_server_equal_the_shipped_ones(module: str, builtin_models: dict[str, str]) -> None:
    assert builtin_models[module] == (Path(kubeloop.api.__file__).parent / module).read_text()
