"""Applies one mutation of a policy to an object: merges an apply configuration, or runs the operations of a JSON patch.

Source: k8s.io/apiserver pkg/admission/plugin/policy/mutating/patch (smd.go, json_patch.go), mutating/dispatcher.go (dispatchOne).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.admission.matching import Match
from kubeloop.apiserver.policies.object_types import NotMutable, check_object_types, to_apply_configuration, to_patch_operations
from kubeloop.apiserver.registry.decoding import SCHEME, conform, kind_of
from kubeloop.cel.values import ConstructedObject, Timestamp
from kubeloop.endpoints import api_errors
from kubeloop.merge import PatchError, json_patch
from kubeloop.merge.fields import MergeType, TypeMismatch, builtin_types, check, custom_type, merge
from kubeloop.merge.fields.field_types import shape
from kubeloop.merge.go_text import copy_tree
from kubeloop.meta.errors import DecodeError
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.schema.node import TypeSchema
from kubeloop.schema.strict import is_builtin
from kubeloop.types import JSONObject

# CEL values that JSON does not have (null in a typed field, bytes, timestamps), as error messages show them.
#
# Source: structured-merge-diff's typed/validate, over the values of cel-go.


_MONTHS: Final = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"]
_NANOS: Final = 1_000_000_000


def check_json_values(value: Any, type_: MergeType, path: str = "") -> None:
    """Check that a value consists of JSON values that fit a type.

    Raises:
        TypeMismatch: A value is null or has no JSON form; the error names its path.
    """
    if isinstance(value, dict):
        for name, one in value.items():
            below = None if type_.map is None else type_.map.of(name)
            check_json_values(one, MergeType() if below is None else below, f"{path}.{name}")
    elif isinstance(value, list):
        for index, one in enumerate(value):
            check_json_values(one, MergeType() if type_.list is None else type_.list.items, f"{path}[{index}]")
    elif value is None or isinstance(value, bytes | Timestamp):
        raise TypeMismatch(f"{path}: {_misfit(value, type_)}")


def _misfit(value: Any, type_: MergeType) -> str:
    match shape(type_, None):
        case "map":
            return f"expected map, got &{{{_shown(value)}}}"
        case "list":
            return f"expected list, got &{{{_shown(value)}}}"
    match type_.scalar:
        case "string":
            return f"expected string, got &value.valueUnstructured{{Value:{_syntax(value)}}}"
        case "numeric":
            return f"expected numeric (int or float), got {_type(value)}"
        case "boolean":
            return f"expected boolean, got &{{{_shown(value)}}}"
        case _:
            return f"expected any scalar, got &{{{_shown(value)}}}"


def _type(value: Any) -> str:
    return "structpb.NullValue" if value is None else "[]uint8" if isinstance(value, bytes) else "time.Time"


def _shown(value: Any) -> str:
    """Format a value as Go's ``%v``."""
    if value is None:
        return "NULL_VALUE"
    if isinstance(value, bytes):
        return f"[{' '.join(map(str, value))}]"
    moment, nanos = _moment(value)
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


def _syntax(value: Any) -> str:
    """Format a value as Go's ``%#v``."""
    if value is None:
        return "0"
    if isinstance(value, bytes):
        return f"[]uint8{{{', '.join(map(hex, value))}}}"
    moment, nanos = _moment(value)
    clock = f"{moment.day}, {moment.hour}, {moment.minute}, {moment.second}, {nanos}"
    return f"time.Date({moment.year}, time.{_MONTHS[moment.month - 1]}, {clock}, time.UTC)"


def _moment(value: Timestamp) -> tuple[datetime, int]:
    seconds, nanos = divmod(value.nanos, _NANOS)
    return datetime.fromtimestamp(seconds, UTC), nanos


_TEST_FAILED = ": test failed"
_UNTYPED = "error applying patch: failed to convert patch object to typed object"
#: The only subresource whose kind is in the schema of the version itself.
_BINDING = "Binding"


