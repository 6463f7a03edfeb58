"""``kubeloop server compact``: a running server forgets its history, so that old versions are answered with 410."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from kubeloop.meta.errors import ApiError, KubeloopError, NotFound

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("revision", type=click.IntRange(min=0))
@click.option("--kubeconfig", type=_FILE, help="Default: $KUBECONFIG or ~/.kube/config.")
@click.option("--context", help="Context of the kubeconfig.")
def compact(revision: int, kubeconfig: Path | None, context: str | None) -> None:
    """Compact a running server's history: changes before REVISION are forgotten; 0 means all up to now.

    Lists and watches that ask for older versions are answered with 410, as after the compaction that a server does by itself every few
    minutes. What is forgotten already stays so.
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
