"""A scripted server that says which cluster it is, and a folder for states."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.cache.source import PATH, Source


@dataclass
class Cluster(Source):
    """``uid`` is its identity; None: no client may read it."""

    uid: str | None = "uid-of-kube-system"
    identity_faults: list[dict[str, Any]] = field(default_factory=list)

    async def identity(self, request: web.Request) -> web.Response:
        fault = self.identity_faults.pop(0) if self.identity_faults else None
        if fault is None and self.uid is None:
            fault = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"}
        if fault is not None:
            return web.json_response(fault, status=fault["code"])
        metadata = {"name": "kube-system", "uid": self.uid, "resourceVersion": "1"}
        return web.json_response({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})


@pytest.fixture
async def source() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    app = web.Application()
    app.router.add_get(PATH, cluster.handle)
    app.router.add_get("/api/v1/namespaces/kube-system", cluster.identity)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, number = runner.addresses[0][:2]
    cluster.url = f"http://{host}:{number}"
    yield cluster
    cluster.close_watches()
    await runner.cleanup()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"
