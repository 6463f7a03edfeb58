"""Uniqueness in lists that a schema declares sets or maps (``x-kubernetes-list-type``).

Source: apiextensions-apiserver schema/listtype; KEP-1027.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from kubeloop.meta.field_error import FieldError, duplicate, invalid
from kubeloop.schema.node import TypeSchema
from kubeloop.schema.object_metadata import by_name

#: The key of an item without one; it equals no JSON scalar.
_NO_KEY: Final[list[Any]] = []


def check_lists(value: Any, schema: TypeSchema, path: str = "") -> list[FieldError]:
    """Find duplicates in sets, and in maps by their keys; each duplicated value is reported once, at its second occurrence."""
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
    """Yield repeats. Upstream compares numbers with their Go types, so that 1.0 is not 1, but lists and maps as JSON, where it is."""
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
