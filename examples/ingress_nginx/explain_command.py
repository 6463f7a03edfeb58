"""``kubeloop-ingress explain HOST/PATH`` and ``kubeloop-ingress check``: the answers of the controller's parts without the controller."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import click

import kubeloop
from examples.ingress_nginx.annotations.settings import missing_text, read_settings
from examples.ingress_nginx.explain import RequestExplanation, explain
from examples.ingress_nginx.explain_gateways import explain_gateways
from examples.ingress_nginx.gateway.addresses import AddressPool
from examples.ingress_nginx.gateway.build import GatewayBuilder, GatewayResult
from examples.ingress_nginx.gateway.objects import GatewayOptions
from examples.ingress_nginx.gateway.types import Gateway, GatewayClass, GRPCRoute, HTTPRoute, ReferenceGrant
from examples.ingress_nginx.ingress.builder import BuilderOptions, IngressBuilder
from examples.ingress_nginx.ingress.classes import ClassRules
from examples.ingress_nginx.ingress.endpoints import SERVICE_LABEL
from examples.ingress_nginx.ingress.records import Key
from examples.ingress_nginx.model.configuration import Settings
from kubeloop import ALL_NAMESPACES, Client
from kubeloop.api.core.v1 import ConfigMap, Namespace, Secret, Service
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.api.networking.v1 import Ingress, IngressClass
from kubeloop.meta import Forbidden, NotFound, Resource, kind_info

R = TypeVar("R", bound=Resource)

_CONFIG_MAP = "ConfigMap "
_DENIED = "the controller refuses this ConfigMap: NGINX keeps its last good configuration, or does not start"


class ObjectSnapshot:
    """The objects of a cluster at one time; implements ``ClusterObjects`` and ``GatewayObjects``.

    Secrets and ConfigMaps are read by the names that Ingresses and options have for them: the reader needs no right to list all Secrets.
    """

    def __init__(self) -> None:
        self._objects: dict[tuple[type[Resource], str, str], Resource] = {}
        self._slices: dict[tuple[str, str], list[EndpointSlice]] = {}
        #: Objects that the user may not read: kind, namespace and name.
        self.forbidden: list[str] = []

    @classmethod
    async def read(cls, client: Client, options: BuilderOptions, config_map: Key | None = None) -> ObjectSnapshot:
        """Read the controller's ConfigMap, Ingresses, their classes, Services, EndpointSlices and the objects that served Ingresses name.

        Args:
            client: Reads the objects.
            options: Which Ingresses are served.
            config_map: Namespace and name of the controller's ConfigMap; None: it has none.
        """
        found = cls()
        await found._read_named(client, ConfigMap, [config_map] if config_map is not None else [])
        for kind in (Ingress, IngressClass, Service):
            async for item in client.list(kind, namespace=ALL_NAMESPACES):
                found.add(item)
        async for piece in client.list(EndpointSlice, namespace=ALL_NAMESPACES):
            found.add(piece)
        builder = IngressBuilder(found, options)
        builder.rebuild()
        for record in builder.records.values():
            secrets = {*record.annotations.secrets, *((record.key[0], secret) for _, secret in record.tls if secret)}
            await found._read_named(client, Secret, secrets)
            await found._read_named(client, ConfigMap, record.annotations.config_maps)
        return found

    async def read_gateways(self, client: Client, gateways: GatewayBuilder) -> GatewayResult:
        """Read the objects of the Gateway API, and return what they amount to; nothing if the cluster does not have the API."""
        for kind in (GatewayClass, Gateway, HTTPRoute, GRPCRoute, ReferenceGrant, Namespace):
            try:
                async for item in client.list(kind, namespace=ALL_NAMESPACES):
                    self.add(item)
            except NotFound:
                return GatewayResult()
            except Forbidden:
                self.forbidden.append(f"{kind_info(kind).plural}")
        await self._read_named(client, Secret, gateways.build(self).secrets)
        return gateways.build(self)

    def add(self, resource: Resource) -> None:
        namespace = resource.metadata.namespace or ""
        if isinstance(resource, EndpointSlice):
            self._slices.setdefault((namespace, resource.metadata.labels.get(SERVICE_LABEL, "")), []).append(resource)
        else:
            self._objects[type(resource), namespace, resource.metadata.name] = resource

    async def _read_named(self, client: Client, kind: type[Resource], names: Iterable[tuple[str, str]]) -> None:
        for namespace, name in names:
            text = f"{kind.__name__} {namespace}/{name}"
            if (kind, namespace, name) in self._objects or text in self.forbidden:
                continue
            try:
                self.add(await client.get(kind, name, namespace=namespace))
            except NotFound:
                continue
            except Forbidden:
                self.forbidden.append(text)

    def list(self, kind: type[R]) -> Iterable[R]:
        return [found for found in self._objects.values() if isinstance(found, kind)]

    def namespace(self, name: str) -> Namespace | None:
        return self._get(Namespace, "", name)

    def ingresses(self) -> Iterable[Ingress]:
        return self.list(Ingress)

    def ingress(self, namespace: str, name: str) -> Ingress | None:
        return self._get(Ingress, namespace, name)

    def ingress_class(self, name: str) -> IngressClass | None:
        return self._get(IngressClass, "", name)

    def service(self, namespace: str, name: str) -> Service | None:
        return self._get(Service, namespace, name)

    def slices(self, namespace: str, service: str) -> Iterable[EndpointSlice]:
        return self._slices.get((namespace, service), ())

    def secret(self, namespace: str, name: str) -> Secret | None:
        return self._get(Secret, namespace, name)

    def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        return self._get(ConfigMap, namespace, name)

    def _get(self, kind: type[R], namespace: str, name: str) -> R | None:
        found = self._objects.get((kind, namespace, name))
        return found if isinstance(found, kind) else None


def builder_of(objects: ObjectSnapshot, options: BuilderOptions, config_map: Key | None) -> tuple[IngressBuilder, tuple[str, ...]]:
    """Return a builder with the settings of the controller's ConfigMap, and the problems of the ConfigMap that the controller logs.

    The default settings apply if the ConfigMap does not exist or the user may not read it. In the second case it has no problem, because
    ``objects.forbidden`` names it.
    """
    found = read_settings(objects.config_map(*config_map) if config_map is not None else None, Settings())
    builder = IngressBuilder(objects, options, found.settings)
    builder.rebuild()
    problems = (*([_DENIED] if found.denials else []), *found.problems)
    if config_map is not None and objects.config_map(*config_map) is None and _CONFIG_MAP + "/".join(config_map) not in objects.forbidden:
        problems = (missing_text(config_map),)
    return builder, problems


async def explain_from_cluster(
    client: Client, options: BuilderOptions, host: str, path: str, config_map: Key | None = None, gateway_addresses: str = ""
) -> tuple[RequestExplanation, list[str]]:
    """Explain a request by the objects of a cluster.

    Args:
        client: Reads the objects.
        options: Options of the controller that is explained.
        host: Host of the request.
        path: Path of the request.
        config_map: Namespace and name of the controller's ConfigMap; None: it has none.
        gateway_addresses: The network of which each Gateway gets an address; empty: they share the controller's.

    Returns:
        The explanation, and the objects that the user of the client may not read.
    """
    objects = await ObjectSnapshot.read(client, options, config_map)
    builder, problems = builder_of(objects, options, config_map)
    pool = AddressPool(gateway_addresses) if gateway_addresses else None
    result = await objects.read_gateways(client, GatewayBuilder(GatewayOptions(pool=pool, external_names=options.external_names)))
    found = replace(explain(builder, objects, host, path), config_map_problems=problems)
    return replace(found, gateways=explain_gateways(result, builder, objects, host, path)), objects.forbidden


async def check_cluster(client: Client, options: BuilderOptions, config_map: Key | None = None) -> tuple[dict[str, list[str]], list[str]]:
    """Return the problems of the Ingresses of a cluster.

    Args:
        client: Reads the objects.
        options: Options of the controller.
        config_map: Namespace and name of the controller's ConfigMap; None: it has none.

    Returns:
        The problems by ``NAMESPACE/NAME`` of the Ingress, those of the ConfigMap by ``ConfigMap NAMESPACE/NAME`` unless the user may not
        read it, and the objects that the user of the client may not read.
    """
    objects = await ObjectSnapshot.read(client, options, config_map)
    builder, problems = builder_of(objects, options, config_map)
    found = {f"{namespace}/{name}": [text for _, text in builder.problems[namespace, name]] for namespace, name in sorted(builder.records)}
    title = f"{_CONFIG_MAP}{'/'.join(config_map or ())}"
    if config_map is not None and title not in objects.forbidden:
        found = {title: list(problems), **found}
    return found, objects.forbidden


@click.command("explain")
@click.argument("request", metavar="HOST/PATH")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def explain_command(words: dict[str, Any], request: str, as_json: bool) -> None:
    """Explain which Ingress or route, backend and endpoints serve HOST/PATH, and why others do not.

    Options of the controller, such as --ingress-class and --configmap, stand before `explain`. The exit status is 0 for each answer.
    """
    host, _, path = request.partition("://")[2 if "://" in request else 0].partition("/")

    async def run() -> None:
        async with Client.from_config(words["kubeconfig"]) as client:
            found, forbidden = await explain_from_cluster(
                client, _builder_options(words), host, f"/{path}", words.get("configmap"), words.get("gateway_addresses") or ""
            )
        click.echo(json.dumps(found.to_dict(), indent=2) if as_json else found.to_text())
        _tell_forbidden(forbidden)

    kubeloop.run(run())


@click.command("check")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def check_command(words: dict[str, Any], as_json: bool) -> None:
    """Print what the controller does not follow of each Ingress that it would serve: annotations, paths, Secrets, conflicts.

    With --configmap, the keys of the ConfigMap are checked too. Options of the controller, such as --ingress-class and --configmap, stand
    before `check`. The exit status is 1 if an Ingress or the ConfigMap has a problem.
    """

    async def run() -> tuple[dict[str, list[str]], list[str]]:
        async with Client.from_config(words["kubeconfig"]) as client:
            return await check_cluster(client, _builder_options(words), words.get("configmap"))

    found, forbidden = kubeloop.run(run())
    _tell_forbidden(forbidden)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        ingresses = {name: problems for name, problems in found.items() if not name.startswith(_CONFIG_MAP)}
        for name, problems in found.items():
            title = f"Ingress {name}" if name in ingresses else name
            click.echo(f"{title}: {'no problem' if not problems else ''}".rstrip())
            for text in problems:
                click.echo(f"  {text}")
        faulty = sum(map(bool, ingresses.values()))
        click.echo(f"{len(ingresses)} Ingresses of the class, {faulty} with problems")
    if any(found.values()):
        raise SystemExit(1)


def _builder_options(words: dict[str, Any]) -> BuilderOptions:
    default_service = words.get("default_backend_service")
    return BuilderOptions(
        classes=ClassRules(words["controller_class"], words["ingress_class"], without_class=words["watch_ingress_without_class"]),
        prefix=words["annotations_prefix"],
        default_service=default_service if isinstance(default_service, tuple) else None,
        external_names=not words.get("disable_external_names"),
    )


def _tell_forbidden(forbidden: Iterable[str]) -> None:
    for name in forbidden:
        click.echo(f"You may not read {name}; the answer assumes that there is none.", err=True)
