"""The embedded server: builds storage, watch cache, registry, admission, pipeline, listener and certificates, and runs them."""

from __future__ import annotations

import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kubeloop.apiserver.admission import Admission
from kubeloop.apiserver.admission.plugins import AdmissionOptions, PluginInitializer, plugins
from kubeloop.apiserver.aggregation.aggregator import Aggregator
from kubeloop.apiserver.authentication.authentication import Authentication
from kubeloop.apiserver.authentication.certificates import LOOPBACK_NAME, ServingCertificates
from kubeloop.apiserver.authentication.options import AuthenticationOptions
from kubeloop.apiserver.authorization import MODES, Authorization
from kubeloop.apiserver.authorization.escalation_check import EscalationCheck
from kubeloop.apiserver.builtin.services.ranges import ServiceRanges
from kubeloop.apiserver.crd.controller import DefinitionController
from kubeloop.apiserver.discovery import Discovery
from kubeloop.apiserver.filters import OperationOptions, RequestFilters
from kubeloop.apiserver.flow.schemas import SchemaStatus
from kubeloop.apiserver.handlers.kubelet.credentials import KubeletCredentials
from kubeloop.apiserver.handlers.renderer import Renderer
from kubeloop.apiserver.handlers.scope import ServerServices
from kubeloop.apiserver.openapi import OpenAPI
from kubeloop.apiserver.ownership import Owners
from kubeloop.apiserver.policies import Policies
from kubeloop.apiserver.policies.params import ParamAuthorization
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.options import DeleteParameters
from kubeloop.apiserver.registry.registry import Change
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.server.bootstrap import bootstrap, builtin_registry, create_token_tracking
from kubeloop.apiserver.server.compaction import INTERVAL, Compactor
from kubeloop.apiserver.server.compaction import PATH as COMPACTION_PATH
from kubeloop.apiserver.server.metrics import Metrics
from kubeloop.apiserver.server.non_resource_paths import Health, IssuerDocuments, Version
from kubeloop.apiserver.server.pipeline import NonResourcePaths, Pipeline
from kubeloop.apiserver.storage import MemoryStorage, Storage
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.apiserver.store.deleter import Deleter
from kubeloop.apiserver.store.reader import Reader
from kubeloop.apiserver.store.writer import EVENT_TTL, Writer
from kubeloop.apiserver.webhooks.configurations import WebhookPlugins
from kubeloop.endpoints.access import MASTERS, SYSTEM, User
from kubeloop.meta.errors import ConfigError, NotFound
from kubeloop.pki import CertificateAuthority, IssuedCertificate
from kubeloop.reverseproxy.egress_policy import EgressPolicy
from kubeloop.reverseproxy.identity import NAME as PROXY_NAME
from kubeloop.reverseproxy.identity import ProxyIdentity
from kubeloop.schema import builtin
from kubeloop.serving.connection import Handler
from kubeloop.serving.listener import Listener, host_and_port
from kubeloop.tasks import Supervisor, close_all
from kubeloop.timing import Clock, SystemClock

_LOG = logging.getLogger("kubeloop.apiserver")

#: Seconds that a watch without timeoutSeconds lasts at least; at most twice that (kube-apiserver --min-request-timeout).
MIN_REQUEST_TIMEOUT = 1800.0

