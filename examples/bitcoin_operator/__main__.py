"""``python -m examples.bitcoin_operator``: run the operator until SIGINT or SIGTERM."""

from __future__ import annotations

import logging

import click

import kubeloop
from examples.bitcoin_operator.app import controllers
from kubeloop import ALL_NAMESPACES, Client, Manager
from kubeloop.controller import Endpoints
from kubeloop.controller.election import LeaseConfig

NAME = "bitcoin-controller"


@click.command()
@click.option("--kubeconfig", type=click.Path(), help="Default: KUBECONFIG, ~/.kube/config, or the pod's own cluster.")
@click.option("--namespace", default=ALL_NAMESPACES, help="Namespace to work in. Default: all.")
@click.option("--leader-election", is_flag=True, help="Let one of several replicas work at a time.")
@click.option("--health", default="", metavar="ADDRESS", help="Serve /healthz and /readyz there, such as :8081.")
@click.option("--metrics", default="", metavar="ADDRESS", help="Serve /metrics there, such as :8443, to users who may read it.")
@click.option("--metrics-insecure", is_flag=True, help="Serve metrics over HTTP, without authentication.")
@click.option("-v", "--verbose", is_flag=True, help="Log each decision.")
def main(
    kubeconfig: str | None,
    namespace: str,
    leader_election: bool,
    health: str,
    metrics: str,
    metrics_insecure: bool,
    verbose: bool,
) -> None:
    """Run the bitcoin operator: a network of bitcoin daemons for each BitcoinNetwork."""
    level = logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname).1s %(name)s: %(message)s")

    async def run() -> None:
        async with Client.from_config(kubeconfig) as client:
            manager = Manager(
                client,
                controllers(),
                namespace=namespace,
                leader_election=LeaseConfig(NAME, client.namespace) if leader_election else None,
                endpoints=endpoints_of(client, health, metrics, secure=not metrics_insecure),
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


if __name__ == "__main__":
    main()
