"""Serving certificates that are renewed automatically: stored in a Secret and shared by replicas, or in the memory of one process."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from ipaddress import ip_address
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm

from kubeloop.api.core.v1 import Secret
from kubeloop.cache import InformerFactory
from kubeloop.client import Client
from kubeloop.controller.webhooks.certificates.rotation import Lifetimes, StoredCertificates, next_due, renewed
from kubeloop.controller.webhooks.tls import ServingCertificate, check_pair
from kubeloop.meta import AlreadyExists, ConfigError, Conflict, KubeloopError, NotFound, ObjectMeta
from kubeloop.meta.names import dns1123_subdomain, wildcard_dns1123_subdomain
from kubeloop.tasks import end_tasks
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import logger_with_context

#: Minimum seconds between two renewals, in case a clock jumps.
_LEAST = 60.0


class OwnCertificate:
    """A certificate in memory: created at the first use, signed by its own authority, renewed when a third of its lifetime is left.

    Clients cannot verify the certificate: it encrypts, but does not authenticate the server (controller-runtime's default for metrics).
    ``names``: DNS names and addresses of the server.
    """

    def __init__(self, names: Sequence[str] = ("localhost", "127.0.0.1"), *, lifetime: timedelta = timedelta(days=90)) -> None:
        self._names = tuple(names)
        self._lifetimes = Lifetimes(serving=lifetime, authority=lifetime * 8, overlap=timedelta())
        self._clock: Clock = SystemClock()
        self._kept: StoredCertificates | None = None

    async def open(self, client: Client | None, clock: Clock) -> ServingCertificate:  # noqa: ARG002 - nothing of it is kept in a cluster
        self._clock = clock
        if self._kept is None:
            self._kept = renewed(None, self._names, self._lifetimes, clock.wall())
        return self._kept.serving

    async def watch(self, changed: Callable[[ServingCertificate], None]) -> None:
        while True:
            assert self._kept is not None
            due = next_due(self._kept, self._names, self._lifetimes) - self._clock.wall()
            await self._clock.sleep(max(due.total_seconds(), _LEAST))
            found = renewed(self._kept, self._names, self._lifetimes, self._clock.wall())
            if found.serving != self._kept.serving:
                changed(found.serving)
            self._kept = found


_LOG = logger_with_context("kubeloop.controller.webhooks")

_TYPE: Final = "kubernetes.io/tls"
_CERTIFICATE, _KEY, _AUTHORITIES, _AUTHORITY_KEY = "tls.crt", "tls.key", "ca.crt", "ca.key"
_END: Final = b"-----END CERTIFICATE-----"
#: Seconds after which the Secret is read again without an event, and after a failure.
_LONGEST: Final = 600.0
_AGAIN: Final = 10.0
#: Attempts to write, because several replicas may write at the same time.
_TRIES: Final = 20


class ManagedCertificates:
    """Makes certificates, stores them in a Secret, and renews them in time.

    Guarantees
        All replicas serve the certificate in the Secret. One of them creates or renews it, by optimistic concurrency.
        A new authority is in ``ServingCertificate.authorities`` beside the old one before a certificate of it is served (``Lifetimes``).
        While the Secret cannot be reached, the previous certificate is served.

    Not guaranteed
        That a certificate is renewed if no replica runs during the last third of its life.

    The program needs the verbs get, list, watch, create and update on that Secret. An empty Secret is filled. Keys are in the Secret and in
    memory only.

    Args:
        name: Name of the Secret.
        namespace: Namespace of the Secret.
        names: DNS names and addresses of the server.
        lifetimes: Lifetimes of the certificates. None: the defaults of ``Lifetimes``.

    Raises:
        ConfigError: from ``open``: the Secret holds other content, or cannot be read; or ``cryptography`` is not installed.

    Example:
        >>> from kubeloop.controller.webhooks import Service
        >>> service = Service("ops", "foo-webhooks")
        >>> certificates = ManagedCertificates("foo-webhooks", "ops", service.dns_names)
    """

    def __init__(self, name: str, namespace: str, names: Sequence[str], *, lifetimes: Lifetimes | None = None) -> None:
        self._name = name
        self._namespace = namespace
        self._names = _checked_names(names)
        self._lifetimes = lifetimes or Lifetimes()
        self._client: Client | None = None
        self._clock: Clock = SystemClock()
        self._served: ServingCertificate | None = None
        self._told = b""

    async def open(self, client: Client | None, clock: Clock) -> ServingCertificate:
        if client is None:
            raise ConfigError("certificates in a Secret need a client; run the webhook server by a Manager, or use CertificateFiles")
        self._client, self._clock = client, clock
        state = await self._settled(client)
        self._served = state.serving
        return self._served

    async def watch(self, changed: Callable[[ServingCertificate], None]) -> None:
        client = self._client
        assert client is not None, "call open before watch"
        heard = asyncio.Event()
        async with InformerFactory(client, clock=self._clock, read_your_writes=False) as informers:
            informer = informers.for_kind(Secret, namespace=self._namespace, field_selector={"metadata.name": self._name})

            def hear(_: object) -> None:
                heard.set()

            registration = informer.on_event(added=hear, updated=hear, deleted=hear, name="webhook certificates")

            async def hear_first_list() -> None:
                # A Secret that is deleted before the first list causes no event.
                with suppress(TimeoutError, KubeloopError):
                    await registration.wait_synced()
                heard.set()

            first = asyncio.create_task(hear_first_list(), name="first list of webhook certificates")
            try:
                while True:
                    seconds = await self._round(client, changed)
                    timer = self._clock.call_later(seconds, heard.set)
                    try:
                        await heard.wait()
                    finally:
                        timer.cancel()
                    heard.clear()
            finally:
                await end_tasks(first)

    async def _round(self, client: Client, changed: Callable[[ServingCertificate], None]) -> float:
        """Read the Secret, renew due certificates, report changes; return the seconds until the next renewal."""
        try:
            state = await self._settled(client)
        except KubeloopError as error:
            _LOG.warning("the webhook certificates in Secret %s/%s: %s; the previous ones stay in use", self._namespace, self._name, error)
            return _AGAIN
        if state.serving != self._served:
            self._served = state.serving
            changed(state.serving)
        due = (next_due(state, self._names, self._lifetimes) - self._clock.wall()).total_seconds()
        return min(max(due, 1.0), _LONGEST)

    async def _settled(self, client: Client) -> StoredCertificates:
        """Return the content of the Secret after all due renewals.

        Raises:
            ConfigError: the Secret has other content.
            Conflict: other replicas wrote at each attempt.
            ApiError, TransportError: a request failed.
        """
        last: KubeloopError | None = None
        for _ in range(_TRIES):
            secret = await self._secret(client)
            state = None if secret is None else self._kept(secret)
            wanted = renewed(state, self._names, self._lifetimes, self._clock.wall())
            if wanted is state:
                self._tell_of_clocks(wanted)
                return wanted
            try:
                await self._write(client, secret, wanted)
            except (AlreadyExists, Conflict, NotFound) as error:  # another replica was faster, or the Secret was deleted: read it again
                last = error
                continue
            _LOG.info("webhook certificates renewed in Secret %s/%s", self._namespace, self._name)
            return wanted
        assert last is not None
        raise last

    def _tell_of_clocks(self, state: StoredCertificates) -> None:
        now = self._clock.wall()
        if state.begins <= now or state.certificate == self._told:
            return
        self._told = state.certificate
        where = f"Secret {self._namespace}/{self._name}"
        _LOG.warning(
            "the webhook certificates in %s are valid from %s only, and it is %s here: this clock is wrong, or the clock of "
            "the machine that made them was; in the latter case delete the Secret, and new ones are made",
            where,
            state.begins.isoformat(),
            now.isoformat(timespec="seconds"),
        )

    async def _secret(self, client: Client) -> Secret | None:
        try:
            return await client.get(Secret, self._name, namespace=self._namespace)
        except NotFound:
            return None

    async def _write(self, client: Client, secret: Secret | None, state: StoredCertificates) -> None:
        data = {_CERTIFICATE: state.certificate, _KEY: state.key, _AUTHORITIES: state.bundle, _AUTHORITY_KEY: state.authority_key}
        if secret is None:
            made = Secret(metadata=ObjectMeta(name=self._name, namespace=self._namespace), type=_TYPE, data=data)
            await client.create(made)
            return
        secret.data.update(data)
        await client.update(secret)

    def _kept(self, secret: Secret) -> StoredCertificates | None:
        data = secret.data
        if not any(data.values()):
            return None
        where = f"Secret {self._namespace}/{self._name}"
        lacking = [one for one in (_CERTIFICATE, _KEY, _AUTHORITIES, _AUTHORITY_KEY) if not data.get(one)]
        if lacking:
            raise ConfigError(f"{where} holds something else than webhook certificates ({', '.join(lacking)} missing); name another Secret")
        authorities = tuple(part.strip() + b"\n" + _END + b"\n" for part in data[_AUTHORITIES].split(_END)[:-1])
        state = StoredCertificates(authorities, data[_AUTHORITY_KEY], data[_CERTIFICATE], data[_KEY])
        try:
            state.check()
            check_pair(state.serving)
        except (ValueError, TypeError, ssl.SSLError, UnsupportedAlgorithm) as error:
            raise ConfigError(f"{where} holds no usable webhook certificates ({error}); delete it, and new ones are made") from None
        return state


def _checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names in the form of certificates: addresses in their shortest form, names in lower case.

    Raises:
        ConfigError: there is no name, or a name is not valid in a certificate.
    """
    if not names or isinstance(names, str):
        raise ConfigError("certificates need names to be valid for, as a list: names=Service(...).dns_names, or addresses")
    return tuple(_checked_name(name) for name in names)


def _checked_name(name: str) -> str:
    try:
        return str(ip_address(ip_address(name).packed))  # without a zone, which certificates cannot have
    except ValueError:
        lower = name.lower()
    if dns1123_subdomain(lower) and wildcard_dns1123_subdomain(lower):
        raise ConfigError(f'certificates cannot be for "{name}"; it must be a DNS name, without a port, or an address')
    return lower
