"""Fixtures: the whole controller, in each test with Lua and with reloads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from examples.ingress_nginx.tests.stage import ControllerStage, controller_stage, stage_options


@pytest.fixture(params=[pytest.param("lua", marks=pytest.mark.nginx_lua), "reload"])
def mode(request: pytest.FixtureRequest) -> str:
    """Return how NGINX runs: with Lua, or with a reload for each change."""
    return str(request.param)


@pytest.fixture
async def at(mode: str, tmp_path: Path) -> AsyncIterator[ControllerStage]:
    """A cluster, the controller and NGINX; see ``ControllerStage``."""
    async with controller_stage(stage_options(mode, tmp_path / "nginx"), mode) as found:
        yield found
