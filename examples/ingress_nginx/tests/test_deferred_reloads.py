"""Changes while no reload is allowed: with Lua, endpoints reach NGINX at once, and the rest with the next reload."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from examples.ingress_nginx.model.configuration import Changes, changes_between
from examples.ingress_nginx.model.policy import DEFAULT_POLICY, Policy
from examples.ingress_nginx.nginx.binary import find_nginx
from examples.ingress_nginx.nginx.lua_server import LuaNginx
from examples.ingress_nginx.nginx.static_server import StaticNginx
from examples.ingress_nginx.tests.nginx_stage import EchoBackend, Stage, echo_backends, prefix, server, stage

#: A policy that nginx.conf must have before a host can use it.
NEW_POLICY = replace(DEFAULT_POLICY, body_size=77)


async def change(running: Stage, policy: Policy, port: int, *, may_reload: bool) -> str:
    """Add the host b.test with a policy, move the backend web to a port, and return why a reload was deferred."""
    old = running.configuration
    added = server("b.test", prefix("/", "web", policy))
    web = old.backends["web"]
    moved = replace(web, endpoints=tuple(replace(endpoint, port=port) for endpoint in web.endpoints))
    new = replace(old, servers={**old.servers, added.key: added}, backends={**old.backends, "web": moved})
    applied = await running.nginx.apply(new, changes_between(old, new), may_reload=may_reload)
    running.configuration = new
    return applied.deferred


async def answers(running: Stage) -> list[str | int]:
    found = [await running.get(host) for host in ("a.test", "b.test")]
    return [answer.seen["backend"] if answer.status == 200 else answer.status for answer in found]


@pytest.mark.nginx_lua
@pytest.mark.parametrize(
    ("policy", "deferred", "seen"),
    [
        pytest.param(DEFAULT_POLICY, False, ["second", "second"], id="a host of a known policy needs no reload"),
        pytest.param(NEW_POLICY, True, ["second", 404], id="a host of a new policy waits, endpoints do not"),
    ],
)
async def test_with_lua(policy: Policy, deferred: bool, seen: list[str | int], tmp_path: Path) -> None:
    first, second = EchoBackend("first"), EchoBackend("second")
    async with (
        echo_backends(first, second) as backends,
        stage(LuaNginx(await find_nginx(), tmp_path / "nginx", resolvers=())) as running,
    ):
        await running.start(server("a.test", prefix("/", "web")), backends={"web": replace(backends["first"], name="web")})
        assert await answers(running) == ["first", 404]
        assert bool(await change(running, policy, second.port, may_reload=False)) == deferred
        assert await answers(running) == seen
        applied = await running.nginx.apply(running.configuration, Changes())
        assert (applied.reloaded, applied.deferred) == (deferred, "")
        assert await answers(running) == ["second", "second"]


async def test_without_lua_everything_waits_for_the_reload(tmp_path: Path) -> None:
    first, second = EchoBackend("first"), EchoBackend("second")
    async with (
        echo_backends(first, second) as backends,
        stage(StaticNginx(await find_nginx(lua=False), tmp_path / "nginx", resolvers=())) as running,
    ):
        await running.start(server("a.test", prefix("/", "web")), backends={"web": replace(backends["first"], name="web")})
        assert await change(running, DEFAULT_POLICY, second.port, may_reload=False) == "1 server, 1 backend changed"
        assert await answers(running) == ["first", 404]
        applied = await running.nginx.apply(running.configuration, Changes())
        assert (applied.reloaded, applied.reason) == (True, "1 server, 1 backend changed")
        assert await answers(running) == ["second", "second"]


@pytest.mark.nginx_lua
async def test_a_restarted_nginx_gets_the_documents_that_its_configuration_knows(tmp_path: Path) -> None:
    first, second = EchoBackend("first"), EchoBackend("second")
    nginx = LuaNginx(await find_nginx(), tmp_path / "nginx", resolvers=())
    async with echo_backends(first, second) as backends, stage(nginx) as running:
        await running.start(server("a.test", prefix("/", "web")), backends={"web": replace(backends["first"], name="web")})
        assert await change(running, NEW_POLICY, second.port, may_reload=False)
        await nginx._channel.send_all({})
        assert await answers(running) == [404, 404]
        await nginx._send_after_restart()
        assert await answers(running) == ["second", 404]
        await nginx.apply(running.configuration, Changes())
        assert await answers(running) == ["second", "second"]
