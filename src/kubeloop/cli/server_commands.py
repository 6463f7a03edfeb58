"""``kubeloop server compact`` and ``kubeloop server snapshot``: commands for the data of a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import click

from kubeloop.cli.group import CommandGroup
from kubeloop.meta.errors import ApiError, KubeloopError, NotFound

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("revision", type=click.IntRange(min=0))
@click.option("--kubeconfig", type=_FILE, help="Default: $KUBECONFIG or ~/.kube/config.")
@click.option("--context", help="Context of the kubeconfig.")
def compact(revision: int, kubeconfig: Path | None, context: str | None) -> None:
    """Compact a running server's history: changes before REVISION are forgotten; 0 means all up to now.

    Lists and watches that ask for older versions are answered with 410, as after the compaction that a server does by itself every few
    minutes. Versions that are forgotten already stay so.
    """
    try:
        done = asyncio.run(_compact(revision, kubeconfig, context))
    except NotFound:
        raise click.ClickException("this server compacts by itself only: it is no kubeloop server") from None
    except ApiError as error:
        raise click.ClickException(error.status.message or str(error)) from None
    except (KubeloopError, OSError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"compacted up to revision {done}")


async def _compact(revision: int, kubeconfig: Path | None, context: str | None) -> int:
    from kubeloop.client import Client

    async with Client.from_config(kubeconfig, context=context) as client:
        answer = await client.transport.request("POST", "/debug/compact", query={"revision": str(revision)})
        return int(json.loads(answer.body)["compacted"])


_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group(cls=CommandGroup)
def snapshot() -> None:
    """Save and restore what a server with --data keeps.

    A snapshot holds all objects, Secrets among them, and the history that the server still has; its mode is 0600.
    """


@snapshot.command()
@click.argument("file", type=_FILE)
@click.option("--data", type=_FOLDER, required=True, help="Folder of the server, which may be at work.")
def save(file: Path, data: Path) -> None:
    """Save the store of --data in FILE, which is replaced if it exists."""
    from kubeloop.apiserver.storage.sqlite.folder import save

    revision = _done(lambda: save(data, file))
    click.echo(f"saved revision {revision} of {data} in {file}")


@snapshot.command()
@click.argument("file", type=_FILE)
@click.option("--data", type=_FOLDER, required=True, help="Folder for the next server; it must hold no store yet.")
@click.option(
    "--bump-revision",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Begin so many revisions later and without history, for clients that have seen later revisions than the snapshot's.",
)
def restore(file: Path, data: Path, bump_revision: int) -> None:
    """Make a new store in --data of FILE, which ``save`` wrote."""
    from kubeloop.apiserver.storage.sqlite.folder import restore

    revision = _done(lambda: restore(file, data, bump=bump_revision))
    click.echo(f"restored {file} in {data} at revision {revision}")


def _done(work: Callable[[], int]) -> int:
    try:
        return work()
    except (KubeloopError, OSError) as error:
        raise click.ClickException(str(error)) from None
