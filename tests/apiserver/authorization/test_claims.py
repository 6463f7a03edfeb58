"""Rights that a write needs besides that to its verb, on both servers: statuses of claims, and streams that come as GET."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.authorization.conftest import As, rule

pytestmark = pytest.mark.server

DEVICES = "resource.k8s.io"
MERGE = "application/merge-patch+json"
ALLOCATED: dict[str, Any] = {"devices": {"results": [{"request": "r", "driver": "d.example.com", "pool": "p", "device": "x"}]}}
DEVICE_STATUS = {"devices": [{"driver": "d.example.com", "pool": "p", "device": "x", "data": {"a": "b"}}]}


async def test_a_claims_status_is_for_schedulers_and_drivers(as_: As) -> None:
    eve, claims = f"eve-{as_.namespace}", f"/apis/{DEVICES}/v1/namespaces/{as_.namespace}/resourceclaims"
    requests = [{"name": "r", "exactly": {"deviceClassName": "c"}}]
    assert (await as_("POST", claims, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}}))[0] == 201
    await as_.role("teller", rule("patch get", "resourceclaims/status", DEVICES))
    await as_.bind("teller", eve)
    await as_.until(eve, verb="patch", of=DEVICES, resource="resourceclaims", subresource="status", namespace=as_.namespace)

    async def status(**fields: Any) -> tuple[int, str]:
        found, answer = await as_("PATCH", f"{claims}/c/status", {"status": fields}, user=eve, content=MERGE)
        return found, answer.get("message", "")

    cannot = f'resourceclaims.{DEVICES} is forbidden: User "{eve}" cannot patch resource "resourceclaims/binding" in API group "{DEVICES}"'
    binding = 'changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="patch" permission'
    invalid = f'ResourceClaim.{DEVICES} "c" is invalid: '
    for allocation in (ALLOCATED, {}):
        found, message = await status(allocation=allocation)
        assert (found, f"status.allocation: Forbidden: {binding}: {cannot} at the cluster scope" in message) == (422, True), message
    name = f"{as_.namespace}-scheduler"
    await as_.role(name, rule("patch", "resourceclaims/binding", DEVICES), everywhere=True)
    await as_.bind(name, eve, everywhere=True)
    await as_.until(eve, verb="patch", of=DEVICES, resource="resourceclaims", subresource="binding")
    assert await status(allocation=ALLOCATED) == (200, "")

    driver = f'resourceclaims.{DEVICES} "d.example.com" is forbidden: User "{eve}" cannot arbitrary-node:patch resource'
    where = f'"resourceclaims/driver" in API group "{DEVICES}" in the namespace "{as_.namespace}"'
    needs = 'changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:patch]" permission'
    assert await status(**DEVICE_STATUS) == (422, f"{invalid}status.devices: Forbidden: {needs}: {driver} {where}")
    await as_.role("driver", rule("arbitrary-node:patch", "resourceclaims/driver", DEVICES, "d.example.com"))
    await as_.bind("driver", eve)
    asked: dict[str, Any] = {
        "verb": "arbitrary-node:patch",
        "of": DEVICES,
        "resource": "resourceclaims",
        "subresource": "driver",
        "name": "d.example.com",
    }
    await as_.until(eve, **asked, namespace=as_.namespace)
    assert await status(**DEVICE_STATUS) == (200, "")


async def test_a_command_that_comes_as_get_needs_the_right_to_create(as_: As) -> None:
    eve = f"eve-{as_.namespace}"
    await as_.role("looker", rule("get", "pods/exec"))
    await as_.bind("looker", eve)
    await as_.until(eve, verb="get", resource="pods", subresource="exec", namespace=as_.namespace)
    found = await as_("GET", f"/api/v1/namespaces/{as_.namespace}/pods/x/exec?command=a", user=eve)
    assert found == (403, {"message": 'pods "x" is forbidden: ', "reason": "Forbidden"})
