"""Certificate signing requests: recorded user, approval, issued certificate."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubeloop.apiserver.builtin.certificates.pem import certificate_error
from kubeloop.meta import Invalid
from kubeloop.transport import Transport
from tests.servers import ServerUnderTest

_PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_TABLE = json.loads((Path(__file__).parent / "refusals_certificates.json").read_text())[_PATH]
_SPEC: dict[str, Any] = _TABLE["a request for a certificate that can be signed"]["body"]["spec"]
_APPROVED = {"type": "Approved", "status": "True", "reason": "x"}
_DENIED = {"type": "Denied", "status": "True"}
_EXCLUSIVE = ("status.conditions", 'Invalid value: "Denied": Approved and Denied conditions are mutually exclusive')
pytestmark = pytest.mark.server


class _Request:
    def __init__(self, transport: Transport, name: str) -> None:
        self.transport, self.name = transport, name

    async def call(self, method: str, path: str = "", body: dict[str, Any] | None = None) -> dict[str, Any]:
        content = None if body is None else json.dumps(body).encode()
        found: dict[str, Any] = json.loads((await self.transport.request(method, _PATH + path, body=content)).body)
        return found

    async def put(self, subresource: str, status: dict[str, Any]) -> dict[str, Any]:
        path = f"/{self.name}/{subresource}" if subresource else f"/{self.name}"
        return await self.call("PUT", path, {**await self.call("GET", f"/{self.name}"), "status": status})

    async def refusal(self, subresource: str, status: dict[str, Any]) -> list[tuple[str, str]]:
        with pytest.raises(Invalid) as caught:
            await self.put(subresource, status)
        details = caught.value.status.details
        assert details is not None
        return sorted((cause.field, cause.message) for cause in details.causes)


@pytest.fixture
async def request_(server: ServerUnderTest, namespace: str) -> AsyncIterator[_Request]:
    """A request with the name of the test's namespace, which goes with the test."""
    async with Transport(server.config) as transport:
        made = _Request(transport, namespace)
        await made.call("POST", "", {"metadata": {"name": namespace}, "spec": {**_SPEC, "username": "another user"}})
        yield made
        await made.call("DELETE", f"/{namespace}")


async def test_all_that_is_known_of_the_requesting_user_is_stored(server: ServerUnderTest, namespace: str) -> None:
    who = {"Impersonate-User": "u", "Impersonate-Uid": "u-1", "Impersonate-Group": "system:masters", "Impersonate-Extra-A.b%2fc": "d"}
    body = json.dumps({"metadata": {"name": namespace}, "spec": {**_SPEC, "uid": "other", "extra": {"x": ["y"]}}}).encode()
    async with Transport(server.config) as transport:
        spec = json.loads((await transport.request("POST", f"{_PATH}?dryRun=All", body=body, headers=who)).body)["spec"]
    assert (spec["username"], spec["uid"], spec["extra"]) == ("u", "u-1", {"a.b/c": ["d"]})
    assert spec["groups"] == ["system:masters", "system:authenticated"]


async def test_the_requesting_user_is_stored(request_: _Request) -> None:
    found = await request_.call("GET", f"/{request_.name}")
    assert found["spec"]["username"] != "another user"
    assert "system:authenticated" in found["spec"]["groups"]
    assert found["status"] == {}


async def test_only_approval_decides(request_: _Request) -> None:
    assert (await request_.put("", {"conditions": [_APPROVED]}))["status"] == {}
    refusal = "Forbidden: updates may not add a condition of type "
    assert await request_.refusal("status", {"conditions": [_APPROVED]}) == [("status.conditions", f'{refusal}"Approved"')]
    decided = (await request_.put("approval", {"conditions": [_APPROVED]}))["status"]["conditions"]
    assert [{name: one[name] for name in _APPROVED} for one in decided] == [_APPROVED]
    assert decided[0]["lastUpdateTime"] == decided[0]["lastTransitionTime"] != ""


async def test_a_decision_stays(request_: _Request) -> None:
    await request_.put("approval", {"conditions": [_APPROVED]})
    gone = [("status.conditions", 'Forbidden: updates may not remove a condition of type "Approved"')]
    assert await request_.refusal("approval", {}) == gone
    assert await request_.refusal("status", {}) == gone
    assert await request_.refusal("approval", {"conditions": [_APPROVED, _DENIED]}) == [_EXCLUSIVE]
    added = ("status.conditions", 'Forbidden: updates may not add a condition of type "Denied"')
    assert await request_.refusal("status", {"conditions": [_APPROVED, _DENIED]}) == [added, _EXCLUSIVE]
    kept = await request_.put("status", {"conditions": [{**_APPROVED, "reason": "y"}]})
    assert kept["status"]["conditions"][0]["reason"] == "x"


async def test_conditions_are_whole(request_: _Request) -> None:
    odd = [{"type": "Approved", "status": "False"}, {}, {"type": "Odd", "status": "Odd"}, {"type": "Odd", "status": "True"}]
    assert await request_.refusal("approval", {"conditions": odd}) == [
        ("status.conditions[0].status", 'Unsupported value: "False": supported values: "True"'),
        ("status.conditions[1].status", "Required value"),
        ("status.conditions[1].type", "Required value"),
        ("status.conditions[2].status", 'Unsupported value: "Odd": supported values: "False", "True", "Unknown"'),
        ("status.conditions[3].type", 'Duplicate value: "Odd"'),
    ]


@pytest.mark.parametrize(
    ("issued", "fault"),
    [
        pytest.param(base64.b64encode(b"x").decode(), "must contain at least one CERTIFICATE PEM block", id="text"),
        pytest.param(_SPEC["request"], 'only CERTIFICATE PEM blocks are allowed, found "CERTIFICATE REQUEST"', id="the request"),
    ],
)
async def test_only_certificates_can_be_issued(request_: _Request, issued: str, fault: str) -> None:
    assert certificate_error(issued) == fault
    found = await request_.refusal("status", {"certificate": issued})
    assert found == [("status.certificate", f'Invalid value: "<certificate data>": {fault}')]
