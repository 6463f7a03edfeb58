"""Validates a rendered definition as a server does, before it is applied; each fault names a class and a field."""

from __future__ import annotations

import copy
import re
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from kubeloop.apiserver.crd import definition as defaults
from kubeloop.apiserver.crd import validation
from kubeloop.codegen.crd.manifest import Definition
from kubeloop.meta.field_error import FieldError
from kubeloop.types import JSONObject

_SCHEMA = re.compile(r"^spec\.(?:versions\[(\d+)\]\.schema|validation)\.openAPIV3Schema(.*)$")
_VERSION = re.compile(r"^spec\.versions\[(\d+)\]")
_STEP = re.compile(r"\.properties\[([^\]]+)\]|\.(items|additionalProperties)\b(?!\[)")


def check_definition(definition: Definition) -> list[str]:
    """Return the faults for which a server would refuse the definition, one line each: ``module.Class.field: fault``.

    CEL rules are compiled and their cost is estimated.
    """
    faults = _faults(copy.deepcopy(definition.document))
    return list(dict.fromkeys(f"{_blamed(definition, fault.field)}: {fault.body} ({fault.field})" for fault in faults))


def version_warnings(definition: Definition) -> list[str]:
    """Return fields that one served version declares and another does not, one line each, where no webhook converts.

    A server accepts such a definition. A write in the other version drops the field, and while field managers use both versions, a
    server-side apply of the field is answered with 500 ``field not declared in schema``.
    """
    spec = definition.document["spec"]
    if (spec.get("conversion") or {}).get("strategy", "None") != "None":
        return []
    served = [(version["name"], version["schema"]["openAPIV3Schema"]) for version in spec["versions"] if version.get("served")]
    return [
        f"{definition.name}: version {name} declares {path} and version {other} does not: a write in {other} drops it, and "
        f"server-side apply in both versions fails with 500; declare it in {other} too, or convert with a webhook "
        "(kubeloop generate crd --webhooks)"
        for name, schema in served
        for other, other_schema in served
        if name != other
        for path in _undeclared(schema, other_schema, "")
    ]


def _undeclared(schema: JSONObject, other: JSONObject, path: str) -> Iterator[str]:
    """Yield the paths of the outermost fields of ``schema`` that ``other`` would prune."""
    if other.get("x-kubernetes-preserve-unknown-fields"):
        return
    declared = other.get("properties") or {}
    for name, below in (schema.get("properties") or {}).items():
        if name in declared:
            yield from _undeclared(below, declared[name], f"{path}.{name}")
        elif not other.get("additionalProperties"):
            yield f"{path}.{name}"
    for keyword, step in (("items", "[]"), ("additionalProperties", "[*]")):
        inner, other_inner = schema.get(keyword), other.get(keyword)
        if isinstance(inner, dict) and isinstance(other_inner, dict):
            yield from _undeclared(inner, other_inner, f"{path}{step}")


def _faults(document: JSONObject) -> list[FieldError]:
    defaults.apply(document)
    document["status"]["acceptedNames"] = copy.deepcopy(document["spec"]["names"])
    return validation.check_create(document)


def _blamed(definition: Definition, path: str) -> str:
    match = _SCHEMA.match(path)
    if match is None:
        version = _VERSION.match(path)
        cls = definition.classes[int(version[1]) if version else 0]
        return f"{cls.__module__}.{cls.__qualname__}"
    cls = definition.classes[int(match[1] or 0)]
    named = f"{cls.__module__}.{cls.__qualname__}"
    hint: Any = cls
    for step in _STEP.finditer(match[2]):
        if step[2]:
            hint = _inside(hint)
            continue
        owner = _struct(hint)
        if owner is None:
            break
        field = next((one for one in msgspec.structs.fields(owner) if one.encode_name == step[1]), None)
        if field is None:
            break
        named = f"{owner.__module__}.{owner.__qualname__}.{field.name}"
        hint = typing.get_type_hints(owner)[field.name]
    return named


def _inside(hint: Any) -> Any:
    """Return the element type of a list or map."""
    for one in _members(hint):
        if typing.get_origin(one) in (list, dict):
            return typing.get_args(one)[-1]
    return None


def _struct(hint: Any) -> type[msgspec.Struct] | None:
    return next((one for one in _members(hint) if isinstance(one, type) and issubclass(one, msgspec.Struct)), None)


def _members(hint: Any) -> tuple[Any, ...]:
    if hint is None or isinstance(hint, type) or typing.get_origin(hint) in (list, dict):
        return (hint,)
    return typing.get_args(hint)
