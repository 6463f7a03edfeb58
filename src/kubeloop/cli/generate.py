"""``kubeloop generate``: typed models from OpenAPI documents, and the schema document that the package ships."""

from __future__ import annotations

from pathlib import Path

import click

from kubeloop.codegen.document import schemas_from, write_document
from kubeloop.codegen.models import render
from kubeloop.codegen.write import write_modules
from kubeloop.meta.errors import ConfigError
from kubeloop.schema import builtin

_FOLDER = click.Path(file_okay=False, path_type=Path)
_INPUT = click.Path(exists=True, path_type=Path)


@click.group()
def generate() -> None:
    """Generate code and data from a server's OpenAPI documents."""


@generate.command()
@click.option(
    "--openapi",
    type=_INPUT,
    help="OpenAPI document (v2, v3, or {path: v3}; gzipped or not) or a folder of them. Default: Kubernetes' own kinds.",
)
@click.option("--out", type=_FOLDER, required=True, help="Folder of the package to write; made if missing.")
def models(openapi: Path | None, out: Path) -> None:
    """Write typed models, one module for each group version."""
    try:
        schemas = builtin() if openapi is None else schemas_from(openapi)
        files = render(schemas)
        written = write_modules(files, out)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{out}: {len(files)} modules, {written} written anew")


@generate.command()
@click.option("--openapi-v2", "v2", type=_INPUT, required=True, help="What a server answers to /openapi/v2.")
@click.option("--openapi-v3", "v3", type=_INPUT, required=True, help="{path: document} of all that a server answers to /openapi/v3/PATH.")
@click.option("--facts", type=_INPUT, required=True, help="Folder with discovery-{api,apis,legacy}.json and field-selectors.json.")
@click.option("--out", type=_FOLDER, required=True, help="Folder to write the document and its OpenAPI paths to.")
def schema(v2: Path, v3: Path, facts: Path, out: Path) -> None:
    """Write the compact schema document that ships with kubeloop."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_document(out, v2=v2, v3=v3, facts=facts)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{out}: cannot write the schema document: {error}") from error
    click.echo(f"{out}: schema document written")


@generate.command()
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
    from kubeloop.codegen.proto_files import read_messages
    from kubeloop.codegen.protobuf import write_table

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
@click.option("-v", "--verbose", is_flag=True, help="Show what is found and written.")
def crd(targets: tuple[str, ...], out: Path | None, only_check: bool, descriptions: bool, verbose: bool) -> None:
    """Write CustomResourceDefinitions of Python classes (module:Class, a module, or a package)."""
    from kubeloop.cli.generate_crd import generate_crd

    try:
        generate_crd(targets, out, only_check=only_check, descriptions=descriptions, verbose=verbose)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
