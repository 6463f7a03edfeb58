"""Writes the schema document and its companion of OpenAPI paths. Deterministic: the same input gives the same bytes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import msgspec

from kubeloop.codegen import discovery, openapi
from kubeloop.meta.errors import ConfigError
from kubeloop.meta.kinds import GroupVersion
from kubeloop.schema import Schemas, builtin
from kubeloop.schema.document import DOCUMENT, PATHS, SchemaDocument
from kubeloop.schema.node import TypeSchema
from kubeloop.types import JSONObject


def write_documents(out: Path, *, v2: Path, v3: Path, facts: Path) -> None:
    """Write the schema document and its companion of OpenAPI paths into the folder ``out``.

    Args:
        out: The folder.
        v2: A server's ``/openapi/v2``.
        v3: A JSON object ``{path: document}`` of its ``/openapi/v3/PATH``.
        facts: A folder with ``discovery-api.json`` and ``discovery-apis.json`` (aggregated discovery), ``discovery-legacy.json``
            (``{path: response}``) and ``field-selectors.json`` (``{collection path: [field label]}``).

    Raises:
        ConfigError: An input is missing or malformed; the message names the file.
    """
    swagger = openapi.read_json(v2)
    documents = openapi.read_json(v3)
    aggregated = [item for name in ("discovery-api.json", "discovery-apis.json") for item in openapi.read_json(facts / name)["items"]]
    served = tuple(
        discovery.served_resources(
            aggregated, openapi.read_json(facts / "discovery-legacy.json"), openapi.read_json(facts / "field-selectors.json")
        )
    )
    groups = discovery.groups(aggregated)
    on = {GroupVersion(group.name, version) for group in groups for version in group.versions}
    resources = served + tuple(discovery.resources_of_paths(swagger["paths"], served, on))
    definitions = openapi.merge(openapi.definitions_v2(swagger, v2), openapi.definitions_v3(documents))
    document = SchemaDocument(
        version=next(iter(documents.values()))["info"]["version"],
        groups=groups,
        resources=resources,
        kinds=kinds_of(definitions),
        definitions=raw_definitions(definitions),
    )
    _write(out / DOCUMENT, msgspec.json.encode(document))
    paths = {name: openapi.without_descriptions(tree["paths"]) for name, tree in sorted(documents.items())}
    _write(out / PATHS, json.dumps(paths, separators=(",", ":"), sort_keys=True).encode())


def schemas_from(path: Path) -> Schemas:
    """Return the schemas of OpenAPI documents, for generating models of any server's kinds.

    ``path`` is a file, or a folder whose ``.json`` and ``.json.gz`` files are read; a file holds an OpenAPI v2 document, a v3 document, or
    ``{path: v3 document}``. Other files of a folder are skipped. Inline structs (as in CRDs) become separate definitions.

    Raises:
        ConfigError: There is no file, or no OpenAPI document among the files; the message names the path.
    """
    files = sorted(file for file in path.iterdir() if file.name.endswith((".json", ".json.gz"))) if path.is_dir() else [path]
    older: dict[str, JSONObject] = {}
    newer: dict[str, JSONObject] = {}
    paths: JSONObject = {}
    for file in files:
        tree = openapi.read_json(file)
        if "swagger" in tree:
            older.update(openapi.definitions_v2(tree, file))
            paths.update(tree.get("paths", {}))
            continue
        documents = (
            {"": tree} if "openapi" in tree else {name: doc for name, doc in tree.items() if isinstance(doc, dict) and "openapi" in doc}
        )
        newer.update(openapi.definitions_v3(documents))
        for each in documents.values():
            paths.update(each.get("paths", {}))
    return schemas_of(older, newer, paths, str(path))


def schemas_of(older: dict[str, JSONObject], newer: dict[str, JSONObject], paths: JSONObject, source: str) -> Schemas:
    """Return the schemas of definitions in the form that ``openapi.normal`` returns.

    Args:
        older: Definitions of OpenAPI version 2 by name.
        newer: Definitions of version 3 by name.
        paths: Paths of the same documents.
        source: Name of the documents, for errors.

    Raises:
        ConfigError: There is no definition.
    """
    definitions = openapi.merge(older, newer)
    if not definitions:
        raise ConfigError(f"{source}: no OpenAPI document in it; save one with: kubectl get --raw /openapi/v2")
    definitions = openapi.hoist(definitions)
    document = SchemaDocument(
        version="",
        groups=(),
        resources=tuple(discovery.resources_of_paths(paths, builtin().all_resources())),
        kinds=kinds_of(definitions),
        definitions=raw_definitions(definitions),
    )
    return Schemas(document)


def kinds_of(definitions: dict[str, JSONObject]) -> dict[str, str]:
    """Map "GROUP/VERSION/KIND" to definition name. A kind that all groups share (DeleteOptions, WatchEvent) has its first group only."""
    kinds: dict[str, str] = {}
    for name, definition in definitions.items():
        for gvk in definition.get("x-kubernetes-group-version-kind", ())[:1]:
            kinds["/".join((gvk["group"], gvk["version"], gvk["kind"]))] = name
    return dict(sorted(kinds.items()))


def raw_definitions(definitions: dict[str, JSONObject]) -> dict[str, msgspec.Raw]:
    """Check each definition against ``TypeSchema`` and encode it.

    Raises:
        msgspec.ValidationError: a definition has a keyword that ``TypeSchema`` lacks.
    """
    return {
        name: msgspec.Raw(msgspec.json.encode(msgspec.convert(definition, TypeSchema))) for name, definition in sorted(definitions.items())
    }


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data, 9, mtime=0))
