"""Shutdown of a server: readiness fails first, then watches end, then pending responses."""

from __future__ import annotations

import asyncio

from kubeloop.apiserver.filters import OperationOptions
from tests.apiserver.conftest import CONFIGMAPS, running_api


async def test_readiness_fails_before_anything_else_ends() -> None:
    async with running_api(operation=OperationOptions(shutdown_delay=3600)) as api:
        ending = asyncio.create_task(api.server.api.stop())
        await asyncio.sleep(0)
        ready = await api("GET", "/readyz?verbose")
        assert (ready.status, "[-]shutdown failed: reason withheld" in ready.text) == (500, True)
        assert (await api("GET", "/readyz/shutdown")).status == 500
        assert (await api("GET", "/livez")).status == 200
        assert (await api("GET", CONFIGMAPS)).status == 200
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        object.__setattr__(api.server.api.options.operation, "shutdown_delay", 0.0)


async def test_only_readiness_has_the_check() -> None:
    async with running_api() as api:
        assert "[+]shutdown ok" in (await api("GET", "/readyz?verbose")).text
        assert "shutdown" not in (await api("GET", "/livez?verbose")).text
        assert (await api("GET", "/livez/shutdown")).status == 404


async def test_watches_end_properly_also_one_after_the_other() -> None:
    async with running_api(operation=OperationOptions(watch_grace=0.05)) as api:
        headers = {"Authorization": "Bearer admin-token"}
        answers = [await api.session.get(f"{CONFIGMAPS}?watch=1", headers=headers) for _ in range(3)]
        await api.server.api.stop()
        # A stream that broke off instead would raise here.
        assert [await answer.content.read() for answer in answers] == [b"", b"", b""]
