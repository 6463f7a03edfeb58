"""Elections as metrics, under client-go's names."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from tests.controller.election.candidates import Candidates, StallingClock


async def test_the_metrics_say_who_leads_and_count_slow_renewals(candidates: Candidates, clock: StallingClock) -> None:
    one, two = candidates.start("a"), candidates.make("b")
    mine, theirs = CollectorRegistry(), CollectorRegistry()
    remove = one.elector.metrics(mine)
    two.elector.metrics(theirs)
    await clock.advance(1)
    await candidates.touch()
    await clock.advance(4)
    label = {"name": "lock"}
    assert mine.get_sample_value("leader_election_master_status", label) == 1
    assert mine.get_sample_value("leader_election_slowpath_total", label) == 1
    assert theirs.get_sample_value("leader_election_master_status", label) == 0
    assert theirs.get_sample_value("leader_election_slowpath_total", label) == 0
    await one.stop()
    assert mine.get_sample_value("leader_election_master_status", label) == 0
    remove()
    remove()
    assert mine.get_sample_value("leader_election_master_status", label) is None
    assert mine.get_sample_value("leader_election_slowpath_total", label) == 1


async def test_two_elections_of_one_name_share_a_series(candidates: Candidates, clock: StallingClock) -> None:
    """As in client-go: a registry takes no name twice."""
    registry = CollectorRegistry()
    one, two = candidates.start("a"), candidates.start("b")
    one.elector.metrics(registry)
    two.elector.metrics(registry)
    await clock.advance(1)
    assert registry.get_sample_value("leader_election_master_status", {"name": "lock"}) == 1
