"""A server in the test's process whose time is the test's, and candidates that stand for election there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kubeloop.testing import HandlerServer
from tests.controller.election.candidates import Candidates, StallingClock


@pytest.fixture
def clock() -> StallingClock:
    return StallingClock()


@pytest.fixture
async def in_process(clock: StallingClock) -> AsyncIterator[HandlerServer]:
    async with HandlerServer(clock=clock) as found:
        yield found


@pytest.fixture
async def candidates(in_process: HandlerServer, clock: StallingClock) -> AsyncIterator[Candidates]:
    found = Candidates(in_process, clock)
    yield found
    await found.end()
