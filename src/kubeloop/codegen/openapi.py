"""Converts OpenAPI documents to definitions in the form of the schema document: references by bare name, no descriptions.

Version 2 has all definitions; version 3 adds defaults and enums of the served versions.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

from kubeloop.meta.errors import ConfigError
from kubeloop.types import JSONObject

#: OpenAPI v2 declares both as strings, v3 as a choice of string and number; here they have their real type.
_SPECIAL: dict[str, JSONObject] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string", "format": "quantity"},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"format": "int-or-string", "x-kubernetes-int-or-string": True},
}


def read_json(path: Path) -> JSONObject:
    """Read a JSON object from a file, gzipped or not.

    Raises:
        ConfigError: The file is missing, unreadable, or not a JSON object; the message names it.
    """
    try:
        data = path.read_bytes()
        tree = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (OSError, EOFError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: expected a JSON object, found {type(tree).__name__}")
    return tree


def definitions_v2(document: JSONObject, path: Path | str, *, descriptions: bool = False) -> dict[str, JSONObject]:
    """Return the definitions of an OpenAPI v2 document; ``path`` names it in errors.

    Raises:
        ConfigError: The document is not an OpenAPI v2 document.
    """
    definitions = document.get("definitions")
    if document.get("swagger") != "2.0" or not isinstance(definitions, dict):
        raise ConfigError(
            f'{path}: not an OpenAPI v2 document ("swagger": "2.0" with "definitions"); save one with: kubectl get --raw /openapi/v2'
        )
    return {name: _SPECIAL.get(name) or normal(definition, descriptions) for name, definition in definitions.items()}


def definitions_v3(documents: JSONObject, *, descriptions: bool = False) -> dict[str, JSONObject]:
    """Return the definitions of all OpenAPI v3 documents of a server, given as ``{path: document}``."""
    merged: dict[str, JSONObject] = {}
    for document in documents.values():
        for name, definition in document.get("components", {}).get("schemas", {}).items():
            merged[name] = _SPECIAL.get(name) or normal(definition, descriptions)
    return merged


def normal(node: JSONObject, descriptions: bool = False) -> JSONObject:
    """Normalise a schema node: no ``allOf`` around a single reference, references by bare name; descriptions only if ``descriptions``."""
    result: JSONObject = {}
    for key, value in node.items():
        if key == "description" and not descriptions:
            continue
        if key == "properties":
            result[key] = {name: normal(child, descriptions) for name, child in sorted(value.items())}
        elif key == "additionalProperties" and isinstance(value, bool):
            result["x-kubernetes-preserve-unknown-fields" if value else "closed"] = True
        elif key in ("items", "additionalProperties"):
            result[key] = normal(value, descriptions)
        elif key == "$ref":
            result[key] = bare(value)
        elif key == "allOf" and len(value) == 1 and "$ref" in value[0]:
            result["$ref"] = bare(value[0]["$ref"])
        else:
            result[key] = value
    return result


def bare(reference: str) -> str:
    """Convert ``#/definitions/NAME`` or ``#/components/schemas/NAME`` to ``NAME``."""
    return reference.rpartition("/")[2]


def merge(older: dict[str, JSONObject], newer: dict[str, JSONObject]) -> dict[str, JSONObject]:
    """Return normal definitions of version 2 with the facts of version 3, and the definitions that only version 3 has."""
    merged = dict(older)
    for name, definition in newer.items():
        add_facts(merged.setdefault(name, definition), definition)
    return merged


def hoist(definitions: dict[str, JSONObject]) -> dict[str, JSONObject]:
    """Move inline structs (CRDs have no references) to separate definitions: ``Foo.spec`` becomes ``FooSpec``."""
    hoisted: dict[str, JSONObject] = {}

    def visit(node: JSONObject, name: str) -> JSONObject:
        result = dict(node)
        if "properties" in node:
            result["properties"] = {
                wire: place(child, name + re.sub(r"\W+", "", wire[:1].upper() + wire[1:])) for wire, child in node["properties"].items()
            }
        for key, suffix in (("items", "Item"), ("additionalProperties", "Value")):
            if isinstance(node.get(key), dict):
                result[key] = place(node[key], name + suffix)
        return result

    def place(node: JSONObject, name: str) -> JSONObject:
        if "properties" not in node:
            return visit(node, name)
        while name in definitions or name in hoisted:
            name += "_"
        hoisted[name] = {}
        hoisted[name] = visit(node, name)
        return {"$ref": name} | {key: node[key] for key in ("default",) if key in node}

    own = {name: visit(definition, name) for name, definition in definitions.items()}
    return own | hoisted


def add_facts(node: JSONObject, newer: JSONObject) -> None:
    """Add to a v2 node the defaults and enums of the v3 node of the same definition; both are normal."""
    for key in ("default", "enum"):
        if key in newer:
            node[key] = newer[key]
    for name, child in node.get("properties", {}).items():
        other = newer.get("properties", {}).get(name)
        if other is not None:
            add_facts(child, other)
    for key in ("items", "additionalProperties"):
        if key in node and key in newer:
            add_facts(node[key], newer[key])


def without_descriptions(tree: Any, *, named: bool = False) -> Any:
    """Remove ``description`` texts from a JSON tree; ``named`` for a map whose keys are names of the API (properties)."""
    if isinstance(tree, dict):
        return {
            key: without_descriptions(value, named=key == "properties")
            for key, value in tree.items()
            if named or not (key == "description" and isinstance(value, str))
        }
    if isinstance(tree, list):
        return [without_descriptions(value) for value in tree]
    return tree
