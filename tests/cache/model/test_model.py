"""Informers under random histories and random faults end equal to the server, and their handlers get no event that the contract forbids."""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubeloop.testing import TlsTestServer
from tests.cache.model.hurried import HurriedClock
from tests.cache.model.programs import ALWAYS, HANDLERS, NETWORK, SERVER
from tests.cache.model.world import EmbeddedSide, Step, World, leaks
from tests.effort import effort

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.timeout(300),
    # A server that crashes in this loop leaves sockets in the middle of a handshake to the collector, as a process leaves them to the
    # kernel. What informers leave is counted by ``leaks``.
    pytest.mark.filterwarnings("ignore:.*(_SelectorTransport|_SSLProtocolTransport|socket.socket):pytest.PytestUnraisableExceptionWarning"),
]

writes = st.builds(Step, st.just("write"), st.integers(0, 99), st.integers(0, 1 << 30))
others = st.builds(Step, st.sampled_from(sorted(NETWORK | SERVER | HANDLERS | ALWAYS)), st.integers(0, 99), st.integers(0, 1 << 30))
programs = st.lists(st.one_of(writes, writes, others), min_size=10, max_size=30)

#: ``make soak-informers`` plays a program of a million events.
EXAMPLES = effort(short=15, long=50)

#: Events that handlers got, by example.
DELIVERED: list[int] = []


async def play(program: list[Step]) -> list[str]:
    """Return the errors after a program."""
    clock, tasks = HurriedClock(), asyncio.all_tasks()
    async with TlsTestServer(clock=clock, history_revisions=400) as server:
        async with World(EmbeddedSide(server, clock), clock, 1) as world:
            for step in program:
                await world.do(step)
            wrong = await world.settle()
        server.api.break_off()  # what was lost or frozen on the way would be waited for
        await asyncio.sleep(0)
    DELIVERED.append(world.events)
    return wrong + await leaks(tasks, clock, world)


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example])
@given(programs)
def test_after_random_steps_the_cache_equals_the_server_and_handlers_got_no_event_that_the_contract_forbids(program: list[Step]) -> None:
    logging.disable(logging.CRITICAL)  # faults are what this is about, and there are thousands
    try:
        assert asyncio.run(play(program)) == []
    finally:
        logging.disable(logging.NOTSET)


def test_the_examples_of_a_run_are_no_trifle() -> None:
    """What the test above tries is drawn; how much it comes to is said here.

    Hypothesis draws constants of the modules that are loaded too, so it differs with what ran before: from 380 to 480 for each example.
    """
    assert sum(DELIVERED) >= 300 * EXAMPLES, sum(DELIVERED)
