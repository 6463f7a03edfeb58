"""The proxy: a TLS listener in front of an API server, its certificates and kubeconfigs, and the rules, which it follows as they change."""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from kubeloop.config import ClusterConfig
from kubeloop.config.kubeconfig.generated import kubeconfig_text
from kubeloop.endpoints.access import AUTHENTICATED, User
from kubeloop.endpoints.metrics_text import Exposition
from kubeloop.meta.errors import ConfigError
from kubeloop.pki import CertificateAuthority, IssuedCertificate
from kubeloop.pki.files import load_or_create_authority
from kubeloop.proxy.cached import CachedReads
from kubeloop.proxy.continuity import Continuity
from kubeloop.proxy.identity import Identity
from kubeloop.proxy.open_watches import UpstreamWatches
from kubeloop.proxy.pipeline import ProxyPipeline, RulesInForce, concerns
from kubeloop.proxy.reads import ReadServices
from kubeloop.proxy.resource_names import ResourceNames
from kubeloop.proxy.rules import RuleError, RuleSet
from kubeloop.proxy.tables import PrinterColumns
from kubeloop.proxy.upstream import FrontProxyCertificate, Upstream
from kubeloop.proxy.view import RuleCounters
from kubeloop.serving.listener import Listener, server_context
from kubeloop.tasks import Supervisor, close_all
from kubeloop.timing import Clock, SystemClock

_LOG = logging.getLogger("kubeloop.proxy")

#: Seconds between checks whether the rules have changed.
RELOAD_INTERVAL: Final = 1.0
_DONE: Final = {"hidden": "hidden them", "changed": "changed them", "failed": "failed"}
#: File in the data folder about the rules in force.
_STATE: Final = "rules.json"
#: Seconds after a change of the rules for which clients may return with objects that they got before: a day. API servers have compacted
#: the versions of such clients long before.
_CLIENTS_RETURN: Final = 24 * 3600.0
#: Addresses that mean all addresses of the machine, and the address that kubeconfigs then name.
_ALL: Final = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
_LOOPBACK: Final = "127.0.0.1"
_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")


class _RulesState(msgspec.Struct):
    """The digest of the rules in force, and when they last changed, in seconds since 1970; 0: never."""

    digest: str
    changed: float


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """Settings of a proxy.

    Attributes:
        host: The address to bind.
        port: The port to bind; 0 for a free one.
        advertised: The address at which clients reach the proxy, if it is another one: a name or an address, and the port (0: ``port``).
            Kubeconfigs and the certificate name it.
        rules: File or folder with RewriteRules. None: everything passes unchanged.
        data_dir: Folder of the authority that signs certificates. None: a new authority in memory at each start.
        client_ca: PEM of further authorities whose client certificates are accepted.
        front_proxy: The certificate of a front proxy, which names users of client certificates to the API server by the headers X-Remote-*.
            None: the proxy impersonates these users.
        dry_run: Log what rules would change, and change nothing.
        explain: Name the rules that touched a response in the header ``Kubeloop-Rules``.
        cache: Answer gets, lists and watches from one list and watch per resource.
    """

    host: str = "127.0.0.1"
    port: int = 0
    advertised: tuple[str, int] | None = None
    rules: Path | None = None
    data_dir: Path | None = None
    client_ca: bytes = b""
    front_proxy: FrontProxyCertificate | None = None
    dry_run: bool = False
    explain: bool = False
    cache: bool = False


