"""Runs a scenario once for each write of its controllers, kills them after that write, and compares the final states.

Everything runs in one process by fake time. A killed controller sends nothing more and does not clean up; its successor starts at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from kubeloop.api.core.v1 import Pod, PodCondition
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.codec import to_dict
from kubeloop.controller import Controller, ControllerBase, GraceExceeded, Manager, Runnable
from kubeloop.meta import NotFound, Resource
from kubeloop.serving.request import Request
from kubeloop.tasks import end_tasks
from kubeloop.testing.calls import RecordedCall
from tests.controlplane.simulated import FakeTimeCluster, simulation
from tests.controlplane.workloads import is_ready
from tests.effort import effort

#: Kinds whose writes are not counted: losing one of them changes no state.
_UNCOUNTED = frozenset({"Event", "Lease"})
_VOLATILE = frozenset(
    {"resourceVersion", "managedFields", "generation", "observedGeneration", "timeAdded", "containerID", "podIP", "podIPs", "ip"}
    | {"endpoints.kubernetes.io/last-change-trigger-time"}
)
_UID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PREFIX = "incarnation-"
#: Number of kills of the short form.
_SHORT = 4
#: Seconds that pass after the steps, so that back-offs end.
_SETTLE = 60.0
#: Writes in the last half of that time that are no endless repetition: something may expire then.
_LATE_WRITES = 5


@dataclass(frozen=True)
class KillScenario:
    """One history that must end in the same state wherever its controllers are killed.

    Attributes:
        controllers: Makes new instances of the controllers under test, which are killed.
        steps: Writes objects and passes time; called once for each run.
        kinds: Kinds of the compared state, with those of all owners.
        companions: Makes controllers that are never killed, such as ``ReadyPods``.
        settle: Seconds that pass after the steps. In their second half hardly anything may be written.
        random_fields: Fields of which only the presence is compared, such as signatures.
    """

    controllers: Callable[[], Sequence[ControllerBase[Any] | Runnable]]
    steps: Callable[[FakeTimeCluster], Awaitable[None]]
    kinds: Sequence[type[Resource]]
    companions: Callable[[], Sequence[ControllerBase[Any] | Runnable]] = tuple
    settle: float = _SETTLE
    random_fields: frozenset[str] = frozenset()


@dataclass
class _Incarnations:
    """The running controllers under test, and their writes so far; replaces them when they are killed."""

    cluster: FakeTimeCluster
    scenario: KillScenario
    kill_after: int
    writes: list[str] = field(default_factory=list)
    _managers: list[Manager] = field(default_factory=list)
    _dead: set[str] = field(default_factory=set)
    _killed: asyncio.Event = field(default_factory=asyncio.Event)
    _started: int = 0

    @asynccontextmanager
    async def running(self, replicas: int) -> AsyncIterator[None]:
        faults = self.cluster.faults
        faults.on_answer(self._count)
        faults.break_answers(matching=lambda request: user_of(request) in self._dead)
        for _ in range(replicas):
            await self.cluster.drive(self._start())
        successor = asyncio.create_task(self._replace(replicas))
        try:
            yield
        finally:
            await end_tasks(successor)
            for manager in self._managers:
                await self.cluster.drive(_stop(manager))

    async def _start(self) -> None:
        client = self.cluster.server.client(user=f"{_PREFIX}{self._started}")
        self._started += 1
        manager = Manager(client, self.scenario.controllers(), clock=self.cluster.clock, grace=0)
        self._managers.append(manager)
        await manager.start()

    async def _replace(self, replicas: int) -> None:
        await self._killed.wait()
        while self._managers:
            await _stop(self._managers.pop())
        for _ in range(replicas):
            await self._start()

    def _count(self, call: RecordedCall) -> None:
        if not call.user.startswith(_PREFIX) or call.user in self._dead or not call.writes or call.kind in _UNCOUNTED:
            return
        if 200 <= call.code < 300:
            self.writes.append(" ".join(filter(None, (call.verb, call.kind, call.subresource, call.namespace, call.name))))
            if len(self.writes) == self.kill_after:
                self._dead.update(f"{_PREFIX}{number}" for number in range(self._started))
                self._killed.set()


class ReadyPods(Controller[Pod], name="ready-pods"):
    """Sets each pod to Running and Ready. It costs less than a scheduler and simulated nodes."""

    async def reconcile(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is None and not is_ready(pod):
            pod.status.phase = "Running"
            now = self.clock.wall().replace(microsecond=0)
            pod.status.start_time = now
            pod.status.conditions = [PodCondition(type="Ready", status="True", last_transition_time=now)]
            with contextlib.suppress(NotFound):
                await self.client.update_status(pod)


async def final_state(scenario: KillScenario, *, kill_after: int = 0, replicas: int = 1) -> tuple[list[str], list[str]]:
    """Run a scenario on a new server.

    Args:
        scenario: The scenario.
        kill_after: Number of the write after which the controllers are killed. 0: they are not killed.
        replicas: Number of instances that run side by side.

    Returns:
        The objects of the final state as texts without volatile fields, and the writes of the controllers.
    """
    async with simulation(*scenario.companions()) as cluster:
        incarnations = _Incarnations(cluster, scenario, kill_after)
        async with incarnations.running(replicas):
            await scenario.steps(cluster)
            await cluster.pass_time(scenario.settle / 2)
            settled = len(incarnations.writes)
            await cluster.pass_time(scenario.settle / 2)
            if len(repeated := incarnations.writes[settled:]) > _LATE_WRITES:
                pytest.fail(f"the controllers go on writing while nothing changes: {repeated[:_LATE_WRITES]}")
            return await _objects(cluster.client, scenario.kinds, scenario.random_fields), incarnations.writes


def kill_points(writes: int) -> list[int]:
    """Return the numbers of the writes after which a history with so many writes is killed: all in the long form, and else four."""
    count = effort(min(_SHORT, writes), writes)
    return sorted({1 + round(step * (writes - 1) / max(count - 1, 1)) for step in range(count)})


async def assert_survives_kills(scenario: KillScenario) -> list[str]:
    """Check that a scenario ends in the same state after a kill between any two writes, and with two replicas.

    The short form kills after the first and the last write and at two moments between them; ``make soak-tests`` kills after each write.

    Returns:
        The writes of the run without a kill, such as ``create Pod default``.
    """
    expected, writes = await final_state(scenario)
    assert writes, "the controllers write nothing: the scenario proves nothing"
    for number in kill_points(len(writes)):
        state, _ = await final_state(scenario, kill_after=number)
        _compare(state, expected, f"killed after write {number}, {writes[number - 1]}")
    state, _ = await final_state(scenario, replicas=2)
    _compare(state, expected, "with two replicas")
    return writes


def _compare(state: list[str], expected: list[str], case: str) -> None:
    if state != expected:
        before, after = ("\n".join(texts).splitlines() for texts in (expected, state))
        lines = difflib.unified_diff(before, after, "expected", case, lineterm="")
        pytest.fail("\n".join(lines))


async def _stop(manager: Manager) -> None:
    with contextlib.suppress(GraceExceeded):
        await manager.stop()


def user_of(request: Request) -> str:
    """Return the user in the client certificate of a request."""
    parts = (part for name in (request.peer_certificate or {}).get("subject", ()) for part in name)
    return next((value for key, value in parts if key == "commonName"), "")


async def _objects(client: Client, kinds: Sequence[type[Resource]], random_fields: frozenset[str]) -> list[str]:
    """Return all objects as sorted texts in which uids, generated names and random values are replaced by what they stand for."""
    objects = [one for kind in kinds for one in await client.list(kind, namespace=ALL_NAMESPACES)]
    texts = [json.dumps(_stable(to_dict(one), random_fields), sort_keys=True, indent=1) for one in objects]
    replaced = [(one.metadata.uid, f"<uid of {one.kind}>") for one in objects]
    replaced += [(one.metadata.name, f"{one.metadata.generate_name}*") for one in objects if one.metadata.generate_name]
    for old, new in replaced:
        texts = [text.replace(old, new) for text in texts]
    return sorted(_UID.sub("<uid of no object>", text) for text in texts)


def _stable(tree: Any, random_fields: frozenset[str]) -> Any:
    if isinstance(tree, dict):
        lasting = (name for name in tree if name not in _VOLATILE and not name.endswith(("Time", "Timestamp")))
        stable = {name: "<random>" if name in random_fields else _stable(tree[name], random_fields) for name in lasting}
        return {name: value for name, value in stable.items() if name != "annotations" or value}
    return [_stable(value, random_fields) for value in tree] if isinstance(tree, list) else tree
