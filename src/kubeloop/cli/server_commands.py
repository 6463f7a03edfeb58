"""Commands for what servers store: ``kubeloop server compact`` and ``snapshot``, and ``kubeloop descriptions`` for kubectl explain."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubeloop.cli.group import Command, CommandGroup
from kubeloop.meta.errors import ApiError, ConfigError, KubeloopError, NotFound

if TYPE_CHECKING:
    from kubeloop.schema.descriptions import Texts


@click.group(cls=CommandGroup)
def descriptions() -> None:
    """Import the texts that kubectl explain shows."""


@descriptions.command("import")
@click.argument("sources", nargs=-1, required=True, metavar="FILE|CONTEXT...")
@click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Default: $KUBECONFIG, or ~/.kube/config.")
def import_command(sources: tuple[str, ...], kubeconfig: Path | None) -> None:
    """Import the descriptions of built-in kinds, for servers that start from now on.

    FILE is an OpenAPI document, version 2 or 3, as JSON (kubectl get --raw /openapi/v2); CONTEXT is a context of your kubeconfig, whose
    cluster is read. Only descriptions are saved, in $XDG_CACHE_HOME/kubeloop/descriptions.json (~/.cache without it).
    """
    from kubeloop.schema.descriptions import cache_file

    try:
        found = asyncio.run(import_descriptions(sources, kubeconfig))
    except (KubeloopError, OSError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{cache_file()}: {sum(map(len, found.values()))} descriptions of {len(found)} definitions")


@descriptions.command("clear")
def clear_command() -> None:
    """Remove the imported descriptions."""
    from kubeloop.schema.descriptions import cache_file

    cache_file().unlink(missing_ok=True)
    click.echo(f"{cache_file()}: removed")


async def import_descriptions(sources: tuple[str, ...], kubeconfig: Path | None) -> Texts:
    """Read the descriptions of ``sources``, and save those of built-in definitions; later sources add to earlier ones.

    Args:
        sources: Paths of OpenAPI documents, or contexts of the kubeconfig.
        kubeconfig: Where contexts are looked up; None: as kubectl does.

    Returns:
        The saved texts by definition and field.

    Raises:
        ConfigError: a source is neither, or has no descriptions of built-in kinds.
        ApiError, TransportError: the cluster refused or cannot be reached.
    """
    from kubeloop.schema import builtin
    from kubeloop.schema.descriptions import cache_file, save

    schemas = builtin()
    found: Texts = {}
    for source in sources:
        texts = await _read(source, kubeconfig)
        known = {name: one for name, one in texts.items() if name in schemas}
        if not known:
            raise ConfigError(f"{source}: describes none of Kubernetes' own kinds; use /openapi/v2 of a whole cluster")
        for name, one in known.items():
            fields = {"", *schemas.definition(name).properties}
            found.setdefault(name, {}).update({field: text for field, text in one.items() if field in fields})
    save(found, cache_file())
    return found


async def _read(source: str, kubeconfig: Path | None) -> Texts:
    from kubeloop.schema.descriptions import texts_of

    texts = _of_file(source)
    if texts is None:
        texts = texts_of(await _document(source, kubeconfig), f"/openapi/v2 of context {source}")
    return texts


def _of_file(source: str) -> Texts | None:
    """Return the texts of a file, or None if there is no such file."""
    from kubeloop.codegen.openapi import read_json
    from kubeloop.schema.descriptions import texts_of

    path = Path(source)
    if path.is_dir():
        raise ConfigError(f"{source}: a folder; name the OpenAPI documents in it")
    return texts_of(read_json(path), source) if path.exists() else None


async def _document(context: str, kubeconfig: Path | None) -> Any:
    from kubeloop.config import load_config
    from kubeloop.transport import Transport

    try:
        config = load_config(kubeconfig, context)
    except ConfigError as error:
        raise ConfigError(f"{context}: no such file, and no usable context of the kubeconfig: {error}") from None
    async with Transport(config) as transport:
        answer = await transport.request("GET", "/openapi/v2")
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"context {context}: /openapi/v2 is not JSON: {error}") from None


_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=Command)
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
        raise click.ClickException("this server cannot be compacted by a command: it is not a kubeloop server") from None
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
    """Save and restore the store of a server with --data.

    A snapshot holds all objects, Secrets among them, and the history that the server still has; its mode is 0600.
    """


@snapshot.command()
@click.argument("file", type=_FILE)
@click.option("--data", type=_FOLDER, required=True, help="Folder of the server, which may be running.")
def save(file: Path, data: Path) -> None:
    """Save the store of --data in FILE, which is replaced if it exists."""
    from kubeloop.apiserver.storage.sqlite.folder import save_snapshot

    revision = _done(lambda: save_snapshot(data, file))
    click.echo(f"saved revision {revision} of {data} in {file}")


@snapshot.command()
@click.argument("file", type=_FILE)
@click.option("--data", type=_FOLDER, required=True, help="Folder for the next server; it must hold no store yet.")
@click.option(
    "--bump-revision",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Begin this many revisions later and without history, for clients that have seen later revisions than the snapshot's.",
)
def restore(file: Path, data: Path, bump_revision: int) -> None:
    """Create a new store in --data from FILE, which ``save`` wrote."""
    from kubeloop.apiserver.storage.sqlite.folder import restore_snapshot

    revision = _done(lambda: restore_snapshot(file, data, bump=bump_revision))
    click.echo(f"restored {file} in {data} at revision {revision}")


def _done(work: Callable[[], int]) -> int:
    try:
        return work()
    except (KubeloopError, OSError) as error:
        raise click.ClickException(str(error)) from None
