"""Errors of events.k8s.io name the fields of the core group, whose form is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.meta import Invalid
from kubeloop.transport import Transport
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server


def _event(namespace: str, **fields: Any) -> dict[str, Any]:
    said = {"reportingController": "a.b/c", "reportingInstance": "i", "action": "A", "reason": "R", "type": "Normal"}
    about = {"kind": "Pod", "name": "p", "namespace": namespace}
    return {"metadata": {"name": "e"}, "eventTime": "2020-01-01T00:00:00.000000Z", "regarding": about, **said, **fields}


async def test_a_new_one_is_refused_in_the_name_of_core(server: ServerUnderTest, namespace: str) -> None:
    async with Transport(server.config) as transport:
        body = json.dumps(_event(namespace, type="Odd")).encode()
        with pytest.raises(Invalid) as caught:
            await transport.request("POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", body=body)
    status = caught.value.status
    assert status.message == 'Event "e" is invalid: type: Invalid value: "": has invalid value: Odd'
    assert status.details is not None
    assert status.details.group in (None, "")


async def test_a_change_is_refused_with_what_go_has_for_nothing(server: ServerUnderTest, namespace: str) -> None:
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    async with Transport(server.config) as transport:
        await transport.request("POST", path, body=json.dumps(_event(namespace)).encode())
        merge = {"Content-Type": "application/merge-patch+json"}
        with pytest.raises(Invalid) as caught:
            await transport.request("PATCH", f"{path}/e", body=b'{"action":null,"metadata":{"labels":{"a":"b"}}}', headers=merge)
    assert 'action: Invalid value: "": field is immutable' in caught.value.status.message
    assert caught.value.status.message.startswith('Event "e" is invalid: ')
