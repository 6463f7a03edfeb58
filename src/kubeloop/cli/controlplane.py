"""``kubeloop controlplane``: the built-in controllers and the scheduler against any API server, as kube-controller-manager runs them;
``kubeloop schedule``: explains the scheduler's decisions.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from kubeloop.cli.flags import FILE, DurationParameter, flag, with_flags
from kubeloop.cli.group import Command, CommandGroup
from kubeloop.cli.server_logging import EVERYTHING, FORMATS, configure
from kubeloop.meta.errors import ConfigError, KubeloopError
from kubeloop.meta.signals import on_signal
from kubeloop.tasks import end_tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubeloop.controller import Endpoints
    from kubeloop.controlplane import ClusterKeys, ControlPlaneLeases
    from kubeloop.controlplane.scheduling.configuration import SchedulerConfiguration
    from kubeloop.controlplane.scheduling.explanation import PodExplanation

T = TypeVar("T")

_EPILOG = """\b
Examples:
  kubeloop controlplane --kubeconfig admin.conf
  kubeloop controlplane --controllers '*,-default-scheduler'   beside a kube-scheduler
  kubeloop controlplane --controllers job,cronjob              two controllers only
"""


@dataclass(frozen=True, slots=True)
class ControlPlaneFlags:
    """Flags of ``kubeloop controlplane``. A flag that kube-controller-manager has too has the same name and meaning."""

    kubeconfig: Path | None = flag(type=FILE, help="Credentials for the API server. Default: $KUBECONFIG or ~/.kube/config.")
    context: str | None = flag(help="Context of the kubeconfig. Default: the current one.")
    controllers: str = flag(
        "*",
        metavar="NAMES",
        help="Controllers to run: '*' all that are on by default, 'foo' the one named foo, '-foo' not that one. Default: '*'.",
    )
    scheduler_config: Path | None = flag(type=FILE, help="KubeSchedulerConfiguration with the scheduler's profiles. Default: one profile.")
    root_ca_file: Path | None = flag(
        type=FILE, help="Certificate authority to publish in each namespace, PEM. Default: the one of the kubeconfig."
    )
    cluster_signing_cert_file: Path | None = flag(
        type=FILE, help="Certificate authority that signs certificates, PEM. Default: no certificates are signed."
    )
    cluster_signing_key_file: Path | None = flag(type=FILE, help="Key of --cluster-signing-cert-file, PEM.")
    service_account_private_key_file: Path | None = flag(
        type=FILE, help="Key that signs tokens in Secrets, PEM. Default: no tokens are signed."
    )
    leader_elect: bool = flag(True, type=bool, metavar="BOOL", help="Work only while holding the Leases. Default: true.")
    leader_elect_resource_name: str = flag(
        "kube-controller-manager", metavar="NAME", help="Name of the controllers' Lease; the scheduler's is kube-scheduler."
    )
    leader_elect_resource_namespace: str = flag("kube-system", metavar="NAMESPACE", help="Namespace of both Leases.")
    leader_elect_lease_duration: float = flag(
        15.0, type=DurationParameter(), metavar="DURATION", help="How long others wait for a leader that does not renew. Default: 15s."
    )
    leader_elect_renew_deadline: float = flag(
        10.0, type=DurationParameter(), metavar="DURATION", help="How long the leader tries to renew before it stops. Default: 10s."
    )
    leader_elect_retry_period: float = flag(2.0, type=DurationParameter(), metavar="DURATION", help="Time between tries. Default: 2s.")
    health_address: str = flag("", metavar="HOST:PORT", help="Address of /healthz and /readyz. Default: none.")
    metrics_address: str = flag("", metavar="HOST:PORT", help="Address of /metrics. Default: none.")
    logging_format: str = flag("text", type=click.Choice(FORMATS), help="Format of the log on stderr.")
    v: int = flag(0, "-v", "--v", help="Verbosity of the log; 4 shows everything.")

    def keys(self) -> ClusterKeys:
        """Read the signing keys.

        Raises:
            ConfigError: A file cannot be read, or holds no key; the message names the flag.
        """
        from kubeloop.controlplane import ClusterKeys
        from kubeloop.pki import CertificateAuthority, SigningKey

        certificate, key = self.cluster_signing_cert_file, self.cluster_signing_key_file
        if (certificate is None) != (key is None):
            raise ConfigError("--cluster-signing-cert-file and --cluster-signing-key-file belong together: name both or none")
        authority = None
        if certificate is not None and key is not None:
            pem = _read(certificate, "--cluster-signing-cert-file")
            authority = _load(lambda data: CertificateAuthority.load(pem, data), key, "--cluster-signing-key-file")
        tokens = None
        if self.service_account_private_key_file is not None:
            tokens = _load(SigningKey.load, self.service_account_private_key_file, "--service-account-private-key-file")
        return ClusterKeys(authority, tokens)

    def leases(self) -> ControlPlaneLeases | None:
        """Return the Leases of the controllers and the scheduler, or None without leader election.

        Raises:
            ConfigError: A name is invalid, or the times allow two leaders.
        """
        if not self.leader_elect:
            return None
        from kubeloop.controller.election import LeaseConfig, unique_identity
        from kubeloop.controlplane.leader_election import SCHEDULER_LEASE, ControlPlaneLeases

        controllers = LeaseConfig(
            self.leader_elect_resource_name,
            self.leader_elect_resource_namespace,
            lease_duration=self.leader_elect_lease_duration,
            renew_deadline=self.leader_elect_renew_deadline,
            retry_period=self.leader_elect_retry_period,
        )
        if controllers.name == SCHEDULER_LEASE:
            raise ConfigError(f"--leader-elect-resource-name: {SCHEDULER_LEASE} is the Lease of the scheduler; choose another name")
        return ControlPlaneLeases(controllers, replace(controllers, name=SCHEDULER_LEASE, identity=unique_identity()))

    def endpoints(self) -> Endpoints | None:
        """Return the addresses of health and metrics; None: neither is served."""
        if not self.health_address and not self.metrics_address:
            return None
        from kubeloop.controller import Endpoints

        return Endpoints(health=self.health_address, metrics=self.metrics_address)


def read_scheduler_configuration(file: Path | None) -> SchedulerConfiguration | None:
    """Read the file of ``--scheduler-config``; None without one.

    Raises:
        ConfigError: The file cannot be read, or requests a feature that the scheduler does not support.
    """
    if file is None:
        return None
    from kubeloop.controlplane.scheduling.configuration import read_configuration

    return read_configuration(file)


def _read(file: Path, flag_name: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{flag_name} {file}: {error.strerror}") from None


def _load(load: Callable[[bytes], T], file: Path, flag_name: str) -> T:
    try:
        return load(_read(file, flag_name))
    except ValueError as error:
        raise ConfigError(f"{flag_name} {file}: {error}") from None


@click.command(cls=Command, epilog=_EPILOG)
@with_flags(flags=ControlPlaneFlags)
def controlplane(flags: ControlPlaneFlags) -> None:
    """Run the built-in controllers and the scheduler against an API server.

    The controllers work while they hold kube-controller-manager's Lease, the scheduler while it holds kube-scheduler's: each waits while
    another replica, or the program upstream, holds it. Prints "ready URL" when the controllers lead (without controllers: the scheduler).
    Ends on SIGINT or SIGTERM, and with exit status 1 when a Lease is lost.
    """
    configure(flags.logging_format, max(flags.v, 0) if flags.v < EVERYTHING else EVERYTHING)
    try:
        asyncio.run(_run(flags))
    except (KubeloopError, OSError) as error:
        raise click.ClickException(str(error)) from None


async def _run(flags: ControlPlaneFlags) -> None:
    from kubeloop.config import load_config
    from kubeloop.controlplane import run, select_controllers

    ending = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        on_signal(number, ending.set)
    select_controllers(flags.controllers)
    scheduler = read_scheduler_configuration(flags.scheduler_config)
    config = load_config(flags.kubeconfig, flags.context)
    authority = None if flags.root_ca_file is None else _read(flags.root_ca_file, "--root-ca-file").decode("ascii", "replace")
    controllers = asyncio.create_task(
        run(
            config,
            keys=flags.keys(),
            authority=authority,
            nodes=(),
            selection=flags.controllers,
            scheduler=scheduler,
            leases=flags.leases(),
            endpoints=flags.endpoints(),
            ready=lambda manager: print(f"ready {config.server}", file=sys.stdout, flush=True),  # noqa: ARG005  # the manager runs
        ),
        name="controllers",
    )
    ended = asyncio.create_task(ending.wait(), name="signal")
    try:
        await asyncio.wait({controllers, ended}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(ended)
    if controllers.done():
        await controllers
    else:
        await end_tasks(controllers)


_EXPLAIN_EPILOG = """\b
Examples:
  kubeloop schedule explain web-1 -n shop
  kubeloop schedule explain web-1 -o json | jq '.nodes[] | select(.fits)'
