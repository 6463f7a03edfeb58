"""Builds the chain of authenticators from the options, and publishes the ConfigMap that extension servers trust."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Mapping
from typing import Final

from kubeloop.apiserver.authentication.certificates import ClientAuthorities
from kubeloop.apiserver.authentication.chain import Authenticator, StaticTokens
from kubeloop.apiserver.authentication.options import AuthenticationOptions, TokenSettings
from kubeloop.apiserver.authentication.service_account_tokens import LAST_USED, AccountTokens, LegacyTokens
from kubeloop.apiserver.authentication.token_claims import SECRETS, BoundObjects
from kubeloop.apiserver.ownership import SERVER
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.store.writer import Writer
from kubeloop.endpoints.access import SYSTEM, User
from kubeloop.endpoints.request_header import CONVENTIONAL, RequestHeaders
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.tasks import SupervisedTask, Supervisor
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

# Extension servers read ConfigMap kube-system/extension-apiserver-authentication to verify the users that this server forwards.
# Source: k8s.io/kubernetes pkg/controlplane/controller/clusterauthenticationtrust; documentation, "Configure the Aggregation Layer".


_CONFIGMAPS: Final = GroupVersionResource("", "v1", "configmaps")
_NAMESPACE: Final = "kube-system"
NAME: Final = "extension-apiserver-authentication"


def trust_data(clients: bytes, proxies: bytes, headers: RequestHeaders, names: tuple[str, ...]) -> dict[str, str]:
    """Return the data of ConfigMap extension-apiserver-authentication.

    Args:
        clients: Authorities of client certificates, PEM.
        proxies: Authorities of front proxies, PEM.
        headers: The headers in which front proxies send the user.
        names: Common names that front proxies may have; none: any.
    """
    data = {"client-ca-file": clients.decode()}
    if proxies:
        data |= {
            "requestheader-username-headers": _list(headers.names),
            "requestheader-group-headers": _list(headers.groups),
            "requestheader-extra-headers-prefix": _list(headers.extra_prefixes),
            "requestheader-client-ca-file": proxies.decode(),
            "requestheader-allowed-names": _list(names),
        }
        if headers.uids:
            data["requestheader-uid-headers"] = _list(headers.uids)
    return data


def with_conventional_headers(headers: RequestHeaders) -> RequestHeaders:
    """Return ``headers`` with the conventional X-Remote-* headers added, which this server sends when it acts as a front proxy."""

    def both(requested: tuple[str, ...], conventional: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*requested, *conventional)))

    return RequestHeaders(
        both(headers.names, CONVENTIONAL.names),
        both(headers.uids, CONVENTIONAL.uids),
        both(headers.groups, CONVENTIONAL.groups),
        both(headers.extra_prefixes, CONVENTIONAL.extra_prefixes),
    )


async def publish(registry: Registry, writer: Writer, data: dict[str, str]) -> None:
    """Create or update the ConfigMap extension-apiserver-authentication if necessary.

    Args:
        registry: The served resources.
        writer: Writes the ConfigMap.
        data: Its data.

    Raises:
        ApiError: The ConfigMap cannot be written.
    """
    resource = registry.get(_CONFIGMAPS)
    if resource is None:
        return
    new = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": _NAMESPACE}, "data": data}
    result = await writer.objects.get(resource, _NAMESPACE, NAME)
    if result is not None and result.obj.get("data") == data:
        return

    async def replaced(old: JSONObject) -> JSONObject:
        return {**copy.deepcopy(old), "data": data}

    write = WriteRequest(resource, _NAMESPACE, NAME, SYSTEM, manager=SERVER)
    await writer.update(write, replaced, retry=True, create=lambda: new, create_always=True)


def _list(texts: tuple[str, ...]) -> str:
    return json.dumps(list(texts), separators=(",", ":"))


class Authentication:
    """The authenticators of a server, built from its options. ``server_ca`` is the certificate of the server's authority in PEM.

    Raises ConfigError if a file cannot be read.
    """

    def __init__(
        self,
        options: AuthenticationOptions,
        registry: Registry,
        writer: Writer,
        clock: Clock,
        server_ca: bytes,
        tokens: Mapping[str, User],
    ) -> None:
        """Build the authenticators.

        Args:
            options: Files and settings.
            registry: The served resources.
            writer: Writes the ConfigMap of ``publish``.
            clock: The clock of the server.
            server_ca: The authority of the server, PEM.
            tokens: Static tokens besides those of the token file.
        """
        self.options = options
        self.accounts = options.accounts or TokenSettings()
        self.authorities = ClientAuthorities(server_ca, options.client_ca, options.proxy_ca)
        self._registry = registry
        self._writer = writer
        self._changed = asyncio.Event()
        self._publishing: SupervisedTask | None = None
        self._unsubscribe: Callable[[], None] = lambda: None
        objects = BoundObjects(writer.objects, registry)
        audiences = self.accounts.audiences
        known = (
            StaticTokens(tokens, audiences, options.token_file),
            AccountTokens(self.accounts, objects, clock, LegacyTokens(objects, self._note_use)),
        )
        self.authenticator = Authenticator(
            known, audiences, authorities=self.authorities, proxies=options.proxies, anonymous=options.anonymous
        )

    async def publish(self, tasks: Supervisor, own_proxy: bytes, own_name: str) -> None:
        """Publish the trusted authorities for extension servers, now and when a file of authorities changes.

        Args:
            tasks: Runs the task that writes changes; a failed write is repeated after a growing delay.
            own_proxy: The authority of this server's front-proxy certificate, PEM.
            own_name: The common name of that certificate.

        Raises:
            ApiError: The ConfigMap cannot be written.
        """
        self._unsubscribe()
        self._unsubscribe = self.authorities.on_change(self._changed.set)
        await self._publish(own_proxy, own_name)
        self._publishing = tasks.start(lambda: self._publish_changes(own_proxy, own_name), name="cluster-authentication-trust")

    async def stop(self) -> None:
        """Stop publishing changes of the trusted authorities."""
        self._unsubscribe()
        if self._publishing is not None:
            await self._publishing.stop()

    async def _publish(self, own_proxy: bytes, own_name: str) -> None:
        headers = self.options.proxies
        requested = self.authorities.proxies_pem
        # An empty list allows any name, so the own name is not added to it.
        names = () if requested and not headers.allowed_names else tuple(dict.fromkeys((*headers.allowed_names, own_name)))
        proxies = requested.rstrip() + b"\n" + own_proxy if requested else own_proxy
        data = trust_data(self.authorities.clients_pem, proxies, with_conventional_headers(headers), names)
        await publish(self._registry, self._writer, data)

    async def _publish_changes(self, own_proxy: bytes, own_name: str) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._publish(own_proxy, own_name)
            except BaseException:
                self._changed.set()  # the next run of the task writes it
                raise

    async def _note_use(self, namespace: str, name: str, uid: str, day: str) -> None:
        resource = self._registry.get(SECRETS)
        if resource is None:
            return

        async def labelled(old: JSONObject) -> JSONObject:
            secret = copy.deepcopy(old)
            if secret["metadata"]["uid"] == uid:
                secret["metadata"]["labels"] = {**(secret["metadata"].get("labels") or {}), LAST_USED: day}
            return secret

        write = WriteRequest(resource, namespace, name, SYSTEM, manager=SERVER)
        await self._writer.update(write, labelled, retry=True)
