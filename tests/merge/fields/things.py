"""A custom type with every way of merging, for the tests of this folder."""

from typing import Any, Final

from kubeloop.merge.fields import MergeType, custom_type
from kubeloop.schema.structural import parse

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "number": {"type": "integer"},
        "text": {"type": "string"},
        "flag": {"type": "boolean"},
        "either": {"x-kubernetes-int-or-string": True},
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "atomic": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "map": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "value": {"type": "integer"},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                },
            },
        },
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {
                "type": "object",
                "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": {"type": "string"}},
            },
        },
        "granular": {"type": "object", "additionalProperties": {"type": "string"}},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "struct": {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "object", "properties": {"c": {"type": "integer"}}}},
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
THING: Final[MergeType] = custom_type(parse(SCHEMA))
