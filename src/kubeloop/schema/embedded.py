"""Metadata of resources that are embedded in custom objects (``x-kubernetes-embedded-resource``).

Source: apiextensions-apiserver schema/objectmeta.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from kubeloop.meta.errors import DecodeError
from kubeloop.meta.field_error import FieldError, invalid, required
from kubeloop.meta.kinds import GroupVersion, GroupVersionKind
from kubeloop.meta.names import dns1035_label
from kubeloop.schema import strict
from kubeloop.schema.node import TypeSchema

_STRINGS: Final = ("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")


#: A kind whose ``metadata`` is an ObjectMeta, as every kind's is.
_ANY_KIND: Final = GroupVersionKind("", "v1", "ConfigMap")


def coerce_metadata(value: Any, schema: TypeSchema, path: str = "") -> list[str]:
    """Bring ``metadata`` of embedded resources into the form of its Go type, in place; returns the paths of unknown fields, which go.

    Raises:
        DecodeError: apiVersion or kind is no string, or a field of metadata has another type.
    """
    unknown: list[str] = []
    _coerce(value, schema, path, unknown)
    return unknown


def _coerce(value: Any, schema: TypeSchema, path: str, unknown: list[str]) -> None:
    dot = f"{path}." if path else ""
    if isinstance(value, dict):
        if schema.embedded_resource:
            _coerce_resource(value, dot, unknown)
        for name in sorted(value):
            known = schema.properties.get(name)
            if known is not None:
                _coerce(value[name], known, f"{dot}{name}", unknown)
            elif schema.values is not None:
                _coerce(value[name], schema.values, f"{path}[{name}]", unknown)
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            _coerce(item, schema.items, f"{path}[{index}]", unknown)


def _coerce_resource(value: dict[str, Any], dot: str, unknown: list[str]) -> None:
    for name in ("apiVersion", "kind"):
        if name in value and not isinstance(value[name], str):
            raise DecodeError(str(invalid(f"{dot}{name}", value[name], "must be string")))
    if "metadata" not in value:
        return
    try:
        conformed = strict.conform({"metadata": value["metadata"]}, _ANY_KIND)
    except DecodeError as exc:
        why = str(exc).replace("ObjectMeta.metadata.", "ObjectMeta.")
        raise DecodeError(str(invalid(f"{dot}metadata", value["metadata"], why))) from None
    value["metadata"] = conformed.obj["metadata"]
    unknown.extend(dot + json.loads(problem.removeprefix(_UNKNOWN)) for problem in conformed.problems if problem.startswith(_UNKNOWN))


_UNKNOWN: Final = "unknown field "


def check_metadata(value: Any, schema: TypeSchema, path: str = "") -> list[FieldError]:
    """Faults of apiVersion, kind and metadata of every embedded resource below ``value``; the root is one only if the schema says so."""
    return list(_value(value, schema, path))


def _value(value: Any, schema: TypeSchema, path: str) -> Iterator[FieldError]:
    if isinstance(value, dict):
        if schema.embedded_resource:
            yield from _resource(value, path)
        for name in sorted(value):
            known = schema.properties.get(name)
            if known is not None:
                yield from _value(value[name], known, f"{path}.{name}" if path else name)
            elif schema.values is not None:
                yield from _value(value[name], schema.values, f"{path}[{name}]")
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            yield from _value(item, schema.items, f"{path}[{index}]")


def _resource(value: dict[str, Any], path: str) -> Iterator[FieldError]:
    dot = f"{path}." if path else ""
    for name in ("apiVersion", "kind"):
        if name not in value:
            yield required(f"{dot}{name}")
        elif not isinstance(value[name], str):
            yield invalid(f"{dot}{name}", value[name], "must be a string")
        elif not value[name]:
            yield invalid(f"{dot}{name}", "", "must not be empty")
    version, kind = value.get("apiVersion"), value.get("kind")
    if isinstance(version, str) and version:
        try:
            GroupVersion.parse(version)
        except ValueError:
            yield invalid(f"{dot}apiVersion", version, f"unexpected GroupVersion string: {version}")
    if isinstance(kind, str) and kind:
        messages = dns1035_label(kind.lower(), False)
        if messages:
            yield invalid(f"{dot}kind", kind, "may have mixed case, but should otherwise match: " + ",".join(messages))
    yield from _metadata(value.get("metadata"), f"{dot}metadata")


def _metadata(metadata: Any, path: str) -> Iterator[FieldError]:
    if metadata is None:
        return
    if not isinstance(metadata, dict):
        yield invalid(path, metadata, "must be an object")
        return
    for name in _STRINGS:
        if metadata.get(name) is not None and not isinstance(metadata[name], str):
            yield invalid(f"{path}.{name}", metadata[name], "must be a string")
    for name in ("labels", "annotations"):
        found = metadata.get(name)
        if found is not None and not (isinstance(found, dict) and all(isinstance(one, str) for one in found.values())):
            yield invalid(f"{path}.{name}", found, "must be a map of strings")
    for name in ("name", "generateName"):
        text = metadata.get(name)
        if isinstance(text, str) and text:
            if name == "name" and text in (".", ".."):
                yield invalid(f"{path}.{name}", text, f"may not be '{text}'")
            for part in ("/", "%"):
                if part in text:
                    yield invalid(f"{path}.{name}", text, f"may not contain '{part}'")
