"""Sources of models: files with OpenAPI documents or CustomResourceDefinitions, and live clusters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from kubeloop.codec.yaml import read_yaml
from kubeloop.codegen import discovery, openapi
from kubeloop.codegen.document import schemas_of
from kubeloop.codegen.typed import ModelSource, source_of_crd, source_of_definitions
from kubeloop.config import load_config
from kubeloop.meta.errors import ConfigError, DecodeError, Forbidden, NotFound
from kubeloop.meta.kinds import GroupVersion
from kubeloop.schema import Schemas, builtin
from kubeloop.transport import Transport
from kubeloop.types import JSONObject

Tell = Callable[[str], None]

_ENDINGS: Final = (".json", ".json.gz", ".yaml", ".yml")
_CRD: Final = "CustomResourceDefinition"


def read_files(paths: Iterable[Path], tell: Tell = lambda _: None) -> ModelSource:
    """Read the definitions of all kinds in the files, or in folders at any depth. Documents of other kinds are skipped.

    ``tell`` receives a line for each file. For a kind in both a CustomResourceDefinition and an OpenAPI document, the former counts.

    Raises:
        ConfigError: A file cannot be read, or no file describes a kind; the message names it.
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
        """Add an OpenAPI document of version 2 or 3, or a map of paths to documents of version 3. Return False for any other tree."""
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


def _take(tree: JSONObject, source: str, documents: OpenApi, crds: ModelSource) -> int:
    """Add the kinds that a document describes (a CRD to ``crds``, anything else to ``documents``), also those inside a list.

    Return the number of CRDs and OpenAPI documents.
    """
    if tree.get("kind") == _CRD:
        if tree.get("apiVersion") != "apiextensions.k8s.io/v1":
            raise ConfigError(f"{source}: {_CRD} of {tree.get('apiVersion')}; Kubernetes serves apiextensions.k8s.io/v1 only, convert it")
        crds.add(source_of_crd(tree, source))
        return 1
    items = tree.get("items")
    if str(tree.get("kind", "")).endswith("List") and isinstance(items, list):
        kind = str(tree["kind"]).removesuffix("List")
        heads = {"apiVersion": tree.get("apiVersion")} if kind else {}
        return sum(_take({"kind": kind, **heads, **one}, source, documents, crds) for one in items if isinstance(one, dict))
    return int(documents.add(tree, source))


_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


async def read_cluster(kubeconfig: Path | None, context: str | None, tell: Tell = lambda _: None) -> ModelSource:
    """Return the kinds that a cluster serves beyond Kubernetes' own. ``tell`` receives a line for each request.

    Without permission to list CustomResourceDefinitions, custom kinds come from OpenAPI v3, which lacks null defaults, columns and scale.

    Raises:
        ConfigError: No usable kubeconfig or context, or a malformed response.
        ApiError, TransportError: The server refused or cannot be reached.
    """
    config = load_config(kubeconfig, context)
    tell(f"{config.server}: asking for CustomResourceDefinitions, discovery and OpenAPI v3")
    async with Transport(config) as transport:
        crds = await _definitions(transport, tell)
        known = {gvk.group_version for gvk in crds.kinds.values()} | {info.gvr.group_version for info in builtin().all_resources()}
        others = await _others(transport, known, tell)
    others.add(crds)
    return others


async def read_builtins(kubeconfig: Path | None, context: str | None, tell: Tell = lambda _: None) -> Schemas:
    """Return the schemas of all kinds of a cluster, including Kubernetes' own.

    Raises:
        ConfigError, ApiError, TransportError: See ``read_cluster``.
    """
    config = load_config(kubeconfig, context)
    async with Transport(config) as transport:
        tell(f"{config.server}: asking for OpenAPI v2 and v3")
        older = await _get(transport, "/openapi/v2")
        newer = await _documents(transport, set(), tell)
    paths: JSONObject = dict(older.get("paths", {}))
    for document in newer.values():
        paths |= document.get("paths", {})
    return schemas_of(openapi.definitions_v2(older, "/openapi/v2"), openapi.definitions_v3(newer), paths, config.server)


async def _definitions(transport: Transport, tell: Tell) -> ModelSource:
    source = ModelSource()
    token = ""
    while True:
        try:
            page = await _get(transport, _CRDS, {"limit": "100", **({"continue": token} if token else {})})
        except (Forbidden, NotFound) as error:
            tell(f"CustomResourceDefinitions cannot be listed, custom kinds come from OpenAPI v3: {error}")
            return ModelSource()
        for crd in page.get("items") or ():
            source.add(source_of_crd(crd, str(crd["metadata"]["name"])))
            tell(f"{crd['metadata']['name']}: {', '.join(version['name'] for version in crd['spec']['versions'])}")
        token = (page.get("metadata") or {}).get("continue") or ""
        if not token:
            return source


async def _others(transport: Transport, known: set[GroupVersion], tell: Tell) -> ModelSource:
    documents = await _documents(transport, known, tell)
    if not documents:
        return ModelSource()
    aggregated = (await _get(transport, "/apis", accept=_AGGREGATED)).get("items") or []
    resources = [info for info in discovery.served_resources(aggregated, {}, {}) if info.gvr.group_version not in known]
    return source_of_definitions(openapi.definitions_v3(documents, descriptions=True), resources)


async def _documents(transport: Transport, known: set[GroupVersion], tell: Tell) -> JSONObject:
    """Return the OpenAPI v3 documents of all group versions but ``known``, by path."""
    index = (await _get(transport, "/openapi/v3")).get("paths") or {}
    documents: JSONObject = {}
    for path, entry in sorted(index.items()):
        place = _group_version(path)
        if place is None or place in known:
            continue
        url = str(entry["serverRelativeURL"]).partition("?")[0]
        document = await _document(transport, url)
        if document is None:
            tell(f"{url}: left out; its definitions went while the server was read")
            continue
        documents[path] = document
        tell(f"{url}: read")
    return documents


async def _document(transport: Transport, url: str) -> JSONObject | None:
    """Return a document, or None if its group version is gone: kube-apiserver then returns an empty 200 for a moment, and later 404."""
    try:
        response = await transport.request("GET", url)
    except NotFound:
        return None
    return _decoded(response.body, url) if response.body else None


def _group_version(path: str) -> GroupVersion | None:
    """Return the group version of ``apis/apps/v1`` and ``api/v1``; None for other documents (``version``, ``apis``)."""
    match path.split("/"):
        case ["apis", group, version]:
            return GroupVersion(group, version)
        case ["api", version]:
            return GroupVersion("", version)
    return None


async def _get(transport: Transport, path: str, query: dict[str, str] | None = None, accept: str = "application/json") -> JSONObject:
    return _decoded((await transport.request("GET", path, query=query or {}, accept=accept)).body, path)


def _decoded(body: bytes, path: str) -> JSONObject:
    try:
        tree = json.loads(body)
    except ValueError as error:
        raise ConfigError(f"{path}: the answer is not JSON: {error}") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: expected a JSON object, got {type(tree).__name__}")
    return tree
