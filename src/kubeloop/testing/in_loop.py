"""``InLoopServer``: the API server in the test's own event loop, for tests that command faults or own the clock; they must not block."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from kubeloop.apiserver.authentication import User
from kubeloop.apiserver.kubeconfig import kubeconfig_text
from kubeloop.apiserver.server import ApiServer, ServerOptions
from kubeloop.config import ClusterConfig, Credentials, Pem
from kubeloop.testing.faults import Faults
from kubeloop.timing import Clock, SystemClock


class InLoopServer:
    """A fresh API server without controllers, over real TLS. ``async with``; ``faults`` are the test's to command."""

    def __init__(self, *, clock: Clock | None = None, tokens: Mapping[str, User] | None = None) -> None:
        self.faults = Faults()
        self.api = ApiServer(ServerOptions(tokens=tokens or {}, clock=clock or SystemClock(), wrap=self.faults.wrap))

    async def __aenter__(self) -> Self:
        await self.api.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.api.stop()

    @property
    def url(self) -> str:
        return self.api.url

    @property
    def kubeconfig(self) -> bytes:
        """An administrator's."""
        return kubeconfig_text(self.api.url, self.api.authority, self.api.administrator())

    @property
    def config(self) -> ClusterConfig:
        """An administrator's."""
        own = self.api.administrator()
        credentials = Credentials(client_certificate=Pem(data=own.certificate), client_key=Pem(data=own.key))
        return ClusterConfig(server=self.url, name="in-loop", ca=Pem(data=self.api.authority), credentials=credentials)
