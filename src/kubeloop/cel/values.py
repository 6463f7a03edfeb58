"""The values of CEL expressions: Python's own types where they fit, and small classes otherwise.

null, bool, int, float, str, bytes, list and dict are used as they are; an object with a schema is a dict with escaped field names.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import SplitResult

import msgspec

from kubeloop.cel.faults import EvalError
from kubeloop.cel.identifier_escaping import escape, unescape
from kubeloop.meta.quantity import Quantity

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1


class UInt(int):
    """An unsigned 64-bit number."""

    __slots__ = ()


class Timestamp(msgspec.Struct, frozen=True, eq=False):
    """A time in nanoseconds since 1970, UTC; ``offset`` (seconds) affects only printing, not comparisons."""

    nanos: int
    offset: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __lt__(self, other: Timestamp) -> bool:
        return self.nanos < other.nanos

    def __le__(self, other: Timestamp) -> bool:
        return self.nanos <= other.nanos

    def __gt__(self, other: Timestamp) -> bool:
        return self.nanos > other.nanos

    def __ge__(self, other: Timestamp) -> bool:
        return self.nanos >= other.nanos


class DurationValue(msgspec.Struct, frozen=True, order=True):
    """A duration in nanoseconds."""

    nanos: int


class TypeValue(msgspec.Struct, frozen=True):
    """The result of ``type(x)``."""

    name: str


class Optional(msgspec.Struct, frozen=True):
    """A value that may be missing; ``NONE`` is the missing value."""

    value: Any
    present: bool = True


NONE: Final = Optional(None, present=False)


class Cidr(msgspec.Struct, frozen=True):
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    prefix: int

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        return ipaddress.ip_network((self.address, self.prefix), strict=False)

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix}"


class UrlValue(msgspec.Struct, frozen=True):
    text: str
    parts: SplitResult


class Amount(msgspec.Struct, frozen=True, eq=False):
    """A CEL quantity. ``scale`` is the power of ten of upstream's int64 representation; None if upstream represents it as a big decimal."""

    quantity: Quantity
    scale: int | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Amount) and self.quantity == other.quantity

    def __hash__(self) -> int:
        return hash(self.quantity)

    @property
    def is_integer(self) -> bool:
        """The result of ``isInteger()``. As upstream, it depends on how the quantity was written: False for ``1000m`` and ``1Pi``."""
        return self.scale is not None and self.scale >= 0 and INT_MIN <= self.quantity.value() <= INT_MAX

    def plus(self, other: Amount) -> Amount:
        return Amount(self.quantity + other.quantity, self._common(other))

    def minus(self, other: Amount) -> Amount:
        return Amount(self.quantity - other.quantity, self._common(other))

    def _common(self, other: Amount) -> int | None:
        if self.scale is None or other.scale is None:
            return None
        if not other.quantity:
            return self.scale
        return min(self.scale, other.scale) if self.quantity else other.scale


class Semver(msgspec.Struct, frozen=True):
    major: int
    minor: int
    patch: int
    #: Identifiers of a pre-release: numbers or texts.
    pre: tuple[int | str, ...] = ()
    build: str = ""

    def key(self) -> tuple[Any, ...]:
        """Return the sort key of precedence (https://semver.org section 11): releases rank above pre-releases, numbers below texts."""
        identifiers = tuple((0, one, "") if isinstance(one, int) else (1, 0, one) for one in self.pre)
        return self.major, self.minor, self.patch, not self.pre, identifiers


class FormatValue(msgspec.Struct, frozen=True):
    """A named format.

    ``check`` returns the errors of a text, empty if it matches; ``weight`` is the size of the format's pattern, for costs.
    """

    name: str
    check: Callable[[str], list[str]]
    weight: int


class SetList(list[Any]):
    """A list of ``x-kubernetes-list-type: set``: order does not matter to ``==``, ``+`` is a union."""

    __slots__ = ()


