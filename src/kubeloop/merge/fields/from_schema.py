"""Builds field types of built-in kinds and of custom resources from their schemas.

Source: kube-openapi's schemaconv; apiextensions-apiserver's controller/openapi/builder for the parts outside a custom resource's schema.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from kubeloop.merge.fields.field_types import ATOMIC, DEDUCED, ListType, MapType, MergeType, ScalarType
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.schema import Schemas, TypeSchema, builtin
from kubeloop.schema.structural import ANY_VALUE, NO_OTHER, as_resource

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_RAW_EXTENSION: Final = "io.k8s.apimachinery.pkg.runtime.RawExtension"
_STRING: Final = MergeType("string")


class FieldTypes:
    """Field types of the definitions of one schema document; each is built at the first use."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._named: dict[str, MergeType] = {_RAW_EXTENSION: ATOMIC, _QUANTITY: MergeType("untyped")}
        self._overridden: dict[tuple[str, str], MergeType] = {}
        self._pending: list[tuple[MergeType, MergeType]] = []

    def of_kind(self, gvk: GroupVersionKind) -> MergeType | None:
        """Return the type of a kind, or None if the document does not have it."""
        name = self._schemas.kind_name(gvk)
        return None if name is None else self.of_definition(name)

    def of_definition(self, name: str) -> MergeType:
        """Return the type of a definition. Raises KeyError for a name that the document does not have."""
        found = self._definition(name)
        self._settle()
        return found

    def of_custom(self, schema: TypeSchema, *, preserve_unknown: bool = False) -> MergeType:
        """Return the type of a custom resource's version; ``preserve_unknown`` is its definition's ``spec.preserveUnknownFields``."""
        type_ = self._inline(as_resource(schema), preserve_unknown)
        self._settle()
        return type_

    def _definition(self, name: str) -> MergeType:
        known = self._named.get(name)
        if known is not None:
            return known
        node = self._schemas.definition(name)
        if node.ref:
            return self._type(node, preserve=False)
        # Registered before it is filled: definitions refer to themselves.
        type_ = self._named[name] = MergeType()
        self._fill(type_, node, preserve=False)
        return type_

    def _type(self, node: TypeSchema, preserve: bool) -> MergeType:
        if not node.ref:
            return self._inline(node, preserve)
        type_ = self._definition(node.ref)
        if not node.map_type:
            return type_
        key = node.ref, node.map_type
        overridden = self._overridden.get(key)
        if overridden is None:
            overridden = self._overridden[key] = MergeType(type_.scalar, type_.list)
            overridden.map = MapType({}, None, atomic=node.map_type == "atomic")
            self._pending.append((overridden, type_))
        return overridden

    def _settle(self) -> None:
        """Complete types that differ from a definition only in being atomic: they share its fields, which are all known only now."""
        while self._pending:
            overridden, type_ = self._pending.pop()
            overridden.scalar, overridden.list, overridden.defaults = type_.scalar, type_.list, type_.defaults
            if type_.map is None or overridden.map is None:
                overridden.map = None
                continue
            overridden.map.fields, overridden.map.values, overridden.map.free = type_.map.fields, type_.map.values, type_.map.free

    def _inline(self, node: TypeSchema, preserve: bool) -> MergeType:
        if not node.properties and node.type in _SCALARS:
            return _scalar(node)
        type_ = MergeType()
        self._fill(type_, node, preserve)
        return type_

    def _fill(self, type_: MergeType, node: TypeSchema, preserve: bool) -> None:
        preserve = preserve or node.preserve_unknown
        match node.type:
            case "":
                type_.scalar = "untyped"
                type_.only_int_or_string = node.int_or_string
                type_.list = self._list(node, preserve)
                self._map(type_, node, preserve)
            case "object":
                self._map(type_, node, preserve)
            case "array":
                type_.list = self._list(node, preserve)
            case _:
                type_.scalar = _scalar(node).scalar

    def _map(self, type_: MergeType, node: TypeSchema, preserve: bool) -> None:
        found = type_.map = MapType({}, None, atomic=node.map_type == "atomic")
        for name, below in node.properties.items():
            found.fields[name] = self._type(below, preserve)
            if below.has_default and below.default is not None:
                type_.defaults[name] = below.default
        if node.embedded_resource:
            found.fields |= {"apiVersion": _STRING, "kind": _STRING, "metadata": self._object_meta()}
        if node.values is None:
            if not node.closed and (preserve or not found.fields):
                found.values = DEDUCED
        elif node.values is ANY_VALUE:
            found.values = DEDUCED
        elif node.values is not NO_OTHER:
            found.values = self._type(node.values, preserve)
        if not found.fields:
            found.free = found.values is DEDUCED or bool(
                node.values is not None and not node.values.ref and found.values is not None and found.values.scalar == "untyped"
            )

    def _object_meta(self) -> MergeType:
        if _META in self._schemas:
            return self._definition(_META)
        return builtin_types().of_definition(_META)

    def _list(self, node: TypeSchema, preserve: bool) -> ListType:
        items = ATOMIC if node.items is None else self._type(node.items, preserve)
        if node.list_type:
            keys = node.list_map_keys if node.list_type == "map" else ()
            return ListType(items, atomic=node.list_type not in ("set", "map"), keys=keys)
        if node.patch_strategy in ("merge", "merge,retainKeys"):
            return ListType(items, atomic=False, keys=(node.patch_merge_key,) if node.patch_merge_key else ())
        return ListType(items, atomic=True)


_SCALARS: Final[dict[str, ScalarType]] = {"integer": "numeric", "number": "numeric", "boolean": "boolean", "string": "string"}
_SHARED: Final[dict[ScalarType, MergeType]] = {
    "numeric": MergeType("numeric"),
    "boolean": MergeType("boolean"),
    "string": _STRING,
    "untyped": MergeType("untyped"),
}


def _scalar(node: TypeSchema) -> MergeType:
    type_ = _SCALARS.get(node.type, "untyped")
    # A string with a format may be written as another scalar (int-or-string), or in several ways.
    return _SHARED["untyped" if type_ == "string" and node.format not in ("", "byte") else type_]


@cache
def builtin_types() -> FieldTypes:
    """Return the types of Kubernetes' own kinds."""
    return FieldTypes(builtin())


def custom_type(schema: TypeSchema, *, preserve_unknown: bool = False) -> MergeType:
    """Return the type of a version of a custom resource. Call it once per version; it costs about a microsecond a field."""
    return builtin_types().of_custom(schema, preserve_unknown=preserve_unknown)
