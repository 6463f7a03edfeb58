"""Fixtures: scripted daemons, and a server with the kind BitcoinNetwork."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from examples.bitcoin_operator.rpc import RpcClient
from examples.bitcoin_operator.tests.scripted_daemons import ScriptedDaemons
from examples.bitcoin_operator.tests.stage import Stage, stage


@pytest.fixture
async def daemons() -> AsyncIterator[ScriptedDaemons]:
    """Scripted daemons, which a test gets by address."""
    async with ScriptedDaemons() as found:
        yield found


@pytest.fixture
async def rpc(daemons: ScriptedDaemons) -> AsyncIterator[RpcClient]:
    """A client of the scripted daemons."""
    async with daemons.client() as client:
        yield client


@pytest.fixture
async def at() -> AsyncIterator[Stage]:
    """A server with the kind BitcoinNetwork and without controllers; see ``Stage``."""
    async with stage() as found:
        yield found
