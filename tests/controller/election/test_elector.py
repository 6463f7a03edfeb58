"""The elector against a server in this process, time being the test's: who leads when, and which requests that takes."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from kubeloop.api.coordination.v1 import Lease
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import ALL_NAMESPACES
from kubeloop.controller.election import LeaseLost
from kubeloop.meta import Conflict, Forbidden, NotFound, ObjectMeta
from kubeloop.testing import HandlerServer, on
from kubeloop.transport import logger_with_context
from tests.controller.election.candidates import Candidates, StallingClock, of


async def test_a_lease_that_is_not_there_is_created_and_its_maker_leads(candidates: Candidates, clock: StallingClock) -> None:
    """Behaviour I121."""
    one = candidates.start("a")
    await clock.advance(0)
    assert one.elector.is_leader
    spec = (await candidates.lease()).spec
    assert (spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions) == ("a", 15, 0)
    assert spec.acquire_time == spec.renew_time == clock.wall()


async def test_a_lease_of_another_is_taken_when_it_was_not_seen_to_change_for_its_duration(
    candidates: Candidates, clock: StallingClock
) -> None:
    """Behaviours I121 to I123."""
    await candidates.hold("gone", duration=30, renewed=clock.wall() - timedelta(days=1))
    one = candidates.start("a")
    await clock.advance(29.9)
    assert candidates.leading == []
    await clock.advance(4.4)
    assert one.elector.is_leader
    spec = (await candidates.lease()).spec
    assert (spec.lease_transitions, one.elector.transitions) == (4, 4)
    assert spec.acquire_time == spec.renew_time
    assert one.elector.log_fields == {"lease": "default/lock", "lease_transitions": "4"}


async def test_a_lease_without_a_holder_is_taken_at_once(candidates: Candidates, clock: StallingClock) -> None:
    """Behaviour I121."""
    await candidates.hold("")
    one = candidates.start("a")
    await clock.advance(0)
    assert one.elector.is_leader
    assert one.elector.transitions == 4


async def test_its_own_lease_is_renewed_without_a_new_term(candidates: Candidates, clock: StallingClock) -> None:
    """Behaviours I121, I122."""
    before = await candidates.hold("a")
    one = candidates.start("a")
    await clock.advance(4)
    assert one.elector.is_leader
    spec = (await candidates.lease()).spec
    assert (spec.lease_transitions, spec.acquire_time) == (3, before.spec.acquire_time)
    assert spec.renew_time == clock.wall()


async def test_a_leader_renews_without_reading(candidates: Candidates, clock: StallingClock) -> None:
    """Behaviour I124."""
    one = candidates.start("a")
    await clock.advance(0)
    candidates.verbs("a")
    await clock.advance(20)
    assert candidates.verbs("a") == ["update"] * 10
    assert one.elector.is_leader
    assert one.elector.slow_renewals == 0


async def test_a_refused_renewal_reads_and_writes_again_in_the_same_try(candidates: Candidates, clock: StallingClock) -> None:
    """Behaviour I124."""
    one = candidates.start("a")
    await clock.advance(1)
    candidates.verbs("a")
    await candidates.touch()
    await clock.advance(1)
    assert candidates.verbs("a") == ["update", "get", "update"]
    assert one.elector.slow_renewals == 1
    lease = await candidates.lease()
    assert lease.metadata.annotations == {"note": "1"}
    assert lease.spec.renew_time == clock.wall()


async def test_a_deleted_lease_is_recreated_in_the_same_term(candidates: Candidates, clock: StallingClock) -> None:
    await candidates.hold("")
    one = candidates.start("a")
    await clock.advance(1)
    await candidates.server.client().delete(Lease, "lock")
    await clock.advance(1)
    assert one.elector.is_leader
    assert (await candidates.lease()).spec.lease_transitions == 4


async def test_on_stop_the_lease_is_given_back_and_the_next_one_need_not_wait(candidates: Candidates, clock: StallingClock) -> None:
    """Behaviours I125, I127."""
    one, two = candidates.start("a"), candidates.make("b")
    await clock.advance(0)
    two.start()
    await clock.advance(6)
    candidates.verbs("a")
    assert await one.stop() is None
    assert candidates.verbs("a") == ["get", "update"]
    spec = (await candidates.lease()).spec
    assert (spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions) == ("", 1, 0)
    assert one.calls == ["started", "ended", "stopped"]
    await clock.advance(4.4)
    assert candidates.leading == ["b"]
    assert two.elector.transitions == 1


async def test_who_does_not_hold_the_lease_writes_nothing_on_stop(candidates: Candidates, clock: StallingClock) -> None:
    """Behaviours I125, I127, X10: its stop is reported all the same."""
    await candidates.hold("other")
    one = candidates.start("a")
    await clock.advance(0)
    candidates.verbs("a")
    await one.stop()
    assert candidates.verbs("a") == ["get"]
    assert one.calls == ["stopped"]


async def test_without_release_on_stop_the_lease_stays(candidates: Candidates, clock: StallingClock) -> None:
    one = candidates.start("a", release_on_stop=False)
    await clock.advance(0)
    await one.stop()
    assert (await candidates.lease()).spec.holder_identity == "a"
    assert not one.elector.is_leader


async def test_a_conflict_while_releasing_is_tried_again(candidates: Candidates, in_process: HandlerServer, clock: StallingClock) -> None:
    """Behaviour I125."""
    one = candidates.start("a")
    await clock.advance(1)
    in_process.faults.refuse(Conflict, times=2, matching=on("update", Lease))
    assert one.task is not None
    one.task.cancel()
    await clock.advance(1)
    await one.ended()
    assert (await candidates.lease()).spec.holder_identity == ""


async def test_conflicts_without_end_end_a_release_at_the_renew_deadline(
    candidates: Candidates, in_process: HandlerServer, clock: StallingClock
) -> None:
    """Behaviour I125."""
    one = candidates.start("a")
    await clock.advance(1)
    in_process.faults.refuse(Conflict, times=1000, matching=on("update", Lease))
    assert one.task is not None
    one.task.cancel()
    await clock.advance(9.9)
    assert not one.task.done()
    await clock.advance(0.1)
    assert one.task.done()
    await one.ended()
    assert one.calls == ["started", "ended", "stopped"]


@pytest.mark.parametrize(
    ("verb", "disturbed"),
    [pytest.param("update", False, id="in an update"), pytest.param("get", True, id="in a get")],
)
async def test_a_stop_in_the_middle_of_a_request_releases_too(
    verb: str, disturbed: bool, candidates: Candidates, in_process: HandlerServer, clock: StallingClock
) -> None:
    """Behaviour I126."""
    one = candidates.start("a")
    await clock.advance(1)
    if disturbed:
        await candidates.touch()
    in_process.faults.delay(3, matching=on(verb, Lease))
    await clock.advance(1.5)
    assert candidates.verbs("a")[-1] == verb
    await one.stop()
    assert (await candidates.lease()).spec.holder_identity == ""


async def test_a_stop_while_the_lease_is_being_won_releases_what_the_server_wrote(
    candidates: Candidates, in_process: HandlerServer, clock: StallingClock
) -> None:
    """Behaviour I126: the create was carried out, its answer never came."""
    made = in_process.client()

    async def carry_out(call: object) -> None:
        await candidates.hold("a")
        await clock.sleep(100)

    in_process.faults.react(carry_out, matching=of("a", "create"))
    one = candidates.start("a")
    await clock.advance(1)
    assert not one.elector.is_leader
    await one.stop()
    assert (await made.get(Lease, "lock")).spec.holder_identity == ""


async def test_new_leaders_are_reported_once_each(candidates: Candidates, clock: StallingClock) -> None:
    """Behaviour I127."""
    one = candidates.start("a", release_on_stop=False)
    await clock.advance(0)
    two = candidates.start("b")
    await clock.advance(30)
    assert (one.leaders, two.leaders) == (["a"], ["a"])
    await one.stop()
    await clock.advance(30)
    assert two.leaders == ["a", "b"]


async def test_what_on_new_leader_raises_does_not_end_the_election(candidates: Candidates, clock: StallingClock) -> None:
    one = candidates.make("a")
    one.elector._on_new_leader = lambda _: 1 / 0
    one.start()
    await clock.advance(30)
    assert one.elector.is_leader


async def test_a_leader_that_cannot_renew_gives_up_at_the_renew_deadline_and_keeps_no_work(
    candidates: Candidates, in_process: HandlerServer, clock: StallingClock
) -> None:
    """Counted from when the last renewal was sent: 2 s before the server went away."""
    one = candidates.start("a")
    await clock.advance(3.9)
    let_go = in_process.faults.hold(matching=of("a"))
    await clock.advance(8.0)
    assert candidates.leading == ["a"]
    assert "ended" not in one.calls
    await clock.advance(0.1)
    assert not one.elector.is_leader
    assert one.calls == ["started", "ended"]
    let_go()
    error = await one.ended()
    assert isinstance(error, LeaseLost)
    assert (
        str(error) == "lease default/lock is lost: not renewed for 10.0 s (renew_deadline is 10 s); it cannot be written: no answer in time"
    )


async def test_no_request_outlives_the_renew_deadline(candidates: Candidates, in_process: HandlerServer, clock: StallingClock) -> None:
    """A renewal that hangs leaves time for another: half of the deadline each."""
    one = candidates.start("a")
    await clock.advance(1)
    in_process.faults.delay(1000, matching=on("update", Lease))
    candidates.verbs("a")
    await clock.advance(5.9)
    assert candidates.verbs("a") == ["update"]
    await clock.advance(0.1 + 1e-6)
    assert candidates.verbs("a") == ["get", "update"]
    assert one.elector.is_leader


async def test_a_leader_that_stood_still_stops_before_anything_else_is_done(candidates: Candidates, clock: StallingClock) -> None:
    """It knows by the clock alone, without a turn of the loop, and does not ask the server whether it might go on."""
    one = candidates.start("a")
    await clock.advance(3)
    candidates.verbs("a")
    clock.stall(9.0)
    assert not one.elector.is_leader
    with pytest.raises(LeaseLost, match="not renewed for"):
        one.elector.assert_leading()
    await clock.advance(0)
    assert isinstance(await one.ended(), LeaseLost)
    assert candidates.verbs("a") == ["get", "update"]  # the release, after the work has ended


async def test_a_short_standstill_costs_nothing(candidates: Candidates, clock: StallingClock) -> None:
    one = candidates.start("a")
    await clock.advance(3)
    clock.stall(8.9)
    assert one.elector.is_leader
    await clock.advance(1)
    assert one.elector.is_leader
    assert one.calls == ["started"]


async def test_an_answer_that_comes_after_the_deadline_does_not_make_a_leader(
    candidates: Candidates, in_process: HandlerServer, clock: StallingClock
) -> None:
    """The process stood still between request and answer: by the time that it reads the answer others may lead."""
    in_process.faults.delay(1, matching=on("create", Lease))
    one = candidates.start("a")
    await clock.advance(0.5)
    clock.stall(20)
    assert not one.elector.is_leader
    await clock.advance(0)
    assert not one.elector.is_leader
    assert "started" not in one.calls


@pytest.mark.parametrize("jump", [pytest.param(86400.0, id="forward"), pytest.param(-86400.0, id="back")])
async def test_a_step_of_the_time_of_day_changes_nothing(jump: float, candidates: Candidates, clock: StallingClock) -> None:
    """Behaviour I123: the monotonic clock counts."""
    one, two = candidates.start("a"), candidates.make("b")
    await clock.advance(0)
    two.start()
    await clock.advance(5)
    clock.step_wall(jump)
    await clock.advance(60)
    assert candidates.leading == ["a"]
    assert one.calls == ["started"]
    assert two.leaders == ["a"]


async def test_a_leader_that_hears_of_another_one_stops_at_once(candidates: Candidates, clock: StallingClock) -> None:
    one = candidates.start("a")
    await clock.advance(1)
    lease = await candidates.lease()
    lease.spec.holder_identity = "b"
    await candidates.server.client().update(lease)
    await clock.advance(1)
    assert str(await one.ended()) == 'lease default/lock is lost: "b" holds it'
    assert (await candidates.lease()).spec.holder_identity == "b"
    assert one.leaders == ["a", "b"]


async def test_a_leader_whose_lease_was_emptied_does_not_win_it_back_in_the_same_term(candidates: Candidates, clock: StallingClock) -> None:
    one = candidates.start("a")
    await clock.advance(1)
    lease = await candidates.lease()
    lease.spec.holder_identity = ""
    await candidates.server.client().update(lease)
    await clock.advance(1)
    assert "released or taken over" in str(await one.ended())


async def test_the_health_check_fails_only_for_a_leader_that_has_not_noticed(candidates: Candidates, clock: StallingClock) -> None:
    """Behaviour I128: nothing but a loop that stands still gets there."""
    one, two = candidates.start("a"), candidates.make("b")
    await clock.advance(0)
    two.start()
    await clock.advance(2)
    clock.stall(15 + 20 - 2)
    one.elector.check(20)
    clock.stall(2.1)
    with pytest.raises(LeaseLost, match="failed election to renew leadership on lease lock"):
        one.elector.check(20)
    two.elector.check(20)
    await clock.advance(0)
    one.elector.check(20)


async def test_what_the_server_refuses_is_tried_again_until_it_no_longer_does(
    candidates: Candidates, in_process: HandlerServer, clock: StallingClock, caplog: pytest.LogCaptureFixture
) -> None:
    in_process.faults.refuse(Forbidden, times=5, matching=on("create", Lease))
    one = candidates.start("a")
    await clock.advance(30)
    assert one.elector.is_leader
    complaints = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(complaints) == 1
    assert "lease default/lock cannot be written: Forbidden: refused by a test" in complaints[0].message


async def test_a_leader_survives_a_server_that_restarts(candidates: Candidates, in_process: HandlerServer, clock: StallingClock) -> None:
    one = candidates.start("a")
    await clock.advance(3)
    in_process.faults.refuse(NotFound, times=3, matching=of("a"))
    await in_process.restart()
    await clock.advance(30)
    assert one.elector.is_leader
    assert one.calls == ["started"]


async def test_a_server_that_forgot_everything_gets_its_lease_again(
    candidates: Candidates, in_process: HandlerServer, clock: StallingClock
) -> None:
    one = candidates.start("a")
    await clock.advance(3)
    await in_process.restart(forget=True)
    await clock.advance(10)
    assert candidates.leading == ["a"]
    assert (await candidates.lease()).spec.holder_identity == "a"
    assert one.calls == ["started"]


async def test_the_end_of_the_work_ends_the_run_and_releases(candidates: Candidates, clock: StallingClock) -> None:
    one = candidates.make("a")
    stopped: list[str] = []

    async def work() -> None:
        await clock.sleep(5)

    async with asyncio.TaskGroup() as group:
        group.create_task(one.elector.run(work, lambda: stopped.append("stopped")))
        await clock.advance(6)
    assert stopped == ["stopped"]
    assert (await candidates.lease()).spec.holder_identity == ""


async def test_the_lease_is_renewed_while_the_work_is_ending(candidates: Candidates, clock: StallingClock) -> None:
    one = candidates.make("a")

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await clock.sleep(40)

    one.task = asyncio.create_task(one.elector.run(work))
    await clock.advance(1)
    one.task.cancel()
    await clock.advance(39)
    assert one.elector.is_leader
    await clock.advance(2)
    assert one.task.done()
    assert (await candidates.lease()).spec.holder_identity == ""


async def test_an_impatient_stop_does_not_release_a_lease_that_is_still_in_use(candidates: Candidates, clock: StallingClock) -> None:
    one = candidates.make("a")
    done = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await done.wait()

    one.task = asyncio.create_task(one.elector.run(work))
    await clock.advance(1)
    one.task.cancel()
    await clock.advance(1)
    one.task.cancel()
    await clock.advance(1)
    assert one.task.done()
    assert (await candidates.lease()).spec.holder_identity == "a"
    done.set()
    await clock.advance(0)


async def test_an_error_of_the_work_is_raised(candidates: Candidates, clock: StallingClock) -> None:
    one = candidates.make("a")

    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await one.elector.run(work)
    assert (await candidates.lease()).spec.holder_identity == ""


async def test_a_write_that_wakes_up_after_a_standstill_is_not_sent(candidates: Candidates, clock: StallingClock) -> None:
    """The loop stood still for longer than the lease: whatever of the leader's work is woken first, its write is looked at."""
    one = candidates.make("a")
    outcomes: list[object] = []

    async def work() -> None:
        async def write(name: str) -> None:
            await one.client.create(ConfigMap(metadata=ObjectMeta(name=name)))
            outcomes.append("written")
            await clock.sleep(1.5)
            try:
                await one.client.create(ConfigMap(metadata=ObjectMeta(name=f"{name}-late")))
            except LeaseLost as error:
                outcomes.append(type(error))
            outcomes.append(len(await one.client.list(ConfigMap, label_selector="no=such", namespace=ALL_NAMESPACES)))

        async with asyncio.TaskGroup() as group:
            group.create_task(write("a"))
            await asyncio.Event().wait()

    one.task = asyncio.create_task(one.elector.run(work))
    await clock.advance(1)
    clock.stall(15)
    await clock.advance(0)
    assert isinstance(await one.ended(), LeaseLost)
    assert outcomes == ["written", LeaseLost, 0]
    await one.client.create(ConfigMap(metadata=ObjectMeta(name="not-of-the-leader")))


async def test_records_of_a_leaders_work_say_which_lease_and_term(
    candidates: Candidates, clock: StallingClock, caplog: pytest.LogCaptureFixture
) -> None:
    await candidates.hold("", transitions=6)
    one = candidates.make("a")
    log = logger_with_context("tests.leading")

    async def work() -> None:
        log.warning("working")

    await one.elector.run(work)
    record = next(record for record in caplog.records if record.name == "tests.leading")
    assert record.__dict__["kubeloop"] == {"lease": "default/lock", "lease_transitions": "7"}