class MutationPatcher:
    """Applies the results of mutation expressions to objects. It caches the field types of custom resources until their schemas change."""

    def __init__(self) -> None:
        self._custom: dict[GroupVersionKind, tuple[TypeSchema, MergeType]] = {}

    def _type_of(self, match: Match, attributes: Attributes) -> MergeType:
        """Return the type of the object for merges.

        Raises:
            NotMutable: The schema of the version does not describe the kind, as for most kinds of subresources.
        """
        resource, kind = match.resource, match.kind
        if resource.custom and attributes.kind is None:
            known = self._custom.get(kind)
            if known is None or known[0] is not resource.schema:
                known = self._custom[kind] = resource.schema, custom_type(resource.schema)
            return known[1]
        result = builtin_types().of_kind(kind) if attributes.kind is None or kind.kind == _BINDING else None
        if result is None:
            raise NotMutable(f"{_UNTYPED}: no corresponding type for {kind.group}/{kind.version}, Kind={kind.kind}")
        return result

    def applied(self, value: ConstructedObject, obj: JSONObject, match: Match, attributes: Attributes) -> JSONObject:
        """Merge an apply configuration into an object.

        Args:
            value: The ``Object{}`` that the expression returned.
            obj: The object; it stays as it is.
            match: The version of ``obj``.
            attributes: The write.

        Returns:
            A new object with the configuration merged and defaults set.

        Raises:
            NotMutable: The configuration does not fit the type, or would replace a value that is atomic.
        """
        check_object_types(value)
        configuration = to_apply_configuration(value) | {"apiVersion": obj.get("apiVersion", ""), "kind": obj.get("kind", "")}
        type_ = self._type_of(match, attributes)
        try:
            check_json_values(configuration, type_)
            check(configuration, type_)
        except TypeMismatch as error:
            raise NotMutable(f"{_UNTYPED}: {error}") from None
        if atomics := list(_atomics(configuration, type_, "")):
            why = f"may not mutate atomic arrays, maps or structs: {', '.join(atomics)}"
            raise NotMutable(f"error applying patch: invalid ApplyConfiguration: {why}")
        try:
            check(obj, type_, allow_duplicates=True)
        except TypeMismatch as error:
            raise NotMutable(f"error applying patch: failed to convert original object to typed object: {error}") from None
        try:
            merged = merge(obj, configuration, type_)
        except TypeMismatch as error:
            raise NotMutable(f"error applying patch: failed to merge patch: {error}") from None
        return _settled(copy_tree(merged), match, attributes, NotMutable)

    def patched(self, value: list[ConstructedObject], obj: JSONObject, match: Match, attributes: Attributes) -> JSONObject:
        """Apply the operations of a JSON patch to an object.

        Args:
            value: The ``JSONPatch{}`` operations that the expression returned.
            obj: The object; it stays as it is.
            match: The version of ``obj``.
            attributes: The write.

        Returns:
            A new object with defaults set; ``obj`` itself if an operation ``test`` fails.

        Raises:
            NotMutable: An operation cannot be applied.
            InternalError: The result is not an object of the kind.
        """
        try:
            tree = json_patch(obj, to_patch_operations(value), lenient=True)
        except PatchError as error:
            if str(error).endswith(_TEST_FAILED):
                return obj
            raise NotMutable(f"JSON Patch: {error}") from None
        if not isinstance(tree, dict):
            raise api_errors.internal_error("json: cannot unmarshal array into Go value of type map[string]interface {}")
        if match.resource.custom and attributes.kind is not None:
            # Upstream's converter of custom resources does not know the kinds of their subresources.
            raise NotMutable(f"request to convert CR to an invalid group/version: {match.kind.api_version}")
        return _settled(tree, match, attributes, api_errors.internal_error, strict=True)


def _settled(tree: JSONObject, match: Match, attributes: Attributes, refuse: Any, *, strict: bool = False) -> JSONObject:
    """Return a patched object with defaults. Unknown fields are dropped, or rejected if ``strict`` is set and the kind is built in."""
    requested = attributes.gvk
    try:
        kind = kind_of(tree, match.kind)
    except DecodeError as error:
        raise refuse(str(error)) from None
    if not match.resource.custom:
        if kind != match.kind:
            raise api_errors.internal_error(_foreign_kind(kind, match.kind))
        if kind.group_version != requested.group_version:
            # Upstream converts through the stored version, which fails for this change.
            raise NotMutable(f"converting ({kind.version}.{kind.kind}) to ({requested.version}.{requested.kind}): unknown conversion")
    decoded = conform(tree, kind, match.kind, match.resource, refuse, merged=not strict)
    if strict and decoded.problems and not match.resource.custom:
        raise refuse(f"strict decoding error: {', '.join(decoded.problems)}")
    if attributes.kind is None:
        match.resource.strategy.default(decoded.obj)
    return decoded.obj


def _foreign_kind(kind: GroupVersionKind, requested: GroupVersionKind) -> str:
    if not is_builtin(kind):
        return f'no kind "{kind.kind}" is registered for version "{kind.api_version}" in {SCHEME}'
    package = requested.group.partition(".")[0] or "core"
    return f"failed to convert object: converting ({kind.version}.{kind.kind}) to ({package}.{requested.kind}): unknown conversion"


def _atomics(value: Any, type_: MergeType, path: str) -> Iterator[str]:
    """Yield the paths of atomic values in a configuration: a merge would replace them as a whole and lose their other parts."""
    if isinstance(value, dict) and type_.map is not None:
        if type_.map.atomic:
            yield path
        for name, one in value.items():
            if name in type_.map.fields:
                yield from _atomics(one, type_.map.fields[name], f"{path}.{name}")
    elif isinstance(value, list) and type_.list is not None:
        if type_.list.atomic:
            yield path
        for index, one in enumerate(value):
            yield from _atomics(one, type_.list.items, f"{path}[{index}]")
