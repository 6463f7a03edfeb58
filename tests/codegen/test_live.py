"""A live cluster that does not say everything: custom kinds come from OpenAPI v3 where definitions may not be listed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from kubeloop.client import Client
from kubeloop.codec.yaml import read_yaml
from kubeloop.codegen.sources import read_builtins, read_cluster
from kubeloop.codegen.typed import render_package
from kubeloop.endpoints import api_errors
from kubeloop.meta import Forbidden, GroupVersionKind, Unstructured
from kubeloop.testing import TlsTestServer
from tests.faults import FaultServer, Received, Reply

pytestmark = pytest.mark.embedded

CORPUS = Path(__file__).with_name("corpus")
ROUTE = GroupVersionKind("corpus-c.example.com", "v1", "Route")


@pytest.fixture
async def kubeconfig(in_loop_server: TlsTestServer, tmp_path: Path) -> Path:
    """Of a server that holds a custom kind, published."""
    path = tmp_path / "kubeconfig"
    path.write_bytes(in_loop_server.kubeconfig)
    (crd,) = read_yaml((CORPUS / "gateways.yaml").read_text())
    async with Client.from_config(path) as client:
        await client.create(Unstructured.from_dict(crd))
        async with asyncio.timeout(30):
            while b"corpus-c.example.com/v1beta1" not in (await client.transport.request("GET", "/openapi/v3")).body:
                await asyncio.sleep(0.02)
    return path


async def test_definitions_are_taken_from_openapi_where_they_may_not_be_listed(in_loop_server: TlsTestServer, kubeconfig: Path) -> None:
    messages: list[str] = []
    in_loop_server.faults.refuse(api_errors.forbidden_path("no"), matching=lambda request: "customresourcedefinitions" in request.path)
    source = await read_cluster(kubeconfig, None, messages.append)
    assert any("cannot be listed" in line for line in messages)
    assert source.resources[ROUTE].namespaced
    assert source.resources[ROUTE].gvr.resource == "routes"
    assert source.strict >= {"com.example.corpus-c.v1.Route", "com.example.corpus-c.v1.RouteSpecRule"}
    files = render_package(source)
    assert 'declare.Default([{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}]}])' in files["corpus_c/v1.py"]
    assert "class Route(Resource):" in files["corpus_c/v1.py"]


async def test_a_cluster_without_custom_kinds_gives_nothing(in_loop_server: TlsTestServer, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_bytes(in_loop_server.kubeconfig)
    assert (await read_cluster(tmp_path / "kubeconfig", None)).names_to_generate() == []


async def test_a_refusal_of_discovery_is_the_servers_own_error(in_loop_server: TlsTestServer, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_bytes(in_loop_server.kubeconfig)
    in_loop_server.faults.refuse(api_errors.forbidden_path("no"), times=9, matching=lambda request: request.path.startswith("/openapi"))
    with pytest.raises(Forbidden):
        await read_cluster(tmp_path / "kubeconfig", None)


async def test_definitions_that_go_while_they_are_read_are_left_out(in_loop_server: TlsTestServer, kubeconfig: Path) -> None:
    messages: list[str] = []
    in_loop_server.faults.refuse(api_errors.no_such_resource(), matching=lambda request: request.path.endswith("corpus-c.example.com/v1"))
    await read_builtins(kubeconfig, None, messages.append)
    assert any("corpus-c.example.com/v1: left out" in line for line in messages)


async def test_an_empty_document_is_that_of_definitions_that_go(tmp_path: Path) -> None:
    def answer(received: Received) -> Reply:
        if received.path == "/openapi/v3":
            return Reply(body={"paths": {"apis/things.example.com/v1": {"serverRelativeURL": "/openapi/v3/apis/things.example.com/v1"}}})
        return Reply(body=b"" if received.path.startswith("/openapi") else {"items": []})

    messages: list[str] = []
    async with FaultServer(answer=answer) as listening:
        config = {
            "clusters": [{"name": "c", "cluster": {"server": listening.config().server, "insecure-skip-tls-verify": True}}],
            "contexts": [{"name": "c", "context": {"cluster": "c"}}],
            "current-context": "c",
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        assert (await read_cluster(tmp_path / "kubeconfig", None, messages.append)).names_to_generate() == []
    assert any("things.example.com/v1: left out" in line for line in messages)
