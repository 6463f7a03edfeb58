"""``kubeloop config``: shows the cluster a program would use and why, and edits kubeconfig files."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click

from kubeloop.cli.group import CommandGroup
from kubeloop.meta.errors import ConfigError

P = ParamSpec("P")
T = TypeVar("T")

_FILE = click.Path(dir_okay=False, path_type=Path)
_kubeconfig = click.option("--kubeconfig", type=_FILE, help="Default: $KUBECONFIG, or ~/.kube/config.")
_output = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)


def _told(command: Callable[P, T]) -> Callable[P, T]:
    """Return the command with errors of the configuration reported as a message, without a traceback."""

    @functools.wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> T:
        try:
            return command(*args, **options)
        except ConfigError as error:
            raise click.ClickException(str(error)) from None

    return run


@click.group(cls=CommandGroup)
def config() -> None:
    """Show, explain and change kubeconfig files."""


@config.command()
@_kubeconfig
@click.option("--context", help="Context to use. Default: the current one.")
@click.option("-n", "--namespace", default="", help="Namespace that overrides the one of the context.")
@click.option("-s", "--server", default="", help="URL that overrides the server of the cluster.")
@click.option("--user", default="", help="User of the kubeconfig that overrides the one of the context.")
@click.option("--cluster", default="", help="Cluster of the kubeconfig that overrides the one of the context.")
@_output
@_told
def explain(kubeconfig: Path | None, context: str | None, output: str, **overrides: Any) -> None:
    """Say which settings a client would use, and where each comes from. Shows no secret."""
    from kubeloop.config import Overrides, load_config

    found = load_config(kubeconfig, context, overrides=Overrides(**overrides)).explain()
    click.echo(str(found) if output == "text" else json.dumps(found.to_dict(), indent=2))


@config.command()
@_kubeconfig
@click.option("--context", help="Context for --minify. Default: the current one.")
@click.option("--minify", is_flag=True, help="Show only what the context uses.")
@click.option("--flatten", is_flag=True, help="Embed certificate and key files, so that the kubeconfig works on other machines.")
@click.option("--raw", is_flag=True, help="Show tokens, passwords, certificates and keys.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
@_told
def view(kubeconfig: Path | None, output: str, **options: Any) -> None:
    """Print the merged kubeconfig files as one."""
    from kubeloop.codec import write_yaml
    from kubeloop.config import Kubeconfig

    tree = Kubeconfig.read(kubeconfig).view(**options)
    click.echo(write_yaml(tree) if output == "yaml" else json.dumps(tree, indent=2), nl=output == "json")


@config.command("current-context")
@_kubeconfig
@_told
def current_context(kubeconfig: Path | None) -> None:
    """Print the name of the current context."""
    from kubeloop.config import Kubeconfig

    found = Kubeconfig.read(kubeconfig)
    if not found.current_context:
        raise ConfigError(f"{found.shown}: current-context is not set; set it with: kubeloop config use-context NAME")
    click.echo(found.current_context)


@config.command("get-contexts")
@_kubeconfig
@click.option("-o", "--output", type=click.Choice(["text", "name"]), default="text", show_default=True)
@_told
def get_contexts(kubeconfig: Path | None, output: str) -> None:
    """List the contexts of all files; the current one is marked."""
    from kubeloop.config import Kubeconfig

    found = Kubeconfig.read(kubeconfig)
    if output == "name":
        click.echo("\n".join(sorted(found.contexts)))
        return
    rows = [("CURRENT", "NAME", "CLUSTER", "AUTHINFO", "NAMESPACE", "FILE")]
    for name, (context, file) in sorted(found.contexts.items()):
        mark = "*" if name == found.current_context else ""
        rows.append((mark, name, context.cluster, context.user, context.namespace, str(file)))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        click.echo("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@config.command("use-context")
@click.argument("name")
@_kubeconfig
@_told
def use_context(name: str, kubeconfig: Path | None) -> None:
    """Make NAME the current context."""
    from kubeloop.config import edit_kubeconfig

    with edit_kubeconfig(kubeconfig) as editor:
        editor.use_context(name)
    click.echo(f'Switched to context "{name}".')


@config.command()
@click.argument("file", type=_FILE)
@_kubeconfig
@click.option("--replace", is_flag=True, help="Replace entries that have the same name and another content.")
@_told
def merge(file: Path, kubeconfig: Path | None, replace: bool) -> None:
    """Add all entries of FILE, with its certificate files embedded."""
    from kubeloop.config import Kubeconfig, edit_kubeconfig

    other = Kubeconfig.read(file)
    with edit_kubeconfig(kubeconfig) as editor:
        editor.merge(other, replace=replace)
    click.echo(f"Contexts merged: {', '.join(sorted(other.contexts)) or 'none'}.")


@config.command()
@click.argument("context")
@click.option("--dir", "folder", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder to write the files to.")
@_kubeconfig
@_told
def extract(context: str, folder: Path, kubeconfig: Path | None) -> None:
    """Write certificate, key and CA of CONTEXT as PEM files, for curl, openssl and other programs.

    Writes ca.crt, client.crt and client.key (mode 0600), as far as the context has them, and prints a curl command that uses them.
    """
    from kubeloop.config import load_config
    from kubeloop.pki.files import write_secret

    found = load_config(kubeconfig, context)
    user = found.credentials
    pems = {"ca.crt": found.ca, "client.crt": user.client_certificate, "client.key": user.client_key}
    contents = {name: pem.read() for name, pem in pems.items() if pem is not None}
    if not contents:
        instead = "a token" if user.token or user.token_file else "a credential plugin" if user.exec is not None else "no certificate"
        raise ConfigError(f'context "{context}": nothing to extract: it has no certificate authority, and its user has {instead}')
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, content in contents.items():
            write_secret(folder / name, content)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror or error}; name a folder that you may write") from None
    for name in contents:
        click.echo(f"wrote {folder / name}")
    if "client.crt" not in contents:
        click.echo(f'The user of context "{context}" has no client certificate: log in by its token or plugin.')
    options = {"ca.crt": "--cacert", "client.crt": "--cert", "client.key": "--key"}
    given = " ".join(f"{options[name]} {folder / name}" for name in contents)
    click.echo(f"Try: curl {given} {found.server}/version")
