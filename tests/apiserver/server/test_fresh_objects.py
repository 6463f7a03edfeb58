"""The objects of an unused cluster: each is as on a fresh Kubernetes 1.36.3 server, but for times, addresses, keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeloop.config import load_config
from kubeloop.testing import LocalCluster
from kubeloop.transport import Transport

_RECORDED = json.loads((Path(__file__).parent / "fresh_objects.json").read_text())
_METADATA = ("name", "namespace", "labels", "annotations", "finalizers")
#: They differ from server to server, or from day to day.
_OWN = ("lastTransitionTime", "since", "client-ca-file")

# A server that others have used is not fresh.
pytestmark = pytest.mark.embedded


@pytest.fixture(scope="module")
def fresh() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=False) as cluster:
        yield cluster


def _plain(tree: Any, port: int) -> Any:
    if isinstance(tree, dict):
        # This server always has a front proxy, for the servers behind it; the recorded one was started without.
        kept = {name: value for name, value in tree.items() if not name.startswith("requestheader-")}
        return {name: "" if name in _OWN else _plain(value, port) for name, value in kept.items()}
    if isinstance(tree, list):
        return [_plain(one, port) for one in tree]
    return 0 if tree == port and not isinstance(tree, bool) else tree


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", sorted(_RECORDED))
async def test_a_fresh_server_has_what_kubernetes_has(fresh: LocalCluster, path: str) -> None:
    async with Transport(load_config(fresh.kubeconfig)) as transport:
        items = json.loads((await transport.request("GET", path)).body)["items"]
    port = int(fresh.url.rpartition(":")[2])
    found = {}
    for item in items:
        item["metadata"] = {name: value for name, value in item["metadata"].items() if name in _METADATA}
        found[item["metadata"].get("namespace", ""), item["metadata"]["name"]] = _plain(item, port)
    recorded = {(one["metadata"].get("namespace", ""), one["metadata"]["name"]): one for one in _RECORDED[path]}
    assert found == recorded
