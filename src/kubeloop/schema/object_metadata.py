"""Converts ``metadata`` of objects without a Go type (custom and embedded resources) to the form of ObjectMeta.

Source: apiextensions-apiserver schema/objectmeta (GetObjectMetaWithOptions).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from kubeloop.meta.errors import DecodeError
from kubeloop.meta.go_quote import go_unquoted
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.schema import strict

#: A kind whose ``metadata`` is an ObjectMeta, as every kind's is.
_ANY_KIND: Final = GroupVersionKind("", "v1", "ConfigMap")
_WHOLE: Final = "Go struct field ConfigMap.metadata of type"
_BELOW: Final = re.compile(r"(Go struct field \w+)\.metadata\.")
_UNKNOWN: Final = "unknown field "


@dataclass(frozen=True, slots=True)
class ConformedMetadata:
    """``unknown`` are the paths of removed fields, from ``metadata`` on, sorted, as Go reads a map."""

    metadata: dict[str, Any]
    unknown: list[str]


def conform_metadata(metadata: Any, *, drop_malformed: bool = False) -> ConformedMetadata:
    """Return a new tree in the form of Go's type; null and no value give an empty one.

    ``drop_malformed`` leaves out fields of the wrong type, as for stored objects.

    Raises:
        DecodeError: a field has another type; the text is Go's, with names from ObjectMeta on. A value that is not a map is always
        malformed.
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
    """Return the same tree with the keys of each map sorted, as Go writes maps."""
    if isinstance(value, dict):
        return {name: by_name(one) for name, one in sorted(value.items())}
    return [by_name(one) for one in value] if isinstance(value, list) else value
