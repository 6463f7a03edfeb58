"""``metadata`` of objects that have no Go type of their own (custom resources, and resources embedded in them), as ObjectMeta has it.

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
    """``unknown`` are paths of fields that went, from ``metadata`` on, in the order in which Go reads a map: sorted."""

    metadata: dict[str, Any]
    unknown: list[str]


def conform_metadata(metadata: Any, *, drop_malformed: bool = False) -> ConformedMetadata:
    """A fresh tree in the form of Go's type; null and nothing give an empty one.

    ``drop_malformed`` leaves out fields of the wrong type, as is done with what is stored already.

    Raises:
        DecodeError: a field has another type; Go's text, with names from ObjectMeta on. What is no map at all is malformed in any case.
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
    """The same tree with the names of each map in order, as Go writes maps."""
    if isinstance(value, dict):
        return {name: by_name(one) for name, one in sorted(value.items())}
    return [by_name(one) for one in value] if isinstance(value, list) else value