"""


@click.group(cls=CommandGroup)
def schedule() -> None:
    """Explain the scheduler's decisions."""


@schedule.command(epilog=_EXPLAIN_EPILOG)
@click.argument("pod")
@click.option("-n", "--namespace", help="Default: the context's namespace.")
@click.option("--kubeconfig", type=FILE, help="Default: $KUBECONFIG, or ~/.kube/config.")
@click.option("--context", help="Context to use. Default: the current one.")
@click.option("--config", type=FILE, help="KubeSchedulerConfiguration with the scheduler's profiles. Default: the default profile.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def explain(pod: str, namespace: str | None, kubeconfig: Path | None, context: str | None, config: Path | None, output: str) -> None:
    """Print why each node was refused for POD, by plugin, and the scores of the nodes that fit.

    The decision is made now, from the state of the cluster; nothing is changed. A node that the pod has already is ignored.
    """
    found = asyncio.run(_explain(pod, namespace, kubeconfig, context, config))
    if output == "json":
        click.echo(json.dumps(found.to_dict(), indent=2))
    else:
        click.echo(found.text(min(shutil.get_terminal_size().columns, 120)))


async def _explain(name: str, namespace: str | None, kubeconfig: Path | None, context: str | None, config: Path | None) -> PodExplanation:
    from kubeloop.client import Client
    from kubeloop.controlplane.scheduling.configuration import default_configuration, read_configuration
    from kubeloop.controlplane.scheduling.explanation import explain_pod, read_cluster

    profiles = (read_configuration(config) if config is not None else default_configuration()).profiles
    async with Client.from_config(kubeconfig, context) as client:
        chosen = namespace or client.namespace
        cluster, pods = await read_cluster(client)
        pod = pods.get((chosen, name))
        if pod is None:
            raise ConfigError(f'pods "{name}" not found in namespace "{chosen}"')
        profile = profiles.get(pod.scheduler)
        if profile is None:
            hint = "" if config is not None else "; name its configuration with --config"
            raise ConfigError(f"pod {chosen}/{name} is for the scheduler {pod.scheduler}, which has no profile here{hint}")
        return explain_pod(profile, pod, cluster)
