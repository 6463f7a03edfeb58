"""What a schema says beyond a Python type, as metadata of ``Annotated``. Nothing here is enforced while objects are read.

Source of each rule: Kubernetes documentation "Specifying a structural schema", "Merge strategy", "Validation rules".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

JSON = Any

Reason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"]


class Marker(msgspec.Struct, frozen=True, eq=False, repr_omit_defaults=True):
    """The base of all markers; type readers ignore them, ``kubeloop.schema.classes`` reads them. Equal only to itself."""


class Limits(Marker, frozen=True, eq=False):
    """Bounds of a value. What ``msgspec.Meta`` can say may be said with it instead; these also take what it refuses.

    ``pattern`` is RE2 (Go's regular expressions), found anywhere unless anchored. Lengths count characters, items and properties elements.
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
    """``format`` of the schema: ``int32``, ``int64``, ``uri``, ``ipv4``, ``duration`` ... Servers ignore those they do not know."""

    name: str


class Enum(Marker, frozen=True, eq=False):
    """The values that are allowed (``Enum([1, 2])``), where ``Literal`` cannot say them. A newer server's other values are still read."""

    values: list[JSON]


class Default(Marker, frozen=True, eq=False):
    """What the server fills in where the field is missing. Needed where the Python default cannot say it: zero values, lists, maps."""

    value: JSON


class Required(Marker, frozen=True, eq=False):
    """The field must be there although the class has a default for it (a field without a default is required anyway)."""


class Nullable(Marker, frozen=True, eq=False):
    """An explicit null is allowed and kept. A field without a default that may be None is nullable anyway."""


class ListMap(Marker, frozen=True, eq=False):
    """A list that is a map in disguise: items are told apart by these keys (wire names; ``ListMap("host", "port")``).

    Two managers may own different items; changes to an item are matched to the same item of the document that was read.
    """

    key: str
    second: str = ""
    third: str = ""
    fourth: str = ""

    @property
    def list_map_keys(self) -> tuple[str, ...]:
        return tuple(key for key in (self.key, self.second, self.third, self.fourth) if key)


class ListSet(Marker, frozen=True, eq=False):
    """A list of which no two items are equal; each item has owners of its own."""


class Atomic(Marker, frozen=True, eq=False):
    """A list, map or struct that is owned and replaced as a whole by server-side apply."""


class PreserveUnknown(Marker, frozen=True, eq=False):
    """Fields that the schema does not name are kept by the server."""


class Pruned(Marker, frozen=True, eq=False):
    """Of a ``dict[str, Any]``: an object of which the server keeps no field (its schema names none)."""


class Embedded(Marker, frozen=True, eq=False):
    """A whole object with apiVersion, kind and metadata, which the server checks as such."""


class Opaque(Marker, frozen=True, eq=False):
    """Typed here, free-form for the server: the schema is an object that keeps everything. The way out for recursive classes."""


class Rule(Marker, frozen=True, eq=False):
    """A CEL rule over ``self`` (and ``oldSelf``), checked by the server when the object is written."""

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: Reason | None = None
    field_path: str = ""
    optional_old_self: bool | None = None


class Schema(Marker, frozen=True, eq=False):
    """Anything else, in the schema's own words: its keys replace what was said so far, None takes a key away."""

    fragment: Mapping[str, JSON]
