"""Whether a child is already as it is wanted, and what it would be: over JSON trees, by the schema of its kind.

Lists of built-in kinds that have keys are compared item by item, so that what others added to them does not count. Lists of custom kinds,
whose schema is not known here, count as a whole.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kubeloop.merge.fields import DEDUCED, ElementError, FieldSet, MergeType, TypeMismatch, builtin_types, extract, field_set, merge, remove
from kubeloop.merge.go_text import same
from kubeloop.meta import GroupVersionKind, Resource, kind_info

Tree = dict[str, Any]


def type_of(kind: type[Resource]) -> MergeType:
    return _type_of(kind_info(kind).gvk)


@cache
def _type_of(gvk: GroupVersionKind) -> MergeType:
    return builtin_types().of_kind(gvk) or DEDUCED


def covers(live: Tree, wanted: Tree, type_: MergeType) -> bool:
    """Whether ``live`` has every value that ``wanted`` gives."""
    try:
        return same(merge(live, wanted, type_), live)
    except (TypeMismatch, ElementError):
        return False


def as_stored(answer: Tree, wanted: Tree, type_: MergeType) -> Tree | None:
    """What the server made of ``wanted`` (1000m is stored as 1): the same fields, of its answer; None if that cannot be said."""
    try:
        return extract(answer, field_set(wanted, type_), type_)
    except (TypeMismatch, ElementError):
        return None


def target(live: Tree, wanted: Tree, before: Tree, type_: MergeType) -> Tree:
    """``live`` with what ``wanted`` gives, and without the fields that were set ``before`` (as a fieldsV1) and are no longer.

    Raises:
        TypeMismatch, ElementError: ``wanted`` does not fit the type.
    """
    gone = FieldSet.from_json(before) - field_set(wanted, type_)
    return merge(remove(live, gone.leaves(), type_), wanted, type_)


def fields_set(wanted: Tree, type_: MergeType) -> Tree:
    """The fields that ``wanted`` sets, as a fieldsV1."""
    return field_set(wanted, type_).to_json()
