"""Markers for ``Annotated``: the parts of a schema beyond a Python type. Decoding does not enforce them.

Source of each rule: Kubernetes documentation "Specifying a structural schema", "Merge strategy", "Validation rules".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from kubeloop.types import JSONValue

Reason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"]


class Marker(msgspec.Struct, frozen=True, eq=False, repr_omit_defaults=True):
    """The base class of all markers. Decoders ignore markers; ``kubeloop.schema.classes`` reads them. A marker equals only itself.

    >>> from typing import Annotated
    >>> class Spec(Model):
    ...     size: Annotated[int, Limits(minimum=1), Default(1)] = 1
    """


class Limits(Marker, frozen=True, eq=False):
    """Bounds of a value. ``msgspec.Meta`` may be used instead where it has the bound; ``Limits`` also accepts bounds that ``Meta`` refuses.

    >>> from typing import Annotated
    >>> from kubeloop.schema.classes import schema_of
    >>> class Spec(Model):
    ...     size: Annotated[int, Limits(minimum=1, maximum=9)] = 1
    >>> schema_of(Spec)["properties"]["size"]["maximum"]
    9

    ``pattern`` is a regular expression of Go (RE2), which matches anywhere in the text unless it is anchored. Lengths count characters.
    """

    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str = ""
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None


class Format(Marker, frozen=True, eq=False):
    """``format`` of the schema: ``int32``, ``int64``, ``uri``, ``ipv4``, ``duration`` ... Servers ignore unknown formats.

    >>> from typing import Annotated
    >>> class Spec(Model):
    ...     address: Annotated[str, Format("ipv4")] = ""
    """

    name: str


class Enum(Marker, frozen=True, eq=False):
    """The allowed values (``Enum([1, 2])``), where ``Literal`` cannot express them. Decoding accepts other values too.

    >>> from typing import Annotated
    >>> class Spec(Model):
    ...     level: Annotated[int, Enum([1, 2])] = 1
    """

    values: list[JSONValue]


class Default(Marker, frozen=True, eq=False):
    """The value that the server sets if the field is missing. Needed where a Python default cannot express it: zero values, lists, maps.

    >>> from typing import Annotated
    >>> import msgspec
    >>> class Spec(Model):
    ...     zones: Annotated[list[str], Default(["a"])] = msgspec.field(default_factory=list)
    """

    value: JSONValue


class Required(Marker, frozen=True, eq=False):
    """Makes a field required although the class has a default for it (a field without a default is required anyway).

    >>> from typing import Annotated
    >>> from kubeloop.schema.classes import schema_of
    >>> class Spec(Model):
    ...     name: Annotated[str, Required()] = ""
    >>> schema_of(Spec)["required"]
    ['name']
    """


class Nullable(Marker, frozen=True, eq=False):
    """Allows and preserves an explicit null. A field without a default that may be None is nullable anyway.

    >>> from typing import Annotated
    >>> class Spec(Model):
    ...     limit: Annotated[int | None, Nullable()] = None
    """


class ListMap(Marker, frozen=True, eq=False):
    """A list whose items are identified by keys. The arguments are the wire names of the key fields: ``ListMap("host", "port")``.

    >>> from typing import Annotated
    >>> import msgspec
    >>> class Port(Model):
    ...     name: str
    >>> class Spec(Model):
    ...     ports: Annotated[list[Port], ListMap("name")] = msgspec.field(default_factory=list)

    Managers own single items; changes to an item apply to the item with the same keys in the document that was read.
    """

    key: str
    second: str = ""
    third: str = ""
    fourth: str = ""

    @property
    def list_map_keys(self) -> tuple[str, ...]:
        return tuple(key for key in (self.key, self.second, self.third, self.fourth) if key)


class ListSet(Marker, frozen=True, eq=False):
    """A list without equal items; each item has its own field managers.

    >>> from typing import Annotated
    >>> import msgspec
    >>> class Spec(Model):
    ...     zones: Annotated[list[str], ListSet()] = msgspec.field(default_factory=list)
    """


class Atomic(Marker, frozen=True, eq=False):
    """A list, map or struct that server-side apply owns and replaces as a whole.

    >>> from typing import Annotated
    >>> import msgspec
    >>> class Spec(Model):
    ...     selector: Annotated[dict[str, str], Atomic()] = msgspec.field(default_factory=dict)
    """


class PreserveUnknown(Marker, frozen=True, eq=False):
    """Makes the server preserve fields that the schema does not name.

    >>> from typing import Annotated, Any
    >>> import msgspec
    >>> class Spec(Model):
    ...     settings: Annotated[dict[str, Any], PreserveUnknown()] = msgspec.field(default_factory=dict)
    """


class Pruned(Marker, frozen=True, eq=False):
    """Marks a ``dict[str, Any]`` whose fields the server removes, because its schema names none.

    >>> from typing import Annotated, Any
    >>> import msgspec
    >>> class Spec(Model):
    ...     settings: Annotated[dict[str, Any], Pruned()] = msgspec.field(default_factory=dict)
    """


class Embedded(Marker, frozen=True, eq=False):
    """A whole object with apiVersion, kind and metadata, which the server validates as such.

    >>> from typing import Annotated, Any
    >>> import msgspec
    >>> class Spec(Model):
    ...     template: Annotated[dict[str, Any], Embedded()] = msgspec.field(default_factory=dict)
    """


class Opaque(Marker, frozen=True, eq=False):
    """A typed field that is free-form for the server: its schema is an object that preserves everything. Use it for recursive classes.

    >>> from typing import Annotated
    >>> class Tree(Model):
    ...     name: str = ""
    >>> class Spec(Model):
    ...     tree: Annotated[Tree | None, Opaque()] = None
    """


class Rule(Marker, frozen=True, eq=False):
    """A CEL rule over ``self`` (and ``oldSelf``), which the server checks when the object is written.

    >>> from typing import Annotated
    >>> from kubeloop.schema.classes import schema_of
    >>> class Spec(Model):
    ...     size: Annotated[int, Rule("self >= oldSelf", message="size cannot shrink")] = 1
    >>> schema_of(Spec)["properties"]["size"]["x-kubernetes-validations"]
    [{'rule': 'self >= oldSelf', 'message': 'size cannot shrink'}]
    """

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: Reason | None = None
    field_path: str = ""
    optional_old_self: bool | None = None


class Schema(Marker, frozen=True, eq=False):
    """Any other keywords of the schema: its keys replace those from types and markers; None removes a key.

    >>> from typing import Annotated
    >>> class Spec(Model):
    ...     code: Annotated[str, Schema({"not": {"enum": ["none"]}})] = ""
    """

    fragment: Mapping[str, JSONValue]
