"""Checks and converts the CEL objects that mutation expressions construct: ``Object{}`` and ``JSONPatch{}``.

Source: k8s.io/apiserver pkg/cel/mutation/dynamic/objects.go; pkg/admission/plugin/policy/mutating/patch/json_patch.go.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from kubeloop.cel.functions.timestamps import format_duration, format_timestamp
from kubeloop.cel.values import ConstructedObject, DurationValue, Timestamp, UInt, from_key
from kubeloop.meta.errors import KubeloopError
from kubeloop.meta.strconv import go_quoted
from kubeloop.types import JSONValue

#: Larger integers are not exact as JSON numbers: protobuf writes them as text.
_EXACT: Final = 2**53
_SCALARS: Final = (type(None), bool, int, float, str)


class NotMutable(KubeloopError):
    """The mutation cannot be applied. The message is that of Kubernetes."""


def check_object_types(value: ConstructedObject) -> None:
    """Check that each object has the type of its place: ``Object.spec{}`` in the field ``spec`` of an ``Object{}``.

    Raises:
        NotMutable: Some objects have another type; the message names each.
    """
    problems = list(_misnamed(value, value.name))
    if problems:
        raise NotMutable("type mismatch: " + "\n".join(problems))


def _misnamed(value: Any, place: str) -> list[str]:
    problems: list[str] = []
    if isinstance(value, ConstructedObject):
        if value.name != place:
            problems.append(
                f"unexpected type name {go_quoted(value.name)}, expected {go_quoted(place)}, "
                "which matches field name path from root Object type"
            )
        for name, one in value.items():
            problems += _misnamed(one, f"{place}.{name}")
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            problems += _misnamed(one, place)
    return problems


def to_apply_configuration(value: ConstructedObject) -> dict[str, JSONValue]:
    """Convert an ``Object{}`` to a new JSON tree. Bytes and timestamps stay unchanged; ``check_json_values`` rejects them later.

    Raises:
        NotMutable: A key is not a string, or a value has no JSON form.
    """
    result = _tree(value)
    assert isinstance(result, dict)
    return result


def _tree(value: Any) -> JSONValue:
    if isinstance(value, dict):
        made = {}
        for key, one in value.items():
            if not isinstance(key, str):
                raise NotMutable("invalid return type: *dynamic.ObjectVal")
            made[key] = _tree(one)
        return made
    if isinstance(value, list):
        return [_tree(one) for one in value]
    if isinstance(value, UInt):
        return int(value)
    if isinstance(value, (*_SCALARS, bytes, Timestamp)):
        return value
    if isinstance(value, DurationValue):
        return value.nanos
    raise NotMutable("invalid return type: *dynamic.ObjectVal")


def to_patch_operations(field_value: list[ConstructedObject]) -> list[dict[str, JSONValue]]:
    """Convert ``JSONPatch{}`` values to the operations of a patch.

    Raises:
        NotMutable: A value has no JSON form.
    """
    operations = []
    for one in field_value:
        operation: dict[str, JSONValue] = {"op": one.get("op", ""), "path": one.get("path", "")}
        if one.get("from"):
            operation["from"] = one["from"]
        if "value" in one:
            value = one["value"]
            if isinstance(value, ConstructedObject):
                check_object_types(value)
            operation["value"] = _protobuf_value(value)
        operations.append(operation)
    return operations


def _protobuf_value(value: Any) -> JSONValue:
    """Convert a value as protobuf's JSON mapping does: timestamps and large integers become text, bytes base64."""
    if isinstance(value, dict):
        return {_key(from_key(key)): _protobuf_value(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_protobuf_value(one) for one in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, DurationValue):
        return format_duration(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) if -_EXACT < value < _EXACT else str(int(value))
    if isinstance(value, _SCALARS):
        return value
    raise NotMutable(f"JSONPath valueExpression evaluated to a type that could not marshal to JSON: {type(value).__name__}")


def _key(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
