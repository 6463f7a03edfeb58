"""The sync controller with the Gateway API as a second front end: Ingresses and routes become one configuration."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from examples.ingress_nginx.controller import SYNC, SyncController, SyncReport
from examples.ingress_nginx.gateway.addresses import AddressPool
from examples.ingress_nginx.gateway.build import GatewayBuilder, GatewayResult
from examples.ingress_nginx.gateway.objects import GROUP, GatewayOptions
from examples.ingress_nginx.gateway.status import GatewayStatuses
from examples.ingress_nginx.gateway.types import Gateway, GatewayClass, GRPCRoute, HTTPRoute, ReferenceGrant
from examples.ingress_nginx.ingress.builder import ObjectRef
from examples.ingress_nginx.model.configuration import Changes, Configuration, changes_between
from examples.ingress_nginx.nginx.server import NginxError, NginxServer
from examples.ingress_nginx.options import ControllerOptions
from kubeloop import Client, Result
from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.api.core.v1 import Namespace
from kubeloop.cache import Head
from kubeloop.controller import WatchedKind, generation_changed, labels_changed
from kubeloop.meta import Forbidden, NotFound, ObjectKey, kind_info

#: Where a CRD of the Gateway API has the version of its bundle.
BUNDLE_ANNOTATION = "gateway.networking.k8s.io/bundle-version"
#: Seconds until statuses that could not be written are tried again.
STATUS_RETRY = 1.0
_KINDS = (GatewayClass, Gateway, HTTPRoute, GRPCRoute, ReferenceGrant)


async def has_gateway_api(client: Client) -> bool:
    """Report whether the cluster has the Gateway API."""
    try:
        await client.transport.request("GET", f"/apis/{GROUP}/v1")
    except NotFound:
        return False
    return True


class GatewaySyncController(
    SyncController,
    watches=[
        *SyncController.watches,
        *(WatchedKind(kind, to="gateway_changed", predicates=(generation_changed,)) for kind in _KINDS),
        WatchedKind(Namespace, to="gateway_changed", predicates=(labels_changed,)),
    ],
    gets=[CustomResourceDefinition],
    status_writes=[GatewayClass, Gateway, HTTPRoute, GRPCRoute],
    name="kubeloop-ingress",
):
    """Keeps NGINX equal to the Ingresses, Gateways and routes of the cluster, and writes the statuses of the latter.

    Guarantees:
        A status says ``Programmed`` only after NGINX serves the configuration.
        Where an Ingress and a Gateway have the same host on the same listener, the Ingress is served.

    Args:
        nginx: Starts with the first sync, and stops with the controller.
        options: Options of the replica.
        observe: Called after each sync.
    """

    def __init__(
        self, nginx: NginxServer, options: ControllerOptions | None = None, observe: Callable[[SyncReport], None] | None = None
    ) -> None:
        super().__init__(nginx, options, observe)
        addresses = self.options.gateway_addresses
        self.gateways = GatewayBuilder(
            GatewayOptions(
                pool=AddressPool(addresses) if addresses else None,
                published=self.options.status_addresses,
                external_names=self.options.builder.external_names,
            )
        )
        #: Reports whether this replica writes statuses.
        self.leads: Callable[[], bool] = lambda: True
        self._result = GatewayResult()
        self._merged = Configuration()
        self._statuses: GatewayStatuses | None = None

    @property
    def configuration(self) -> Configuration:
        return self._merged

    def gateway_changed(self, head: Head) -> list[ObjectKey]:
        del head  # the whole front end is built again
        return [SYNC]

    async def write_statuses_as_leader(self) -> None:
        """Write all statuses now that this replica leads."""
        self.enqueue(SYNC)

    def depends_on(self, ref: ObjectRef) -> bool:
        kind, *key = ref
        if kind == "Service":
            return tuple(key) in self._result.services or super().depends_on(ref)
        return (kind == "Secret" and tuple(key) in self._result.secrets) or super().depends_on(ref)

    async def reconcile(self, key: ObjectKey) -> Result | None:
        if not self._started:
            with suppress(NginxError):  # the sync reports it
                self.gateways.http2_beside_http1 = await self.nginx.serves_http2_beside_http1()
            self.gateways.crd_versions = await self._read_crd_versions()
        return await super().reconcile(key)

    async def _read_crd_versions(self) -> dict[str, str]:
        """Return the bundle version of each CRD, once at the start: empty if the controller may not read them."""
        versions = {}
        for name in (f"{kind_info(kind).plural}.{GROUP}" for kind in _KINDS):
            try:
                found = await self.client.get_metadata(CustomResourceDefinition, name)
            except NotFound:
                continue
            except Forbidden as error:
                self.log.warning("the version of the Gateway API is not known: %s", error)
                return {}
            versions[name] = found.metadata.annotations.get(BUNDLE_ANNOTATION, "")
        return versions

    def build(self) -> Changes:
        super().build()
        before = self._merged
        self.gateways.http1_sockets = frozenset({self.builder.configuration.settings.http})
        self._result = self.gateways.build(self.objects)
        ingresses = self.builder.configuration
        merged = Configuration(settings=ingresses.settings)
        self._result.add_to(merged)
        merged.servers.update(ingresses.servers)
        merged.backends.update(ingresses.backends)
        merged.certificates.update(ingresses.certificates)
        self._merged = merged
        return changes_between(before, merged)

    async def finish(self) -> Result | None:
        if not self.leads():
            return None
        if self._statuses is None:
            self._statuses = GatewayStatuses(self.client)
        failures = await self._statuses.write(self._result.reports)
        return Result(requeue_after=STATUS_RETRY) if failures else None
