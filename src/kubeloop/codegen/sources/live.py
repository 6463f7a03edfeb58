"""Reads a live cluster: its CustomResourceDefinitions, and the kinds of its aggregated API servers from discovery and OpenAPI v3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from kubeloop.codegen import discovery, openapi
from kubeloop.codegen.document import schemas_of
from kubeloop.codegen.sources.files import Tell
from kubeloop.codegen.typed import ModelSource, source_of_crd, source_of_definitions
from kubeloop.config import load_config
from kubeloop.meta.errors import ConfigError, Forbidden, NotFound
from kubeloop.meta.kinds import GroupVersion
from kubeloop.schema import Schemas, builtin
from kubeloop.transport import Transport
from kubeloop.types import JSONObject

_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


async def read_cluster(kubeconfig: Path | None, context: str | None, tell: Tell = lambda _: None) -> ModelSource:
    """Return the kinds that a cluster serves beyond Kubernetes' own. ``tell`` receives a line for each request.

    Without permission to list CustomResourceDefinitions, custom kinds come from OpenAPI v3, which lacks null defaults, columns and scale.

    Raises:
        ConfigError: no usable kubeconfig or context, or a malformed response.
        ApiError, TransportError: the server refused or cannot be reached.
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
        ConfigError, ApiError, TransportError: as ``read_cluster``.
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
    """Return a document; None if its group version is gone: kube-apiserver then returns an empty 200 for a moment, and later 404."""
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
