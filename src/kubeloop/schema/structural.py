"""Structural schemas of custom resources: converts a CRD's ``openAPIV3Schema`` to the same nodes that built-in kinds use.

Parsing expects a schema without faults (``structural_rules.check``). Source: Kubernetes documentation "Specifying a structural schema".
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET

from kubeloop.schema.node import TypeSchema
from kubeloop.types import JSONObject

#: ``additionalProperties: true``: any value, but objects below it lose all fields.
ANY_VALUE: Final = TypeSchema()
#: ``additionalProperties: false``: only named properties. Compared by identity.
NO_OTHER: Final = TypeSchema()

_PLAIN: Final = {
    "type": "type",
    "format": "format",
    "description": "description",
    "nullable": "nullable",
    "minimum": "minimum",
    "maximum": "maximum",
    "exclusiveMinimum": "exclusive_minimum",
    "exclusiveMaximum": "exclusive_maximum",
    "minLength": "min_length",
    "maxLength": "max_length",
    "pattern": "pattern",
    "minItems": "min_items",
    "maxItems": "max_items",
    "minProperties": "min_properties",
    "maxProperties": "max_properties",
    "multipleOf": "multiple_of",
    "enum": "enum",
    "x-kubernetes-list-type": "list_type",
    "x-kubernetes-map-type": "map_type",
    "x-kubernetes-preserve-unknown-fields": "preserve_unknown",
    "x-kubernetes-embedded-resource": "embedded_resource",
    "x-kubernetes-int-or-string": "int_or_string",
    "x-kubernetes-validations": "validations",
}
_TUPLES: Final = {"required": "required", "x-kubernetes-list-map-keys": "list_map_keys"}
_JUNCTORS: Final = {"allOf": "all_of", "anyOf": "any_of", "oneOf": "one_of"}


def parse(schema: JSONObject | None) -> TypeSchema:
    """Return the node of a schema; for None, an object with only its metadata.

    The node references ``schema`` (enums, defaults): do not change it afterwards. Features that CRDs must not use (``$ref`` ...) are
    ignored.
    """
    fields: JSONObject = {}
    for name, value in (schema or {}).items():
        if value is None:
            continue
        if name in _PLAIN:
            fields[_PLAIN[name]] = value
        elif name in _TUPLES:
            fields[_TUPLES[name]] = tuple(value)
        elif name in _JUNCTORS:
            fields[_JUNCTORS[name]] = tuple(parse(one) for one in value)
        elif name == "not":
            fields["not_"] = parse(value)
        elif name == "items":
            fields["items"] = parse(value)
        elif name == "properties":
            fields["properties"] = {key: parse(one) for key, one in value.items()}
        elif name == "additionalProperties":
            fields["values"] = parse(value) if isinstance(value, dict) else ANY_VALUE if value else NO_OTHER
        elif name == "default":
            fields["default"] = value
    return TypeSchema(**fields)


def as_resource(schema: TypeSchema) -> TypeSchema:
    """Return the same schema as the root of an object: apiVersion, kind and metadata are allowed although the schema does not name them."""
    return schema if schema.embedded_resource else msgspec.structs.replace(schema, embedded_resource=True)


def has_rules(schema: TypeSchema) -> bool:
    """Return whether the schema or a part of it has CEL rules (``x-kubernetes-validations``)."""
    below = [*schema.properties.values(), *schema.all_of, *(one for one in (schema.items, schema.values) if one is not None)]
    return bool(schema.validations) or any(map(has_rules, below))


def default_of(schema: TypeSchema | None) -> Any:
    """Return the default of a schema, or UNSET if there is none or it is null, which the defaulting of custom resources ignores."""
    if schema is None or schema.default is None:
        return UNSET
    return schema.default
