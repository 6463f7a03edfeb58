"""Converts schema nodes to OpenAPI version 3 (components) and version 2 (definitions).

Source: kube-openapi builder3 and builder; the differences between the two forms are those of a real server's documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from kubeloop.schema import Schemas, TypeSchema
from kubeloop.types import JSONObject

COMPONENTS: Final = "#/components/schemas/"
DEFINITIONS: Final = "#/definitions/"

_REFERENCE: Final = re.compile(rb'"#/components/schemas/([^"]+)"')
_BELOW: Final = ("items", "additionalProperties", "not")
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf")


#: Definition -> fields that upstream does not describe: their references have no siblings.
_UNDESCRIBED: Final = {
    "io.k8s.api.networking.v1.IngressRule": frozenset({"http"}),
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps": frozenset(
        {"additionalItems", "additionalProperties", "example", "externalDocs", "items", "not"}
    ),
}


def to_v3(name: str, node: TypeSchema) -> JSONObject:
    """Return a built-in definition in OpenAPI version 3."""
    tree: JSONObject = msgspec.to_builtins(node)
    return _v3(tree, _UNDESCRIBED.get(name, frozenset()))


def _v3(tree: JSONObject, undescribed: frozenset[str] = frozenset()) -> JSONObject:
    tree = _each(tree, _v3)
    for field, below in tree.get("properties", {}).items():
        if "$ref" in below and field not in undescribed:
            tree["properties"][field] = {"allOf": [below]}  # A reference may have no siblings, and a description is one.
    if tree.get("format") == "int-or-string":
        return {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}
    if tree.get("format") == "quantity":
        return {"oneOf": [{"type": "string"}, {"type": "number"}]}
    name = tree.pop("$ref", None)
    if name is None:
        return tree
    reference = {"$ref": COMPONENTS + name}
    # A reference may have no siblings in version 3.
    return {**tree, "allOf": [reference]} if tree else reference


def to_v2(node: TypeSchema) -> JSONObject:
    """Return a built-in definition in OpenAPI version 2, which has no defaults and allows siblings of references."""
    tree: JSONObject = msgspec.to_builtins(node)
    return _v2(tree)


def _v2(tree: JSONObject) -> JSONObject:
    tree = _each(tree, _v2)
    tree.pop("default", None)
    if tree.get("format") == "int-or-string":
        return {"type": "string", "format": "int-or-string"}
    if tree.get("format") == "quantity":
        return {"type": "string"}
    if "$ref" in tree:
        tree["$ref"] = DEFINITIONS + tree["$ref"]
    return tree


def _each(tree: JSONObject, change: Any) -> JSONObject:
    """Return a copy of a schema in which ``change`` was applied to every schema directly below it."""
    made = dict(tree)
    for name in _BELOW:
        if isinstance(made.get(name), dict):
            made[name] = change(made[name])
    if isinstance(made.get("properties"), dict):
        made["properties"] = {name: change(below) for name, below in made["properties"].items()}
    for name in _JUNCTORS:
        if isinstance(made.get(name), list):
            made[name] = [change(one) for one in made[name]]
    return made


def referenced(encoded: bytes) -> Iterator[str]:
    """Yield the names of components that an encoded document refers to, with repetitions."""
    return (name.decode() for name in _REFERENCE.findall(encoded))


def with_references(schemas: Schemas, names: Iterable[str]) -> list[str]:
    """Return the names of the built-in definitions in ``names`` and of all that they refer to, sorted. Other names are left out."""
    value: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in value and name in schemas:
            value.add(name)
            waiting += _names(schemas.definition(name))
    return sorted(value)


def _names(node: TypeSchema) -> Iterator[str]:
    if node.ref:
        yield node.ref
    below = [*node.properties.values(), node.items, node.values, node.not_, *node.all_of, *node.any_of, *node.one_of]
    for one in below:
        if one is not None:
            yield from _names(one)
