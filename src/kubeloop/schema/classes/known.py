"""Schemas of types that users do not declare: scalars, quantities, metadata, and Kubernetes' own structs in custom kinds."""

from __future__ import annotations

import copy
from datetime import datetime
from functools import cache
from typing import Any, Final

import msgspec

from kubeloop.meta import ObjectMeta, Quantity
from kubeloop.meta.errors import ConfigError
from kubeloop.schema.document import builtin
from kubeloop.schema.node import TypeSchema
from kubeloop.types import JSONObject

_META_V1: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_NO_DEFAULT: Final = object()

#: The pattern of quantities in CRDs of controllers written in Go; a schema with it is a quantity.
QUANTITY: Final[JSONObject] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
    "x-kubernetes-int-or-string": True,
}
INT_OR_STRING: Final[JSONObject] = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}

_SCALARS: Final[dict[Any, JSONObject]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "format": "byte"},
    datetime: {"type": "string", "format": "date-time"},
    Quantity: QUANTITY,
    Any: {"x-kubernetes-preserve-unknown-fields": True},
    object: {"x-kubernetes-preserve-unknown-fields": True},
    msgspec.Raw: {"x-kubernetes-preserve-unknown-fields": True},
}

#: The part of metadata that templates of objects may carry.
_TEMPLATE_META: Final[JSONObject] = {
    "type": "object",
    "properties": {
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
        "finalizers": {"type": "array", "items": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "name": {"type": "string"},
        "namespace": {"type": "string"},
    },
}


def scalar(hint: Any) -> JSONObject | None:
    """Return the schema of a scalar type, or None for structs, lists and maps."""
    try:
        found = _SCALARS.get(hint)
    except TypeError:
        return None
    return None if found is None else copy.deepcopy(found)


def kubernetes_own(cls: type) -> JSONObject | None:
    """Return the schema of a struct of Kubernetes itself (``PodTemplateSpec``) with references resolved, or None for other classes.

    Raises:
        ConfigError: The struct refers to itself.
    """
    if cls is ObjectMeta:
        return copy.deepcopy(_TEMPLATE_META)
    name = _definition_of(cls)
    return None if name is None else definition_schema(name)


def definition_schema(name: str) -> JSONObject:
    """Return the structural schema of a built-in definition, by its name, as a new tree.

    Raises:
        ConfigError: The definition refers to itself.
    """
    return _plain(TypeSchema(ref=name), name, ())


@cache
def _by_place() -> dict[str, str]:
    # kubeloop.api.core.v1.PodSpec is io.k8s.api.core.v1.PodSpec: package, version and class name identify the definition.
    return {".".join(name.rsplit(".", 3)[1:]): name for name in builtin().names()}


def _definition_of(cls: type) -> str | None:
    if cls.__module__.startswith("kubeloop.api."):
        return _by_place().get(f"{cls.__module__.removeprefix('kubeloop.api.')}.{cls.__name__}")
    if cls.__module__.startswith("kubeloop.meta.") and f"{_META_V1}{cls.__name__}" in builtin():
        return f"{_META_V1}{cls.__name__}"
    return None


def _plain(node: TypeSchema, path: str, within: tuple[str, ...]) -> JSONObject:
    """Convert a built-in node to a structural schema: no references, no merge keys, none of the defaults that stand for Go's zero values.

    Choices are left out too: a newer Kubernetes has more of them, and a custom kind should not have to change for each.
    """
    if node.ref:
        if node.ref in within:
            raise ConfigError(f"{path}: {node.ref} refers to itself, which no structural schema can say; declare the field Opaque()")
        if node.ref == f"{_META_V1}ObjectMeta":
            return copy.deepcopy(_TEMPLATE_META)
        return _plain(builtin().resolve(node), path, (*within, node.ref))
    if node.format == "quantity":
        return copy.deepcopy(QUANTITY)
    if node.int_or_string:
        return copy.deepcopy(INT_OR_STRING)
    result: JSONObject = {"type": node.type} if node.type else {"x-kubernetes-preserve-unknown-fields": True}
    if node.format:
        result["format"] = node.format
    if node.items is not None:
        result["items"] = _plain(node.items, f"{path}[]", within)
    if node.values is not None:
        result["additionalProperties"] = _plain(node.values, f"{path}{{}}", within)
    if node.properties:
        result["properties"] = {name: _property(node, name, child, f"{path}.{name}", within) for name, child in node.properties.items()}
    elif node.type == "object" and node.values is None:
        result["x-kubernetes-preserve-unknown-fields"] = True
    if node.required:
        result["required"] = list(node.required)
    if node.list_type:
        result["x-kubernetes-list-type"] = node.list_type
    if node.list_map_keys:
        result["x-kubernetes-list-map-keys"] = list(node.list_map_keys)
    if node.map_type:
        result["x-kubernetes-map-type"] = node.map_type
    return result


def _property(parent: TypeSchema, name: str, node: TypeSchema, path: str, within: tuple[str, ...]) -> JSONObject:
    result = _plain(node, path, within)
    default = node.default if node.has_default else _NO_DEFAULT
    # A default of "" on a required field would make every object valid; {} only means that Go embeds the struct by value.
    if default is not _NO_DEFAULT and default != {} and not (name in parent.required and default in ("", 0, False)):
        result["default"] = default
    return result
