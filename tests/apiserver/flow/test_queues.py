"""A request that waits in a queue is never lost, whichever others are admitted, charged and cancelled meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kubeloop.apiserver.flow.queues import FairQueues, FlowQueue, Waiter
from tests.apiserver.flow.test_control import control, flow, level

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.integers(0, 2)),
        st.tuples(st.just("next"), st.just(0)),
        st.tuples(st.just("charge"), st.integers(0, 20)),
        st.tuples(st.just("give up"), st.integers(0, 20)),
    ),
    max_size=60,
)

#: Two requests of one queue end; after the first the queue is dropped, and another begins in its place before the second.
TWICE_CHARGED = [("come", 0), ("come", 0), ("next", 0), ("next", 0), ("charge", 0), ("come", 0), ("charge", 0)]


@pytest.mark.parametrize("hand", [pytest.param(0, id="a queue for each flow"), pytest.param(2, id="hands of queues")])
@settings(max_examples=100)
@given(steps=STEPS)
@example(steps=TWICE_CHARGED)
def test_no_waiting_request_is_lost(hand: int, steps: list[tuple[str, int]]) -> None:
    loop = asyncio.new_event_loop()
    at = flow(control(level("one")), "user")
    queues = FairQueues(4, hand) if hand else FairQueues()
    waiting: list[Waiter] = []
    let_in: list[FlowQueue] = []
    for what, number in steps:
        if what == "come":
            waiter = Waiter(at, loop.create_future(), 0.0)
            queues.add(waiter, queues.shortest("schema", f"user-{number}"))
            waiting.append(waiter)
        elif what == "next" and waiting:
            found = queues.next()
            waiting.remove(found)
            assert found.queue is not None
            let_in.append(found.queue)
        elif what == "charge" and let_in:
            queues.charge(let_in.pop(number % len(let_in)), number % 3 / 1000)
        elif what == "give up" and waiting:
            assert queues.remove(waiting.pop(number % len(waiting)))
        assert queues.length == len(waiting)
    while waiting:
        waiting.remove(queues.next())
    loop.close()
