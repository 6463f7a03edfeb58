"""One node of a schema: the same class for built-in definitions and for a CRD's structural schema.

Attribute names are Python's, wire names are OpenAPI's with Kubernetes' extensions, so a node encodes as the schema it came from.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from kubeloop.types import JSONValue


class TypeSchema(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    eq=False,
    gc=False,
    rename={
        "ref": "$ref",
        "values": "additionalProperties",
        "list_type": "x-kubernetes-list-type",
        "list_map_keys": "x-kubernetes-list-map-keys",
        "map_type": "x-kubernetes-map-type",
        "patch_strategy": "x-kubernetes-patch-strategy",
        "patch_merge_key": "x-kubernetes-patch-merge-key",
        "preserve_unknown": "x-kubernetes-preserve-unknown-fields",
        "embedded_resource": "x-kubernetes-embedded-resource",
        "int_or_string": "x-kubernetes-int-or-string",
        "validations": "x-kubernetes-validations",
        "unions": "x-kubernetes-unions",
        "kinds": "x-kubernetes-group-version-kind",
        "exclusive_minimum": "exclusiveMinimum",
        "exclusive_maximum": "exclusiveMaximum",
        "min_length": "minLength",
        "max_length": "maxLength",
        "min_items": "minItems",
        "max_items": "maxItems",
        "unique_items": "uniqueItems",
        "min_properties": "minProperties",
        "max_properties": "maxProperties",
        "multiple_of": "multipleOf",
        "all_of": "allOf",
        "any_of": "anyOf",
        "one_of": "oneOf",
        "not_": "not",
    },
):
    """Describes one value: its type and rules, and how lists and maps of it merge.

    >>> from kubeloop.schema import builtin
    >>> from kubeloop.meta import GroupVersionKind
    >>> node = builtin().kind(GroupVersionKind("", "v1", "ConfigMap"))
    >>> node.properties["data"].type
    'object'

    Immutable and shared: never change its containers; copy ``default`` before use. Compared and hashed by identity, so that
    it can be a cache key. Built-in nodes refer to other definitions by ``ref``, the bare definition name; follow it with
    ``Schemas.resolve``.
    """

    #: "object", "array", "string", "integer", "number", "boolean"; empty for any value, a reference, or int-or-string.
    type: str = ""
    #: "int32", "int64", "double", "date-time", "byte", "int-or-string", "quantity" ... as in the schema.
    format: str = ""
    #: Name of a definition (``io.k8s.api.core.v1.PodSpec``); siblings such as ``default`` add to it.
    ref: str = ""
    description: str = ""
    properties: dict[str, TypeSchema] = {}
    required: tuple[str, ...] = ()
    #: The elements of an array.
    items: TypeSchema | None = None
    #: The values of a map (``additionalProperties``).
    values: TypeSchema | None = None
    #: ``additionalProperties: false``: only the named properties are allowed. No built-in definition has it.
    closed: bool = False
    #: "atomic", "set", "map"; empty means atomic.
    list_type: str = ""
    list_map_keys: tuple[str, ...] = ()
    #: "granular" or "atomic"; empty means granular.
    map_type: str = ""
    #: "merge", "replace", "retainKeys" or "merge,retainKeys"; empty means replace for lists, merge for maps.
    patch_strategy: str = ""
    patch_merge_key: str = ""
    #: JSON value; UNSET if there is no default, because null is a default too.
    default: JSONValue | UnsetType = UNSET
    enum: list[JSONValue] | None = None
    nullable: bool = False
    preserve_unknown: bool = False
    embedded_resource: bool = False
    int_or_string: bool = False
    minimum: int | float | None = None
    maximum: int | float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    min_length: int | None = None
    max_length: int | None = None
    pattern: str = ""
    min_items: int | None = None
    max_items: int | None = None
    unique_items: bool = False
    min_properties: int | None = None
    max_properties: int | None = None
    multiple_of: int | float | None = None
    all_of: tuple[TypeSchema, ...] = ()
    any_of: tuple[TypeSchema, ...] = ()
    one_of: tuple[TypeSchema, ...] = ()
    not_: TypeSchema | None = None
    #: CEL rules (``rule``, ``message``, ``messageExpression``, ``reason``, ``fieldPath``, ``optionalOldSelf``), as data.
    validations: list[dict[str, JSONValue]] = []
    #: Discriminated unions, as data.
    unions: list[dict[str, JSONValue]] = []
    #: ``{"group", "version", "kind"}`` of a kind's definition; several for kinds that every group shares (DeleteOptions).
    kinds: tuple[dict[str, str], ...] = ()

    @property
    def is_object(self) -> bool:
        """Whether the type is an object with named fields, not a map with arbitrary keys."""
        return bool(self.properties)

    @property
    def is_map(self) -> bool:
        return self.values is not None

    @property
    def is_list(self) -> bool:
        return self.type == "array"

    @property
    def has_default(self) -> bool:
        return self.default is not UNSET
