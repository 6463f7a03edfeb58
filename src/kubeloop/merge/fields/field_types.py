"""Merge types: whether a value is owned and merged as a whole (atomic) or part by part, and which keys identify the items of a list.

Source: KEP-555 and KEP-2155; structured-merge-diff's schema. ``from_schema`` builds these types from schema documents.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from kubeloop.merge.fields.elements import ElementError, field_element, json_text, key_element, value_element

ScalarType = Literal["untyped", "numeric", "string", "boolean"]

#: Marks the absence of a value; None is JSON's null.
ABSENT: Final = object()


class MapType:
    """The type of a map: its named fields, and the type of other names; ``values`` is None if other names are not allowed."""

    __slots__ = ("atomic", "fields", "free", "values")

    def __init__(self, fields: dict[str, MergeType], values: MergeType | None, *, atomic: bool, deduced: bool = False) -> None:
        """Create a type.

        Args:
            fields: The types of named fields.
            values: The type of other names. None: they are not allowed.
            atomic: The map is owned and replaced as a whole.
            deduced: The type is unknown; values determine it.
        """
        self.fields = fields
        self.values = values
        self.atomic = atomic
        #: Whether the type is unknown, so that only its values show it.
        self.free = deduced

    def of(self, name: str) -> MergeType | None:
        return self.fields.get(name, self.values)


class ListType:
    """The type of a list: ``atomic``, or associative (a map by ``keys``, or without keys a set)."""

    __slots__ = ("_single", "atomic", "items", "keys")

    def __init__(self, items: MergeType, *, atomic: bool, keys: tuple[str, ...] = ()) -> None:
        self.items = items
        self.atomic = atomic
        self.keys = keys
        self._single = (keys[0], "k:{" + json_text(keys[0]) + ":") if len(keys) == 1 else None

    def element(self, item: Any) -> str:
        """Return the path element of an item of an associative list.

        Raises:
            ElementError: The item has no key.
        """
        if not self.keys:
            return _set_element(item)
        if item.__class__ is not dict:
            what = "a null element" if item is None else "non-map elements"
            raise ElementError(f"associative list with keys may not have {what}")
        if self._single:
            name, start = self._single
            value = item.get(name, ABSENT)
            if value is not ABSENT:
                return f"{start}{json_text(value)}}}"
        fields: list[tuple[str, Any]] = []
        for name in self.keys:
            value = item.get(name, ABSENT)
            if value is ABSENT:
                value = self._default(name)
                if value is None:
                    # Items with and without the key are different items.
                    continue
            fields.append((name, value))
        if not fields:
            quoted = " ".join(f'"{name}"' for name in self.keys)
            raise ElementError(
                f"associative list with keys has an element that omits all key fields [{quoted}] "
                "(and doesn't have default values for any key fields)"
            )
        if len(fields) > 1:
            fields.sort(key=lambda field: field[0])
        return key_element(fields)

    def _default(self, name: str) -> Any:
        items = self.items.map
        if items is None:
            raise ElementError(f"couldn't find default value for {name}: associative list may not have non-map types")
        field = items.fields.get(name)
        return None if field is None else self.items.defaults.get(name)


def _set_element(item: Any) -> str:
    if item.__class__ is str:
        return value_element(item)
    if isinstance(item, dict):
        raise ElementError("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise ElementError("not supported: associative list with lists as elements")
    if item is None:
        raise ElementError("associative list without keys has an element that's an explicit null")
    return value_element(item)


class MergeType:
    """The type of a value: a scalar, a list, a map, or several of these (then the value decides)."""

    __slots__ = ("_loose", "defaults", "list", "map", "only_int_or_string", "scalar")

    def __init__(self, scalar: ScalarType | None = None, list_: ListType | None = None, map_: MapType | None = None) -> None:
        self.scalar = scalar
        self.list = list_
        self.map = map_
        #: Defaults of named fields, for keys that items leave out.
        self.defaults: dict[str, Any] = {}
        #: Whether validation accepts only integers and strings, although merging handles every shape.
        self.only_int_or_string = False
        self._loose: bool | None = None

    @property
    def loose(self) -> bool:
        """Whether some part has no type, so that one value may hold a boolean where another holds a number."""
        if self._loose is None:
            self._loose = _reaches_untyped(self)
        return self._loose


def _reaches_untyped(type_: MergeType) -> bool:
    seen: set[int] = set()
    waiting = [type_]
    while waiting:
        one = waiting.pop()
        if one.only_int_or_string:
            continue
        if one.scalar == "untyped" and one.map is not None:
            return True
        if id(one) in seen:
            continue
        seen.add(id(one))
        if one.map is not None:
            waiting += one.map.fields.values()
            if one.map.values is not None:
                waiting.append(one.map.values)
        if one.list is not None:
            waiting.append(one.list.items)
    return False


def shape(type_: MergeType, value: Any) -> Literal["map", "scalar", "list", ""]:
    """Return the alternative of a type that applies to a value, or the first alternative if none fits."""
    if value.__class__ is dict:
        if type_.map is not None:
            return "map"
    elif value.__class__ is list:
        if type_.list is not None:
            return "list"
    elif value is not None and value is not ABSENT and type_.scalar is not None:
        return "scalar"
    if type_.map is not None:
        return "map"
    if type_.scalar is not None:
        return "scalar"
    return "list" if type_.list is not None else ""


def _untyped_atomic() -> MergeType:
    type_ = MergeType("untyped")
    type_.list = ListType(type_, atomic=True)
    type_.map = MapType({}, type_, atomic=True)
    return type_


#: Any value, owned as a whole.
ATOMIC: Final = _untyped_atomic()


def _deduced() -> MergeType:
    type_ = MergeType("untyped", ListType(ATOMIC, atomic=True))
    type_.map = MapType({}, type_, atomic=False, deduced=True)
    return type_


#: The type of values without a schema: maps by name, lists as a whole.
DEDUCED: Final = _deduced()

__all__ = ["ABSENT", "ATOMIC", "DEDUCED", "ListType", "MapType", "MergeType", "ScalarType", "field_element", "shape"]
