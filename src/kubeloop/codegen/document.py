"""Writes the schema document and its companion of OpenAPI paths. Deterministic: the same input gives the same bytes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec

from kubeloop.codegen import discovery, openapi
from kubeloop.meta.kinds import GroupVersion
from kubeloop.schema import ResourceInfo
from kubeloop.schema.document import DOCUMENT, PATHS, Document
from kubeloop.schema.node import TypeSchema

JSONObject = dict[str, Any]


def write_document(out: Path, *, v2: Path, v3: Path, facts: Path) -> None:
    """Write both files into the folder ``out``.

    ``v2`` is a server's ``/openapi/v2``, ``v3`` a JSON object ``{path: document}`` of its ``/openapi/v3/PATH``, ``facts`` a folder
    with ``discovery-api.json`` and ``discovery-apis.json`` (aggregated discovery), ``discovery-legacy.json`` (``{path: answer}``) and
    ``field-selectors.json`` (``{collection path: [field label]}``).

    Raises:
        ConfigError: an input is missing or malformed; the message names the file.
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
    resources = served + tuple(
        discovery.unserved_resources(
            swagger["paths"],
            {(resource.gvr.group, resource.gvr.resource): resource for resource in served},
            {GroupVersion(group.name, version) for group in groups for version in group.versions},
        )
    )
    definitions = openapi.definitions_v2(swagger, v2)
    for name, newer in openapi.definitions_v3(documents).items():
        openapi.add_facts(definitions.setdefault(name, newer), newer)
    document = Document(
        version=next(iter(documents.values()))["info"]["version"],
        groups=groups,
        resources=resources,
        kinds=kinds_of(definitions),
        definitions=raw_definitions(definitions),
    )
    _write(out / DOCUMENT, msgspec.json.encode(document))
    paths = {name: openapi.without_descriptions(tree["paths"]) for name, tree in sorted(documents.items())}
    _write(out / PATHS, json.dumps(paths, separators=(",", ":"), sort_keys=True).encode())


def document_of(definitions: dict[str, JSONObject], resources: tuple[ResourceInfo, ...] = (), version: str = "") -> Document:
    """A document of normal definitions alone, for generating models from any server's OpenAPI."""
    return Document(version=version, groups=(), resources=resources, kinds=kinds_of(definitions), definitions=raw_definitions(definitions))


def kinds_of(definitions: dict[str, JSONObject]) -> dict[str, str]:
    """ "GROUP/VERSION/KIND" to definition name. A kind that every group shares (DeleteOptions, WatchEvent) is known by its first group."""
    kinds: dict[str, str] = {}
    for name, definition in definitions.items():
        for gvk in definition.get("x-kubernetes-group-version-kind", ())[:1]:
            kinds["/".join((gvk["group"], gvk["version"], gvk["kind"]))] = name
    return dict(sorted(kinds.items()))


def raw_definitions(definitions: dict[str, JSONObject]) -> dict[str, msgspec.Raw]:
    """Each definition checked against ``TypeSchema`` and encoded.

    Raises:
        msgspec.ValidationError: a definition says something that ``TypeSchema`` cannot hold.
    """
    return {
        name: msgspec.Raw(msgspec.json.encode(msgspec.convert(definition, TypeSchema))) for name, definition in sorted(definitions.items())
    }


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data, 9, mtime=0))
