"""Fixtures: the whole controller, in each test with Lua and with reloads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from examples.ingress_nginx.nginx.binary import find_nginx
from examples.ingress_nginx.nginx.lua_server import LuaNginx
from examples.ingress_nginx.tests.lua_stage import LuaStage
from examples.ingress_nginx.tests.nginx_stage import stage
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


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[LuaStage]:
    """NGINX with Lua and two workers, for tests that have no other NGINX."""
    binary = await find_nginx()
    assert binary.has_lua, "this test needs nginx with Lua: apt install nginx libnginx-mod-http-lua lua-cjson"
    async with stage(LuaNginx(binary, tmp_path / "nginx", resolvers=()), worker_processes=2) as found:
        yield LuaStage(found.nginx, found.configuration)
