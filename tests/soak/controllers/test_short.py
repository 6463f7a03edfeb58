"""The soak in short: each fault once, one replica killed and one asked to go."""

from __future__ import annotations

import pytest

from tests.soak.controllers.settings import Settings
from tests.soak.controllers.soak_run import run

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("sharded", "replicas"),
    [
        pytest.param(False, 2, id="the next leader goes on where a killed one was"),
        pytest.param(True, 3, id="replicas that share keys go on where a killed one was"),
    ],
)
async def test_each_object_ends_reconciled_by_one_at_a_time_and_from_no_old_state(sharded: bool, replicas: int) -> None:
    """What the issue asks of controllers under faults, by the order of writes at the server. How long it takes does not matter."""
    settings = Settings(
        objects=20,
        rate=20,
        seconds=4,
        controllers=1,
        replicas=replicas,
        sharded=sharded,
        deaths=1,
        every=0.4,
        times=(4.0, 3.0, 0.5),
        longest_pause=0.2,
        memory=False,
    )
    outcome = await run(settings)
    assert not outcome.wrong, "\n".join([*outcome.wrong[:20], outcome.words])
    assert outcome.ended["killed"] == 1
    assert outcome.changes == settings.changes
    assert len(outcome.faults) == 9, "each sort of fault came"
