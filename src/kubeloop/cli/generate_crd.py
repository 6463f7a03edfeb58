"""What ``kubeloop generate crd`` does: finds classes, renders their definitions, checks them, and only then writes."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

import click

from kubeloop.codegen.crd import Definition, check_definition, classes_at, definitions_of, to_yaml, version_warnings
from kubeloop.meta.errors import ConfigError


def generate_crd(
    targets: Sequence[str], out: Path | None, *, only_check: bool, descriptions: bool, webhooks: str = "", service: str = "", verbose: bool
) -> None:
    """Write the definitions of all classes at ``targets``, or compare them with what is there.

    Raises:
        ConfigError: a target without kinds, a definition that a server would refuse, or with ``only_check`` a file that differs.
            Nothing was written then.
    """
    if only_check and out is None:
        raise ConfigError("--check compares with a file or folder: name it with --out")
    if bool(webhooks) != bool(service):
        raise ConfigError("--webhooks and --service belong together: the converters, and the Service in front of them")
    classes = []
    for target in targets:
        found = classes_at(target)
        if verbose:
            for cls in found:
                click.echo(f"{target}: {cls.__module__}.{cls.__qualname__} is {cls.api_version}, Kind={cls.kind}", err=True)
        classes += found
    definitions = definitions_of(dict.fromkeys(classes), descriptions=descriptions)
    if webhooks:
        from kubeloop.cli.generate_webhooks import conversions_of

        conversions = conversions_of(webhooks, service)
        for definition in definitions:
            if definition.name in conversions:
                definition.document["spec"]["conversion"] = conversions[definition.name]
    faults = [fault for definition in definitions for fault in check_definition(definition)]
    if faults:
        raise ConfigError("a server would refuse this:\n" + "\n".join(f"  {fault}" for fault in faults))
    for definition in definitions:
        for warning in version_warnings(definition):
            click.echo(f"warning: {warning}", err=True)
    if verbose:
        for definition in definitions:
            versions = ", ".join(version["name"] for version in definition.document["spec"]["versions"])
            click.echo(f"{definition.name}: {versions}: valid", err=True)
    if out is None:
        click.echo(to_yaml(definitions), nl=False)
        return
    files = _files(definitions, out)
    if only_check:
        _compare(files)
        click.echo(f"{out}: up to date")
        return
    for path, text in files.items():
        _write(path, text)
        if verbose:
            click.echo(f"{path}: written", err=True)
    click.echo(f"{out}: {len(definitions)} {'definition' if len(definitions) == 1 else 'definitions'}")


def _files(definitions: Sequence[Definition], out: Path) -> dict[Path, str]:
    if out.is_dir() or not out.suffix:
        return {out / f"{definition.name}.yaml": to_yaml([definition]) for definition in definitions}
    return {out: to_yaml(definitions)}


def _compare(files: dict[Path, str]) -> None:
    differences: list[str] = []
    for path, text in files.items():
        there = path.read_text(encoding="utf-8") if path.exists() else ""
        differences += difflib.unified_diff(there.splitlines(), text.splitlines(), str(path), "generated", lineterm="")
    if differences:
        raise ConfigError("not what the classes say; run again without --check:\n" + "\n".join(differences))


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error}") from error
