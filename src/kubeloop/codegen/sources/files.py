"""Reads files and folders: OpenAPI v2 and v3 documents as JSON, CustomResourceDefinitions as YAML or JSON, in any mixture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from kubeloop.codec.yaml import read_yaml
from kubeloop.codegen import discovery, openapi
from kubeloop.codegen.typed import ModelSource, source_of_crd, source_of_definitions
from kubeloop.meta.errors import ConfigError, DecodeError
from kubeloop.schema import builtin
from kubeloop.types import JSONObject

Tell = Callable[[str], None]

_ENDINGS: Final = (".json", ".json.gz", ".yaml", ".yml")
_CRD: Final = "CustomResourceDefinition"


def read_files(paths: Iterable[Path], tell: Tell = lambda _: None) -> ModelSource:
    """Read the definitions of all kinds in the files, or in folders at any depth. Documents of other kinds are skipped.

    ``tell`` receives a line for each file. For a kind in both a CustomResourceDefinition and an OpenAPI document, the former counts.

    Raises:
        ConfigError: a file cannot be read, or no file describes a kind; the message names it.
    """
    documents = OpenApi()
    crds = ModelSource()
    for path in paths:
        found = 0
        for file in _files(path):
            count = sum(_take(tree, str(file), documents, crds) for tree in _trees(file))
            tell(f"{file}: {count} documents that describe kinds")
            found += count
        if not found:
            raise ConfigError(
                f"{path}: no CustomResourceDefinition and no OpenAPI document in it; "
                "save one with: kubectl get crd -o yaml, or kubectl get --raw /openapi/v2"
            )
    source = documents.source()
    source.add(crds)
    return source


class OpenApi:
    """Collects OpenAPI documents of one server."""

    def __init__(self) -> None:
        self._older: dict[str, JSONObject] = {}
        self._newer: dict[str, JSONObject] = {}
        self._paths: JSONObject = {}

    def add(self, tree: JSONObject, source: str) -> bool:
        """Add ``tree`` if it is a document of version 2 or 3, or several of version 3 by path; return whether it is."""
        if "swagger" in tree:
            self._older.update(openapi.definitions_v2(tree, source, descriptions=True))
            self._paths.update(tree.get("paths", {}))
            return True
        documents = (
            {"": tree} if "openapi" in tree else {name: one for name, one in tree.items() if isinstance(one, dict) and "openapi" in one}
        )
        self._newer.update(openapi.definitions_v3(documents, descriptions=True))
        for document in documents.values():
            self._paths.update(document.get("paths", {}))
        return bool(documents)

    def source(self) -> ModelSource:
        definitions = openapi.merge(self._older, self._newer)
        return source_of_definitions(definitions, discovery.resources_of_paths(self._paths, builtin().all_resources()))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.name.endswith(_ENDINGS) and file.is_file())
    return [path]


def _trees(file: Path) -> Iterator[JSONObject]:
    if file.name.endswith((".yaml", ".yml")):
        try:
            yield from read_yaml(file.read_bytes(), name=str(file))
        except (OSError, DecodeError) as error:
            raise ConfigError(f"{file}: cannot be read as YAML: {error}") from error
        return
    yield openapi.read_json(file)


def _take(tree: JSONObject, where: str, documents: OpenApi, crds: ModelSource) -> int:
    """Add the kinds of a document, also in lists; return their number."""
    if tree.get("kind") == _CRD:
        if tree.get("apiVersion") != "apiextensions.k8s.io/v1":
            raise ConfigError(f"{where}: {_CRD} of {tree.get('apiVersion')}; Kubernetes serves apiextensions.k8s.io/v1 only, convert it")
        crds.add(source_of_crd(tree, where))
        return 1
    items = tree.get("items")
    if str(tree.get("kind", "")).endswith("List") and isinstance(items, list):
        kind = str(tree["kind"]).removesuffix("List")
        heads = {"apiVersion": tree.get("apiVersion")} if kind else {}
        return sum(_take({"kind": kind, **heads, **one}, where, documents, crds) for one in items if isinstance(one, dict))
    return int(documents.add(tree, where))
