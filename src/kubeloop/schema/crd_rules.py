"""Validates the nodes of a CRD's ``openAPIV3Schema`` beyond the structural rules: types, list types, features that CRDs do not allow.

Source: apiextensions-apiserver validation of CustomResourceDefinitions (same messages and order).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from kubeloop.meta.field_error import FieldError, FieldErrorType, forbidden, invalid, required
from kubeloop.schema import formats
from kubeloop.schema.custom_objects import prune_value
from kubeloop.schema.field_paths import FieldPathError, normalise
from kubeloop.schema.internal_form import go_field, internal_form
from kubeloop.schema.object_metadata import MetadataRules, check_metadata
from kubeloop.schema.structural import as_resource, parse
from kubeloop.schema.structural_rules import check_structural
from kubeloop.schema.validation import same, validate
from kubeloop.types import JSONObject

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_META: Final = ("metadata", "kind", "apiVersion")
_UNSUPPORTED: Final = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
#: With a status subresource, the root may have only these keys, because the status schema is cut out of it.
_ROOT_WITH_STATUS: Final = (
    "Description", "Type", "Format", "Title", "Maximum", "ExclusiveMaximum", "Minimum", "ExclusiveMinimum", "MaxLength", "MinLength",
    "Pattern", "MaxItems", "MinItems", "UniqueItems", "MultipleOf", "Required", "Items", "Properties", "ExternalDocs", "Example",
    "XPreserveUnknownFields", "XValidations",
)  # fmt: skip


def check_schema(schema: JSONObject, path: str, *, has_status: bool, metadata_rules: MetadataRules) -> list[FieldError]:
    """Return every fault of the ``openAPIV3Schema`` at ``path`` (``spec.versions[0].schema.openAPIV3Schema``).

    Args:
        schema: The schema as JSON.
        path: Its path, for errors.
        has_status: Whether the version has a status subresource.
        metadata_rules: Validates the metadata of resources in defaults.
    """
    faults: list[FieldError] = []
    if has_status:
        faults.extend(_root_with_status(schema, path))
    if schema.get("nullable"):
        faults.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    structural = check_structural(schema, path)
    faults.extend(structural)
    if not structural and not any(name in schema for name in _UNSUPPORTED):
        faults.extend(_Defaults(path, metadata_rules).check(schema))
    faults.extend(_nodes(schema, path, _Context(), is_root=True))
    return faults


def unrecognised_formats(schema: Any) -> Iterator[str]:
    """Yield the unknown formats in a schema. A server ignores an unknown format, and warns about it when the CRD is written."""
    if not isinstance(schema, dict):
        return
    name = schema.get("format")
    if name and not formats.is_recognised(schema.get("type") or "", name):
        yield name
    yield from unrecognised_formats(schema.get("items"))
    for junctor in ("allOf", "anyOf", "oneOf"):
        for one in schema.get(junctor) or []:
            yield from unrecognised_formats(one)
    yield from unrecognised_formats(schema.get("not"))
    for below in (schema.get("properties") or {}).values():
        yield from unrecognised_formats(below)
    yield from unrecognised_formats(schema.get("additionalProperties"))


def _root_with_status(schema: JSONObject, path: str) -> Iterator[FieldError]:
    for name, value in schema.items():
        if value in (None, False, ""):
            continue
        if name == "type":
            if value != "object":
                detail = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
                yield invalid(f"{path}.type", value, detail)
                return
            continue
        if go_field(name) not in _ROOT_WITH_STATUS:
            allowed = " ".join(_ROOT_WITH_STATUS)
            detail = f"only [{allowed}] fields are allowed at the root of the schema if the status subresource is enabled"
            yield invalid(path, internal_form(schema), detail)
            return


@dataclass(frozen=True, slots=True)
class _Context:
    """Restrictions on a node because of its ancestors.

    ``no_defaults``: the reason why defaults are forbidden, with a leading space; None if they are allowed.
    ``in_metadata``: whether the node is within the metadata of an object.
    """

    no_defaults: str | None = None
    in_metadata: bool = False


def _nodes(schema: Any, path: str, context: _Context, is_root: bool = False) -> Iterator[FieldError]:
    if not isinstance(schema, dict):
        return
    yield from _plain(schema, path, context)
    if schema.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", detail)
    values = schema.get("additionalProperties")
    if values is not None:
        if schema.get("properties") and values is not True:
            yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
        below = context
        if context.in_metadata:
            below = replace(context, no_defaults=" inside additionalProperties applying to object metadata")
        yield from _nodes(values, f"{path}.additionalProperties", below)
    for name, child in sorted((schema.get("properties") or {}).items()):
        below = context
        if (is_root or schema.get("x-kubernetes-embedded-resource")) and name in _META:
            below = _Context(f" in top-level {name}" if is_root else context.no_defaults, True)
        yield from _nodes(child, f"{path}.properties[{name}]", below)
    yield from _nodes(schema.get("not"), f"{path}.not", context)
    for junctor in ("allOf", "oneOf", "anyOf"):
        for index, one in enumerate(schema.get(junctor) or []):
            yield from _nodes(one, f"{path}.{junctor}[{index}]", context)
    yield from _nodes(schema.get("items"), f"{path}.items", context)
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        yield invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")
    yield from _map_type(schema, path)
    yield from _list_type(schema, path)
    yield from _set_and_map_items(schema, path)
    yield from _rules(schema, path)


def _supported(path: str, value: Any, supported: tuple[str, ...]) -> FieldError:
    shown = ", ".join(f'"{one}"' for one in supported)
    return FieldError(FieldErrorType.NOT_SUPPORTED, path, value, f"supported values: {shown}")


def _plain(schema: JSONObject, path: str, context: _Context) -> Iterator[FieldError]:
    type_ = schema.get("type") or ""
    if type_ and type_ not in _TYPES:
        yield _supported(f"{path}.type", type_, _TYPES)
    if schema.get("default") is not None and context.no_defaults is not None:
        yield forbidden(f"{path}.default", f"must not be set{context.no_defaults}")
    for name in _UNSUPPORTED:
        if schema.get(name) not in (None, "") and (name not in ("patternProperties", "definitions") or schema[name]):
            yield forbidden(f"{path}.{name}", f"{name} is not supported")
    if type_ == "null":
        yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(schema.get("items"), list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    if context.in_metadata and schema.get("x-kubernetes-embedded-resource"):
        yield forbidden(f"{path}.x-kubernetes-embedded-resource", "must not be used inside of resource meta")


def _must_be(type_: str, expected: str, extension: str, path: str) -> Iterator[FieldError]:
    detail = f"must be {expected} if {extension} is specified"
    if not type_:
        yield required(f"{path}.type", detail)
    elif type_ != expected:
        yield invalid(f"{path}.type", type_, detail)


def _map_type(schema: JSONObject, path: str) -> Iterator[FieldError]:
    kind = schema.get("x-kubernetes-map-type")
    if kind is None:
        return
    yield from _must_be(schema.get("type") or "", "object", "x-kubernetes-map-type", path)
    if kind not in ("atomic", "granular"):
        yield _supported(f"{path}.x-kubernetes-map-type", kind, ("atomic", "granular"))


def _list_type(schema: JSONObject, path: str) -> Iterator[FieldError]:
    kind = schema.get("x-kubernetes-list-type")
    items = schema.get("items")
    if kind is not None:
        if schema.get("type") != "array":
            yield from _must_be(schema.get("type") or "", "array", "x-kubernetes-list-type", path)
        elif kind == "set" and isinstance(items, dict):
            yield from _set_items(items, path)
        if kind not in ("atomic", "set", "map"):
            yield _supported(f"{path}.x-kubernetes-list-type", kind, ("atomic", "set", "map"))
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if keys and kind != "map":
        detail = "must be map if x-kubernetes-list-map-keys is non-empty"
        at = f"{path}.x-kubernetes-list-type"
        yield required(at, detail) if kind is None else invalid(at, kind, detail)
    if kind != "map":
        return
    if not keys:
        yield required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
    if items is None:
        yield required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
    elif isinstance(items, dict) and items.get("type") != "object":
        yield invalid(f"{path}.items.type", items.get("type") or "", "must be object if parent array's x-kubernetes-list-type is map")
    elif isinstance(items, dict):
        yield from _map_keys(items, keys, path)


def _set_items(items: JSONObject, path: str) -> Iterator[FieldError]:
    detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
    inner = items.get("x-kubernetes-list-type")
    if items.get("type") == "array" and inner not in (None, "atomic"):
        yield invalid(f"{path}.items.x-kubernetes-list-type", inner, detail)
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        # Upstream shows the list type here, null on an object.
        yield invalid(f"{path}.items.x-kubernetes-map-type", inner, detail)


def _map_keys(items: JSONObject, keys: list[str], path: str) -> Iterator[FieldError]:
    properties = items.get("properties") or {}
    seen: set[str] = set()
    for key in keys:
        if key not in properties:
            yield invalid(f"{path}.x-kubernetes-list-map-keys", keys, "entries must all be names of item properties")
        elif properties[key].get("type") in ("array", "object"):
            detail = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid(f"{path}.items.properties[{key}].type", items.get("type"), detail)
        if key in seen:
            yield invalid(f"{path}.x-kubernetes-list-map-keys", keys, "must not contain duplicate entries")
        seen.add(key)


def _set_and_map_items(schema: JSONObject, path: str) -> Iterator[FieldError]:
    kind, items = schema.get("x-kubernetes-list-type"), schema.get("items")
    if kind not in ("set", "map") or not isinstance(items, dict):
        return
    if items.get("nullable"):
        yield forbidden(f"{path}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {kind}")
    if kind != "map":
        return
    for key in schema.get("x-kubernetes-list-map-keys") or []:
        found = (items.get("properties") or {}).get(key)
        if found is None:
            continue
        at = f"{path}.items.properties[{key}]"
        if key not in (items.get("required") or []) and found.get("default") is None:
            detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            yield required(f"{at}.default", detail)
        if found.get("nullable"):
            yield forbidden(f"{at}.nullable", "this property is in x-kubernetes-list-map-keys, so it cannot be nullable")


def _rules(schema: JSONObject, path: str) -> Iterator[FieldError]:
    """Check the form of CEL rules; the server checks their expressions and costs."""
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or []):
        at = f"{path}.x-kubernetes-validations[{index}]"
        text, message = (rule.get("rule") or "").strip(), rule.get("message") or ""
        if not text:
            yield required(f"{at}.rule", "rule is not specified")
        elif message and not message.strip():
            yield invalid(f"{at}.message", message, "must be non-empty if specified")
        elif re.search(r"[\n\r]", message.strip()):
            yield invalid(f"{at}.message", message, "must not contain line breaks")
        elif re.search(r"[\n\r]", text) and not message.strip():
            yield required(f"{at}.message", "message must be specified if rule contains line breaks")
        expression = rule.get("messageExpression") or ""
        if expression and not expression.strip():
            yield required(f"{at}.messageExpression", "messageExpression must be non-empty if specified")
        reason = rule.get("reason")
        if reason is not None and reason not in _REASONS:
            yield _supported(f"{at}.reason", reason, _REASONS)
        field_path = rule.get("fieldPath") or ""
        if field_path and not field_path.strip():
            yield invalid(f"{at}.fieldPath", field_path, "must be non-empty if specified")
        if re.search(r"[\n\r]", field_path):
            yield invalid(f"{at}.fieldPath", field_path, "must not contain line breaks")
        if field_path and not _leads_somewhere(schema, field_path):
            yield invalid(f"{at}.fieldPath", field_path, "must be a valid path")


def _leads_somewhere(schema: JSONObject, field_path: str) -> bool:
    try:
        normalise(field_path, parse(schema))
    except FieldPathError:
        return False
    return True


class _Defaults:
    """Checks that defaults are valid at their position, and contain no field that would be pruned."""

    def __init__(self, path: str, metadata_rules: MetadataRules) -> None:
        self.path = path
        self.metadata_rules = metadata_rules

    def check(self, schema: JSONObject) -> Iterator[FieldError]:
        yield from self._node(schema, self.path, in_metadata=False, is_root=True)

    def _node(self, schema: JSONObject, path: str, *, in_metadata: bool, is_root: bool = False) -> Iterator[FieldError]:
        embedded = is_root or bool(schema.get("x-kubernetes-embedded-resource"))
        if embedded:
            in_metadata = False
        default = schema.get("default")
        if default is not None and not in_metadata:
            yield from self._value(schema, default, f"{path}.default")
        items = schema.get("items")
        if isinstance(items, dict):
            yield from self._node(items, f"{path}.items", in_metadata=in_metadata)
        for name, below in sorted((schema.get("properties") or {}).items()):
            meta = in_metadata or (embedded and name in _META)
            yield from self._node(below, f"{path}.properties[{name}]", in_metadata=meta)

    def _value(self, schema: JSONObject, default: Any, path: str) -> Iterator[FieldError]:
        node = parse(schema)
        pruned = copy.deepcopy(default)
        prune_value(pruned, as_resource(node) if node.embedded_resource else node)
        if not same(pruned, default):
            yield invalid(path, default, "must not have unknown fields")
        yield from check_metadata(default, node, self.metadata_rules, path) or validate(default, node, at=path)
