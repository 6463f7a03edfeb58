"""The sync controller with an NGINX that only notes what it gets: which changes lead to a sync, and what a refusal leads to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from examples.ingress_nginx.controller import SyncController, SyncReport
from examples.ingress_nginx.ingress.builder import ObjectRef
from examples.ingress_nginx.model.configuration import Changes, Configuration
from examples.ingress_nginx.nginx.server import ApplyResult, ConfigurationRefused
from examples.ingress_nginx.options import ControllerOptions
from examples.ingress_nginx.tests.objects import ingress, ingress_class, service, slice_of
from kubeloop import Client, Manager
from kubeloop.api.core.v1 import ConfigMap, Event, Namespace
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.meta import ObjectMeta
from kubeloop.testing import HandlerServer
from kubeloop.timing import FakeClock


@dataclass
class NotingNginx:
    """An NGINX that notes each change. ``refuse``: the text of its refusal; empty: it accepts everything."""

    dynamic: bool = False
    refuse: str = ""
    started: Configuration | None = None
    applied: list[Changes] = field(default_factory=list)
    deferred: Changes = field(default_factory=Changes)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def serves_http2_beside_http1(self) -> bool:
        return False

    async def start(self, configuration: Configuration) -> None:
        self.started = configuration

    async def apply(self, configuration: Configuration, changes: Changes, *, may_reload: bool = True) -> ApplyResult:
        if self.refuse:
            raise ConfigurationRefused(self.refuse)
        assert changes.servers <= configuration.servers.keys()
        self.deferred.merge(changes)
        self.changed.set()
        if not may_reload and not self.dynamic:
            return ApplyResult(reloaded=False, deferred="a change")
        self.applied.append(self.deferred)
        self.deferred = Changes()
        return ApplyResult(reloaded=not self.dynamic, reason="a change")

    async def healthy(self) -> None: ...

    async def stop(self) -> None:
        self.started = None


@dataclass
class SyncStage:
    """A running controller. ``reports``: of all its syncs."""

    client: Client
    nginx: NotingNginx
    controller: SyncController
    reports: list[SyncReport]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a report or a change of NGINX fulfils a condition."""
        async with asyncio.timeout(10):
            while not condition():
                self.nginx.changed.clear()
                await self.nginx.changed.wait()

    async def events(self, reason: str) -> list[Event]:
        """Wait for events of a reason, and return them."""
        async with asyncio.timeout(10):
            async with self.client.watch(Event) as events:
                async for event in events:
                    if event.object.reason == reason:
                        break
        return [event async for event in self.client.list(Event) if event.reason == reason]


@asynccontextmanager
async def running(nginx: NotingNginx, options: ControllerOptions | None = None, clock: FakeClock | None = None) -> AsyncIterator[SyncStage]:
    reports: list[SyncReport] = []

    def observe(report: SyncReport) -> None:
        reports.append(report)
        nginx.changed.set()

    async with HandlerServer(loopback_endpoints=True, clock=clock) as server:
        client = server.client("shop")
        await client.create(Namespace(metadata=ObjectMeta(name="shop")))
        await client.create(ingress_class("kubeloop"))
        await client.create(service("web", clusterIP=None))
        await client.create(slice_of("web", "127.0.0.1"))
        controller = SyncController(nginx, options or ControllerOptions(reload_rate=1000), observe)
        stage = SyncStage(client, nginx, controller, reports)
        async with Manager(client, [controller]):
            await stage.until(lambda: bool(reports))
            yield stage


async def test_nginx_starts_without_an_ingress_and_stops_with_the_controller() -> None:
    nginx = NotingNginx()
    async with running(nginx) as stage:
        assert nginx.started is not None
        assert stage.reports[0].error == ""
    assert nginx.started is None


async def test_an_ingress_is_served_after_the_next_sync() -> None:
    async with running(NotingNginx()) as stage:
        await stage.client.create(ingress("a", "x.io / web:80"))
        await stage.until(lambda: bool(stage.nginx.applied))
        assert stage.nginx.applied[0].servers == {((), "x.io")}
        assert stage.controller.configuration.backends["shop-web-80"].endpoints[0].address == "127.0.0.1"


@pytest.mark.parametrize(
    ("patch", "syncs"),
    [
        pytest.param({"metadata": {"annotations": {"a": "b"}}}, False, id="metadata of a slice leads to no sync"),
        pytest.param({"endpoints": [{"addresses": ["127.0.0.2"]}]}, True, id="endpoints of a slice lead to a sync"),
    ],
)
async def test_only_changes_of_served_objects_lead_to_a_sync(patch: dict[str, object], syncs: bool) -> None:
    async with running(NotingNginx()) as stage:
        await stage.client.create(ingress("a", "x.io / web:80"))
        await stage.until(lambda: len(stage.nginx.applied) == 1)
        await stage.client.patch(EndpointSlice, "web-1", patch)
        await stage.client.create(ingress("b", "y.io / web:80"))
        await stage.until(lambda: ((), "y.io") in set().union(*(changes.servers for changes in stage.nginx.applied)))
        assert any(changes.backends for changes in stage.nginx.applied[1:]) == syncs


