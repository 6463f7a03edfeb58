"""The commands ``kubeloop new`` and ``kubeloop add``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeloop.cli.group import CommandGroup
from kubeloop.meta.errors import ConfigError

if TYPE_CHECKING:
    from kubeloop.cli.new.changes import Conflicts, Plan
    from kubeloop.cli.new.layout import Packaging, Webhook

_PROJECT = click.option(
    "--project", type=click.Path(file_okay=False, path_type=Path), default=Path(), help="Folder of the project. Default: the current one."
)
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Print the changes of all files as diffs, and write nothing.")
_FORCE = click.option("--force", "conflicts", flag_value="overwrite", help="Overwrite files that you changed and that cannot be merged.")
_KEEP = click.option("--keep", "conflicts", flag_value="keep", help="Leave such files as they are; you make the change in them.")
_SHOW = click.option("--show", "conflicts", flag_value="show", default=True, hidden=True)


@click.group(cls=CommandGroup)
def new() -> None:
    """Create a project."""


@new.command()
@click.argument("name")
@click.option("--kind", default="", help="Kind of the operator's objects. Default: NAME in CamelCase, without -operator.")
@click.option("--plural", default="", help="Plural of the kind. Default: the English plural.")
@click.option("--group", default="example.com", show_default=True, help="API group: a domain that you own.")
@click.option("--version", default="v1alpha1", show_default=True, help="API version of the kind.")
@click.option("--image", default="", help="NAME:TAG of the operator's image. Default: NAME:0.1.0.")
@click.option("--packaging", type=click.Choice(["helm", "kustomize", "both"]), default="kustomize", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Folder to create. Default: NAME, here.")
def operator(name: str, kind: str, plural: str, group: str, version: str, image: str, packaging: Packaging, out: Path | None) -> None:
    """Create an operator: a typed kind and its definition, a controller and its roles, tests, image and manifests.

    It passes its own tests at once: they run it against an API server in the same process. No file is overwritten.
    """
    from kubeloop.cli.new.create import create_operator
    from kubeloop.cli.new.layout import project_of
    from kubeloop.cli.new.naming import kind_names_of, kind_of, names_of

    try:
        names = names_of(name, image=image)
        kind_names = kind_names_of(kind or kind_of(name), plural, group, [version])
        folder = out or Path(name)
        written = create_operator(project_of(names, kind_names, version, packaging), folder)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    for path in written:
        click.echo(f"  {folder}/{path}")
    if "local.mk" in written:
        click.echo(f"{folder}/local.mk: make installs kubeloop from where it was installed from here; do not commit it")
    click.echo(f"{folder}: an operator for {kind_names.kind} ({kind_names.plural}.{group}); next: cd {folder} && make test")


@click.group(cls=CommandGroup)
def add() -> None:
    """Extend a project that `kubeloop new operator` created: a kind, webhooks, or a version.

    All files are computed and checked first; then all are written, or none. A file that you changed is merged; if that is not possible,
    the command shows what differs and writes nothing.
    """


@add.command("kind")
@click.argument("kind")
@click.option("--plural", default="", help="Plural of the kind. Default: the English plural.")
@click.option("--group", default="", help="API group. Default: that of the project's first kind.")
@click.option("--version", default="", help="API version of the kind. Default: that of the project's first kind.")
@_PROJECT
@_DRY_RUN
@_FORCE
@_KEEP
@_SHOW
def add_kind(kind: str, plural: str, group: str, version: str, project: Path, dry_run: bool, conflicts: Conflicts) -> None:
    """Add a KIND: its classes and definition, a controller in the program, roles, a sample and tests."""
    from kubeloop.cli.new.create import plan_kind

    try:
        _finish(plan_kind(project, kind, plural=plural, group=group, version=version, conflicts=conflicts), f"kind {kind}", dry_run=dry_run)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error


@add.command("webhook")
@click.argument("kind")
@click.option("--defaulting", is_flag=True, help="A webhook that fills in what the user left out.")
@click.option("--validating", is_flag=True, help="A webhook that refuses objects.")
@click.option("--conversion", is_flag=True, help="A webhook that converts between versions; `kubeloop add version` extends it.")
@_PROJECT
@_DRY_RUN
@_FORCE
@_KEEP
@_SHOW
def add_webhook(
    kind: str, defaulting: bool, validating: bool, conversion: bool, project: Path, dry_run: bool, conflicts: Conflicts
) -> None:
    """Add webhooks of a KIND: handlers, configurations, certificates, tests. Default: defaulting and validating."""
    from kubeloop.cli.new.create import plan_webhooks
    from kubeloop.cli.new.layout import read_project

    everything = not (defaulting or validating or conversion)
    flags: dict[Webhook, bool] = {"defaulting": defaulting, "validating": validating}
    wanted = [webhook for webhook, is_wanted in flags.items() if is_wanted or everything]
    try:
        if conversion and len(read_project(project).find_kind(kind).versions) < 2:
            raise ConfigError(
                f"{kind} has one version, so nothing is converted; add another one first: kubeloop add version {kind} VERSION"
            )
        plan = plan_webhooks(project, kind, wanted, conflicts=conflicts)
        _finish(plan, f"webhooks of {kind}", dry_run=dry_run)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error


@add.command("version")
@click.argument("kind")
@click.argument("version")
@_PROJECT
@_DRY_RUN
@_FORCE
@_KEEP
@_SHOW
def add_version(kind: str, version: str, project: Path, dry_run: bool, conflicts: Conflicts) -> None:
    """Add a VERSION of a KIND: a copy of its classes, converters to and from the stored version, a sample and tests.

    Objects stay stored in the version that they are stored in.
    """
    from kubeloop.cli.new.create import plan_version

    try:
        _finish(plan_version(project, kind, version, conflicts=conflicts), f"version {version} of {kind}", dry_run=dry_run)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error


def _finish(plan: Plan | None, description: str, *, dry_run: bool) -> None:
    """Print the plan, and write its changes unless ``dry_run``.

    Raises:
        ConfigError: A file cannot be written.
    """
    if plan is None:
        click.echo(f"{description}: the project has it already, nothing to do")
        return
    if plan.conflicts:
        for change in plan.conflicts:
            click.echo(change.diff())
        names = ", ".join(change.path for change in plan.conflicts)
        raise click.ClickException(
            f"{names}: you changed these files, and the changes cannot be merged (above: from your file to that of kubeloop). "
            "Nothing was written. To go on: --keep leaves your files as they are, and you make the change in them; --force overwrites them."
        )
    for change in plan.changes:
        if dry_run:
            click.echo(f"{change.action} {change.path}")
            click.echo(change.diff())
        else:
            click.echo(f"  {change.action:9} {change.path}")
    if dry_run:
        click.echo(f"{description}: {len(plan.changes)} files; nothing was written (--dry-run)")
        return
    plan.write()
    click.echo(f"{description}: {len(plan.changes)} files written; next: make test")
