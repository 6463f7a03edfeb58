"""The values that an Invalid answer quotes, as upstream has them: of internal types, and with the emptiness that a body gave."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import msgspec

from kubeloop.apiserver.empty_values import part_at, with_explicit_empties
from kubeloop.meta.field_error import FieldError
from kubeloop.meta.kinds import GroupKind
from kubeloop.schema.internal_values import UnlikeType, internal_types


def as_quoted(errors: Iterable[FieldError], kind: GroupKind, sent: Any) -> list[FieldError]:
    """``sent``: the body before it was conformed. Values that are not of their field's type are left as they are."""
    found: dict[tuple[str, int], Any] = {}
    return [_quoted(error, kind, sent, found) for error in with_explicit_empties(errors, sent)]


def _quoted(error: FieldError, kind: GroupKind, sent: Any, found: dict[tuple[str, int], Any]) -> FieldError:
    value = error.value
    if not isinstance(value, dict | list):
        return error
    key = error.field, id(value)
    if key not in found:
        found[key] = value
        types = internal_types()
        index = types.at(kind, error.field)
        if index is not None:
            with contextlib.suppress(UnlikeType):
                found[key] = types.shown(index, value, part_at(sent, error.field))
    return msgspec.structs.replace(error, value=found[key])
