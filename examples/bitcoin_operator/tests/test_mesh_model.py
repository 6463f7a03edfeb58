"""Random histories of a network: daemons appear, vanish, restart, fail and recover. Afterwards every list is right."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from examples.bitcoin_operator.mesh import LONGEST_RETRY, Daemon, Mesh, MeshState
from examples.bitcoin_operator.tests.scripted_daemons import CREDENTIALS, Fault, ScriptedDaemon, ScriptedDaemons

ADDRESSES = st.sampled_from([f"10.0.0.{number}" for number in range(1, 6)])


class Network(RuleBasedStateMachine):
    """A network whose pods the rules change. The mesh learns of them in rounds, as the controller calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.daemons = ScriptedDaemons()
        self.now = 0.0
        self.ended = False
        self.ready: dict[str, Daemon] = {}
        self.runs = 0
        self.mesh = Mesh(self.daemons.direct_client(), lambda: self.now, self._end)

    def _end(self) -> None:
        self.ended = True

    def _run(self, work: Coroutine[Any, Any, object]) -> None:
        self.runner.run(work)

    def _daemon(self, ip: str) -> ScriptedDaemon:
        return self.daemons[ip]

    async def _round(self) -> MeshState:
        self.ended = False
        members = list(self.ready.values())
        hanging = any(self._daemon(ip).fault is Fault.HANG for ip in self.ready)
        return await self.mesh.round(members, members, CREDENTIALS, wait=0.0 if hanging else 5.0)

    @rule(ip=ADDRESSES)
    def a_daemon_starts_or_restarts(self, ip: str) -> None:
        self.runs += 1
        self._daemon(ip).restart()
        self.ready[ip] = Daemon(ip, str(self.runs))

    @rule(ip=ADDRESSES)
    def a_daemon_vanishes(self, ip: str) -> None:
        self.ready.pop(ip, None)

    @rule(ip=ADDRESSES)
    def a_pod_is_unready_for_a_moment(self, ip: str) -> None:
        """The process lives on and keeps its list; the mesh may see neither of the two changes."""
        member = self.ready.pop(ip, None)
        self._run(self._round())
        if member is not None:
            self.ready[ip] = member

    @rule(ip=ADDRESSES, fault=st.sampled_from(list(Fault)))
    def a_daemon_fails(self, ip: str, fault: Fault) -> None:
        self._daemon(ip).fault = fault

    @rule(ip=ADDRESSES, count=st.integers(0, 3))
    def a_daemon_will_die_after_some_changes(self, ip: str, count: int) -> None:
        self._daemon(ip).fail_after = count

    @rule(ip=ADDRESSES)
    def a_daemon_warms_up(self, ip: str) -> None:
        self._daemon(ip).warming_up = True

    @rule(ip=ADDRESSES)
    def a_daemon_recovers(self, ip: str) -> None:
        self._daemon(ip).recover()

    @rule(seconds=st.floats(0.0, 10.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def a_reconcile_runs(self) -> None:
        self._run(self._round())

    @rule()
    def all_faults_end_and_the_mesh_is_full(self) -> None:
        self._run(self._heal())

    async def _heal(self) -> None:
        for ip in list(self.ready):
            self._daemon(ip).recover()
        # One round, which the last change of a pod causes; then only those for which the mesh asks.
        state = await self._round()
        for _ in range(20):
            while state.running and not self.ended:  # noqa: ASYNC110 - the mesh calls a function
                await asyncio.sleep(0)
            if state.retry_after is not None:
                assert state.retry_after <= LONGEST_RETRY
                self.now += state.retry_after
            elif not self.ended:
                break
            state = await self._round()
        assert state == MeshState(frozenset(self.ready.values()), frozenset())
        assert self.daemons.lists(list(self.ready)) == {ip: set(self.ready) - {ip} for ip in self.ready}
        asked = len(self.daemons.requests)
        await self._round()
        assert len(self.daemons.requests) == asked, "a steady mesh sends no request"

    def teardown(self) -> None:
        try:
            self._run(self._heal())
        finally:
            self._run(self.mesh.close())
            self.runner.close()


Network.TestCase.settings = settings(max_examples=150, stateful_step_count=25)
TestNetwork = Network.TestCase
