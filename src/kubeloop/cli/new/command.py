"""The command ``kubeloop new``."""

from __future__ import annotations

from pathlib import Path

import click

from kubeloop.cli.group import CommandGroup
from kubeloop.cli.new.project import Packaging
from kubeloop.meta.errors import ConfigError


@click.group(cls=CommandGroup)
def new() -> None:
    """Create a project."""


@new.command()
@click.argument("name")
@click.option("--kind", default="", help="Of the operator's objects. Default: from NAME, without -operator.")
@click.option("--plural", default="", help="Of the kind. Default: as in English.")
@click.option("--group", default="example.com", show_default=True, help="API group: a domain that is yours.")
@click.option("--version", default="v1alpha1", show_default=True, help="API version of the kind.")
@click.option("--image", default="", help="NAME:TAG of the operator's image. Default: NAME:0.1.0.")
@click.option("--packaging", type=click.Choice(["helm", "kustomize", "both"]), default="kustomize", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Folder to create. Default: NAME, here.")
def operator(name: str, packaging: Packaging, out: Path | None, **options: str) -> None:
    """Create an operator: a typed kind and its definition, a controller and its roles, tests, image and manifests.

    It passes its own tests at once: they run it against an API server in the same process. Nothing that is there is overwritten.
    """
    from kubeloop.cli.new.naming import names_of
    from kubeloop.cli.new.project import create_operator

    try:
        names = names_of(name, **options)
        folder = out or Path(name)
        written = create_operator(names, folder, packaging)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    for path in written:
        click.echo(f"  {folder}/{path}")
    click.echo(f"{folder}: an operator for {names.kind} ({names.plural}.{names.group}); next: cd {folder} && make test")
