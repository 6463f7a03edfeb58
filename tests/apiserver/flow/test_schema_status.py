"""Status of FlowSchemas, over a socket: whether the priority level that they name exists."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.apiserver.conftest import Api

_GROUP = "/apis/flowcontrol.apiserver.k8s.io/v1"
_MANAGER = "api-priority-and-fairness-config-consumer-v1"


async def condition(api: Api, status: str) -> dict[str, Any]:
    """Return the condition of the schema ``mine`` once it has a status."""
    async with asyncio.timeout(10):
        while True:
            schema = (await api("GET", f"{_GROUP}/flowschemas/mine")).body
            for one in (schema.get("status") or {}).get("conditions") or ():
                if one["status"] == status:
                    return dict(schema)
            await asyncio.sleep(0.01)


async def test_a_flow_schema_dangles_until_its_priority_level_exists(api: Api) -> None:
    spec = {"priorityLevelConfiguration": {"name": "late"}, "matchingPrecedence": 500, "rules": []}
    await api("POST", f"{_GROUP}/flowschemas", {"metadata": {"name": "mine"}, "spec": spec})
    found = await condition(api, "True")
    (dangling,) = found["status"]["conditions"]
    assert dangling.pop("lastTransitionTime")
    assert dangling == {
        "type": "Dangling",
        "status": "True",
        "reason": "NotFound",
        "message": 'This FlowSchema references the PriorityLevelConfiguration object named "late" but there is no such object',
    }
    (entry,) = [one for one in found["metadata"]["managedFields"] if one["manager"] == _MANAGER]
    assert (entry["operation"], entry["subresource"]) == ("Apply", "status")
    level = {"metadata": {"name": "late"}, "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}}
    assert (await api("POST", f"{_GROUP}/prioritylevelconfigurations", level)).status == 201
    (dangling,) = (await condition(api, "False"))["status"]["conditions"]
    assert (dangling["reason"], dangling["message"].endswith('named "late" and it exists')) == ("Found", True)
    await api("DELETE", f"{_GROUP}/prioritylevelconfigurations/late")
    assert (await condition(api, "True"))["metadata"]["generation"] == 1
