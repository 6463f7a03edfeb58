"""Formats a CRD schema as Kubernetes' messages print it: Go's internal struct, with every field, in its order.

Source: apiextensions-apiserver pkg/apis/apiextensions/types_jsonschema.go, printed by encoding/json.
"""

from __future__ import annotations

from typing import Any, Final

from kubeloop.types import JSONObject

#: Go's field name, the wire name, and the output for an absent field.
_FIELDS: Final[tuple[tuple[str, str, Any], ...]] = (
    ("ID", "id", ""),
    ("Schema", "$schema", ""),
    ("Ref", "$ref", None),
    ("Description", "description", ""),
    ("Type", "type", ""),
    ("Nullable", "nullable", False),
    ("Format", "format", ""),
    ("Title", "title", ""),
    ("Default", "default", None),
    ("Maximum", "maximum", None),
    ("ExclusiveMaximum", "exclusiveMaximum", False),
    ("Minimum", "minimum", None),
    ("ExclusiveMinimum", "exclusiveMinimum", False),
    ("MaxLength", "maxLength", None),
    ("MinLength", "minLength", None),
    ("Pattern", "pattern", ""),
    ("MaxItems", "maxItems", None),
    ("MinItems", "minItems", None),
    ("UniqueItems", "uniqueItems", False),
    ("MultipleOf", "multipleOf", None),
    ("Enum", "enum", None),
    ("MaxProperties", "maxProperties", None),
    ("MinProperties", "minProperties", None),
    ("Required", "required", None),
    ("Items", "items", None),
    ("AllOf", "allOf", None),
    ("OneOf", "oneOf", None),
    ("AnyOf", "anyOf", None),
    ("Not", "not", None),
    ("Properties", "properties", None),
    ("AdditionalProperties", "additionalProperties", None),
    ("PatternProperties", "patternProperties", None),
    ("Dependencies", "dependencies", None),
    ("AdditionalItems", "additionalItems", None),
    ("Definitions", "definitions", None),
    ("ExternalDocs", "externalDocs", None),
    ("Example", "example", None),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", None),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", False),
    ("XIntOrString", "x-kubernetes-int-or-string", False),
    ("XListMapKeys", "x-kubernetes-list-map-keys", None),
    ("XListType", "x-kubernetes-list-type", None),
    ("XMapType", "x-kubernetes-map-type", None),
    ("XValidations", "x-kubernetes-validations", None),
)
_RULE: Final[tuple[tuple[str, str, Any], ...]] = (
    ("Rule", "rule", ""),
    ("Message", "message", ""),
    ("MessageExpression", "messageExpression", ""),
    ("Reason", "reason", None),
    ("FieldPath", "fieldPath", ""),
    ("OptionalOldSelf", "optionalOldSelf", None),
)


def internal_form(schema: JSONObject) -> JSONObject:
    """Return the schema in internal form as a new tree, whose keys are in Go's order: encode it without sorting."""
    return {go: _value(wire, schema[wire]) if schema.get(wire) is not None else absent for go, wire, absent in _FIELDS}


def rule_form(rule: JSONObject) -> JSONObject:
    """Return one CEL rule in internal form."""
    return {go: rule.get(name, absent) for go, name, absent in _RULE}


def go_field(wire: str) -> str:
    """Return Go's name of a schema field; the name itself for an unknown field."""
    return next((go for go, name, _ in _FIELDS if name == wire), wire)


def _value(wire: str, value: Any) -> Any:
    match wire:
        case "allOf" | "oneOf" | "anyOf":
            return [internal_form(one) for one in value]
        case "not":
            return internal_form(value)
        case "properties":
            return {name: internal_form(value[name]) for name in sorted(value)}
        case "items":
            return {"Schema": internal_form(value), "JSONSchemas": None}
        case "additionalProperties":
            return {"Allows": value is not False, "Schema": internal_form(value) if isinstance(value, dict) else None}
        case "externalDocs":
            return {"Description": value.get("description") or "", "URL": value.get("url") or ""}
        case "x-kubernetes-validations":
            return [rule_form(rule) for rule in value]
        case _:
            return value