class MapList(list[Any]):
    """A list of ``x-kubernetes-list-type: map``: ``==`` disregards the order, ``+`` merges by the keys."""

    __slots__ = ("keys",)

    def __init__(self, items: list[Any], keys: tuple[str, ...]) -> None:
        super().__init__(items)
        self.keys = keys

    def key(self, item: Any) -> tuple[Any, ...]:
        return tuple(item.get(name) for name in self.keys) if isinstance(item, dict) else (item,)


class ConstructedObject(dict[str, Any]):
    """The result of ``Object.spec{replicas: 1}``: fields by name; ``name`` is its type in the expression."""

    __slots__ = ("name",)

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self.name = name


class ObjectFields(dict[str, Any]):
    """An object whose keys are escaped field names, some of which differ from the plain names. A lookup finds a field by either name."""

    __slots__ = ()

    def __missing__(self, name: str) -> Any:
        escaped = _escaped(name)
        if escaped is None or not dict.__contains__(self, escaped):
            raise KeyError(name)
        return self[escaped]

    def __contains__(self, name: object) -> bool:
        if dict.__contains__(self, name):
            return True
        return isinstance(name, str) and (escaped := _escaped(name)) is not None and dict.__contains__(self, escaped)


def _escaped(name: str) -> str | None:
    """Return the escaped form of a field name, which may itself be escaped; None if there is none."""
    field = unescape(name)
    return None if field is None else escape(field)


class UnknownField(msgspec.Struct, frozen=True):
    """The dict key of a field that is not in the schema. Comparisons include the field, but rules cannot access it."""

    name: str


class BoolKey(msgspec.Struct, frozen=True):
    """The dict key for a bool as the key of a CEL map, because in Python True equals 1."""

    value: bool


def is_key(value: Any) -> bool:
    """Return whether a map can have the value as a key."""
    return value is None or isinstance(value, str | int | float | Timestamp | DurationValue)


def as_key(value: Any) -> Any:
    """Return the dict key for a key of a CEL map: a ``BoolKey`` for a bool, else the value itself.

    Raises:
        EvalError: A map cannot have the value as a key.
    """
    if isinstance(value, bool):
        return BoolKey(value)
    if not is_key(value):
        raise EvalError("unsupported key type")
    return value


_GO_TYPES: Final = {
    type(None): "types.Null",
    bytes: "types.Bytes",
    list: "*types.baseList",
    dict: "*types.baseMap",
    DurationValue: "types.Duration",
    Timestamp: "types.Timestamp",
    TypeValue: "*types.Type",
    Optional: "*types.Optional",
}


def check_qualifier(key: Any) -> None:
    """Raise EvalError unless a value is a string, a bool or a number, which are all that square brackets allow."""
    if not isinstance(key, str | int | float):
        raise EvalError(f"invalid qualifier type: {_GO_TYPES.get(type(key), type_name(key))}")


def from_key(key: Any) -> Any:
    return key.value if type(key) is BoolKey else key


def entries_of(mapping: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Return an iterator over the keys and values of a map, without fields that are not in its schema."""
    return ((from_key(key), value) for key, value in mapping.items() if type(key) is not UnknownField)


def keys_of(mapping: dict[Any, Any]) -> Iterator[Any]:
    return (key for key, _ in entries_of(mapping))


class AuthorizerDecision(msgspec.Struct, frozen=True):
    """An authorizer's decision."""

    allowed: bool
    reason: str = ""
    error: str = ""


class AuthorizerValue(msgspec.Struct, frozen=True):
    """The variable ``authorizer``: ``decide`` checks access of the requester or of the named service account."""

    decide: Callable[[AccessCheck, str], AuthorizerDecision]
    service_account: str = ""


class AccessCheck(msgspec.Struct, frozen=True):
    """The attributes of an access check of a resource or a non-resource path. Empty attributes do not restrict the check."""

    by: AuthorizerValue
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""

    def ask(self, verb: str) -> AuthorizerDecision:
        return self.by.decide(self, verb)


class PathCheck(msgspec.Struct, frozen=True):
    question: AccessCheck


class GroupCheck(msgspec.Struct, frozen=True):
    question: AccessCheck


class ResourceCheck(msgspec.Struct, frozen=True):
    question: AccessCheck


_NAMES: Final[dict[type, str]] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    SetList: "list",
    MapList: "list",
    dict: "map",
    ObjectFields: "map",
    ConstructedObject: "map",
    Timestamp: "google.protobuf.Timestamp",
    DurationValue: "google.protobuf.Duration",
    TypeValue: "type",
    Optional: "optional_type",
    ipaddress.IPv4Address: "net.IP",
    ipaddress.IPv6Address: "net.IP",
    Cidr: "net.CIDR",
    Amount: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
    UrlValue: "kubernetes.URL",
    FormatValue: "kubernetes.NamedFormat",
    AuthorizerValue: "kubernetes.authorization.Authorizer",
    PathCheck: "kubernetes.authorization.PathCheck",
    GroupCheck: "kubernetes.authorization.GroupCheck",
    ResourceCheck: "kubernetes.authorization.ResourceCheck",
    AuthorizerDecision: "kubernetes.authorization.Decision",
}
#: Run-time names of types in overload signatures.
_KINDS: Final = {"google.protobuf.Timestamp": "timestamp", "google.protobuf.Duration": "duration", "null_type": "null"}


