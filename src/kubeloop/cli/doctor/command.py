"""The command ``kubeloop doctor``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubeloop.cli.application import controllers_at
from kubeloop.cli.group import Command
from kubeloop.meta.columns import WIDTH
from kubeloop.meta.errors import ConfigError, KubeloopError

if TYPE_CHECKING:
    from kubeloop.cli.doctor.connection import Missing
    from kubeloop.cli.doctor.findings import DoctorFinding
    from kubeloop.client import Client
    from kubeloop.controller import ControllerBase
    from kubeloop.controller.permissions import Permission

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=Command)
@click.argument("app", metavar="[MODULE:NAME]", required=False)
@click.option("--kubeconfig", type=_FILE, help="Default: $KUBECONFIG, ~/.kube/config, or the pod's own cluster.")
@click.option("--context", help="Context of the kubeconfig.")
@click.option("-n", "--namespace", help="The program works in this namespace only. Default: in all.")
@click.option("--leader-election/--no-leader-election", default=True, show_default=True, help="Whether the program elects a leader.")
@click.option("--sharding", is_flag=True, help="Whether replicas of the program share its keys.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--fix", is_flag=True, help="Print the roles that grant missing permissions, for kubectl apply -f -, and nothing else.")
def doctor(
    app: str | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    leader_election: bool,
    sharding: bool,
    output: str,
    fix: bool,
) -> None:
    """Look for what a program lacks in a cluster: connection, version, clock; for the controllers of MODULE:NAME also permissions, kinds
    and their schemas, webhooks.

    MODULE:NAME is a list of controllers, a controller, its class, or a function that returns one of these. Nothing is changed. The exit
    status is 1 if a check failed.
    """
    from kubeloop.cli.doctor.findings import is_well
    from kubeloop.controller.permissions import lease_permissions

    try:
        controllers = controllers_at(app) if app else []
        leases = lease_permissions(sharding=sharding) if leader_election or sharding else []
        findings, missing, user = asyncio.run(_look(controllers, kubeconfig, context, namespace, leases))
    except (KubeloopError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    if fix:
        _print_fix(missing, app, user)
    else:
        _print(findings, output)
    sys.exit(0 if is_well(findings) else 1)


async def _look(
    controllers: list[ControllerBase[Any]], kubeconfig: Path | None, context: str | None, namespace: str | None, leases: list[Permission]
) -> tuple[list[DoctorFinding], list[Missing], str]:
    from kubeloop.cli.doctor.connection import connection
    from kubeloop.client import Client

    async with Client.from_config(kubeconfig, context) as client:
        findings, answers = await connection(client)
        user = next((one.said.partition(" (")[0] for one in findings if one.check == "identity" and one.state == "ok"), "")
        if not answers or not controllers:
            return findings, [], user
        found, missing = await _needs(client, controllers, namespace, leases)
        return [*findings, *found], missing, user


async def _needs(
    client: Client, controllers: list[ControllerBase[Any]], namespace: str | None, leases: list[Permission]
) -> tuple[list[DoctorFinding], list[Missing]]:
    from kubeloop.cli.doctor.connection import access
    from kubeloop.cli.doctor.definitions import definitions, webhooks
    from kubeloop.controller.permissions import kinds_of, permissions_of

    kinds = kinds_of(controllers)
    found, missing = await access(client, permissions_of(controllers), namespace)
    # Leases live where the program does, whatever namespaces it looks at.
    more, lacking = await access(client, leases, namespace or client.namespace)
    found, missing = [*found, *more], [*missing, *lacking]
    return [*found, *await definitions(client, kinds), *await webhooks(client, kinds)], missing


def _print(findings: list[DoctorFinding], output: str) -> None:
    from kubeloop.cli.doctor.findings import as_json, show

    if output == "json":
        click.echo(as_json(findings))
        return
    from rich.console import Console

    show(findings, Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH))


def _print_fix(missing: list[Missing], app: str | None, user: str) -> None:
    from kubeloop.cli.doctor.connection import manifest
    from kubeloop.codec import write_yaml

    if not app:
        raise click.ClickException("--fix is about the permissions of a program; name it: kubeloop doctor MODULE:NAME --fix")
    if not missing:
        click.echo("# no permission is missing")
        return
    if not user:
        raise click.ClickException(str(ConfigError("the server does not report the user's name, so the roles have no subject")))
    name = app.partition(":")[0].partition(".")[0].replace("_", "-").strip("-") or "program"
    # With other names: applied over the program's own role, they would remove all its rules.
    click.echo(write_yaml(*manifest(missing, f"{name}-missing", user)), nl=False)
