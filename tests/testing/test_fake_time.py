"""One fake clock through all of it: server, informers, queue, workers and leader election; hours pass in milliseconds."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kubeloop import Controller, Result
from kubeloop.api.coordination.v1 import Lease
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.controller.election import LeaseConfig, LeaseLost
from kubeloop.meta import Forbidden, KubeloopError, ObjectMeta, Status
from kubeloop.testing import consistently, eventually, many, on, one, with_fake_time
from kubeloop.testing.kube_cluster import OwnServer, own_server
from kubeloop.timing import FakeClock

pytestmark = pytest.mark.embedded


@pytest.fixture
async def cluster() -> AsyncIterator[OwnServer]:
    async with own_server(FakeClock()) as found:
        yield found


class Clockwork(Controller[ConfigMap], name="clockwork", timeout=30):
    """Notes when it is called; does what the ConfigMap says: fails twice, waits without an end, or asks for another turn in an hour."""

    def __init__(self) -> None:
        self.at: list[float] = []

    async def reconcile(self, config: ConfigMap) -> Result | None:
        if "turns" in config.data:
            return None
        self.at.append(self.clock.now())
        turn = len(self.at)
        if config.data["do"] == "fail" and turn <= 2:
            raise KubeloopError("not yet")
        if config.data["do"] == "hang" and turn == 1:
            await self.clock.sleep(1_000_000)
        if config.data["do"] == "again" and turn == 1:
            return Result(requeue_after=3600)
        config.data["turns"] = str(turn)
        await self.client.update(config)
        return None


CASES = [
    pytest.param("fail", 3, 0.005, 1.0, id="failures are tried again after the queue's back-off"),
    pytest.param("hang", 2, 30.0, 32.0, id="a reconcile that hangs is cancelled after the controller's timeout"),
    pytest.param("again", 2, 3600.0, 3600.0, id="another turn comes after requeue_after"),
]


@pytest.mark.parametrize(("do", "turns", "least", "maximum"), CASES)
async def test_time_passes_for_the_controller(cluster: OwnServer, do: str, turns: int, least: float, maximum: float) -> None:
    controller = Clockwork()
    await cluster.start_manager(controller)
    client = cluster.client()
    await client.create(ConfigMap(metadata=ObjectMeta(name="a"), data={"do": do}))
    await eventually(one(client, ConfigMap, "a"), {"data": {"turns": str(turns)}}, within=4000)
    assert least <= controller.at[turns - 1] - controller.at[0] <= maximum


async def test_a_lease_passes_to_the_other_manager_when_its_time_is_over(cluster: OwnServer) -> None:
    client = cluster.client()
    managers = []
    for identity in ("first", "second"):
        election = LeaseConfig("clockwork", "default", identity=identity)
        managers.append(await cluster.start_manager(Clockwork(), leader_election=election))
        await eventually(many(client, Lease), [{"spec": {"holderIdentity": "first"}}])
    await consistently(many(client, Lease), [{"spec": {"holderIdentity": "first"}}], seconds=60)
    refused = Forbidden(Status(code=403, reason="Forbidden", message="the first one may not renew any more"))
    cluster.faults.react(lambda call: refused if "'first'" in str(call.body) else None, matching=on("update", Lease))
    await eventually(one(client, Lease, "clockwork"), {"spec": {"holderIdentity": "second", "leaseTransitions": 1}}, within=60)
    with pytest.raises(LeaseLost):
        await with_fake_time(managers[0].stop(), cluster.clock)
