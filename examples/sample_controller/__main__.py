"""``python -m examples.sample_controller``: run the controller against a cluster until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import sys

import click
import msgspec

from examples.sample_controller.controller import FooController
from kubeloop import Client, Informers, KubeloopError, Manager
from kubeloop.config import load_config
from kubeloop.transport import Transport

RESYNC = 30.0  # seconds


@click.command()
@click.option("--kubeconfig", type=click.Path(), help="Kubeconfig file. Default: KUBECONFIG, ~/.kube/config, or the pod's own cluster.")
@click.option("--master", help="Address of the API server; overrides the kubeconfig's.")
@click.option("-v", "--verbose", is_flag=True, help="Log each reconcile.")
def main(kubeconfig: str | None, master: str | None, verbose: bool) -> None:
    """The Kubernetes sample controller on kubeloop: a Deployment of nginx for each Foo."""
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, format="%(asctime)s %(levelname).1s %(name)s: %(message)s")
    try:
        asyncio.run(run(kubeconfig, master))
    except KubeloopError as error:
        sys.exit(f"sample-controller: {error}")


async def run(kubeconfig: str | None, master: str | None) -> None:
    """Run until a signal.

    Raises:
        ConfigError, Forbidden, Unauthorized, DeadlineError: it cannot begin; the text says why.
    """
    config = load_config(kubeconfig)
    if master:
        config = msgspec.structs.replace(config, server=master)
    async with Client(Transport(config)) as client, Informers(client, resync=RESYNC) as informers:
        await Manager(client, [FooController()], informers=informers).run()


if __name__ == "__main__":
    main()
