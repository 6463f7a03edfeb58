"""What clients see of flow control: headers, and the words of a refusal, as a kube-apiserver has them."""

from __future__ import annotations

import asyncio

from kubeloop.apiserver.filters import OperationOptions
from kubeloop.apiserver.flow.control import FlowLimits
from kubeloop.endpoints.request_info import RequestInfo
from tests.apiserver.conftest import CONFIGMAPS, TOKENS, Api, running_api

LEVELS = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
SCHEMAS = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"


async def narrow(api: Api, seats: int) -> tuple[str, str]:
    """Alice's requests go to a level without queues; returns its ids."""
    limited = {"nominalConcurrencyShares": seats, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}
    level = await api.create("narrow", LEVELS, spec={"type": "Limited", "limited": limited})
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    spec = {
        "priorityLevelConfiguration": {"name": "narrow"},
        "matchingPrecedence": 2,
        "rules": [{"subjects": [{"kind": "User", "user": {"name": "alice"}}], "resourceRules": [rule]}],
    }
    schema = await api.create("narrow", SCHEMAS, spec=spec)
    return schema.body["metadata"]["uid"], level.body["metadata"]["uid"]


async def test_answers_tell_the_ids_of_schema_and_level_as_soon_as_they_are_stored(api: Api) -> None:
    ids = await narrow(api, 10)
    answer = await api("GET", CONFIGMAPS, token="alice-token")
    assert (answer.headers["X-Kubernetes-Pf-Flowschema-Uid"], answer.headers["X-Kubernetes-Pf-Prioritylevel-Uid"]) == ids


async def test_a_refusal_says_when_to_come_again(api: Api) -> None:
    ids = await narrow(api, 0)  # one at a time
    control = api.server.api.operation.flow
    flow = control.flow_of(TOKENS["alice-token"], RequestInfo("list", "", True, "", "v1", "configmaps"))
    assert flow is not None
    seat = await control.admit(flow)
    answer = await api("GET", CONFIGMAPS, token="alice-token")
    control.release(seat)
    assert (await api("GET", CONFIGMAPS, token="alice-token")).status == 403
    assert (answer.status, answer.text) == (429, "Too many requests, please try again later.\n")
    assert {name: answer.headers[name] for name in ("Content-Type", "Retry-After", "X-Content-Type-Options")} == {
        "Content-Type": "text/plain; charset=utf-8",
        "Retry-After": "1",
        "X-Content-Type-Options": "nosniff",
    }
    assert answer.headers["X-Kubernetes-Pf-Flowschema-Uid"] == ids[0]
    assert (await api("GET", CONFIGMAPS)).status == 200  # others are none the worse


async def test_a_watch_holds_no_seat_once_it_has_begun() -> None:
    async with running_api() as api, api.watch(f"{CONFIGMAPS}?watch=1"):
        flow = api.server.api.operation.flow
        async with asyncio.timeout(30):
            while any(level.executing for level in flow.levels.values()):
                await asyncio.sleep(0.01)


async def test_without_fairness_a_limit_of_requests_is_what_there_is() -> None:
    async with running_api(operation=OperationOptions(flow=FlowLimits(1, 1, fair=False))) as api:
        counts = api.server.api.operation.in_flight
        counts.enter("get")
        assert (await api("GET", CONFIGMAPS, token="alice-token")).status == 429
        assert (await api("GET", CONFIGMAPS)).status == 200
        counts.leave("get")
        assert (await api("GET", CONFIGMAPS, token="alice-token")).status == 403
