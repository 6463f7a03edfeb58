"""Embedded API servers in the test's event loop: a server with TLS on a socket, and a server without a socket."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kubeloop.apiserver.admission.plugins import AdmissionOptions
from kubeloop.apiserver.authentication.options import AuthenticationOptions, TokenSettings
from kubeloop.apiserver.builtin.services.ranges import ServiceRanges
from kubeloop.apiserver.filters import OperationOptions
from kubeloop.apiserver.server import ApiServer, ServerOptions
from kubeloop.apiserver.storage import MemoryStorage, Storage
from kubeloop.apiserver.storage.sqlite import SqliteStorage
from kubeloop.config import ClusterConfig, Credentials, Pem
from kubeloop.config.kubeconfig.generated import kubeconfig_text
from kubeloop.endpoints.access import MASTERS, User
from kubeloop.pki import CertificateAuthority
from kubeloop.tasks import close_all
from kubeloop.testing.faults import Faults
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import Transport
from kubeloop.transport.in_process import InProcessSender

if TYPE_CHECKING:
    from kubeloop.client import Client

WITHOUT_ACCOUNTS = AdmissionOptions(disable=("ServiceAccount",))


class TlsTestServer:
    """A new API server without controllers, over real TLS, in the test's event loop. Use it with ``async with``; ``faults`` injects faults.

    Args:
        clock: The clock of server and clients; a ``FakeClock`` controls the time. None: the system's.
        tokens: Bearer token -> user. None: no tokens.
        history_revisions: Number of changes in the server's history; 0: those of five minutes.
        data: Folder for objects on disk. None: in memory.
        services: Address ranges of Services. None: the defaults.
        operation: Audit log and limits. None: no audit, the default limits.
        admission: Admission plug-ins. Default: those of kube-apiserver without ``ServiceAccount``, as no controller makes accounts.
        notices: Create the ConfigMaps in which a kube-apiserver publishes its authorities.

    Example:
        >>> async with TlsTestServer() as server, server.client() as client:
        ...     namespace = await client.get(Namespace, "default")
        ...     print(server.url.startswith("https://127.0.0.1:"), namespace.metadata.name)
        True default
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
        """Return a new administrator's transport, for tests with paths and bytes. The caller closes it."""
        return Transport(self.config, clock=self._options.clock)

    async def restart(self, *, forget: bool = False) -> None:
        """Crash the server and start it again (``crash``, then ``come_back``), at the same address and with the same authority.

        Watches from versions before the restart cannot be resumed (410), as at a real server. ``forget``: the stored objects are lost too,
        so that versions restart.
        """
        await self.crash()
        await self.come_back(forget=forget)

    async def crash(self) -> None:
        """Stop the server as a crash does: open streams break off, and new connections are refused."""
        self.api.break_off()
        await self.api.stop()

    async def come_back(self, *, forget: bool = False) -> None:
        """Start the server again after ``crash``. ``forget``: without the stored objects.

        Raises:
            ConfigError: Another program uses the port.
        """
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
        self.faults.attach(self.api)
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


_NUMBERS = itertools.count(1)

#: The default user: the administrator of a ``LocalCluster``.
ADMINISTRATOR = "kubeloop-admin"


class HandlerServer:
    """A new API server without controllers, without a socket: its clients call its handler directly. Use it with ``async with``.

    Guarantees
        Objects, validation, defaults, field ownership, errors and watches are those of ``LocalCluster``: it is the same server.
        Every request and response is bytes, so that no object is shared between a test and the server.
        ``faults`` injects faults, and records all requests.

    Not guaranteed
        Features that need a connection: exec, attach and port-forward end with TransportError. Informers, TLS and credentials are tested
        elsewhere.
        Objects of Kubernetes' own components (default roles, flow control, API services), without ``provision``.

    Args:
        clock: The clock of server and clients; a ``FakeClock`` controls the time. None: the system's.
        provision: Create the objects of a new cluster; takes about 20 ms.
        history_revisions: Number of changes in the server's history; 0: those of five minutes. Older versions are answered with 410.
        tokens: Bearer token -> user. None: no tokens.
        services: Address ranges of Services. None: the defaults.
        admission: Admission plug-ins. Default: those of kube-apiserver without ``ServiceAccount``, as no controller makes accounts.
        loopback_endpoints: Allow loopback addresses in Endpoints and EndpointSlices. Kubernetes refuses them.

    Example:
        >>> async with HandlerServer() as server, server.client("default") as client:
        ...     settings = await client.create(ConfigMap(metadata=ObjectMeta(name="settings")))
        ...     print(server.faults.writes[0].verb, settings.metadata.name)
        create settings
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        provision: bool = False,
        history_revisions: int = 0,
        tokens: Mapping[str, User] | None = None,
        services: ServiceRanges | None = None,
        admission: AdmissionOptions = WITHOUT_ACCOUNTS,
        loopback_endpoints: bool = False,
    ) -> None:
        self.name = f"in-process-{next(_NUMBERS)}"
        self.clock: Clock = clock or SystemClock()
        self.faults = Faults(self.clock)
        self._options = ServerOptions(
            tokens=tokens or {},
            clock=self.clock,
            wrap=self.faults.wrap,
            history_revisions=history_revisions,
            services=services or ServiceRanges(),
            listen=False,
            provision=provision,
            admission=admission,
            loopback_endpoints=loopback_endpoints,
        )
        self.api = ApiServer(self._options)
        self._senders: list[InProcessSender] = []
        self._clients: list[Client] = []

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await close_all(*(client.close for client in self._clients), lambda: self._end(broken=False), lambda: self.api.stop())

    def client(self, namespace: str = "default", *, user: str = ADMINISTRATOR, groups: Iterable[str] = (MASTERS,)) -> Client:
        """Return a new client, closed with the server if not before."""
        from kubeloop.client import Client

        made = Client(self.transport(user=user, groups=groups), namespace=namespace, clock=self.clock)
        self._clients.append(made)
        return made

    def transport(self, *, user: str = ADMINISTRATOR, groups: Iterable[str] = (MASTERS,)) -> Transport:
        """Return a new transport, for tests with paths and bytes. The caller closes it."""
        sender = InProcessSender(lambda: self.api.handler, user, groups)
        self._senders.append(sender)
        return Transport(self.config, clock=self.clock, sender=sender)

    @property
    def config(self) -> ClusterConfig:
        """Return the clients' configuration. There is no socket at its address."""
        return ClusterConfig(server=self.api.url, name=self.name, source=f"HandlerServer {self.name}")

    async def restart(self, *, forget: bool = False) -> None:
        """Crash the server and start it again: streams break off, and watches cannot be resumed from earlier versions (410).

        ``forget``: the stored objects are lost too, so that versions restart.
        """
        await self._end(broken=True)
        await self.api.stop()
        storage: Storage = MemoryStorage(self.clock) if forget else self.api.storage
        self.api = ApiServer(self._options, storage)
        await self._start()

    async def _start(self) -> None:
        self.faults.attach(self.api)
        await self.api.start()

    async def _end(self, *, broken: bool) -> None:
        for sender in self._senders:
            await sender.end_streams(broken=broken)
