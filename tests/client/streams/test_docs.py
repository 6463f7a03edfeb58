"""Each block of docs/streams.md runs, against either server and a node whose kubelet is scripted."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.apiserver.kubelet.conftest import own_address
from tests.apiserver.kubelet.test_proxies import Backend, backend
from tests.client.streams.conftest import Cluster, ScriptedKubelet

__all__ = ["backend"]

pytestmark = pytest.mark.server

PAGE = Path(__file__).parents[3] / "docs" / "streams.md"
LABELS = {"app": "web"}


async def _make_what_the_page_asks_for(cluster: Cluster, kubelet: ScriptedKubelet, port: int) -> None:
    ports = [{"name": "http", "containerPort": port}]
    node = await cluster.node(kubelet)
    pod = await cluster.pod("web-0", node, containers=[{"name": "main", "image": "none", "ports": ports}])
    await cluster.request("PATCH", pod, {"metadata": {"labels": LABELS}}, headers={"Content-Type": "application/merge-patch+json"})
    await cluster.address(pod, own_address())
    service = {"selector": LABELS, "ports": [{"name": "main", "port": 80, "targetPort": "http"}]}
    await cluster.make("services", {"metadata": {"name": "web"}, "spec": service})
    target = {"kind": "Pod", "name": "web-0", "namespace": cluster.namespace}
    subsets = [{"addresses": [{"ip": own_address(), "targetRef": target}], "ports": [{"name": "main", "port": port}]}]
    await cluster.make("endpoints", {"metadata": {"name": "web"}, "subsets": subsets})
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    deployment = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": LABELS}, "replicas": 0, "template": template}}
    status, answer = await cluster.request("POST", f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments", deployment)
    assert status == 201, answer


async def test_every_block_runs(
    cluster: Cluster, kubelet: ScriptedKubelet, backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _make_what_the_page_asks_for(cluster, kubelet, backend.port)
    config = yaml.safe_load(cluster.server.kubeconfig.read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = cluster.namespace
    for entry in [each["cluster"] for each in config["clusters"]] + [each["user"] for each in config["users"]]:
        for field in ("certificate-authority", "client-certificate", "client-key"):  # relative to where the file was
            if field in entry:
                entry[field] = str(cluster.server.kubeconfig.parent / entry[field])
    written = tmp_path / "kubeconfig"
    written.touch(mode=0o600)
    written.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(written))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python kubelet\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 8
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        code = compile(block, f"docs/streams.md, block {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        outcome = eval(code, names)
        if inspect.isawaitable(outcome):
            await outcome
    assert (names["result"].exit_code, names["output"].data, names["code"]) == (0, b"42\n", 0)
    assert names["page"] == b'{"b":1,"a":2}'
    assert names["answer"].body == b'{"b":1,"a":2}'
