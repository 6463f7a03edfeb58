"""Writes a new operator's project: templates with names filled in, and manifests made from the code that was just written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

import kubeloop
from kubeloop.cli.new.naming import Names
from kubeloop.meta.errors import ConfigError

Packaging = Literal["helm", "kustomize", "both"]

_PLACEHOLDER = re.compile(r"@@([a-z_]+)@@")


def create_operator(names: Names, folder: Path, packaging: Packaging) -> list[str]:
    """The files of the project, below ``folder``, which must not exist or be empty. All of it is made, or nothing.

    Raises:
        ConfigError: there is something at ``folder`` (names a file), or it cannot be written.
    """
    there = next(folder.iterdir(), None) if folder.is_dir() else (folder if folder.exists() else None)
    if there is not None:
        raise ConfigError(f"{there} is there already, and nothing is overwritten; choose another folder (--out FOLDER), or remove {folder}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
            made = Path(temporary) / folder.name
            _write(names, made, packaging)
            _generate(names, made, packaging)
            if folder.exists():
                folder.rmdir()
            made.rename(folder)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error}") from error
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def manifest_commands(names: Names, packaging: Packaging) -> list[str]:
    """What ``kubeloop generate`` is told, for each file that is made from the code."""
    roles = f"rbac {names.module}.app:controllers --name {names.name} --namespace {names.name}"
    kustomize = [f"crd {names.module}.types --out config/crd.yaml", f"{roles} --out config/rbac.yaml"]
    helm = [f"crd {names.module}.types --out chart/crds/{names.plural}.yaml", f"{roles} --rules --out chart/files/rules.yaml"]
    return [*(kustomize if packaging != "helm" else ()), *(helm if packaging != "kustomize" else ())]


def _write(names: Names, folder: Path, packaging: Packaging) -> None:
    values = _values(names, packaging)

    def filled(text: str) -> str:
        return _PLACEHOLDER.sub(lambda match: values[match[1]], text)

    for path, template in _templates(files("kubeloop.cli.new") / "template", ""):
        top, _, rest = path.partition("/")
        if (top == "config" and packaging == "helm") or (top == "chart" and packaging == "kustomize"):
            continue
        if top == "module":
            path = f"{names.module}/{rest}"
        elif top == "samples":
            path = f"samples/{names.lower}.yaml"
        target = folder / path.replace("dot-", ".")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(filled(template.read_text(encoding="utf-8")), encoding="utf-8")


def _templates(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for one in folder.iterdir():
        if one.is_dir():
            yield from _templates(one, f"{prefix}{one.name}/")
        elif one.name.endswith(".tmpl"):
            yield prefix + one.name.removesuffix(".tmpl"), one


def _values(names: Names, packaging: Packaging) -> dict[str, str]:
    image_name, _, image_tag = names.image.rpartition(":")
    commands = manifest_commands(names, packaging)
    layout, install, deploy, phony = [], [], [], ""
    if packaging != "helm":
        layout.append("| `config/` | manifests: `kubectl apply -k config` |")
        install.append("make deploy")
        deploy.append("\ndeploy:\n\tkubectl apply -k config\n")
        phony += " deploy"
    if packaging != "kustomize":
        layout.append("| `chart/` | the Helm chart |")
        install.append(f"helm install {names.name} chart --namespace {names.name} --create-namespace")
    return {
        "name": names.name,
        "module": names.module,
        "kind": names.kind,
        "lower": names.lower,
        "plural": names.plural,
        "group": names.group,
        "version": names.version,
        "image": names.image,
        "image_name": image_name,
        "image_tag": image_tag,
        "kubeloop": kubeloop.__version__,
        "layout_lines": "\n".join(layout),
        "install_lines": "   # or: ".join(install),
        "manifest_lines": "\n".join(f"\t$(BIN)/kubeloop generate {command}" for command in commands),
        "deploy_lines": "".join(deploy).rstrip("\n"),
        "phony": phony,
    }


def _generate(names: Names, folder: Path, packaging: Packaging) -> None:
    # In processes of their own, by the commands that the project itself uses later: nothing of it stays imported here.
    path = os.pathsep.join(filter(None, (str(Path(kubeloop.__file__).parent.parent), os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    for command in manifest_commands(names, packaging):
        words = [sys.executable, "-m", "kubeloop", "generate", *command.split()]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
        if done.returncode:
            raise ConfigError(f"kubeloop generate {command}: {done.stderr.strip()}")
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
