"""Types that mutation expressions may construct: ``Object{...}`` with any fields, ``JSONPatch{...}``; and keys of JSON pointers.

Source: k8s.io/apiserver pkg/cel/mutation, pkg/cel/library/jsonpatch.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kubeloop.cel import types
from kubeloop.cel.overloads import Function, function
from kubeloop.cel.types import Type

OBJECT: Final = types.struct("Object")
OPERATION: Final = types.struct("JSONPatch")

PATCH_FUNCTIONS: Final[dict[str, Function]] = {}
_OPERATION_FIELDS: Final = {"op": types.STRING, "from": types.STRING, "path": types.STRING, "value": types.DYN}


class _AnyFields(Mapping[str, Type]):
    """A mapping in which every name is a field of any type."""

    def __getitem__(self, name: str) -> Type:
        return types.DYN

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True


_ANY: Final = _AnyFields()


def patch_messages(name: str) -> Mapping[str, Type] | None:
    """Return the fields of ``Object``, of the types of its fields (``Object.spec.template``) and of ``JSONPatch``."""
    if name == OPERATION.name:
        return _OPERATION_FIELDS
    return _ANY if name == OBJECT.name or name.startswith(f"{OBJECT.name}.") else None


@function("jsonpatch.escapeKey", "string -> string", "string_jsonpatch_escapeKey_string", into=PATCH_FUNCTIONS)
def _escape_key(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
