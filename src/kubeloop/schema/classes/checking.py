"""Validates objects against their classes before a server does, in the server's words. CEL rules are left to the server."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from kubeloop.meta.errors import ApiError
from kubeloop.meta.field_error import FieldError
from kubeloop.meta.quantity import Quantity
from kubeloop.meta.resource import Resource
from kubeloop.meta.status import Status, StatusCause, StatusDetails
from kubeloop.schema.classes.nodes import schema_of
from kubeloop.schema.defaulting import apply_defaults
from kubeloop.schema.node import TypeSchema
from kubeloop.schema.structural import parse
from kubeloop.schema.validation import validate


def check(obj: Resource) -> list[FieldError]:
    """Return an error for every value that the class's schema refuses: types, bounds, patterns, choices, missing fields.

    It does not check CEL rules, names and metadata, or admission rules. Values that were read and not changed are checked too.

    Raises:
        ConfigError: the class declares something that no schema can express.
    """
    schema = _schema(type(obj))
    tree = _tree(obj)
    apply_defaults(tree, schema)
    return validate(tree, schema)


def require_valid(obj: Resource) -> None:
    """Raise the error with which the server would refuse the object, if ``check`` finds one.

    Raises:
        Invalid: the object breaks its schema; it has a cause for each wrong field.
        ConfigError: as ``check``.
    """
    faults = check(obj)
    if not faults:
        return
    kind = f"{obj.kind}.{obj.api_version.rpartition('/')[0]}".rstrip(".")
    texts = [str(fault) for fault in faults]
    said = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    name = obj.metadata.name
    raise ApiError.of(
        Status(
            status="Failure",
            reason="Invalid",
            code=422,
            message=f'{kind} "{name}" is invalid: {said}',
            details=StatusDetails(
                name=name,
                group=obj.api_version.rpartition("/")[0],
                kind=obj.kind,
                causes=[StatusCause(reason=fault.type.value, message=fault.body, field=fault.field) for fault in faults],
            ),
        ),
        "checked before it was sent",
    )


@cache
def _schema(cls: type[Resource]) -> TypeSchema:
    return parse(schema_of(cls, descriptions=False))


def _tree(obj: Resource) -> dict[str, Any]:
    tree: dict[str, Any] = msgspec.to_builtins(obj, enc_hook=_plain)
    return {"apiVersion": obj.api_version, "kind": obj.kind, **tree}


def _plain(value: Any) -> Any:
    if isinstance(value, Quantity):
        return str(value)
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    raise TypeError(f"a field holds a {type(value).__name__}, which JSON cannot say")
