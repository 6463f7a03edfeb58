"""What the status of a resource claim may say: a table that a Kubernetes 1.36 API server answered.

``device_statuses.json`` holds, by sentence, a status of a claim with the requests below and the causes of its refusal.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from kubeloop.meta import Invalid
from kubeloop.transport import Transport
from tests.apiserver.builtin.write_pipeline import create, update
from tests.servers import ServerUnderTest

_CASES: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "device_statuses.json").read_text())
_CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
_REQUESTS = [
    {"name": "r", "exactly": {"deviceClassName": "c"}},
    {"name": "q", "firstAvailable": [{"name": "s", "deviceClassName": "c"}]},
]
_CLAIM = {"metadata": {"name": "a"}, "spec": {"devices": {"requests": _REQUESTS}}}
_RESULT = {"request": "r", "driver": "d.x", "pool": "p", "device": "d"}


def _sorted(causes: list[tuple[str, str, str]]) -> list[tuple[str, ...]]:
    return sorted(tuple(one) for one in causes)


@pytest.mark.parametrize("name", _CASES)
def test_status(name: str) -> None:
    path, case = _CLAIMS.format("n"), _CASES[name]
    old = create(path, _CLAIM).obj
    found = update(path, {**copy.deepcopy(old), "status": case["status"]}, old, "status")
    assert _sorted(found.causes) == _sorted(case["causes"])


@pytest.mark.server
@pytest.mark.parametrize("name", _CASES)
async def test_status_on_the_wire(name: str, server: ServerUnderTest, namespace: str) -> None:
    path, case = _CLAIMS.format(namespace), _CASES[name]
    async with Transport(server.config) as transport:
        old = json.loads((await transport.request("POST", path, body=json.dumps(_CLAIM).encode())).body)
        body = json.dumps({**old, "status": case["status"]}).encode()
        answer = transport.request("PUT", f"{path}/a/status", query={"dryRun": "All"}, body=body)
        if not case["causes"]:
            assert (await answer).status == 200
            return
        with pytest.raises(Invalid) as caught:
            await answer
    details = caught.value.status.details
    assert details is not None
    assert _sorted([(cause.field, cause.message, cause.reason) for cause in details.causes]) == _sorted(case["causes"])


@pytest.mark.server
async def test_the_status_of_a_device_goes_with_its_allocation(server: ServerUnderTest, namespace: str) -> None:
    path = _CLAIMS.format(namespace)
    async with Transport(server.config) as transport:

        async def tell(claim: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
            body = json.dumps({**claim, "status": status}).encode()
            found: dict[str, Any] = json.loads((await transport.request("PUT", f"{path}/a/status", body=body)).body)
            return found

        claim = json.loads((await transport.request("POST", path, body=json.dumps(_CLAIM).encode())).body)
        devices = [{"driver": "d.x", "pool": "p", "device": "d", "conditions": None}]
        allocation = {"devices": {"results": [_RESULT]}}
        claim = await tell(claim, {"allocation": allocation, "devices": devices})
        assert claim["status"]["devices"] == devices
        claim = await tell(claim, {"devices": devices})
        assert claim["status"] == {}


@pytest.mark.server
async def test_taints_of_devices_say_since_when(server: ServerUnderTest, namespace: str) -> None:
    path, device = "/apis/resource.k8s.io/v1/resourceslices", {"name": "d", "taints": [{"key": "a", "effect": "NoExecute"}]}
    pool = {"name": "p", "resourceSliceCount": 1}
    body = {"metadata": {"name": namespace}, "spec": {"driver": "d.x", "pool": pool, "nodeName": "n", "devices": [device]}}
    async with Transport(server.config) as transport:
        answer = await transport.request("POST", path, query={"dryRun": "All"}, body=json.dumps(body).encode())
    taint = json.loads(answer.body)["spec"]["devices"][0]["taints"][0]
    assert taint == {"key": "a", "effect": "NoExecute", "timeAdded": json.loads(answer.body)["metadata"]["creationTimestamp"]}
