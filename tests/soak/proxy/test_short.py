"""The short form of ``make soak-proxy``, with kubeloop's informers only."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kubeloop.proxy import RuleSet
from tests.servers import ServerUnderTest
from tests.soak.proxy.run import ProxyRun, Settings, random_rules, run

MODES = pytest.mark.parametrize("cache", ["never", "always"])


async def played(settings: Settings, folder: Path) -> None:
    """Run, and check the stores and whether the proxy caches."""
    cached = False

    def report(finished: ProxyRun, _: int) -> None:
        nonlocal cached
        cached = finished.has_cached

    assert await run(settings, folder, report) == []
    assert cached == (settings.cache == "always")


@pytest.mark.embedded
@MODES
async def test_all_stores_equal_the_rewritten_state_after_random_rules_writes_and_faults(tmp_path: Path, cache: str) -> None:
    await played(Settings(rounds=3, steps=40, seed=7, go=False, cache=cache), tmp_path)


@pytest.mark.server
@MODES
async def test_all_stores_equal_the_rewritten_state_after_connections_broke(tmp_path: Path, cache: str, server: ServerUnderTest) -> None:
    await played(Settings(rounds=1, steps=60, seed=8, go=False, cache=cache, real=server.kubeconfig), tmp_path)


def test_random_rules_are_rules_and_always_remove_the_secret() -> None:
    rng = random.Random(1)
    for _ in range(20):
        assert RuleSet.parse(random_rules(rng)).rules[0].name == "no-secrets"
