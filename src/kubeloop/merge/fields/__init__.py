"""Field ownership: field sets, comparison of two states, and the merge of an applied configuration (server-side apply).

Pure functions over JSON trees and ``MergeType``; for clients and servers. Source: KEP-555, structured-merge-diff v6.
"""

from kubeloop.merge.fields.checks import check
from kubeloop.merge.fields.comparison import StateComparison, compare, field_set
from kubeloop.merge.fields.elements import ElementError, Path, path_text
from kubeloop.merge.fields.errors import ApplyConflict, FieldConflict, MissingVersion, TypeMismatch
from kubeloop.merge.fields.field_set import FieldSet, Filter, excluding, including
from kubeloop.merge.fields.field_types import DEDUCED, MergeType
from kubeloop.merge.fields.from_schema import builtin_types, custom_type
from kubeloop.merge.fields.managers import VersionedSet, Versions, apply, update
from kubeloop.merge.fields.typed_values import extract, merge, remove

__all__ = [
    "DEDUCED",
    "ApplyConflict",
    "ElementError",
    "FieldConflict",
    "FieldSet",
    "Filter",
    "MergeType",
    "MissingVersion",
    "Path",
    "StateComparison",
    "TypeMismatch",
    "VersionedSet",
    "Versions",
    "apply",
    "builtin_types",
    "check",
    "compare",
    "custom_type",
    "excluding",
    "extract",
    "field_set",
    "including",
    "merge",
    "path_text",
    "remove",
    "update",
]
