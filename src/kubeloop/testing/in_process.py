"""``HandlerServer``: the API server in the test's event loop and without a socket, for unit tests; starts in milliseconds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kubeloop.apiserver.admission.plugins import AdmissionOptions
from kubeloop.apiserver.builtin.services.ranges import ServiceRanges
from kubeloop.apiserver.server import ApiServer, ServerOptions
from kubeloop.apiserver.storage import MemoryStorage, Storage
from kubeloop.config import ClusterConfig
from kubeloop.endpoints.access import MASTERS, User
from kubeloop.tasks import close_all
from kubeloop.testing.accounts import WITHOUT_ACCOUNTS
from kubeloop.testing.faults import Faults
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import Transport
from kubeloop.transport.in_process import InProcessSender

if TYPE_CHECKING:
    from kubeloop.client import Client

_NUMBERS = itertools.count(1)

#: The default user: the administrator of a ``LocalCluster``.
ADMINISTRATOR = "kubeloop-admin"


class HandlerServer:
    """A new API server without controllers, whose clients call its handler directly. ``async with``.

    Guarantees
        Objects, validation, defaults, field ownership, errors and watches are those of ``LocalCluster``: it is the same server.
        Every request and response is bytes, so that no object is shared between a test and the server.
        ``faults`` injects faults, and records all requests.

    Not guaranteed
        Features that need a connection: exec, attach and port-forward end with TransportError. Informers, TLS and credentials are tested
        elsewhere.
        Objects of Kubernetes' own components (default roles, flow control, API services), without ``provision``.

    Args:
        clock: The clock of server and clients; a ``FakeClock`` controls the time.
        provision: Create the objects of a new cluster; takes about 20 ms.
        admission: which plug-ins run; unless told, all that kube-apiserver runs by default but ``ServiceAccount``, as no controller makes
            accounts.
        history_revisions: The number of changes in the server's history; 0: those of five minutes. Older versions are answered with 410.
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
        """Return a new transport, for tests with paths and bytes; close it."""
        sender = InProcessSender(lambda: self.api.handler, user, groups)
        self._senders.append(sender)
        return Transport(self.config, clock=self.clock, sender=sender)

    @property
    def config(self) -> ClusterConfig:
        """Return the clients' configuration. There is no socket at its address."""
        return ClusterConfig(server=self.api.url, name=self.name, disable_compression=True, source=f"HandlerServer {self.name}")

    async def restart(self, *, forget: bool = False) -> None:
        """Crash and start again: streams break off, and watches cannot resume from earlier versions (410).

        ``forget``: without the stored objects, so that versions restart.
        """
        await self._end(broken=True)
        await self.api.stop()
        storage: Storage = MemoryStorage(self.clock) if forget else self.api.storage
        self.api = ApiServer(self._options, storage)
        await self._start()

    async def _start(self) -> None:
        self.faults.attend(self.api)
        await self.api.start()

    async def _end(self, *, broken: bool) -> None:
        for sender in self._senders:
            await sender.end_streams(broken=broken)
