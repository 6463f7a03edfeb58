"""From CustomResourceDefinitions to classes in their own package, and back; and the equality of two definitions."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kubeloop.codegen.crd import classes_at, definitions_of
from kubeloop.codegen.typed import Docs, ModelSource, render_package, source_of_crd
from kubeloop.codegen.write import write_modules
from kubeloop.schema.classes.docs import paragraphs
from kubeloop.types import JSONObject

_NUMBERS = itertools.count(1)


def to_package(crds: Iterable[JSONObject], folder: Path, docs: Docs = "full") -> str:
    """Write the models of ``crds`` into a new package below ``folder``, make it importable, and give its name."""
    source = ModelSource()
    for crd in crds:
        source.add(source_of_crd(crd, crd["metadata"]["name"]))
    name = f"round_trip_{next(_NUMBERS)}"
    write_modules(render_package(source, docs=docs), folder / name)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    return name


def forget(name: str, folder: Path) -> None:
    """Undo what ``to_package`` did to this process."""
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        del sys.modules[module]
    if str(folder) in sys.path:
        sys.path.remove(str(folder))


def back(package: str) -> dict[str, JSONObject]:
    """The definitions of all classes of a package, by name."""
    return {definition.name: definition.document for definition in definitions_of(classes_at(package))}


def comparable(crd: JSONObject) -> JSONObject:
    """A definition without what has no meaning: the order of versions and of required names, line breaks within paragraphs."""
    spec = dict(crd["spec"])
    spec.pop("preserveUnknownFields", None)
    spec["versions"] = sorted((_plain(version) for version in spec["versions"]), key=lambda version: str(version["name"]))
    return {"metadata": crd["metadata"], "spec": spec}


def _plain(node: Any, named: bool = False) -> Any:
    if isinstance(node, list):
        return [_plain(one) for one in node]
    if not isinstance(node, dict):
        return node
    result = {key: _plain(value, named=key == "properties" and not named) for key, value in node.items()}
    if not named:
        if isinstance(result.get("required"), list):
            result["required"] = sorted(result["required"])
        if isinstance(result.get("description"), str) and "jsonPath" not in result:
            result["description"] = paragraphs(result["description"])
    return result
