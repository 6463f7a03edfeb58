"""``python -m examples.bitcoin_operator``: run the operator until SIGINT or SIGTERM."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click

import kubeloop
from examples.bitcoin_operator.app import controllers
from examples.bitcoin_operator.rpc import RpcClient, daemon_url
from kubeloop import ALL_NAMESPACES, Client, Manager
from kubeloop.controller import Endpoints
from kubeloop.controller.election import LeaseConfig

if TYPE_CHECKING:
    from kubeloop.controller.webhooks import WebhookServer

NAME = "bitcoin-controller"


@click.command()
@click.option("--kubeconfig", type=click.Path(), help="Default: KUBECONFIG, ~/.kube/config, or the pod's own cluster.")
@click.option("--namespace", default=ALL_NAMESPACES, help="Namespace to work in. Default: all.")
@click.option("--leader-election", is_flag=True, help="Let one of several replicas work at a time.")
@click.option("--health", default="", metavar="ADDRESS", help="Serve /healthz and /readyz there, such as :8081.")
@click.option("--metrics", default="", metavar="ADDRESS", help="Serve /metrics there, such as :8443, to users who may read it.")
@click.option("--metrics-insecure", is_flag=True, help="Serve metrics over HTTP, without authentication.")
@click.option("--rpc-url", default="http://{ip}:18332/", show_default=True, help="URL of a daemon; {ip} is the address of its pod.")
@click.option("--webhook-port", default=0, help="Serve the webhooks there, such as 9443. Default: do not serve them.")
@click.option("--webhook-name", default=f"{NAME}-webhooks", show_default=True, help="Name of their Service, configuration and Secret.")
@click.option("--webhook-certificates", default="", help="Folder with tls.crt, tls.key and ca.crt. Default: managed in the Secret.")
@click.option("-v", "--verbose", is_flag=True, help="Log each decision.")
def main(
    kubeconfig: str | None,
    namespace: str,
    leader_election: bool,
    health: str,
    metrics: str,
    metrics_insecure: bool,
    rpc_url: str,
    webhook_port: int,
    webhook_name: str,
    webhook_certificates: str,
    verbose: bool,
) -> None:
    """Run the bitcoin operator: a network of bitcoin daemons for each BitcoinNetwork."""
    level = logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname).1s %(name)s: %(message)s")

    async def run() -> None:
        async with Client.from_config(kubeconfig) as client:
            manager = Manager(
                client,
                controllers(RpcClient(url_of=lambda ip: daemon_url(ip, rpc_url))),
                namespace=namespace,
                leader_election=LeaseConfig(NAME, client.namespace) if leader_election else None,
                endpoints=endpoints_of(client, health, metrics, secure=not metrics_insecure),
                servers=[webhook_server(client, webhook_port, webhook_name, webhook_certificates)] if webhook_port else [],
            )
            await manager.run()

    kubeloop.run(run())


def endpoints_of(client: Client, health: str, metrics: str, *, secure: bool) -> Endpoints:
    """Return the addresses that the manager serves.

    Args:
        client: Client of the cluster that decides who may read metrics.
        health: Address of /healthz and /readyz; empty: none.
        metrics: Address of /metrics; empty: none.
        secure: Serve metrics over TLS, to users whom the cluster allows to get /metrics.
    """
    if not secure or not metrics:
        return Endpoints(health=health, metrics=metrics)
    # Imported here: the library for certificates takes 8 MiB, which a program without this endpoint saves.
    from kubeloop.controller.manager.access import KubernetesAccess
    from kubeloop.controller.webhooks.certificates.managed import OwnCertificate

    certificate = OwnCertificate([f"{NAME}-metrics.{client.namespace}.svc", "localhost", "127.0.0.1"])
    return Endpoints(health=health, metrics=metrics, certificate=certificate, access=KubernetesAccess(client))


def webhook_server(client: Client, port: int, name: str, certificates: str) -> WebhookServer:
    """Return the server of the webhooks.

    Args:
        client: Client of the cluster whose API server calls the webhooks.
        port: Port to listen on, at all addresses.
        name: Name of the Service in front of the webhooks, of their configuration, and of the Secret with their certificates.
        certificates: Folder with certificates of another program, such as cert-manager, which also writes the CA bundle into the
            configuration. Empty: the server manages certificates and CA bundle.
    """
    # Imported here for the same reason as above.
    from examples.bitcoin_operator.webhooks import hooks
    from kubeloop.controller.webhooks import CertificateFiles, Inject, ManagedCertificates, Service, WebhookServer

    if certificates:
        return WebhookServer(hooks, CertificateFiles(certificates), client=client, host="0.0.0.0", port=port)
    managed = ManagedCertificates(name, client.namespace, Service(client.namespace, name).dns_names)
    return WebhookServer(hooks, managed, client=client, host="0.0.0.0", port=port, inject=Inject.of(hooks, name))


if __name__ == "__main__":
    main()