def type_name(value: Any) -> str:
    if type(value) is ConstructedObject:
        return value.name
    return _NAMES.get(type(value), type(value).__name__)


def kind_of(python: type) -> str:
    """Return the name that overload signatures use for the CEL type of a Python class."""
    name = _NAMES.get(python, python.__name__)
    return _KINDS.get(name, name)


def equal(left: Any, right: Any) -> bool:
    """Return whether CEL's ``==`` holds: numbers are compared by value; NaN and values of different types are never equal."""
    kind, against = type(left), type(right)
    if kind is str:
        return against is str and left == right
    if kind is bool or against is bool:
        return kind is against and left is right
    if kind is float or against is float:  # compared as doubles, so that 9223372036854775807 equals 9223372036854775808.0
        return isinstance(left, int | float) and isinstance(right, int | float) and float(left) == float(right)
    if isinstance(left, int):
        return isinstance(right, int) and bool(left == right)
    if isinstance(left, list):
        return isinstance(right, list) and _lists_equal(left, right)
    if isinstance(left, dict):
        if not isinstance(right, dict) or len(left) != len(right) or _constructed(left) != _constructed(right):
            return False
        return all(key in right and equal(value, right[key]) for key, value in left.items())
    if kind is Optional:
        return against is Optional and left.present == right.present and (not left.present or equal(left.value, right.value))
    if kind is not against:
        return False
    if kind is Semver:
        return bool(left.key() == right.key())
    return bool(left == right)


def _constructed(value: dict[Any, Any]) -> str:
    """Return the type name of a constructed object; empty for a map."""
    return value.name if type(value) is ConstructedObject else ""


def _lists_equal(items: list[Any], other: list[Any]) -> bool:
    if len(items) != len(other):
        return False
    if isinstance(items, SetList):
        return all(contains(other, item) for item in items) and all(contains(items, item) for item in other)
    if isinstance(items, MapList):
        by_key = {items.key(item): item for item in items}
        return all(items.key(item) in by_key and equal(by_key[items.key(item)], item) for item in other)
    return all(map(equal, items, other))


def contains(items: list[Any], value: Any) -> bool:
    return any(equal(item, value) for item in items)


def joined(left: list[Any], right: list[Any]) -> list[Any]:
    """Concatenate lists as CEL's ``+`` does.

    Set lists become a union. In map lists, items of ``right`` replace the items with the same keys, and other items are appended.
    """
    if isinstance(left, SetList):
        return SetList([*left, *(item for item in right if not contains(left, item))])
    if isinstance(left, MapList):
        merged = {left.key(item): item for item in left}
        for item in right:
            merged[left.key(item)] = item
        return MapList(list(merged.values()), left.keys)
    return [*left, *right]


def size_of(value: Any) -> int:
    """Return the size of a value for costs: the number of characters, bytes, items or entries; 1 for values without a size."""
    if isinstance(value, str | bytes | list | dict):
        return len(value)
    if type(value) is Optional and value.present:
        return size_of(value.value)
    if type(value) is Cidr:
        return 4 if value.address.version == 4 else 16
    return 1