HOST = "127.0.0.1"
#: The name of the built-in controllers.
CONTROLLERS = "system:kube-controller-manager"
#: Port in the URL of a server that does not listen.
HTTPS_PORT = 443


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of an ``ApiServer``.

    Attributes:
        port: Port to listen on; 0: any free one.
        host: Loopback address to listen on.
        advertise: Address in the endpoints of the service default/kubernetes; empty: ``host``.
        tokens: Token -> user, besides the credentials of ``authentication``.
        clock: The clock of the server and its background tasks.
        wrap: Wraps the handler of requests, for tests.
        history: Seconds for which watches and lists can go back; older versions get 410.
        history_revisions: Number of revisions for which watches and lists can go back; 0: no limit by number.
        authority: Issues the certificates; None: a new one, which clients of an earlier server do not trust.
        resume: Watches can go back to before the start if the storage has the history; kube-apiserver answers them with 410.
        services: Address ranges of services.
        event_ttl: Seconds after which Events expire (kube-apiserver's --event-ttl).
        min_request_timeout: Minimum seconds of a watch that names none (kube-apiserver's --min-request-timeout).
        kubelets: Credentials for kubelets.
        authentication: Client certificates, tokens and front proxies to accept.
        listen: False: requests reach the server through ``ApiServer.handler`` only.
        provision: Create the objects of Kubernetes' own components (``builtin.bootstrap``).
        notices: Create the ConfigMaps of kube-system that describe the server (extension-apiserver-authentication ...).
        loopback_endpoints: Endpoints may have loopback addresses, as process pods do, and ``/proxy`` reaches them; Kubernetes refuses them.
        remote_backends: Webhooks and aggregated API servers may have other addresses than loopback.
        authorization: kube-apiserver's --authorization-mode.
        operation: Audit log, flow control and time limits.
        admission: The admission plug-ins to run.
        descriptions: Texts of OpenAPI documents (``schema.descriptions``); None: short ones of this project.
    """

    port: int = 0
    host: str = HOST
    advertise: str = ""
    tokens: Mapping[str, User] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    wrap: Callable[[Handler], Handler] | None = None
    history: float = INTERVAL
    history_revisions: int = 0
    authority: CertificateAuthority | None = None
    resume: bool = False
    services: ServiceRanges = field(default_factory=ServiceRanges)
    event_ttl: float = EVENT_TTL
    min_request_timeout: float = MIN_REQUEST_TIMEOUT
    kubelets: KubeletCredentials = field(default_factory=KubeletCredentials)
    authentication: AuthenticationOptions = field(default_factory=AuthenticationOptions)
    listen: bool = True
    provision: bool = True
    notices: bool = True
    loopback_endpoints: bool = False
    remote_backends: bool = False
    authorization: Sequence[str] = MODES
    operation: OperationOptions = field(default_factory=OperationOptions)
    admission: AdmissionOptions = field(default_factory=AdmissionOptions)
    descriptions: Mapping[str, Mapping[str, str]] | None = None


class ApiServer:
    """A Kubernetes API server in this event loop, over TLS on 127.0.0.1, with a certificate authority.

    Guarantees
        When ``start`` returns, the server serves requests and the system namespaces exist. ``stop`` ends watches, and completes the
        responses to running requests.

    Not guaranteed
        Objects survive a restart only if ``storage`` is durable.

        If ``start`` fails, it closes everything, including storage. ``stop`` closes everything even if a part fails to close.

    Raises
        ConfigError: from ``start``, when the port is taken.

    Example:
        >>> server = ApiServer(ServerOptions(port=6443))
        >>> await server.start()
        >>> server.url
        'https://127.0.0.1:6443'
    """

    def __init__(self, options: ServerOptions | None = None, storage: Storage | None = None) -> None:
        self.options = options or ServerOptions()
        clock = self.options.clock
        #: Client identity used towards aggregated API servers; its CA is published in kube-system/extension-apiserver-authentication.
        self.front_proxy = ProxyIdentity()
        self.storage: Storage = storage or MemoryStorage(clock)
        self.cache = WatchCache(self.storage)
        self.objects = Objects(self.storage)
        schemas = builtin()
        self.registry = builtin_registry(schemas, clock, loopback_endpoints=self.options.loopback_endpoints)
        self.registry.on_change(self._on_change)
        self.authorization = Authorization(self.objects, self.cache, self.options.authorization)
        reach = EgressPolicy(anywhere=self.options.remote_backends)
        self._webhooks = WebhookPlugins(self.registry, self.objects, self.cache, clock, self.authorization, reach)
        self._policies = Policies(self.registry, self.objects, self.cache, self.authorization)
        mutating, validating = self._webhooks.plugins
        initializer = PluginInitializer(
            registry=self.registry,
            objects=self.objects,
            cache=self.cache,
            clock=clock,
            authorizer=self.authorization,
            writer=lambda: self.writer,
            ranges=self.options.services,
            others={
                "MutatingAdmissionPolicy": self._policies.mutating,
                "MutatingAdmissionWebhook": mutating,
                "ValidatingAdmissionPolicy": self._policies.validating,
                "ValidatingAdmissionWebhook": validating,
            },
            checks=(ParamAuthorization(self.registry, self.objects, self.authorization),),
        )
        self.admission = Admission(plugins(initializer, self.options.admission))
        escalation = EscalationCheck(self.authorization, self.authorization.roles)
        owners = Owners(self.registry, clock)
        self.writer = Writer(self.objects, self.admission, owners, clock, escalation, self.options.event_ttl)
        self.deleter = Deleter(self.writer)
        self.compactor = Compactor(self.storage, self.cache, clock, self.options.history, self.options.history_revisions)
        self.tasks = Supervisor(clock, _LOG)
        self._definitions = DefinitionController(self.objects, self.cache, self.registry, clock, self._delete_instance, self._webhooks.post)
        self._aggregator = Aggregator(self.registry, self.objects, self.writer.owners, self.cache, clock, self.front_proxy, reach)
        self._schema_status = SchemaStatus(self.registry, self.objects, self.writer.owners, self.cache, clock)
        self._started = self._stopping = self._stopped = False
        self._health = Health()
        self._health.add_tasks(self.tasks)
        # Probes of a kube-apiserver request this check by the name ``etcd``.
        self._health.add("etcd", lambda: not (self.storage.fault or self.cache.fault))
        self._health.add("shutdown", lambda: not self._stopping, "readyz")
        own = self._authority.certificate
        self.authentication = Authentication(self.options.authentication, self.registry, self.writer, clock, own, self.options.tokens)
        #: Component that runs beside this server -> function that returns its fault, "" if it is healthy.
        self.components: dict[str, Callable[[], str]] = {}
        services = ServerServices(
            schemas=schemas,
            registry=self.registry,
            objects=self.objects,
            cache=self.cache,
            reader=Reader(self.objects, self.cache, clock),
            writer=self.writer,
            deleter=self.deleter,
            renderer=Renderer(self.objects, clock),
            authenticator=self.authentication.authenticator,
            token_settings=self.authentication.accounts,
            authorizer=self.authorization,
            clock=clock,
            default_timeout=lambda: self.options.min_request_timeout * (1 + random.random()),
            kubelets=self.options.kubelets,
            components=self.components,
            process_pods=self.options.loopback_endpoints,
        )
        self.operation = RequestFilters(clock, self.options.operation)
        self.metrics = Metrics(
            requests=self.operation.metrics,
            admission=self.admission.metrics,
            flow=self.operation.flow,
            in_flight=self.operation.in_flight,
            health=self._health,
            tasks=self.tasks,
            registry=self.registry,
            objects=self.objects,
            cache=self.cache,
        )
        actions = {
            COMPACTION_PATH: self.compactor.answer,
            "/metrics": self.metrics.answer,
            "/metrics/slis": self.metrics.levels_of_service,
        }
        self._paths = NonResourcePaths(actions)
        pipeline = Pipeline(services, self.operation, self._paths, self._aggregator.route_to_backend)
        wrap = self.options.wrap
        self.handler: Handler = wrap(pipeline.handle) if wrap else pipeline.handle
        self._listener = (
            Listener(self.handler, self._context(), host=self.options.host, port=self.options.port) if self.options.listen else None
        )

    async def start(self) -> None:
        """Open the change stream of storage, write the objects of a new cluster, and start to serve requests.

        Raises:
            ConfigError: An option is not supported, and the message names it; or this instance was started before, which is possible once.
            StorageFailed: Storage cannot be read or written.
        """
        if self._started or self._stopped:
            raise ConfigError("this server was started already, or has stopped; make a new ApiServer, with the same storage folder or none")
        self._started = True
        try:
            await self._start()
        except BaseException as error:
            self._stopping = True
            try:
                await self._close()
            except Exception as problem:  # noqa: BLE001 - the first error is the cause, and the one to raise
                error.add_note(f"closing what had been started failed as well: {type(problem).__name__}: {problem}")
            raise

    async def _start(self) -> None:
        self.options.kubelets.check()
        self.operation.start()
        if self._listener is not None:
            await self._listener.bind()
        await self.cache.start(history=self.options.resume)
        await self.authorization.start()
        await self.operation.watch(self.objects, self.cache)
        advertised = self.options.advertise or self.options.host
        await bootstrap(self.registry, self.writer, self.options.services, advertised, self._port, provision=self.options.provision)
        if self.options.provision and self.options.notices:
            await create_token_tracking(self.registry, self.writer)
            await self.authentication.publish(self.tasks, self.front_proxy.authority, PROXY_NAME)
        await self._definitions.start(self.tasks)
        await self._aggregator.start(self.tasks)
        self._schema_status.start(self.tasks)
        self.compactor.start(self.tasks)
        address = host_and_port(self.options.host, self._port)
        discovery = Discovery(self.registry, address, self._aggregator.table)
        openapi = OpenAPI(self.registry, self.options.clock, self._aggregator.table, self.options.descriptions)
        self._paths.add(IssuerDocuments(self.authentication.accounts, address), self._health, Version(), discovery, openapi)
        if self._listener is not None:
            await self._listener.serve()
            _LOG.info("serving at %s", self.url)

    async def stop(self) -> None:
        """End streams, finish responses, stop background tasks, close storage. A second call does nothing.

        Raises:
            Exception: A part failed to close; an ``ExceptionGroup`` if several did. All parts are closed nevertheless.
            asyncio.CancelledError: The caller was cancelled. All parts are closed.
        """
        self._stopping = True
        if self._stopped:
            return
        steps: list[Callable[[], Awaitable[object]]] = []
        delay = self.options.operation.shutdown_delay
        if delay:  # a load balancer learns from /readyz meanwhile that this server accepts nothing more
            steps.append(lambda: self.options.clock.sleep(delay))
        await close_all(*steps, self._close)

    async def _close(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        options = self.options.operation
        listener = self._listener
        steps: list[Callable[[], Awaitable[object]]] = []
        if listener is not None:
            steps.append(lambda: listener.close(grace=options.shutdown_grace, spread=options.watch_grace))
        steps += [
            self.authentication.stop,
            self._schema_status.stop,
            self._aggregator.stop,
            self._definitions.stop,
            self._webhooks.stop,
            self._stop_policies,
        ]
        steps += [self.compactor.stop, self.tasks.stop, self.cache.stop, self.storage.close, self.operation.stop]
        await close_all(*steps)

    async def _stop_policies(self) -> None:
        self._policies.stop()

    def add_readiness(self, name: str, check: Callable[[], bool]) -> None:
        """Add a check to ``/readyz``, which fails under this name while ``check`` returns False."""
        self._health.add(name, check, "readyz")

    def break_off(self) -> None:
        """Close every connection at once, as if the process had died, and accept no new ones. Call ``stop`` afterwards."""
        if self._listener is not None:
            self._listener.abort()

    @property
    def url(self) -> str:
        """The URL of the server, even if it has no listener."""
        return self._listener.url if self._listener is not None else f"https://{host_and_port(self.options.host, self._port)}"

    @property
    def server_name(self) -> str:
        """The TLS server name (SNI) for clients that trust ``authority``. If it is empty, the address is the name."""
        return LOOPBACK_NAME if self.options.authentication.tls_certificate is not None else ""

    @property
    def authority(self) -> bytes:
        """The certificate of the server's authority in PEM, which clients must trust."""
        return self._authority.certificate

    @property
    def signing_authority(self) -> CertificateAuthority:
        """The authority with its key, only for a control plane in this process."""
        return self._authority

    def administrator(self) -> IssuedCertificate:
        """Issue a client certificate in system:masters."""
        return self._authority.issue("kubeloop-admin", (MASTERS,), client=True)

    def client_certificate(self, user: str, groups: tuple[str, ...] = (), *, days: int = 365) -> IssuedCertificate:
        """Issue a client certificate for any user. A certificate for 0 days is already expired."""
        return self._authority.issue(user, groups, client=True, days=days)

    @cached_property
    def _authority(self) -> CertificateAuthority:
        return self.options.authority or CertificateAuthority.create("kubeloop-ca")

    @property
    def _port(self) -> int:
        return self._listener.port if self._listener is not None else self.options.port or HTTPS_PORT

    def _context(self) -> ssl.SSLContext:
        addresses = self.options.host, self.options.services.own_address
        return ServingCertificates(self._authority, addresses, self.options.authentication, self.authentication.authorities).context

    def _on_change(self, change: Change) -> None:
        """End the watches of a resource that is no longer served."""
        before = change.before
        if before is not None and change.after is None and not self.registry.siblings(before.gvr.group_resource):
            self.cache.end(before.storage_prefix)

    async def _delete_instance(self, resource: ServedResource, namespace: str, name: str) -> None:
        write = WriteRequest(resource, namespace, name, SYSTEM)
        try:
            await self.deleter.delete(write, DeleteParameters())
        except NotFound:
            return
