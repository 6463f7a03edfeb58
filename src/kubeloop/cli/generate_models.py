"""What ``kubeloop generate models`` does: reads, renders everything, and only then writes or compares."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

import click

from kubeloop.codegen.document import schemas_from
from kubeloop.codegen.models import render
from kubeloop.codegen.sources import Tell, read_builtins, read_cluster, read_files
from kubeloop.codegen.stubs import render_stubs
from kubeloop.codegen.typed import Docs, ModelSource, render_module, render_package, same
from kubeloop.codegen.write import differences, write_modules
from kubeloop.meta.errors import ConfigError
from kubeloop.schema import Schemas, builtin

_MOST_SHOWN = 200


class ModelInput(NamedTuple):
    """``cluster``: kubeconfig and context of the cluster to ask, None for none."""

    sources: tuple[Path, ...]
    cluster: tuple[Path | None, str | None] | None
    groups: tuple[str, ...]
    builtins: bool
    docs: Docs


def generate_models(given: ModelInput, out: Path, *, only_check: bool, verbose: bool) -> None:
    """Write models below ``out`` (or into it, for a module), or compare them with what is there.

    Raises:
        ConfigError: an input that describes no kind, a file of somebody else in the way, or with ``only_check`` a difference.
            Nothing was written then.
        ApiError, TransportError: from the cluster.
    """

    def tell(line: str) -> None:
        if verbose:
            click.echo(line, err=True)

    try:
        files, folder = _render(given, out, tell)
    except RecursionError:
        raise ConfigError("a schema is nested too deeply to be read; -v shows in which file or definition") from None
    if only_check:
        lines = differences(files, folder, same, only=out.suffix == ".py")
        if lines:
            more = [f"... {len(lines) - _MOST_SHOWN} lines more"] if len(lines) > _MOST_SHOWN else []
            raise ConfigError("\n".join([f"{out}: not what the schemas say; run again without --check:", *lines[:_MOST_SHOWN], *more]))
        click.echo(f"{out}: up to date")
        return
    written = write_modules(files, folder, only=out.suffix == ".py")
    for path in files:
        tell(f"{folder / path}: {files[path].count(chr(10) + 'class ')} classes")
    click.echo(f"{out}: {len([path for path in files if path.endswith('.py')])} modules, {written} written")


def _render(given: ModelInput, out: Path, tell: Tell) -> tuple[dict[str, str], Path]:
    if given.builtins or not (given.sources or given.cluster):
        schemas = _builtins(given, out, tell)
        return render(schemas) | render_stubs(schemas), out
    source = ModelSource()
    if given.cluster is not None:
        source.add(asyncio.run(read_cluster(*given.cluster, tell)))
    if given.sources:
        source.add(read_files(given.sources, tell))
    if given.groups:
        source = source.within(given.groups)
    for name, gvk in sorted(source.kinds.items()):
        if name in source.ours():
            tell(f"{gvk}: {name}")
    if out.suffix == ".py":
        return {out.name: render_module(source, out.stem, docs=given.docs)}, out.parent
    return render_package(source, docs=given.docs), out


def _builtins(given: ModelInput, out: Path, tell: Tell) -> Schemas:
    if given.groups or out.suffix == ".py" or len(given.sources) + bool(given.cluster) > 1:
        raise ConfigError("--builtins writes Kubernetes' own kinds, all of them, as a package, from one --openapi or one cluster")
    if given.cluster is not None:
        return asyncio.run(read_builtins(*given.cluster, tell))
    return schemas_from(given.sources[0]) if given.sources else builtin()
