"""When an APIService is looked at, by the server's clock, and by which certificate the server is known to those behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from kubeloop.timing import FakeClock
from tests.apiserver.aggregation.conftest import API_SERVICES
from tests.apiserver.aggregation.extension import Extension, extension_server
from tests.apiserver.conftest import Api, running_api

pytestmark = pytest.mark.embedded

NAME = "v1.probed.example.com"


@asynccontextmanager
async def registered(api: Api, extension: Extension) -> AsyncIterator[None]:
    await api.create("extension", "/api/v1/namespaces/default/services", spec={"type": "ExternalName", "externalName": "127.0.0.1"})
    spec = {
        "group": extension.group,
        "version": "v1",
        "groupPriorityMinimum": 100,
        "versionPriority": 10,
        "caBundle": extension.bundle,
        "service": {"namespace": "default", "name": "extension", "port": extension.port},
    }
    await api.create(NAME, API_SERVICES, spec=spec)
    yield


async def reason(api: Api) -> str:
    conditions = (await api("GET", f"{API_SERVICES}/{NAME}")).body["status"].get("conditions") or [{}]
    return str(conditions[0].get("reason", ""))


async def until(api: Api, expected: str, clock: FakeClock | None = None) -> None:
    """``clock``: a second passes with each look, as the next one may not be waited for yet."""
    async with asyncio.timeout(30):
        while await reason(api) != expected:
            if clock is not None:
                await clock.advance(1)
            await asyncio.sleep(0.01)


async def test_what_fails_is_noticed_as_time_passes_and_what_recovers_too() -> None:
    clock = FakeClock()
    async with (
        running_api(clock) as api,
        extension_server("probed.example.com", "extension.default.svc") as extension,
        registered(api, extension),
    ):
        await until(api, "Passed")
        extension.healthy = False
        await until(api, "FailedDiscoveryCheck", clock)
        extension.healthy = True
        await until(api, "Passed", clock)


async def test_while_no_time_passes_and_nothing_changes_no_backend_is_probed() -> None:
    async with (
        running_api(FakeClock()) as api,
        extension_server("probed.example.com", "extension.default.svc") as extension,
        registered(api, extension),
    ):
        await until(api, "Passed")
        async with asyncio.timeout(30):
            while not extension.seen("/openapi/v2"):  # the last that is read
                await asyncio.sleep(0.01)
        asked = len(extension.requests)
        for _ in range(5):
            await api("GET", "/version")
        assert len(extension.requests) == asked


async def test_a_request_that_cannot_be_passed_on_has_the_server_looked_at_at_once() -> None:
    async def hang_up(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with (
        running_api(FakeClock()) as api,
        extension_server("probed.example.com", "extension.default.svc") as extension,
        registered(api, extension),
    ):
        await until(api, "Passed")
        async with asyncio.timeout(30):
            while (await api("GET", extension.path)).status != 200:
                await asyncio.sleep(0.01)
        extension.scripts[extension.path] = hang_up
        assert (await api("GET", extension.path)).status == 503
        await until(api, "FailedDiscoveryCheck")


async def test_the_server_is_known_by_a_certificate_of_the_front_proxy_authority() -> None:
    async with running_api() as api:
        authority = api.server.api.front_proxy.authority
        published = (await api("GET", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")).body["data"]
        assert published["requestheader-client-ca-file"].strip() == authority.decode().strip()
        async with extension_server("probed.example.com", "extension.default.svc", clients=authority) as extension:
            async with registered(api, extension):
                await until(api, "Passed")
            assert {one.subject for one in extension.requests} == {"front-proxy-client"}


async def test_a_server_elsewhere_is_not_dialled() -> None:
    async with (
        running_api() as api,
        extension_server("probed.example.com", "extension.default.svc") as extension,
        registered(api, extension),
    ):
        patch = {"spec": {"externalName": "192.0.2.1"}}
        await api("PATCH", "/api/v1/namespaces/default/services/extension", patch, content="application/merge-patch+json")
        await until(api, "FailedDiscoveryCheck")
        found = (await api("GET", f"{API_SERVICES}/{NAME}")).body["status"]["conditions"][0]
        assert "192.0.2.1 is not a loopback address" in found["message"]
        assert "--allow-remote-backends" in found["message"]