class ProxyServer:
    """A proxy in front of a Kubernetes API server that changes what its clients see.

    Guarantees
        ``start`` returns when the proxy answers. A mistake in the rules prevents the start; at a reload the old rules stay in force.
        After ``stop`` no connection, task or socket is left.

    Example:
        >>> async def list_pods(upstream: ClusterConfig, rules: Path) -> None:
        ...     async with ProxyServer(upstream, ProxyOptions(rules=rules)) as proxy:
        ...         Path("kubeconfig").write_bytes(proxy.kubeconfig())
    """

    def __init__(self, config: ClusterConfig, options: ProxyOptions | None = None, *, clock: Clock | None = None) -> None:
        self.options = options or ProxyOptions()
        self._config = config
        self._clock = clock or SystemClock()
        self._upstream = Upstream(config, self._clock, self.options.front_proxy)
        self._identity = Identity(self._upstream, self._clock)
        self._in_force = RulesInForce()
        self._services = ReadServices(
            self._upstream,
            Continuity(),
            UpstreamWatches(),
            PrinterColumns(self._upstream, self._clock),
            RuleCounters(),
            self._clock,
            self.options.dry_run,
            self.options.explain,
        )
        self._pipeline = ProxyPipeline(self._identity, self._services, self._in_force)
        if self.options.cache:
            self._pipeline.cached = CachedReads(config, self._services, self._identity.resolve)
        self._authority: CertificateAuthority | None = None
        self._listener: Listener | None = None
        self._tasks = Supervisor(self._clock, _LOG)
        self._mark: object = None
        self._stopped = False
        #: Number of reloads that failed, because the rules have mistakes; 0 again after a success.
        self.failed_reloads = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """The proxy's URL for clients, after ``start``.

        A proxy that listens on all addresses, and has no advertised one, names that of this machine's loopback.
        """
        assert self._listener is not None, "the proxy has not started"
        if self.options.advertised is not None:
            host, port = self.options.advertised
            return f"https://{f'[{host}]' if ':' in host else host}:{port or self._listener.port}"
        return f"https://{_LOOPBACK}:{self._listener.port}" if self.options.host in _ALL else self._listener.url

    @property
    def authority(self) -> bytes:
        """The authority's certificate in PEM, which clients have to trust."""
        assert self._authority is not None, "the proxy has not started"
        return self._authority.certificate

    @property
    def user(self) -> User:
        """The proxy's own user at the API server, for which ``kubeconfig`` issues a certificate."""
        return self._identity.own

    @property
    def rules(self) -> RuleSet:
        """The rules in force."""
        return self._in_force.rules

    async def start(self) -> None:
        """Load the rules, find the proxy's user, and serve.

        Raises:
            RuleError: The rules have mistakes.
            ConfigError: The address cannot be bound, the authority cannot be read, or the API server does not believe the front proxy.
            ApiError: The API server sent no response, or refused the proxy's credentials.
        """
        try:
            if self.options.rules is not None:
                self._in_force.fixed = False
                self._mark = _mark(self.options.rules)
                self._in_force.rules = await asyncio.to_thread(RuleSet.load, self.options.rules, clock=self._clock)
            folder = self.options.data_dir
            create = partial(load_or_create_authority, folder) if folder is not None else CertificateAuthority.create
            self._authority = create("kubeloop-proxy-ca")
            self._compare_with_former_start()
            await self._identity.find_own()
            if self.options.front_proxy is not None:
                await self._identity.check_front_proxy()
            listener = Listener(self._pipeline.handle, self._context(), host=self.options.host, port=self.options.port)
            await listener.bind()
            self._listener = listener
            await listener.serve()
            if self.options.rules is not None:
                self._tasks.start(self._follow_rules, name="proxy-rules")
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End all streams and close everything. A second call does nothing."""
        if self._stopped:
            return
        self._stopped = True
        await close_all(self._tasks.stop, self._close_listener, self._close_cache, self._upstream.close)

    def issue(self, user: User) -> IssuedCertificate:
        """Return a new client certificate, with which its owner is ``user`` for the proxy."""
        assert self._authority is not None, "the proxy has not started"
        groups = [group for group in user.groups if group != AUTHENTICATED]
        return self._authority.issue(user.name, groups, client=True)

    def kubeconfig(self, user: User | None = None) -> bytes:
        """Return a kubeconfig for the proxy, with a new client certificate. It contains a private key.

        Args:
            user: The user of the certificate. None: the proxy's own user.
        """
        return kubeconfig_text(self.url, self.authority, self.issue(user or self.user), "kubeloop-proxy", namespace=self._config.namespace)

    async def reload(self) -> bool:
        """Load the rules again. Watches of resources that old or new rules concern end with 410, so that their clients list again.

        Returns:
            Whether other rules are in force now. With mistakes in the rules the old ones stay; the log has the mistakes.
        """
        assert self.options.rules is not None
        try:
            rules = await asyncio.to_thread(RuleSet.load, self.options.rules, clock=self._clock)
        except RuleError as error:
            self.failed_reloads += 1
            _LOG.error("the rules in force stay, because the changed ones have mistakes: %s", "; ".join(str(error).splitlines()))
            return False
        self.failed_reloads = 0
        before = self._in_force.rules
        if rules.digest == before.digest:
            return False
        self._store_state(rules, self._clock.wall().timestamp())
        if all(rules_before.digest != before.digest for rules_before in self._in_force.earlier):
            self._in_force.earlier.append(before)
        self._in_force.rules = rules
        self._services.continuity.advance()

        def concerned(group: str, version: str, resource: str) -> bool:
            return concerns(before, group, version, resource) or concerns(rules, group, version, resource)

        ended = self._services.watches.expire(concerned)
        if self._pipeline.cached is not None:
            ended += self._pipeline.cached.expire(concerned)
        await self._warn_of_unserved(rules)
        if rules.rules:
            _LOG.info("loaded %d rules from %s; ended %d watches", len(rules.rules), self.options.rules, ended)
        else:
            _LOG.warning("%s has no rules now: everything passes unchanged; ended %d watches", self.options.rules, ended)
        return True

    def metrics(self) -> str:
        """Return the proxy's metrics in Prometheus' text format."""
        counters, text = self._services.counters, Exposition()
        for action, counts in (("hidden", counters.hidden), ("changed", counters.changed), ("failed", counters.failed)):
            samples = [({"rule": name}, number) for name, number in sorted(counts.items())]
            text.counter(f"kubeloop_proxy_objects_{action}_total", f"Objects for which a rule has {_DONE[action]}.", samples)
        statuses = [({"code": str(code)}, number) for code, number in sorted(self._pipeline.statuses.items())]
        text.counter("kubeloop_proxy_responses_total", "Responses by HTTP status.", statuses)
        text.counter("kubeloop_proxy_passed_total", "Requests that no rule concerned.", [({}, self._pipeline.passed)])
        text.gauge("kubeloop_proxy_open_watches", "Watches that run at the moment.", [({}, self.open_watches)])
        text.gauge("kubeloop_proxy_failed_reloads", "Reloads that failed since the last that succeeded.", [({}, self.failed_reloads)])
        if self._pipeline.cached is not None:
            self._pipeline.cached.write_metrics(text)
        return text.text()

    def checks(self) -> dict[str, str]:
        """Return the checks of readiness: name -> why it fails; empty if it passes.

        Changed rules with mistakes make no check fail. The former rules apply to all requests, so that the proxy serves no wrong object;
        and a mistake in a file that all replicas read would take them all out of service at once.
        """
        healthy = {"proxy-rules": self._tasks.healthy("proxy-rules")}
        if self._pipeline.cached is not None:
            healthy["proxy-cache"] = not self._pipeline.cached.fault()
        return {name: "" if fine else "the task failed, see the log" for name, fine in healthy.items()}

    def notice(self) -> str:
        """Return what an administrator should know although the proxy is ready; empty: nothing."""
        return "the changed rules have mistakes, and the former ones stay in force: see the log" if self.failed_reloads else ""

    @property
    def open_watches(self) -> int:
        """The number of watches that run at the moment."""
        return len(self._services.watches) + (self._pipeline.cached.watchers if self._pipeline.cached is not None else 0)

    async def _warn_of_unserved(self, rules: RuleSet) -> None:
        for text in await ResourceNames(self._upstream, self._clock).unserved(rules.rules):
            _LOG.warning("%s: the rule changes nothing until it is served", text)

    def _compare_with_former_start(self) -> None:
        """Let clients list again, if the rules have changed since a client may have got its objects.

        A client that was away during the change, and during any number of restarts, still has objects under the old rules.
        """
        if self.options.data_dir is None:
            return  # clients of a former proxy do not trust this one
        now = self._clock.wall().timestamp()
        former = _read_state(self.options.data_dir / _STATE) or _RulesState(self.rules.digest, 0.0)
        changed = now if former.digest != self.rules.digest else former.changed
        if now - changed < _CLIENTS_RETURN:
            self._in_force.fixed, self._in_force.unknown_before = False, True
            self._services.continuity.advance()
        self._store_state(self.rules, changed)

    def _store_state(self, rules: RuleSet, changed: float) -> None:
        if self.options.data_dir is not None:
            (self.options.data_dir / _STATE).write_bytes(msgspec.json.encode(_RulesState(rules.digest, changed)))

    def _context(self) -> ssl.SSLContext:
        assert self._authority is not None
        hosts = [_LOOPBACK if self.options.host in _ALL else self.options.host]
        if self.options.advertised is not None:
            hosts.append(self.options.advertised[0])
        addresses = [host for host in hosts if is_address(host)]
        names = dict.fromkeys([*_NAMES, *(host for host in hosts if host not in addresses)])
        pair = self._authority.issue("kubeloop-proxy", dns_names=[*names], ip_addresses=[*dict.fromkeys(addresses)], server=True)
        try:
            if self.options.client_ca:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=self.options.client_ca.decode("ascii", "replace"))
            return server_context(pair.certificate, pair.key, self._authority.certificate + self.options.client_ca)
        except ssl.SSLError as error:
            raise ConfigError(f"--client-ca-file: no usable certificate in it ({error.reason or error})") from None

    async def _close_cache(self) -> None:
        if self._pipeline.cached is not None:
            await self._pipeline.cached.close()

    async def _close_listener(self) -> None:
        if self._listener is not None:
            await self._listener.close()

    async def _follow_rules(self) -> None:
        assert self.options.rules is not None
        await self._warn_of_unserved(self.rules)
        while True:
            await self._clock.sleep(RELOAD_INTERVAL)
            mark = await asyncio.to_thread(_mark, self.options.rules)
            if mark != self._mark:
                self._mark = mark
                await self.reload()


def is_address(host: str) -> bool:
    """Return whether a host is an IP address, not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _mark(path: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Return a value that changes when a file of the rules is written, replaced, added or removed."""
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        found = [(file.name, file.stat()) for file in files]
    except OSError:
        return ()
    return tuple((name, stat.st_mtime_ns, stat.st_size, stat.st_ino) for name, stat in found)


def _read_state(path: Path) -> _RulesState | None:
    """Return what a former proxy stored about its rules; None if there was none. A damaged file counts as other rules."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_RulesState)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError:
        return _RulesState("", 0.0)
