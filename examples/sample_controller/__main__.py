"""``python -m examples.sample_controller``: run the controller against a cluster until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import dataclass

import click
import msgspec

from examples.sample_controller.controller import NAME, FooController
from examples.sample_controller.variants import ApplyingFooController, FinalizingFooController
from kubeloop import Client, InformerFactory, KubeloopError, Manager
from kubeloop.config import load_config
from kubeloop.controller.election import LeaseConfig
from kubeloop.transport import Transport

log = logging.getLogger(__name__)

RESYNC = 30.0  # seconds
VARIANTS: dict[str, type[FooController]] = {"plain": FooController, "apply": ApplyingFooController, "finalizer": FinalizingFooController}
#: From this verbosity on each request and each decision is logged, as with klog.
DEBUG_FROM = 4


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    kubeconfig: str | None
    master: str | None
    variant: str
    leader_elect: bool
    lease_duration: float
    renew_deadline: float
    retry_period: float
    lease_namespace: str | None
    lease_name: str


@click.command()
@click.option("-kubeconfig", "--kubeconfig", type=click.Path(), help="Kubeconfig file; only required if out-of-cluster.")
@click.option("-master", "--master", help="Address of the API server; overrides the kubeconfig's. Only required if out-of-cluster.")
@click.option(
    "-v", "--v", "verbosity", type=int, default=0, show_default=True, help=f"Verbosity of the log; {DEBUG_FROM} shows every step."
)
@click.option("--variant", type=click.Choice(list(VARIANTS)), default="plain", show_default=True, help="How Deployments are written.")
@click.option("--leader-elect", is_flag=True, help="Work only while holding a Lease, so that several replicas may run.")
@click.option("--leader-elect-lease-duration", "lease_duration", type=float, default=15.0, show_default=True, help="Seconds.")
@click.option("--leader-elect-renew-deadline", "renew_deadline", type=float, default=10.0, show_default=True, help="Seconds.")
@click.option("--leader-elect-retry-period", "retry_period", type=float, default=2.0, show_default=True, help="Seconds.")
@click.option("--leader-elect-resource-namespace", "lease_namespace", help="Of the Lease; default: the kubeconfig's or the pod's own.")
@click.option("--leader-elect-resource-name", "lease_name", default=NAME, show_default=True, help="Of the Lease.")
def main(verbosity: int, **options: object) -> None:
    """The Kubernetes sample controller on kubeloop: a Deployment of nginx for each Foo."""
    level = logging.DEBUG if verbosity >= DEBUG_FROM else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname).1s %(name)s: %(message)s")
    try:
        asyncio.run(run(msgspec.convert(options, Options)))
    except KubeloopError as error:
        sys.exit(f"{NAME}: {error}")


async def run(options: Options) -> None:
    """Run until a signal.

    Raises:
        ConfigError, Forbidden, Unauthorized, DeadlineError: it cannot begin; the text says why. LeaseLost: another replica leads.
    """
    config = load_config(options.kubeconfig)
    if options.master:
        config = msgspec.structs.replace(config, server=options.master)
    async with Client(Transport(config)) as client, InformerFactory(client, resync=RESYNC) as informers:
        manager = Manager(client, [VARIANTS[options.variant]()], informers=informers, leader_election=lease(options, client.namespace))
        log.info("Starting Foo controller")
        log.info("Waiting for informer caches to sync")
        await manager.run()


def lease(options: Options, namespace: str) -> LeaseConfig | None:
    """None: no election.

    Raises:
        ConfigError: the times do not fit together.
    """
    if not options.leader_elect:
        return None
    return LeaseConfig(
        options.lease_name,
        options.lease_namespace or namespace,
        lease_duration=options.lease_duration,
        renew_deadline=options.renew_deadline,
        retry_period=options.retry_period,
    )


if __name__ == "__main__":
    main()
