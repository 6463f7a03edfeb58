"""``kubeloop generate``: models from schemas, CustomResourceDefinitions from classes, and the data that the package ships."""

from __future__ import annotations

from pathlib import Path

import click

from kubeloop.cli.group import CommandGroup
from kubeloop.codegen.typed.python_text import Docs
from kubeloop.meta.errors import ConfigError, KubeloopError

_FOLDER = click.Path(file_okay=False, path_type=Path)
_INPUT = click.Path(exists=True, path_type=Path)


@click.group(cls=CommandGroup)
def generate() -> None:
    """Generate models from schemas, and CustomResourceDefinitions and RBAC roles from classes."""


@generate.command()
@click.option(
    "--openapi",
    "--crd",
    "sources",
    type=_INPUT,
    multiple=True,
    help="OpenAPI v2 or v3 document ({path: v3} too), CustomResourceDefinitions (YAML or JSON), or a folder of them; may be repeated.",
)
@click.option("--cluster", is_flag=True, help="Ask the current cluster for its custom and aggregated kinds.")
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Ask the cluster of this kubeconfig.")
@click.option("--context", help="Ask the cluster of this context.")
@click.option("--group", "groups", multiple=True, help="Only kinds of this API group, and what they refer to; may be repeated.")
@click.option("--builtins", is_flag=True, help="Kubernetes' own kinds, as kubeloop.api has them. Default when nothing is given.")
@click.option("--docs", type=click.Choice(["none", "short", "full"]), default="short", help="How much of descriptions becomes docstrings.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the package to write, or one module (NAME.py).")
@click.option("--check", "only_check", is_flag=True, help="Write nothing; fail with a diff if --out is not what would be written.")
@click.option("-v", "--verbose", is_flag=True, help="Show the files that are read and written.")
def models(
    sources: tuple[Path, ...],
    cluster: bool,
    kubeconfig: Path | None,
    context: str | None,
    groups: tuple[str, ...],
    builtins: bool,
    docs: Docs,
    out: Path,
    only_check: bool,
    verbose: bool,
) -> None:
    """Write typed models of custom kinds and other servers' kinds."""
    from kubeloop.cli.generators import ModelInput, generate_models

    live = cluster or kubeconfig is not None or context is not None
    given = ModelInput(sources, (kubeconfig, context) if live else None, groups, builtins, docs)
    try:
        generate_models(given, out, only_check=only_check, verbose=verbose)
    except KubeloopError as error:
        raise click.ClickException(str(error)) from error


@generate.command(hidden=True)  # for maintainers
@click.option("--openapi-v2", "v2", type=_INPUT, required=True, help="A server's response to /openapi/v2.")
@click.option("--openapi-v3", "v3", type=_INPUT, required=True, help="{path: document} of all that a server answers to /openapi/v3/PATH.")
@click.option("--facts", type=_INPUT, required=True, help="Folder with discovery-{api,apis,legacy}.json and field-selectors.json.")
@click.option("--out", type=_FOLDER, required=True, help="Folder to write the document and its OpenAPI paths to.")
def schema(v2: Path, v3: Path, facts: Path, out: Path) -> None:
    """Write the compact schema document that ships with kubeloop."""
    from kubeloop.codegen.document import write_documents

    try:
        out.mkdir(parents=True, exist_ok=True)
        write_documents(out, v2=v2, v3=v3, facts=facts)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{out}: cannot write the schema document: {error}") from error
    click.echo(f"{out}: schema document written")


@generate.command(hidden=True)  # for maintainers
@click.option(
    "--fields",
    "sources",
    type=_INPUT,
    multiple=True,
    required=True,
    help="Folder with generated.proto files (as of the Go module k8s.io/api), or a JSON document of message fields; may be repeated.",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="File to write the table to.")
def protobuf(sources: tuple[Path, ...], out: Path) -> None:
    """Write the table of protobuf messages that ships with kubeloop."""
    from kubeloop.codegen.protobuf import read_messages, write_table

    try:
        missing = write_table(out, read_messages(sources))
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{out}: cannot write the table: {error}") from error
    for name in missing:
        click.echo(f"without protobuf form: {name}", err=True)
    click.echo(f"{out}: table of protobuf messages written")


