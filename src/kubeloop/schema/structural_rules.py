"""The rules of a structural ``openAPIV3Schema``, with the messages of the Kubernetes API server.

Works on the schema as JSON, because a faulty one cannot be parsed. Source: Kubernetes documentation "Specifying a structural schema",
apiextensions-apiserver schema/validation.go and schema/complete.go.
"""

from __future__ import annotations

from typing import Final

from kubeloop.meta.field_error import FieldError, forbidden, invalid, required
from kubeloop.schema.go_regex import PatternError
from kubeloop.schema.patterns import go_pattern
from kubeloop.types import JSONObject

_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
_EMPTY_TYPE: Final = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
#: Keys that are forbidden inside anyOf, oneOf, allOf and not: the wire name, and its wording in the message.
_NOT_NESTED: Final = (
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
)
_JUNCTORS: Final = ("anyOf", "allOf", "oneOf")


def check_structural(schema: JSONObject, path: str) -> list[FieldError]:
    """Return every violation of the structural rules, sorted by text as upstream sorts them."""
    errors: list[FieldError] = []
    _node(schema, "root", path, errors)
    _complete(schema, schema, path, path, errors)
    return sorted(errors, key=str)


def _node(schema: JSONObject, level: str, path: str, errors: list[FieldError]) -> None:
    type_ = schema.get("type") or ""
    items = schema.get("items")
    if type_ == "array" and items is None:
        errors.append(required(f"{path}.items", "must be specified"))
    if isinstance(items, dict):
        _node(items, "item", f"{path}.items", errors)
    for name, below in (schema.get("properties") or {}).items():
        _node(below, "field", f"{path}.properties[{name}]", errors)
    values = schema.get("additionalProperties")
    if values is not None:
        if level == "root":
            errors.append(forbidden(f"{path}.additionalProperties", "must not be used at the root"))
        if isinstance(values, dict):
            _node(values, "field", f"{path}.additionalProperties", errors)
    _extensions(schema, path, errors)
    any_of, all_of = schema.get("anyOf"), schema.get("allOf") or []
    skip_any = any_of == _INT_OR_STRING
    skip_first = bool(all_of) and all_of[0].get("anyOf") == _INT_OR_STRING
    _value_validation(schema, skip_any, skip_first, path, errors)
    _type(schema, type_, level, path, errors)
    _metadata(schema, level, path, errors)


def _extensions(schema: JSONObject, path: str, errors: list[FieldError]) -> None:
    if not schema.get("x-kubernetes-int-or-string"):
        return
    detail = "must be false if x-kubernetes-int-or-string is true"
    names = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource")
    errors.extend(invalid(f"{path}.{name}", True, detail) for name in names if schema.get(name))


def _type(schema: JSONObject, type_: str, level: str, path: str, errors: list[FieldError]) -> None:
    embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    preserve = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    if embedded and type_ != "object":
        detail = "must be object if x-kubernetes-embedded-resource is true"
        errors.append(invalid(f"{path}.type", type_, detail) if type_ else required(f"{path}.type", detail))
    elif not type_ and not schema.get("x-kubernetes-int-or-string") and not preserve:
        errors.append(required(f"{path}.type", _EMPTY_TYPE[level]))
    if embedded and schema.get("additionalProperties") is not None:
        errors.append(forbidden(f"{path}.additionalProperties", "must not be used if x-kubernetes-embedded-resource is set"))
    if level == "root" and type_ and type_ != "object":
        errors.append(invalid(f"{path}.type", type_, "must be object at the root"))
    if embedded and not preserve and not schema.get("properties"):
        detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        errors.append(required(f"{path}.properties", detail))


def _metadata(schema: JSONObject, level: str, path: str, errors: list[FieldError]) -> None:
    properties = schema.get("properties") or {}
    checked = level == "root" or bool(schema.get("x-kubernetes-embedded-resource"))
    for name in ("kind", "apiVersion"):
        found = properties.get(name)
        if checked and found is not None and found.get("type") != "string":
            errors.append(invalid(f"{path}.properties[{name}].type", found.get("type") or "", "must be string"))
    metadata = properties.get("metadata")
    if metadata is None:
        return
    below = f"{path}.properties[metadata]"
    if checked and metadata.get("type") != "object":
        errors.append(invalid(f"{below}.type", metadata.get("type") or "", "must be object"))
    if level == "root":
        named = metadata.get("properties") or {}
        extra = {name for name, value in metadata.items() if name not in ("type", "default", "properties") and value}
        if extra or not set(named) <= {"name", "generateName"}:
            detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            errors.append(forbidden(below, detail))


def _value_validation(schema: JSONObject, skip_any: bool, skip_first: bool, path: str, errors: list[FieldError]) -> None:
    for junctor in _JUNCTORS:
        if junctor == "anyOf" and skip_any:
            continue
        for index, one in enumerate(schema.get(junctor) or []):
            _nested(one, junctor == "allOf" and skip_first and index == 0, f"{path}.{junctor}[{index}]", errors)
    if schema.get("not") is not None:
        _nested(schema["not"], False, f"{path}.not", errors)
    pattern = schema.get("pattern")
    if pattern:
        try:
            go_pattern(pattern)
        except PatternError as exc:
            errors.append(invalid(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {exc}"))


def _nested(schema: JSONObject, skip_any: bool, path: str, errors: list[FieldError]) -> None:
    _value_validation(schema, skip_any, False, path, errors)
    if isinstance(schema.get("items"), dict):
        _nested(schema["items"], False, f"{path}.items", errors)
    properties = schema.get("properties") or {}
    for name, below in properties.items():
        _nested(below, False, f"{path}.properties[{name}]", errors)
    errors.extend(forbidden(f"{path}.{name}", detail) for name, detail in _NOT_NESTED if schema.get(name) not in (None, False, "", []))
    if "metadata" in properties:
        errors.append(forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context"))


def _complete(validation: JSONObject, schema: JSONObject | None, path: str, at: str, errors: list[FieldError]) -> None:
    """Check that every part restricted inside a junctor (at ``at``) is also specified outside (at ``path``)."""
    if schema is None:
        errors.append(required(path, f"because it is defined in {at}"))
        return
    if validation.get("not") is not None:
        _complete_nested(validation["not"], schema, path, f"{at}.not", errors)
    for junctor in ("allOf", "anyOf", "oneOf"):
        for index, one in enumerate(validation.get(junctor) or []):
            _complete_nested(one, schema, path, f"{at}.{junctor}[{index}]", errors)


def _complete_nested(nested: JSONObject, schema: JSONObject | None, path: str, at: str, errors: list[FieldError]) -> None:
    if schema is None:
        errors.append(required(path, f"because it is defined in {at}"))
        return
    _complete(nested, schema, path, at, errors)
    if isinstance(nested.get("items"), dict):
        _complete_nested(nested["items"], schema.get("items"), f"{path}.items", f"{at}.items", errors)
    properties = schema.get("properties") or {}
    for name, below in (nested.get("properties") or {}).items():
        _complete_nested(below, properties.get(name), f"{path}.properties[{name}]", f"{at}.properties[{name}]", errors)
