"""Processing of custom objects by their structural schema: pruning, defaulting, and uniqueness in lists."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any, Final

from msgspec import UNSET

from kubeloop.meta.field_error import FieldError, duplicate, invalid
from kubeloop.schema.node import TypeSchema
from kubeloop.schema.object_metadata import by_name
from kubeloop.schema.structural import as_resource, default_of

# Pruning: removes fields that a structural schema does not name, and returns their paths.
#
# Source: Kubernetes documentation "Field pruning"; apiextensions-apiserver schema/pruning, schema/defaulting (nulls), schema/objectmeta.


_META: Final = frozenset(("apiVersion", "kind", "metadata"))


def prune(obj: dict[str, Any], schema: TypeSchema) -> list[str]:
    """Remove unknown fields of a custom object in place, and return their sorted paths (``spec.ports[0].junk``).

    apiVersion, kind and metadata stay at the root and in embedded resources; the fields inside metadata are not checked.
    """
    return prune_value(obj, as_resource(schema))


def prune_value(value: Any, schema: TypeSchema) -> list[str]:
    """Remove unknown fields of a part of an object, such as a default value, in place, and return their sorted paths.

    For a whole object use ``prune``.
    """
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
    """Prune an object with preserve-unknown-fields: specified fields are pruned by their schemas, and other fields stay."""
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


# Defaulting: sets the schema's default for missing fields, and for nulls where null is not allowed.
#
# Runs both on requests and on stored objects. Source: Kubernetes documentation "Defaulting".


def apply_defaults(value: Any, schema: TypeSchema | None) -> None:
    """Set the defaults below ``value``, in place. The default of an object applies before the defaults inside that object."""
    if schema is None:
        return
    if isinstance(value, dict):
        for name, one in schema.properties.items():
            default = default_of(one)
            if default is not UNSET and (name not in value or (value[name] is None and not one.nullable)):
                value[name] = copy.deepcopy(default)
        for name in value:
            below = schema.properties.get(name, schema.values)
            if below is not None:
                if name not in schema.properties and value[name] is None and not below.nullable:
                    value[name] = _copy_default(below)
                apply_defaults(value[name], below)
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            if item is None and not schema.items.nullable:
                value[index] = _copy_default(schema.items)
            apply_defaults(value[index], schema.items)


def _copy_default(schema: TypeSchema) -> Any:
    default = default_of(schema)
    return None if default is UNSET else copy.deepcopy(default)


# Uniqueness in lists that a schema declares sets or maps (``x-kubernetes-list-type``).
#
# Source: apiextensions-apiserver schema/listtype; KEP-1027.


#: Stands for the key of an item that has no key; it equals no JSON scalar.
_NO_KEY: Final[list[Any]] = []


def check_lists(value: Any, schema: TypeSchema, path: str = "") -> list[FieldError]:
    """Return an error for each duplicate in lists of type ``set`` or, by key, ``map``; a value is reported at its second occurrence."""
    return list(_value(value, schema, path))


def _value(value: Any, schema: TypeSchema, path: str) -> Iterator[FieldError]:
    if isinstance(value, dict):
        for name in sorted(value):
            known = schema.properties.get(name)
            if known is not None:
                yield from _value(value[name], known, f"{path}.{name}" if path else name)
            elif schema.values is not None:
                yield from _value(value[name], schema.values, f"{path}[{name}]")
    elif isinstance(value, list):
        if schema.list_type == "set":
            yield from (duplicate(f"{path}[{index}]", by_name(_comparable(value[index]))) for index in _repeated(value))
        elif schema.list_type == "map":
            yield from _map(value, schema, path)
        if schema.items is not None:
            for index, item in enumerate(value):
                yield from _value(item, schema.items, f"{path}[{index}]")


def _map(value: list[Any], schema: TypeSchema, path: str) -> Iterator[FieldError]:
    for index, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            yield invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map")
            return
    keys = [{name: item[name] for name in sorted(schema.list_map_keys) if item and name in item} for item in value]
    one_key = len(schema.list_map_keys) == 1
    repeated = _repeated([key.get(schema.list_map_keys[0], _NO_KEY) for key in keys] if one_key else keys)
    yield from (duplicate(f"{path}[{index}]", _comparable(keys[index])) for index in repeated)


def _repeated(values: list[Any]) -> Iterator[int]:
    """Yield the index of the second occurrence of each repeated value.

    Upstream compares numbers with their Go types, so that 1.0 differs from 1, but compares lists and maps as JSON, so that 1.0 equals 1.
    """
    times: dict[str, int] = {}
    for index, one in enumerate(values):
        text = json.dumps(_comparable(one) if isinstance(one, dict | list) else one, sort_keys=True)
        times[text] = times.get(text, 0) + 1
        if times[text] == 2:
            yield index


def _comparable(value: Any) -> Any:
    """Return a comparable form of a value; as in Go's JSON, 1.0 is 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _comparable(one) for name, one in value.items()}
    return [_comparable(one) for one in value] if isinstance(value, list) else value
