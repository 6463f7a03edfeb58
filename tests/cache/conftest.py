"""An informer's world: a scripted server, a client of it, a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kubeloop.client import Client
from kubeloop.timing import FakeClock
from tests.cache.source import Source, serve


@pytest.fixture
async def source() -> AsyncIterator[Source]:
    source = Source()
    runner = await serve(source)
    yield source
    source.close_watches()
    await runner.cleanup()


@pytest.fixture
async def api(source: Source) -> AsyncIterator[Client]:
    async with source.client() as client:
        yield client


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
