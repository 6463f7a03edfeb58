"""Which part of an object before an update corresponds to which part of it now: by field name, and by the keys in lists of type map.

Faults of parts that did not change are excused (ratcheting, KEP-4008). Source: k8s.io/apiserver pkg/cel/common/equality.go.
"""

from __future__ import annotations

import json
from typing import Any

from kubeloop.schema.node import TypeSchema
from kubeloop.schema.structural import ANY_VALUE, NO_OTHER
from kubeloop.schema.validation import same


class OldItems:
    """The items of a list before the update, found by the keys of an item now. Of other lists than maps it finds nothing."""

    def __init__(self, schema: TypeSchema, items: Any) -> None:
        self._keys = schema.list_map_keys if schema.list_type == "map" and isinstance(items, list) else ()
        self._items: dict[str, Any] = {}
        for item in items if self._keys else ():
            if (key := self._key(item)) is not None:
                self._items.setdefault(key, item)

    def get(self, item: Any) -> Any:
        key = self._key(item)
        return None if key is None else self._items.get(key)

    def _key(self, item: Any) -> str | None:
        if not self._keys or not isinstance(item, dict):
            return None
        values = [item.get(name) for name in self._keys]
        return json.dumps(values) if all(isinstance(one, bool | int | float | str) for one in values) else None


class Correlated:
    """A value and its counterpart before the update."""

    __slots__ = ("_children", "_items", "_same", "old", "schema", "value")

    def __init__(self, value: Any, old: Any, schema: TypeSchema) -> None:
        self.value = value
        self.old = old
        self.schema = schema
        self._children: dict[str | int, Correlated | None] = {}
        self._items: OldItems | None = None
        self._same: bool | None = None

    def key(self, name: str) -> Correlated | None:
        """The field of that name, None where only one of both has it or the schema does not know it."""
        if name not in self._children:
            self._children[name] = self._key(name)
        return self._children[name]

    def _key(self, name: str) -> Correlated | None:
        if not isinstance(self.value, dict) or not isinstance(self.old, dict) or name not in self.value or name not in self.old:
            return None
        below = self.schema.properties.get(name)
        if below is None and self.schema.values not in (ANY_VALUE, NO_OTHER):
            below = self.schema.values
        return None if below is None else Correlated(self.value[name], self.old[name], below)

    def index(self, number: int) -> Correlated | None:
        """The item at that index, None outside of lists of type map and where its keys are new."""
        if number not in self._children:
            self._children[number] = self._index(number)
        return self._children[number]

    def _index(self, number: int) -> Correlated | None:
        if not isinstance(self.value, list) or self.schema.items is None:
            return None
        if self._items is None:
            self._items = OldItems(self.schema, self.old)
        old = self._items.get(self.value[number])
        return None if old is None else Correlated(self.value[number], old, self.schema.items)

    def unchanged(self) -> bool:
        """Deep equality, in which the order of lists of type map does not matter."""
        if self._same is None:
            self._same = self._unchanged()
        return self._same

    def _unchanged(self) -> bool:
        value, old = self.value, self.old
        if value is None or old is None:
            return value is old
        if isinstance(value, list) and isinstance(old, list):
            if len(value) != len(old):
                return False
            if self.schema.list_type != "map":
                return same(old, value)
            return all((one := self.index(number)) is not None and one.unchanged() for number in range(len(value)))
        if isinstance(value, dict) and isinstance(old, dict):
            return len(value) == len(old) and all((one := self.key(name)) is not None and one.unchanged() for name in value)
        return same(old, value)
