"""Claims with admin access to devices: only in namespaces with the label for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.meta import Invalid
from kubeloop.transport import Transport
from tests.servers import ServerUnderTest

_LABEL = "resource.kubernetes.io/admin-access"
_GROUP = "/apis/resource.k8s.io/v1/namespaces/{}/"
_SPEC = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c", "adminAccess": True}}]}}
_CLAIM = {"metadata": {"name": "a"}, "spec": _SPEC}
_TEMPLATE = {"metadata": {"name": "a"}, "spec": {"spec": _SPEC}}
_RESULT = {"request": "r", "driver": "d.x", "pool": "p", "device": "d", "adminAccess": True}
pytestmark = pytest.mark.server


async def _send(transport: Transport, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
    answer = await transport.request(method, path, body=json.dumps(body).encode(), headers=headers)
    found: dict[str, Any] = json.loads(answer.body)
    return found


async def _label(transport: Transport, namespace: str, value: str) -> None:
    await _send(transport, "PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {_LABEL: value}}})


@pytest.mark.parametrize(("resource", "body"), [("resourceclaims", _CLAIM), ("resourceclaimtemplates", _TEMPLATE)])
async def test_admin_access_needs_a_label(server: ServerUnderTest, namespace: str, resource: str, body: dict[str, Any]) -> None:
    path = _GROUP.format(namespace) + resource
    async with Transport(server.config) as transport:
        with pytest.raises(Invalid) as caught:
            await _send(transport, "POST", path, body)
        rule = f"admin access to devices requires the `{_LABEL}: true` label on the containing namespace"
        kind = "ResourceClaim" if resource == "resourceclaims" else "ResourceClaimTemplate"
        fault = f"spec.devices.requests[0].adminAccess: Forbidden: {rule}"
        assert caught.value.status.message == f'{kind}.resource.k8s.io "a" is invalid: {fault}'
        await _label(transport, namespace, "true")
        assert (await _send(transport, "POST", path, body))["metadata"]["name"] == "a"


async def test_the_label_is_missed_before_anything_else(server: ServerUnderTest, namespace: str) -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "", "adminAccess": True}}
    body = {"metadata": {"name": "a"}, "spec": {"devices": {"requests": [request]}}}
    async with Transport(server.config) as transport:
        with pytest.raises(Invalid) as caught:
            await _send(transport, "POST", _GROUP.format(namespace) + "resourceclaims", body)
    details = caught.value.status.details
    assert details is not None
    assert [cause.field for cause in details.causes] == [
        "spec.devices.requests[0].adminAccess",
        "spec.devices.requests[0].exactly.deviceClassName",
    ]


async def test_results_with_admin_access_need_the_label_too(server: ServerUnderTest, namespace: str) -> None:
    path = _GROUP.format(namespace) + "resourceclaims"
    async with Transport(server.config) as transport:
        await _label(transport, namespace, "true")
        claim = await _send(transport, "POST", path, _CLAIM)
        await _label(transport, namespace, "false")
        given = {**claim, "status": {"allocation": {"devices": {"results": [_RESULT]}}}}
        with pytest.raises(Invalid) as caught:
            await _send(transport, "PUT", f"{path}/a/status", given)
        assert "status.allocation.devices.results[0].adminAccess: Forbidden" in caught.value.status.message
        await _label(transport, namespace, "true")
        assert (await _send(transport, "PUT", f"{path}/a/status", given))["status"]["allocation"]["devices"]["results"][0]["adminAccess"]