async def test_a_refused_configuration_is_reported_and_tried_again() -> None:
    async with running(NotingNginx(), ControllerOptions(reload_rate=1000, pod=("shop", "pod-1"))) as stage:
        stage.nginx.refuse = "unknown directive"
        await stage.client.create(ingress("a", "x.io / web:80"))
        await stage.until(lambda: stage.reports[-1].error == "unknown directive")
        stage.nginx.refuse = ""
        await stage.until(lambda: bool(stage.nginx.applied))
        assert stage.nginx.applied[0].servers == {((), "x.io")}
        refusal = next(event for event in await stage.events("RELOAD") if event.type == "Warning")
        assert refusal.involved_object.name == "pod-1"
        assert refusal.message == "Error reloading NGINX: unknown directive"


async def test_a_burst_of_changes_shares_reloads() -> None:
    clock = FakeClock()
    async with running(NotingNginx(), ControllerOptions(reload_rate=1), clock) as stage:
        nginx = stage.nginx
        for number in range(40):
            await stage.client.create(ingress(f"a{number}", f"x{number}.io / web:80"))
        await stage.until(lambda: len(nginx.deferred.servers.union(*(changes.servers for changes in nginx.applied))) == 40)
        assert len(nginx.applied) == 2
        await clock.advance(1)
        await stage.until(lambda: len(nginx.applied) == 3)
        assert nginx.applied[-1].servers
        assert not nginx.deferred


async def test_a_change_that_needs_no_reload_does_not_wait_for_one() -> None:
    async with running(NotingNginx(), ControllerOptions(reload_rate=0.001), FakeClock()) as stage:
        nginx = stage.nginx
        for name in ("x", "y"):
            await stage.client.create(ingress(name, f"{name}.io / web:80"))
            await stage.until(lambda: len(nginx.applied) > (name == "y"))  # noqa: B023 - the wait ends in this turn
        nginx.dynamic = True
        await stage.client.create(ingress("z", "z.io / web:80"))
        await stage.until(lambda: len(nginx.applied) == 3)
        assert nginx.applied[2].servers == {((), "z.io")}


async def test_a_problem_of_an_ingress_becomes_an_event_once() -> None:
    async with running(NotingNginx()) as stage:
        await stage.client.create(ingress("a", "x.io / web:80", "x.io /b none:80"))
        await stage.until(lambda: bool(stage.nginx.applied))
        await stage.client.create(ingress("b", "y.io / web:80"))
        await stage.until(lambda: len(stage.nginx.applied) == 2)
        (event,) = await stage.events("NoEndpoints")
        assert (event.type, event.message, event.count) == ("Warning", "service shop/none does not exist", 1)


def config_map(**data: str) -> ConfigMap:
    values = {key.replace("_", "-"): value for key, value in data.items()}
    return ConfigMap(metadata=ObjectMeta(name="settings", namespace="shop"), data=values)


async def test_a_config_map_that_asks_for_a_missing_protection_is_refused_until_it_is_corrected() -> None:
    async with running(NotingNginx(), ControllerOptions(reload_rate=1000, config_map=("shop", "settings"))) as stage:
        await stage.client.create(config_map(global_auth_url="http://a.b/"))
        await stage.until(lambda: "key global-auth-url: the protection is not supported" in stage.reports[-1].error)
        await stage.client.create(ingress("a", "x.io / web:80"))
        assert not stage.nginx.applied
        await stage.client.patch(ConfigMap, "settings", {"data": {"global-auth-url": None}})
        await stage.until(lambda: bool(stage.nginx.applied))
        assert stage.reports[-1].error == ""


async def test_settings_of_locations_change_the_locations() -> None:
    async with running(NotingNginx(), ControllerOptions(reload_rate=1000, config_map=("shop", "settings"))) as stage:
        await stage.client.create(ingress("a", "x.io / web:80", tls=["cert x.io"]))
        await stage.until(lambda: bool(stage.nginx.applied))
        await stage.client.create(config_map(ssl_redirect="false", hsts="false"))
        await stage.until(lambda: len(stage.nginx.applied) > 1)
        (location,) = stage.controller.configuration.servers[(), "x.io"].locations
        assert (location.routes[0].policy.https_redirect, location.routes[0].policy.hsts) == (0, "")


async def test_a_failure_while_building_loses_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(NotingNginx()) as stage:
        update = stage.controller.builder.update
        failures = [RecursionError("a defect")]

        def fail_once(changed: Iterable[ObjectRef]) -> Changes:
            if failures:
                raise failures.pop()
            return update(changed)

        monkeypatch.setattr(stage.controller.builder, "update", fail_once)
        await stage.client.create(ingress("a", "x.io / web:80"))
        await stage.until(lambda: bool(stage.nginx.applied))
        assert (stage.nginx.applied[0].servers, failures) == ({((), "x.io")}, [])
