"""The parts that the program runs: for ``__main__``, tests, benchmarks and the commands of kubeloop."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from examples.ingress_nginx.controller import SyncController
from examples.ingress_nginx.gateway_controller import GatewaySyncController, has_gateway_api
from examples.ingress_nginx.metrics import IngressMetrics, MetricSources, ReplicaName
from examples.ingress_nginx.nginx.choice import ChosenNginx
from examples.ingress_nginx.options import ControllerOptions
from examples.ingress_nginx.status import IngressStatusWriter
from examples.ingress_nginx.webhook import BuilderLookup, hooks_of
from kubeloop import Client
from kubeloop.api.core.v1 import Secret
from kubeloop.controller import Background, CacheScope, ControllerBase, KindCacheScope, RunnableContext


@dataclass(slots=True)
class ProgramParts:
    """What one replica runs: controllers and webhook servers for a manager, NGINX, and the registry of their metrics."""

    nginx: ChosenNginx
    sync: SyncController
    controllers: list[ControllerBase[Any]]
    servers: list[AbstractAsyncContextManager[Any]] = field(default_factory=list)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    background: list[Background] = field(default_factory=list)
    sources: MetricSources | None = None


def cache_scope(namespace: str) -> CacheScope:
    """Return what the caches contain: objects of a namespace or of all, without the Secrets of Helm's releases, which are large."""
    return CacheScope(namespaces=namespace, kinds={Secret: KindCacheScope(field_selector="type!=helm.sh/release.v1")})


async def parts_of(client: Client, options: ControllerOptions) -> ProgramParts:
    """Return the parts of a replica. ``client``: of the cluster, which may have the Gateway API."""
    nginx = ChosenNginx(str(options.nginx or ""), lua=options.lua, folder=options.folder)
    gateways = await has_gateway_api(client)
    sync = GatewaySyncController(nginx, options) if gateways else SyncController(nginx, options)
    registry = CollectorRegistry()
    replica = ReplicaName(options.pod[0] or client.namespace, options.builder.classes.controller, options.pod[1])
    sources = MetricSources(
        lambda: sync.configuration, service_exists=lambda namespace, name: sync.objects.service(namespace, name) is not None
    )
    metrics = IngressMetrics(registry, replica, sources)
    sync.observe = metrics.observe_sync
    parts = ProgramParts(
        nginx, sync, [sync, IngressStatusWriter(options, clear_on_shutdown=options.update_status_on_shutdown)], registry=registry
    )
    parts.sources = sources

    async def poll_counters(context: RunnableContext) -> None:
        await metrics.poll(nginx, context.clock)

    parts.background.append(Background(poll_counters, name="nginx-counters", needs_leader=False))
    if isinstance(sync, GatewaySyncController):
        parts.background.append(Background(sync.write_statuses_as_leader, name="gateway-statuses"))
    if options.webhook_port:
        # Imported here: the library for certificates takes 8 MiB, which a program without a webhook saves.
        from kubeloop.controller.webhooks import Inject, ManagedCertificates, Service, WebhookServer

        hooks = hooks_of(BuilderLookup(sync.builder, sync.objects, options.builder), metrics.observe_admission)
        name = options.webhook_name
        certificates = ManagedCertificates(name, client.namespace, Service(client.namespace, name).dns_names)
        inject = Inject.of(hooks, name)
        parts.servers.append(WebhookServer(hooks, certificates, client=client, host="0.0.0.0", port=options.webhook_port, inject=inject))
    return parts


def controllers() -> list[ControllerBase[Any]]:
    """Return new controllers, for ``kubeloop generate rbac`` and ``kubeloop doctor``."""
    return [GatewaySyncController(ChosenNginx()), IngressStatusWriter()]
