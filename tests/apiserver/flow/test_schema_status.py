"""Status of FlowSchemas, over a socket: whether the priority level that they name exists."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.apiserver.conftest import MERGE, Api

_GROUP = "/apis/flowcontrol.apiserver.k8s.io/v1"
_MANAGER = "api-priority-and-fairness-config-consumer-v1"


async def condition(api: Api, status: str, name: str = "mine") -> dict[str, Any]:
    """Return the schema once its condition has a status."""
    async with asyncio.timeout(10):
        while True:
            schema = (await api("GET", f"{_GROUP}/flowschemas/{name}")).body
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


async def test_a_status_is_written_again_only_if_its_condition_changed(api: Api) -> None:
    spec = {"priorityLevelConfiguration": {"name": "global-default"}, "matchingPrecedence": 500, "rules": []}
    created = await api("POST", f"{_GROUP}/flowschemas", {"metadata": {"name": "mine"}, "spec": spec})
    assert created.body["status"] == {}, "the server writes the status after its answer"
    await condition(api, "False")
    labelled = await api("PATCH", f"{_GROUP}/flowschemas/mine", {"metadata": {"labels": {"a": "b"}}}, content=MERGE)
    await api("POST", f"{_GROUP}/flowschemas", {"metadata": {"name": "other"}, "spec": spec})
    await condition(api, "False", "other")
    assert (await api("GET", f"{_GROUP}/flowschemas/mine")).body == labelled.body


async def test_a_status_that_a_client_empties_is_written_again(api: Api) -> None:
    spec = {"priorityLevelConfiguration": {"name": "global-default"}, "matchingPrecedence": 500, "rules": []}
    await api("POST", f"{_GROUP}/flowschemas", {"metadata": {"name": "mine"}, "spec": spec})
    await condition(api, "False")
    emptied = await api("PUT", f"{_GROUP}/flowschemas/mine/status", {"metadata": {"name": "mine"}, "spec": spec, "status": {}})
    assert not emptied.body["status"].get("conditions")
    found = await condition(api, "False")
    assert int(found["metadata"]["resourceVersion"]) > int(emptied.body["metadata"]["resourceVersion"])