@generate.command()
@click.argument("targets", metavar="MODULE[:CLASS]...", nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), help="File, or folder for one file a kind. Default: standard output.")
@click.option("--check", "only_check", is_flag=True, help="Write nothing; fail with a diff if --out is not what would be written.")
@click.option("--descriptions/--no-descriptions", default=True, help="Whether docstrings become descriptions.")
@click.option("--webhooks", default="", metavar="MODULE:NAME", help="Webhooks whose converters the definitions name; needs --service.")
@click.option("--service", default="", metavar="NAMESPACE/NAME", help="Service in front of the converters of --webhooks.")
@click.option("-v", "--verbose", is_flag=True, help="Show the kinds that are found and written.")
def crd(
    targets: tuple[str, ...], out: Path | None, only_check: bool, descriptions: bool, webhooks: str, service: str, verbose: bool
) -> None:
    """Write CustomResourceDefinitions of Python classes (module:Class, a module, or a package)."""
    from kubeloop.cli.generators import generate_crd

    try:
        generate_crd(targets, out, only_check=only_check, descriptions=descriptions, webhooks=webhooks, service=service, verbose=verbose)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error


@generate.command()
@click.argument("targets", metavar="MODULE:NAME...", nargs=-1, required=True)
@click.option("--name", required=True, help="Name of the roles and the ServiceAccount.")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the ServiceAccount.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write. Default: standard output.")
@click.option("--check", "only_check", is_flag=True, help="Write nothing; fail with a diff if --out is not what would be written.")
@click.option("--leader-election/--no-leader-election", "lease", default=True, help="Include the Role for the Lease of leader election.")
@click.option("--sharding", is_flag=True, help="Include the rules for the Leases of sharding.")
@click.option("--rules", "only_rules", is_flag=True, help="Write only the rules of the ClusterRole, for a template that has the rest.")
def rbac(
    targets: tuple[str, ...], name: str, namespace: str, out: Path | None, only_check: bool, lease: bool, sharding: bool, only_rules: bool
) -> None:
    """Write the RBAC roles that controllers need (module:name of a list of controllers, one, or a function that returns them)."""
    from kubeloop.cli.generators import generate_rbac

    try:
        generate_rbac(targets, name, namespace, out, only_check=only_check, lease=lease, sharding=sharding, only_rules=only_rules)
    except KubeloopError as error:
        raise click.ClickException(str(error)) from error


@generate.command()
@click.argument("targets", metavar="MODULE[:CLASS]...", nargs=-1, required=True)
@click.option("--name", required=True, help="Name of the program; the roles are called NAME-KIND-editor, and so on.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write. Default: standard output.")
@click.option("--check", "only_check", is_flag=True, help="Write nothing; fail with a diff if --out is not what would be written.")
def roles(targets: tuple[str, ...], name: str, out: Path | None, only_check: bool) -> None:
    """Write ClusterRoles to administrate, edit and view custom kinds, for their users (module:Class, a module, or a package)."""
    from kubeloop.cli.generators import generate_roles

    try:
        generate_roles(targets, name, out, only_check=only_check)
    except KubeloopError as error:
        raise click.ClickException(str(error)) from error


@generate.command()
@click.argument("target", metavar="MODULE:NAME")
@click.option("--service", required=True, metavar="NAMESPACE/NAME", help="Service in front of the webhooks.")
@click.option("--name", default="", help="Name of the configurations. Default: that of the Service.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write. Default: standard output.")
@click.option("--check", "only_check", is_flag=True, help="Write nothing; fail with a diff if --out is not what would be written.")
def webhooks(target: str, service: str, name: str, out: Path | None, only_check: bool) -> None:
    """Write the configurations of admission webhooks (module:name of a Webhooks)."""
    from kubeloop.cli.generators import generate_webhooks

    try:
        generate_webhooks(target, service, name, out, only_check=only_check)
    except KubeloopError as error:
        raise click.ClickException(str(error)) from error
