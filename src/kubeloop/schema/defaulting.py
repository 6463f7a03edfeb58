"""Defaulting: sets the schema's default for missing fields, and for nulls where null is not allowed.

Runs both on requests and on stored objects. Source: Kubernetes documentation "Defaulting".
"""

from __future__ import annotations

import copy
from typing import Any

from msgspec import UNSET

from kubeloop.schema.node import TypeSchema
from kubeloop.schema.structural import default_of


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
