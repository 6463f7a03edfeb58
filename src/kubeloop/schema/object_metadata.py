"""``metadata`` of objects without a Go type: of custom objects, and of resources embedded in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kubeloop.meta.errors import DecodeError
from kubeloop.meta.field_error import FieldError, invalid, required
from kubeloop.meta.kinds import GroupVersion, GroupVersionKind
from kubeloop.meta.names import dns1035_label
from kubeloop.meta.strconv import go_unquoted
from kubeloop.schema import strict
from kubeloop.schema.node import TypeSchema

#: A kind whose ``metadata`` is an ObjectMeta, as every kind's is.
_ANY_KIND: Final = GroupVersionKind("", "v1", "ConfigMap")
_WHOLE: Final = "Go struct field ConfigMap.metadata of type"
_BELOW: Final = re.compile(r"(Go struct field \w+)\.metadata\.")
_UNKNOWN: Final = "unknown field "


@dataclass(frozen=True, slots=True)
class ConformedMetadata:
    """Metadata in the form of Go's type. ``unknown`` are the sorted paths of removed fields, relative to the object (``metadata.x``)."""

    metadata: dict[str, Any]
    unknown: list[str]


def conform_metadata(metadata: Any, *, drop_malformed: bool = False) -> ConformedMetadata:
    """Return metadata as a new tree in the form of Go's type. Null and missing metadata give an empty tree.

    ``drop_malformed`` leaves out fields of the wrong type, as for stored objects.

    Raises:
        DecodeError: A field has the wrong type. The message is that of Go, with names that begin at ObjectMeta. A value that is not a
            map is an error even with ``drop_malformed``.
    """
    try:
        return _conform(metadata)
    except DecodeError:
        if not drop_malformed or not isinstance(metadata, dict):
            raise
    return _conform({name: value for name, value in metadata.items() if _is_readable({name: value})})


def _is_readable(metadata: dict[str, Any]) -> bool:
    try:
        _conform(metadata)
    except DecodeError:
        return False
    return True


def _conform(metadata: Any) -> ConformedMetadata:
    try:
        conformed = strict.conform({"metadata": by_name(metadata)}, _ANY_KIND)
    except DecodeError as exc:
        why = str(exc).replace(_WHOLE, "Go value of type")
        raise DecodeError(_BELOW.sub(r"\1.", why)) from None
    unknown = [go_unquoted(problem.removeprefix(_UNKNOWN)) for problem in conformed.problems if problem.startswith(_UNKNOWN)]
    return ConformedMetadata(conformed.obj["metadata"], unknown)


def by_name(value: Any) -> Any:
    """Return a copy of a JSON value with the keys of each map sorted, as Go writes maps."""
    if isinstance(value, dict):
        return {name: by_name(one) for name, one in sorted(value.items())}
    return [by_name(one) for one in value] if isinstance(value, list) else value


# Metadata of resources that are embedded in custom objects (``x-kubernetes-embedded-resource``).
#
# Source: apiextensions-apiserver schema/objectmeta.


#: The type of a function that validates an ObjectMeta at a path and returns its faults.
MetadataRules: TypeAlias = Callable[[dict[str, Any], str], Iterable[FieldError]]


def coerce_metadata(value: Any, schema: TypeSchema, path: str = "", *, drop_malformed: bool = False) -> list[str]:
    """Convert ``metadata`` of embedded resources to its Go type, in place; return the paths of unknown fields, which are removed.

    Args:
        value: The object, or a part of it.
        schema: Its schema.
        path: Its path, for the result.
        drop_malformed: Remove malformed fields, too, instead of raising an error.

    Raises:
        DecodeError: apiVersion or kind is not a string, or a field of metadata has another type.
    """
    unknown: list[str] = []
    _coerce(value, schema, path, unknown, drop_malformed)
    return unknown


def _coerce(value: Any, schema: TypeSchema, path: str, unknown: list[str], drop: bool) -> None:
    dot = f"{path}." if path else ""
    if isinstance(value, dict):
        if schema.embedded_resource:
            _coerce_resource(value, dot, unknown, drop)
        for name in sorted(value):
            known = schema.properties.get(name)
            if known is not None:
                _coerce(value[name], known, f"{dot}{name}", unknown, drop)
            elif schema.values is not None:
                _coerce(value[name], schema.values, f"{path}[{name}]", unknown, drop)
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            _coerce(item, schema.items, f"{path}[{index}]", unknown, drop)


def _coerce_resource(value: dict[str, Any], dot: str, unknown: list[str], drop: bool) -> None:
    for name in ("apiVersion", "kind"):
        if name in value and not isinstance(value[name], str):
            if not drop:
                raise DecodeError(str(invalid(f"{dot}{name}", value[name], "must be a string")))
            del value[name]
    if "metadata" not in value:
        return
    try:
        conformed = conform_metadata(value["metadata"], drop_malformed=drop)
    except DecodeError as exc:
        if drop:
            return
        raise DecodeError(str(invalid(f"{dot}metadata", by_name(value["metadata"]), str(exc)))) from None
    value["metadata"] = conformed.metadata
    unknown.extend(dot + path for path in conformed.unknown)


def check_metadata(value: Any, schema: TypeSchema, rules: MetadataRules, path: str = "") -> list[FieldError]:
    """Return the faults of apiVersion, kind and metadata of every embedded resource below ``value``.

    Args:
        value: The object, or a part of it. It is checked itself only if the schema says that it is an embedded resource.
        schema: Its schema.
        rules: Validates the metadata.
        path: Its path, for errors.
    """
    return list(_value(value, schema, rules, path))


def _value(value: Any, schema: TypeSchema, rules: MetadataRules, path: str) -> Iterator[FieldError]:
    if isinstance(value, dict):
        if schema.embedded_resource:
            yield from _resource(value, rules, path)
        for name in sorted(value):
            known = schema.properties.get(name)
            if known is not None:
                yield from _value(value[name], known, rules, f"{path}.{name}" if path else name)
            elif schema.values is not None:
                yield from _value(value[name], schema.values, rules, f"{path}[{name}]")
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            yield from _value(item, schema.items, rules, f"{path}[{index}]")


def _resource(value: dict[str, Any], rules: MetadataRules, path: str) -> Iterator[FieldError]:
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
    if "metadata" in value:
        yield from _metadata(value["metadata"], rules, f"{dot}metadata")


def _metadata(value: Any, rules: MetadataRules, path: str) -> Iterator[FieldError]:
    try:
        metadata = conform_metadata(value).metadata
    except DecodeError as exc:
        yield invalid(path, by_name(value), str(exc))
        return
    # A template's object has no name yet, and without a namespace it is in none.
    yield from rules(metadata if metadata.get("name") else {**metadata, "name": "fakename"}, path)
