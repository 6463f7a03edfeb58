"""Validates CustomResourceDefinitions, with the messages, fields and order of the Kubernetes API server.

If all versions have the same schema, errors are reported at ``spec`` (``spec.validation.openAPIV3Schema``), as in upstream's internal
type. Source: apiextensions-apiserver pkg/apis/apiextensions/validation.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final

from kubeloop.apiserver.crd.conversion import check_ca_bundle, check_conversion
from kubeloop.apiserver.crd.definition import (
    APPROVAL_ANNOTATION,
    accepted_names,
    group_of,
    has_status_subresource,
    is_true,
    names_of,
    schema_of,
    shared,
    versions_of,
)
from kubeloop.apiserver.crd.naming import approval, is_protected
from kubeloop.apiserver.validation.metadata import validate_embedded_meta
from kubeloop.meta.field_error import FieldError, FieldErrorType, duplicate, invalid, required
from kubeloop.meta.names import dns1035_label, dns1123_subdomain
from kubeloop.schema.crd_rules import check_schema
from kubeloop.schema.internal_form import internal_form
from kubeloop.types import JSONObject

_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MOST_SELECTABLE: Final = 8


def check_create(crd: JSONObject) -> list[FieldError]:
    """Validate a new definition, except its metadata."""
    return list(_definition(crd, None))


def with_name_error(crd: JSONObject, field_value: list[FieldError]) -> list[FieldError]:
    """Return the errors of the metadata (``field_value``) with an error for a name or generateName that is not ``PLURAL.GROUP``."""
    requested, metadata = f"{names_of(crd).get('plural') or ''}.{group_of(crd)}", crd.get("metadata") or {}
    position = 0
    for name in ("generateName", "name"):
        field, value = f"metadata.{name}", metadata.get(name) or ""
        position = max([position, *(index + 1 for index, error in enumerate(field_value) if error.field == field)])
        if value and value != requested:
            field_value = [
                *field_value[:position],
                invalid(field, value, 'must be spec.names.plural+"."+spec.group'),
                *field_value[position:],
            ]
            position += 1
    return field_value


def check_update(crd: JSONObject, old: JSONObject) -> list[FieldError]:
    """Validate an update: group and plural are immutable, scope and kind once the definition is established."""
    errors = [*_spec(crd), *check_ca_bundle(crd, old)]
    names, before = names_of(crd), names_of(old)
    if is_true(old, "Established"):
        errors.extend(_immutable(crd["spec"].get("scope"), old["spec"].get("scope"), "spec.scope"))
        errors.extend(_immutable(names.get("kind"), before.get("kind"), "spec.names.kind"))
    errors.extend(_immutable(group_of(crd), group_of(old), "spec.group"))
    errors.extend(_immutable(names.get("plural"), before.get("plural"), "spec.names.plural"))
    return [*errors, *_after_spec(crd, old)]


def check_status_update(crd: JSONObject) -> list[FieldError]:
    """Validate the accepted names in an update of the status."""
    return list(_names(accepted_names(crd), "status.acceptedNames"))


def _immutable(value: Any, before: Any, path: str) -> Iterator[FieldError]:
    if value != before:
        yield invalid(path, value, "field is immutable")


def _definition(crd: JSONObject, old: JSONObject | None) -> Iterator[FieldError]:
    yield from _spec(crd)
    yield from _after_spec(crd, old)


def _after_spec(crd: JSONObject, old: JSONObject | None) -> Iterator[FieldError]:
    yield from _names(accepted_names(crd), "status.acceptedNames")
    yield from _stored_versions(crd)
    yield from _approval(crd, old)
    if crd["spec"].get("preserveUnknownFields") and not (old and old["spec"].get("preserveUnknownFields")):
        detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        yield invalid("spec.preserveUnknownFields", True, detail)


def _spec(crd: JSONObject) -> Iterator[FieldError]:
    spec = crd["spec"]
    yield from _group(group_of(crd))
    scope = spec.get("scope") or ""
    if not scope:
        yield required("spec.scope")
    elif scope not in ("Cluster", "Namespaced"):
        yield FieldError(FieldErrorType.NOT_SUPPORTED, "spec.scope", scope, 'supported values: "Cluster", "Namespaced"')
    versions = versions_of(crd)
    for index, version in enumerate(versions):
        if schema_of(version) is None:
            yield required(f"spec.versions[{index}].schema.openAPIV3Schema")
    for index, version in enumerate(versions):
        yield from _version(crd, version, f"spec.versions[{index}]")
    named = [version.get("name") for version in versions]
    if len(set(named)) != len(named):
        yield invalid("spec.versions", _shown(crd), "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid("spec.versions", _shown(crd), "must have exactly one version marked as storage version")
    if versions and named[0] and (messages := dns1035_label(named[0], False)):
        yield invalid("spec.version", named[0], ",".join(messages))
    names = names_of(crd)
    for name in ("plural", "singular", "kind", "listKind"):
        if not names.get(name):
            yield required(f"spec.names.{name}")
    yield from _names(names, "spec.names")
    if versions:
        yield from _shared_parts(crd, versions[0])
    yield from check_conversion(spec)


def _group(group: str) -> Iterator[FieldError]:
    if not group:
        yield required("spec.group")
    elif messages := dns1123_subdomain(group, False):
        yield invalid("spec.group", group, ",".join(messages))
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")


def _columns_of(version: JSONObject) -> list[JSONObject]:
    return version.get("additionalPrinterColumns") or []


def _selectable_of(version: JSONObject) -> list[JSONObject]:
    return version.get("selectableFields") or []


def _version(crd: JSONObject, version: JSONObject, path: str) -> Iterator[FieldError]:
    """Validate one version. Parts that all versions share are validated once, at ``spec``."""
    name = version.get("name") or ""
    if messages := dns1035_label(name, False):
        yield invalid(f"{path}.name", name, ",".join(messages))
    for message in _deprecation(version):
        yield invalid(f"{path}.deprecationWarning", version.get("deprecationWarning"), message)
    schema = schema_of(version)
    if not shared(crd, schema_of) and schema is not None:
        yield from _schema(schema, f"{path}.schema.openAPIV3Schema", has_status=has_status_subresource(version))
    if not shared(crd, _subresources_of):
        yield from _subresources(version, f"{path}.subresources")
    if not shared(crd, _columns_of):
        for index, column in enumerate(_columns_of(version)):
            yield from _column(column, f"{path}.additionalPrinterColumns[{index}]")
    if shared(crd, _selectable_of):
        return
    if _selectable_of(version) and shared(crd, schema_of):
        # Upstream's internal type has moved the schema to spec, where upstream does not find it for the fields of one version.
        yield invalid(f"{path}.selectableFields", "", "may only be set when `version.schema.openAPIV3Schema` is not included")
    else:
        yield from _selectable(version, f"{path}.selectableFields")


def _schema(schema: JSONObject, path: str, *, has_status: bool) -> Iterator[FieldError]:
    errors = check_schema(schema, path, has_status=has_status, metadata_rules=validate_embedded_meta)
    yield from errors
    if _mentions_rules(schema):
        # Imported late: CEL takes time to load, and most definitions have no rules.
        from kubeloop.apiserver.crd.rule_checks import check_rules

        yield from check_rules(schema, path, errors)


def _mentions_rules(schema: Any) -> bool:
    if isinstance(schema, dict):
        return bool(schema.get("x-kubernetes-validations")) or any(map(_mentions_rules, schema.values()))
    return isinstance(schema, list) and any(map(_mentions_rules, schema))


def _shared_parts(crd: JSONObject, version: JSONObject) -> Iterator[FieldError]:
    schema = schema_of(version)
    if shared(crd, schema_of) and schema is not None:
        has_status = any(map(has_status_subresource, versions_of(crd)))
        yield from _schema(schema, "spec.validation.openAPIV3Schema", has_status=has_status)
    if shared(crd, _subresources_of):
        yield from _subresources(version, "spec.subresources")
    if shared(crd, _columns_of):
        for index, column in enumerate(_columns_of(version)):
            yield from _column(column, f"spec.additionalPrinterColumns[{index}]")
    if shared(crd, _selectable_of):
        yield from _selectable(version, "spec.selectableFields")


def _subresources_of(version: JSONObject) -> JSONObject | None:
    result: JSONObject | None = version.get("subresources")
    return result


def _deprecation(version: JSONObject) -> Iterator[str]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return
    if not version.get("deprecated"):
        yield "can only be set for deprecated versions"
        return
    if len(warning.encode()) > 256:
        yield "must be <= 256 characters long"
    if not warning:
        yield "must not be an empty string"
    index = 0
    for character in warning:
        if character != " " and unicodedata.category(character)[0] in "CZ":
            yield f"must only contain printable UTF-8 characters; non-printable character found at index {index}"
            return
        index += len(character.encode())


def _names(names: JSONObject, path: str) -> Iterator[FieldError]:
    for name in ("plural", "singular"):
        if names.get(name) and (messages := dns1035_label(names[name], False)):
            yield invalid(f"{path}.{name}", names[name], ",".join(messages))
    for name in ("kind", "listKind"):
        if names.get(name) and (messages := dns1035_label(names[name].lower(), False)):
            text = "may have mixed case, but should otherwise match: " + ",".join(messages)
            yield invalid(f"{path}.{name}", names[name], text)
    yield from _labels(names.get("shortNames"), f"{path}.shortNames")
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield invalid(f"{path}.listKind", names["listKind"], "kind and listKind may not be the same")
    yield from _labels(names.get("categories"), f"{path}.categories")


def _labels(values: list[str] | None, path: str) -> Iterator[FieldError]:
    for index, value in enumerate(values or []):
        if messages := dns1035_label(value, False):
            yield invalid(f"{path}[{index}]", value, ",".join(messages))


def _column(column: JSONObject, path: str) -> Iterator[FieldError]:
    if not column.get("name"):
        yield required(f"{path}.name")
    detail = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not column.get("type"):
        yield required(f"{path}.type", detail)
    elif column["type"] not in _COLUMN_TYPES:
        yield invalid(f"{path}.type", column["type"], detail)
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        yield invalid(f"{path}.format", column["format"], f"must be one of {','.join(_COLUMN_FORMATS)}")
    yield from _simple_path(column.get("jsonPath") or "", f"{path}.JSONPath")


def _simple_path(text: str, path: str) -> Iterator[FieldError]:
    if not text:
        yield required(path)
    elif not text.startswith("."):
        yield invalid(path, text, "must be a simple json path starting with .")


def _subresources(version: JSONObject, path: str) -> Iterator[FieldError]:
    scale = (version.get("subresources") or {}).get("scale")
    if scale is None:
        return
    for name, parents, message in (
        ("specReplicasPath", (".spec.",), ".spec"),
        ("statusReplicasPath", (".status.",), ".status"),
        ("labelSelectorPath", (".spec.", ".status."), "either .spec or .status"),
    ):
        value, index = scale.get(name) or "", f"{path}.scale.{name}"
        if not value and name == "labelSelectorPath":
            continue
        errors = list(_simple_path(value, index))
        yield from errors
        if not errors and not value.startswith(parents):
            yield invalid(index, value, f"should be a json path under {message}")


def _selectable(version: JSONObject, path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, one in enumerate(_selectable_of(version)):
        text, position = one.get("jsonPath") or "", f"{path}[{index}].jsonPath"
        if not text:
            yield required(position)
            continue
        problem, schema = _find(schema_of(version) or {}, text)
        if problem:
            yield invalid(position, text, f"is an invalid path: {problem}")
            continue
        if text.startswith(".metadata"):
            yield invalid(position, text, "must not point to fields in metadata")
        if (schema or {}).get("type") not in ("string", "boolean", "integer"):
            detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."
            yield invalid(position, text, detail)
        if text in seen:
            yield duplicate(position, text)
        seen.add(text)
    if len(seen) > _MOST_SELECTABLE:
        yield FieldError(FieldErrorType.TOO_MANY, path, len(seen), f"must have at most {_MOST_SELECTABLE} items")


def _find(schema: JSONObject, text: str) -> tuple[str, JSONObject | None]:
    """Return an empty text and the schema at a path, or the error in the path and None."""
    if not text.startswith("."):
        return "expected [ or . but got: " + re.split(r"[.\[]", text)[0], None
    value: JSONObject | None = schema
    for name in text[1:].split("."):
        if "[" in name:
            return "array notation is not allowed", None
        below = ((value or {}).get("properties") or {}).get(name)
        values = (value or {}).get("additionalProperties")
        value = below if below is not None else values if isinstance(values, dict) else None
        if value is None:
            return "does not refer to a valid field", None
    return "", value


def _stored_versions(crd: JSONObject) -> Iterator[FieldError]:
    stored = (crd.get("status") or {}).get("storedVersions") or []
    path = "status.storedVersions"
    if not stored:
        yield invalid(path, None, "must have at least one stored version")
        return
    names = [version.get("name") for version in versions_of(crd)]
    left = set(stored)
    for version in versions_of(crd):
        if version.get("storage") and version.get("name") not in left:
            yield invalid(path, stored, f"must have the storage version {version.get('name')}")
        left.discard(version.get("name"))
    for index, name in enumerate(stored):
        if name not in names:
            detail = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage"
                f" migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            )
            yield invalid(f"{path}[{index}]", name, detail)


def _approval(crd: JSONObject, old: JSONObject | None) -> Iterator[FieldError]:
    if not is_protected(group_of(crd)):
        return
    value = _approval_annotation(crd)
    state, message = approval(value)
    if old is not None and approval(_approval_annotation(old))[0] == state:
        return
    path = f"metadata.annotations[{APPROVAL_ANNOTATION}]"
    if state == "missing":
        yield required(path, message)
    elif state == "invalid":
        yield invalid(path, value, message)


def _approval_annotation(crd: JSONObject) -> str:
    return str((crd["metadata"].get("annotations") or {}).get(APPROVAL_ANNOTATION) or "")


def _shown(crd: JSONObject) -> list[JSONObject] | None:
    """Return the versions as upstream's message prints its internal type, in which shared parts have moved to ``spec``."""
    if crd["spec"].get("versions") is None:
        return None
    schemas, subresources = shared(crd, schema_of), shared(crd, _subresources_of)
    columns, selectable = shared(crd, _columns_of), shared(crd, _selectable_of)
    return [
        {
            "Name": version.get("name") or "",
            "Served": bool(version.get("served")),
            "Storage": bool(version.get("storage")),
            "Deprecated": bool(version.get("deprecated")),
            "DeprecationWarning": version.get("deprecationWarning"),
            "Schema": None if schemas else {"OpenAPIV3Schema": internal_form(schema_of(version) or {})},
            "Subresources": None if subresources else version.get("subresources"),
            "AdditionalPrinterColumns": None if columns else _columns_of(version) or None,
            "SelectableFields": None if selectable else _selectable_of(version) or None,
        }
        for version in versions_of(crd)
    ]
