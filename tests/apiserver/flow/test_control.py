"""Which requests are served first, which wait, and which are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.apiserver.flow.control import Flow, FlowControl, FlowLimits, InFlight, RejectedByFlowControl, Seat
from kubeloop.apiserver.flow.queues import shuffle_shard
from kubeloop.endpoints.access import User
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.timing import FakeClock

PODS = RequestInfo("list", "", True, "", "v1", "pods", namespace="shop")
QUEUING = {"queues": 64, "handSize": 2, "queueLengthLimit": 3}
QUEUE = {"type": "Queue", "queuing": QUEUING}


def level(name: str, *, response: dict[str, Any] | None = None, exempt: bool = False, **limited: Any) -> dict[str, Any]:
    if exempt:
        return {"metadata": {"name": name, "uid": f"{name}-uid"}, "spec": {"type": "Exempt"}}
    spec = {"type": "Limited", "limited": {"limitResponse": response or QUEUE, **limited}}
    return {"metadata": {"name": name, "uid": f"{name}-uid"}, "spec": spec}


def schema(name: str, to: str, *groups: str, precedence: int = 1000) -> dict[str, Any]:
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    subjects = [{"kind": "Group", "group": {"name": group}} for group in groups]
    spec = {
        "priorityLevelConfiguration": {"name": to},
        "matchingPrecedence": precedence,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": subjects, "resourceRules": [rule]}],
    }
    return {"metadata": {"name": name, "uid": f"{name}-uid"}, "spec": spec}


def control(*levels: dict[str, Any], seats: int = 4, clock: FakeClock | None = None) -> FlowControl:
    found = FlowControl(FlowLimits(seats, 0), clock or FakeClock())
    for one in levels:
        found.put_level("", one["metadata"]["name"], one)
        found.put_schema("", f"to-{one['metadata']['name']}", schema(f"to-{one['metadata']['name']}", one["metadata"]["name"], "*"))
    return found


def flow(of: FlowControl, user: str, *groups: str) -> Flow:
    found = of.flow_of(User(user, groups or ("all",)), PODS)
    assert found is not None
    return found


class Crowd:
    """Requests that wait or hold a seat, by name, in the order in which they were let in."""

    def __init__(self, of: FlowControl) -> None:
        self.control = of
        self.seats: list[tuple[str, Seat]] = []
        self.ever: list[str] = []
        self.refused: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    def come(self, name: str, at: Flow) -> asyncio.Task[None]:
        async def run() -> None:
            try:
                self.seats.append((name, await self.control.admit(at)))
                self.ever.append(name)
            except RejectedByFlowControl:
                self.refused.append(name)

        self._tasks.append(asyncio.create_task(run()))
        return self._tasks[-1]

    @property
    def served(self) -> list[str]:
        return [name for name, _ in self.seats]

    async def settle(self) -> None:
        for _ in range(100):
            await asyncio.sleep(0)

    async def let_go(self, number: int) -> None:
        """End the first requests that hold seats."""
        for _, seat in self.seats[:number]:
            self.control.release(seat)
        del self.seats[:number]
        await self.settle()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def test_seats_are_given_until_there_are_none_and_then_one_waits_for_another() -> None:
    crowd = Crowd(control(level("one"), seats=3))
    for number in range(5):
        crowd.come(str(number), flow(crowd.control, "alice"))
    await crowd.settle()
    assert crowd.served == ["0", "1", "2"]
    await crowd.let_go(1)
    assert crowd.served == ["1", "2", "3"]
    await crowd.end()


async def test_a_flood_of_one_user_does_not_keep_another_waiting() -> None:
    crowd = Crowd(control(level("one", response={"type": "Queue", "queuing": {**QUEUING, "queueLengthLimit": 100}}), seats=1))
    for number in range(50):
        crowd.come(f"flood-{number}", flow(crowd.control, "mallory"))
    await crowd.settle()
    crowd.come("alice", flow(crowd.control, "alice"))
    await crowd.settle()
    for _ in range(3):  # one may come from each of the other's two queues
        await crowd.let_go(1)
    assert "alice" in crowd.ever
    await crowd.end()


async def test_a_user_with_too_many_waiting_requests_is_refused_and_others_are_not() -> None:
    crowd = Crowd(control(level("one"), seats=1))
    for number in range(10):
        crowd.come(f"mallory-{number}", flow(crowd.control, "mallory"))
    await crowd.settle()
    # A seat, and two queues of three.
    assert crowd.refused == ["mallory-7", "mallory-8", "mallory-9"]
    crowd.come("alice", flow(crowd.control, "alice"))
    await crowd.settle()
    assert "alice" not in crowd.refused
    assert crowd.control.levels["one"].rejected == {("to-one", "queue-full"): 3}
    await crowd.end()


async def test_a_level_without_queues_refuses_beyond_its_seats() -> None:
    crowd = Crowd(control(level("one", response={"type": "Reject"}), seats=2))
    for number in range(4):
        crowd.come(str(number), flow(crowd.control, "alice"))
    await crowd.settle()
    assert (crowd.served, crowd.refused) == (["0", "1"], ["2", "3"])
    await crowd.end()


async def test_an_exempt_request_is_never_refused_and_needs_no_seat() -> None:
    crowd = Crowd(control(level("none", exempt=True), seats=1))
    for number in range(100):
        crowd.come(str(number), flow(crowd.control, "root"))
    await crowd.settle()
    assert (len(crowd.served), crowd.refused) == (100, [])
    await crowd.end()


async def test_a_level_lends_what_it_says_and_no_more() -> None:
    lender = level("lender", nominalConcurrencyShares=10, lendablePercent=50)
    crowd = Crowd(control(level("borrower", nominalConcurrencyShares=10), lender, seats=8))
    crowd.control.put_schema("", "to-lender", schema("to-lender", "lender", "lenders", precedence=1))
    for number in range(7):
        crowd.come(str(number), flow(crowd.control, f"user-{number}"))
    await crowd.settle()
    assert len(crowd.served) == 6  # four of this user, two of the other user's four
    for number in range(2):
        crowd.come(f"lender-{number}", flow(crowd.control, "lender", "lenders"))
    await crowd.settle()
    assert crowd.served[-2:] == ["lender-0", "lender-1"]
    await crowd.end()


async def test_a_request_that_waits_for_too_long_is_refused() -> None:
    clock = FakeClock()
    crowd = Crowd(control(level("one"), seats=1, clock=clock))
    for name in ("holds", "waits"):
        crowd.come(name, flow(crowd.control, "alice"))
    await crowd.settle()
    await clock.advance(16)
    await crowd.settle()
    assert (crowd.refused, crowd.control.waiting) == (["waits"], 0)
    await crowd.end()


async def test_a_request_that_is_cancelled_while_waiting_leaves_no_trace() -> None:
    crowd = Crowd(control(level("one"), seats=1))
    crowd.come("holds", flow(crowd.control, "alice"))
    await crowd.settle()
    gone = crowd.come("gone", flow(crowd.control, "alice"))
    await crowd.settle()
    gone.cancel()
    await crowd.settle()
    assert crowd.control.waiting == 0
    await crowd.let_go(1)
    assert crowd.control.levels["one"].executing == 0
    await crowd.end()


async def test_a_request_that_is_cancelled_at_its_start_gives_its_seat_back() -> None:
    crowd = Crowd(control(level("one"), seats=1))
    crowd.come("holds", flow(crowd.control, "alice"))
    await crowd.settle()
    gone = crowd.come("gone", flow(crowd.control, "alice"))
    await crowd.settle()
    crowd.control.release(crowd.seats.pop()[1])
    await asyncio.sleep(0)  # the turn is given, and not yet taken
    gone.cancel()
    await crowd.settle()
    assert crowd.control.levels["one"].executing == 0
    await crowd.end()


def test_the_first_schema_that_matches_counts_and_its_ids_are_sent() -> None:
    found = control(level("one"), level("two"))
    found.put_schema("", "first", schema("first", "two", "devs", precedence=1))
    ours = flow(found, "alice", "devs")
    assert (ours.schema.name, ours.level.name, ours.name) == ("first", "two", "alice")
    assert [value for _, value in ours.headers] == ["first-uid", "two-uid"]
    found.put_schema("", "first", None)
    assert flow(found, "alice", "devs").schema.name != "first"


def test_a_level_that_goes_takes_its_schemas_out_of_force() -> None:
    found = control(level("one"), level("two"))
    found.put_schema("", "first", schema("first", "two", "*", precedence=1))
    found.put_level("", "two", None)
    assert flow(found, "alice").level.name == "one"


def test_seats_are_shared_out_by_shares_rounded_up() -> None:
    found = control(level("one", nominalConcurrencyShares=1), level("two", nominalConcurrencyShares=2), seats=10)
    assert {name: one.nominal for name, one in found.levels.items()} == {"one": 4, "two": 7}


def test_hands_are_of_different_cards_and_always_the_same() -> None:
    hands = [shuffle_shard(f"schema\0user-{number}", 128, 6) for number in range(200)]
    assert all(len(set(hand)) == 6 and min(hand) >= 0 and max(hand) < 128 for hand in hands)
    assert len(set(hands)) > 190
    assert shuffle_shard("schema\0user-1", 128, 6) == hands[1]
    assert sorted(shuffle_shard("any", 4, 4)) == [0, 1, 2, 3]


def test_plain_limits_refuse_all_but_administrators() -> None:
    limits = InFlight(FlowLimits(1, 1, fair=False))
    limits.enter("get")
    with pytest.raises(RejectedByFlowControl):
        limits.check("list", User("alice"))
    limits.check("list", User("root", ("system:masters",)))
    limits.check("create", User("alice"))
    limits.leave("get")
    limits.check("list", User("alice"))


async def test_a_flow_that_was_served_less_than_all_waiting_ones_is_served_at_once() -> None:
    crowd = Crowd(control(level("one", response={"type": "Queue", "queuing": {**QUEUING, "queueLengthLimit": 100}}), seats=100))
    for number in range(60):
        crowd.come(f"flood-{number}", flow(crowd.control, "mallory"))
    crowd.come("alice", flow(crowd.control, "alice"))
    await asyncio.sleep(0)  # one turn of the loop
    assert "alice" in crowd.ever
    assert len(crowd.ever) < 60
    await crowd.settle()
    assert len(crowd.ever) == 61
    await crowd.end()
