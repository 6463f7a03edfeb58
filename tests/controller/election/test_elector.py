"""The elector against a server in this process, time being the test's: who leads when, and which requests that takes."""

from __future__ import annotations

from kubeloop.testing import InProcessServer
from kubeloop.timing import FakeClock
from tests.controller.election.candidates import Candidates


async def test_a_lease_that_is_not_there_is_created_and_its_maker_leads(candidates: Candidates, clock: FakeClock) -> None:
    """Behaviour I121."""
    one = candidates.start("a")
    await clock.advance(0)
    assert one.elector.is_leader
    spec = (await candidates.lease()).spec
    assert (spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions) == ("a", 15, 0)
    assert spec.acquire_time == spec.renew_time == clock.wall()


async def test_a_leader_renews_without_reading(candidates: Candidates, in_process: InProcessServer, clock: FakeClock) -> None:
    """Behaviour I124."""
    one = candidates.start("a")
    await clock.advance(0)
    in_process.faults.calls.clear()
    await clock.advance(20)
    assert [call.verb for call in in_process.faults.calls] == ["update"] * 10
    assert one.elector.is_leader
