"""``TlsTestServer``: the API server in the test's event loop, for tests that inject faults or control the clock; they must not block."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kubeloop.apiserver.admission.plugins import AdmissionOptions
from kubeloop.apiserver.authentication.options import AuthenticationOptions
from kubeloop.apiserver.authentication.service_accounts.settings import TokenSettings
from kubeloop.apiserver.builtin.services.ranges import ServiceRanges
from kubeloop.apiserver.filters.instrumentation import OperationOptions
from kubeloop.apiserver.server import ApiServer, ServerOptions
from kubeloop.apiserver.server.kubeconfig import kubeconfig_text
from kubeloop.apiserver.storage import MemoryStorage, Storage
from kubeloop.apiserver.storage.sqlite import SqliteStorage
from kubeloop.config import ClusterConfig, Credentials, Pem
from kubeloop.endpoints.access import User
from kubeloop.pki import CertificateAuthority
from kubeloop.tasks import close_all
from kubeloop.testing.accounts import WITHOUT_ACCOUNTS
from kubeloop.testing.faults import Faults
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import Transport

if TYPE_CHECKING:
    from kubeloop.client import Client


class TlsTestServer:
    """A new API server without controllers, over real TLS. ``async with``; ``faults`` injects faults.

    ``data``: a folder to keep objects in, on disk; None: in memory. ``operation``: audit log and limits. ``admission``: which
    plug-ins run, unless told all that kube-apiserver runs by default but ``ServiceAccount``: no controller makes accounts. ``notices``:
    with the ConfigMaps in which a kube-apiserver tells others of itself; without them there are none at the start.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        tokens: Mapping[str, User] | None = None,
        history_revisions: int = 0,
        data: Path | None = None,
        services: ServiceRanges | None = None,
        operation: OperationOptions | None = None,
        admission: AdmissionOptions = WITHOUT_ACCOUNTS,
        notices: bool = False,
    ) -> None:
        self._data = data
        self.faults = Faults(clock)
        self._options = ServerOptions(
            tokens=tokens or {},
            clock=clock or SystemClock(),
            wrap=self.faults.wrap,
            history_revisions=history_revisions,
            services=services or ServiceRanges(),
            operation=operation or OperationOptions(),
            admission=admission,
            notices=notices,
            authority=CertificateAuthority.create("kubeloop-ca"),
            authentication=AuthenticationOptions(accounts=TokenSettings()),
        )
        self.api = ApiServer(self._options)
        self._clients: list[Client] = []

    async def __aenter__(self) -> Self:
        if self._data is not None:
            self.api = ApiServer(self._options, await self._opened(self._data))
        await self._start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await close_all(*(client.close for client in self._clients), lambda: self.api.stop())

    def client(self, namespace: str = "default") -> Client:
        """Return a new administrator's client, closed with the server if not before."""
        from kubeloop.client import Client

        made = Client(self.transport(), namespace=namespace, clock=self._options.clock)
        self._clients.append(made)
        return made

    def transport(self) -> Transport:
        """Return a new administrator's transport, for tests with paths and bytes; close it."""
        return Transport(self.config, clock=self._options.clock)

    async def restart(self, *, forget: bool = False) -> None:
        """Crash and start again at the same address, with the same authority. ``await crash()`` and later ``come_back``
        are its two halves.

        ``forget``: without the stored objects, so that versions restart. Else with them, but, as a real server, unable to resume watches
        from versions before the restart (410).
        """
        await self.crash()
        await self.come_back(forget=forget)

    async def crash(self) -> None:
        """Break streams off, and refuse connections."""
        self.api.break_off()
        await self.api.stop()

    async def come_back(self, *, forget: bool = False) -> None:
        """Start again after ``crash``. Raises ConfigError if another program has taken the port."""
        port = int(self.api.url.rpartition(":")[2])
        storage: Storage
        if self._data is not None:
            if forget:
                shutil.rmtree(self._data)
            storage = await self._opened(self._data)
        else:
            storage = MemoryStorage(self._options.clock) if forget else self.api.storage
        self.api = ApiServer(replace(self._options, port=port), storage)
        await self._start()

    async def _start(self) -> None:
        self.faults.attend(self.api)
        await self.api.start()

    async def _opened(self, data: Path) -> Storage:
        return await SqliteStorage.open(data, self._options.clock)

    @property
    def url(self) -> str:
        return self.api.url

    @property
    def kubeconfig(self) -> bytes:
        """Return an administrator's kubeconfig."""
        return kubeconfig_text(self.api.url, self.api.authority, self.api.administrator())

    @property
    def config(self) -> ClusterConfig:
        """Return an administrator's configuration."""
        own = self.api.administrator()
        credentials = Credentials(client_certificate=Pem(data=own.certificate), client_key=Pem(data=own.key))
        return ClusterConfig(server=self.url, name="in-loop", ca=Pem(data=self.api.authority), credentials=credentials)
