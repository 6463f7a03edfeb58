"""Pruning: removes fields that a structural schema does not name, and returns their paths.

Source: Kubernetes documentation "Field pruning"; apiextensions-apiserver schema/pruning, schema/defaulting (nulls), schema/objectmeta.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET

from kubeloop.schema.node import TypeSchema
from kubeloop.schema.structural import as_resource, default_of

_META: Final = frozenset(("apiVersion", "kind", "metadata"))


def prune(obj: dict[str, Any], schema: TypeSchema) -> list[str]:
    """Remove unknown fields of a custom object, in place; return their paths (``spec.ports[0].junk``), sorted.

    apiVersion, kind and metadata stay at the root and in embedded resources; the fields inside metadata are not checked.
    """
    return prune_value(obj, as_resource(schema))


def prune_value(value: Any, schema: TypeSchema) -> list[str]:
    """Do the same for any part of an object (a default)."""
    removed: list[str] = []
    _prune(value, schema, "", removed)
    removed.sort()
    return removed


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _prune(value: Any, schema: TypeSchema | None, path: str, removed: list[str]) -> None:
    if schema is not None and schema.preserve_unknown:
        _prune_known(value, schema, path, removed)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _prune(item, schema.items if schema else None, f"{path}[{index}]", removed)
    elif isinstance(value, dict):
        for name in list(value):
            if schema is not None and schema.embedded_resource and name in _META:
                continue
            below = schema.properties.get(name) if schema is not None else None
            if below is not None:
                _prune(value[name], below, _join(path, name), removed)
            elif schema is not None and schema.values is not None:
                _prune(value[name], schema.values, _join(path, name), removed)
            else:
                removed.append(_join(path, name))
                del value[name]


def _prune_known(value: Any, schema: TypeSchema | None, path: str, removed: list[str]) -> None:
    """Below preserve-unknown-fields: specified fields are pruned by their own schema, other fields stay."""
    if schema is None:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            _prune_known(item, schema.items, f"{path}[{index}]", removed)
    elif isinstance(value, dict):
        for name in list(value):
            if schema.embedded_resource and name in _META:
                continue
            below = schema.properties.get(name, schema.values)
            if below is not None:
                _prune(value[name], below, _join(path, name), removed)


def drop_nulls(value: Any, schema: TypeSchema | None) -> None:
    """Remove nulls where the schema neither allows null nor has a default, in place; defaulting replaces the other nulls."""
    if isinstance(value, dict):
        for name in list(value):
            below = schema.properties.get(name, schema.values) if schema is not None else None
            if value[name] is None and below is not None and not below.nullable and default_of(below) is UNSET:
                del value[name]
            else:
                drop_nulls(value[name], below)
    elif isinstance(value, list):
        for item in value:
            drop_nulls(item, schema.items if schema is not None else None)
