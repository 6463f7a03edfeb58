"""Tenants take turns."""

import pytest

from kubeloop.meta import ObjectKey
from kubeloop.timing import FakeClock
from kubeloop.workqueue import PriorityQueue, WorkQueue
from kubeloop.workqueue.order import FairOrder

Fair = WorkQueue[str] | PriorityQueue[str]


def tenant(item: str) -> str:
    return item[0]


@pytest.fixture(params=[WorkQueue, PriorityQueue])
def queue(request: pytest.FixtureRequest) -> Fair:
    kind: type[WorkQueue[str] | PriorityQueue[str]] = request.param
    return kind(clock=FakeClock(), tenant=tenant)


async def take(queue: Fair, count: int) -> list[str]:
    found = []
    for _ in range(count):
        item = await queue.get()
        queue.done(item)
        found.append(item)
    return found


async def test_one_key_of_a_tenant_does_not_wait_for_ten_thousand_of_another(queue: Fair) -> None:
    for number in range(10_000):
        queue.add(f"a{number}")
    queue.add("b0")
    assert await take(queue, 4) == ["a0", "b0", "a1", "a2"]


async def test_tenants_take_turns_and_each_is_first_come_first_served(queue: Fair) -> None:
    for item in ("a1", "a2", "a3", "b1", "b2", "c1"):
        queue.add(item)
    assert await take(queue, 6) == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_a_tenant_that_comes_again_is_served_after_waiting_tenants(queue: Fair) -> None:
    for item in ("a1", "b1", "a2"):
        queue.add(item)
    assert await take(queue, 1) == ["a1"]
    queue.add("c1")
    queue.add("a3")
    assert await take(queue, 4) == ["b1", "a2", "c1", "a3"]


async def test_a_processed_item_costs_its_tenant_no_second_turn(queue: Fair) -> None:
    queue.add("a1")
    assert await queue.get() == "a1"
    queue.add("a1")
    queue.add("b1")
    queue.done("a1")
    assert sorted(await take(queue, 2)) == ["a1", "b1"]
    assert len(queue) == 0


async def test_levels_come_first_and_within_a_level_tenants_take_turns() -> None:
    queue: PriorityQueue[str] = PriorityQueue(clock=FakeClock(), tenant=tenant)
    for item, priority in (("a1", 0), ("a2", 0), ("b1", 0), ("a3", 5), ("a4", 5), ("c1", 5), ("a2", 5)):
        queue.add(item, priority=priority)
    assert [await queue.get() for _ in range(6)] == ["a3", "c1", "a4", "a2", "a1", "b1"]


async def test_a_tenant_whose_first_item_is_locked_is_passed_over_and_its_turn_counts_when_another_of_its_items_is_taken() -> None:
    queue: PriorityQueue[str] = PriorityQueue(clock=FakeClock(), tenant=tenant)
    queue.add("a1")
    assert await queue.get() == "a1"
    for item in ("a1", "a2", "a3", "b1"):
        queue.add(item)
    assert [await queue.get(), await queue.get()] == ["a2", "b1"]
    queue.done("a1")
    assert [await queue.get(), await queue.get()] == ["a1", "a3"]


async def test_namespaces_as_tenants() -> None:
    queue: WorkQueue[ObjectKey] = WorkQueue(clock=FakeClock(), tenant=lambda key: key.namespace)
    for key in (ObjectKey("", "big", "1"), ObjectKey("", "big", "2"), ObjectKey("", "small", "1")):
        queue.add(key)
    assert [(await queue.get()).namespace for _ in range(3)] == ["big", "small", "big"]


def test_tenants_without_items_are_forgotten() -> None:
    order: FairOrder[int] = FairOrder(lambda item: item)
    for number in range(1000):
        order.append(number)
        assert order.popleft() == number
    order[1] = 2.5
    assert order.pop(1) == 2.5
    assert len(order) == 0
    assert not order._lines


def test_what_a_fair_order_does_not_hold_cannot_be_taken() -> None:
    order: FairOrder[int] = FairOrder(lambda item: item)
    with pytest.raises(KeyError):
        order.pop(1)
    with pytest.raises(KeyError):
        order.popleft()
    with pytest.raises(ValueError, match="not defined"):
        order.popitem()


async def test_an_item_stays_with_the_tenant_that_it_came_with_whatever_is_said_of_it_later() -> None:
    tenant = {"a": "red", "b": "red", "c": "blue"}
    queue: PriorityQueue[str] = PriorityQueue(clock=FakeClock(), tenant=tenant.__getitem__)
    for item in "abc":
        queue.add(item)
    tenant.clear()
    queue.add("b")
    queue.add("a", priority=1)
    assert [await queue.get() for _ in range(3)] == ["a", "b", "c"]


async def test_an_item_whose_tenant_changed_can_be_raised_and_taken_past_a_held_one() -> None:
    tenant = {"a": "red", "b": "red"}
    queue: PriorityQueue[str] = PriorityQueue(clock=FakeClock(), tenant=tenant.__getitem__)
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("b")
    tenant["b"] = "green"
    queue.add("b", priority=5)
    tenant["b"] = "blue"
    assert await queue.get() == "b"
    queue.done("a")
    assert await queue.get() == "a"


def tenant_or_failure(item: str) -> str:
    if item == "?":
        raise LookupError("no tenant")
    return item[0]


@pytest.mark.parametrize("kind", [WorkQueue, PriorityQueue])
async def test_an_item_without_a_tenant_is_refused_and_the_queue_goes_on(
    kind: type[WorkQueue[str]] | type[PriorityQueue[str]],
) -> None:
    queue = kind(clock=FakeClock(), tenant=tenant_or_failure)
    with pytest.raises(LookupError):
        queue.add("?")
    assert queue.stats == (0, 0, 0, 0, 0)
    queue.add("a1")
    assert await take(queue, 1) == ["a1"]


@pytest.mark.parametrize("kind", [WorkQueue, PriorityQueue])
async def test_a_delayed_item_without_a_tenant_does_not_keep_the_others(
    kind: type[WorkQueue[str]] | type[PriorityQueue[str]],
) -> None:
    clock = FakeClock()
    queue = kind(clock=clock, tenant=tenant_or_failure)
    for item in ("?", "a1"):
        queue.add_after(item, 1)
    with pytest.raises(LookupError):
        await clock.advance(1)
    await clock.advance(1)
    assert await take(queue, 1) == ["a1"]
