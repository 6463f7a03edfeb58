"""The last seen state of each object, so that an event can be shown as the difference to it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from kubeloop.types import JSONObject

#: Maximum bytes of all states; the states that were not used for the longest time go first.
MAX_STATES: Final = 64 << 20

_TABLE = "Table"
_PARTIAL = "PartialObjectMetadata"


class SeenKey(NamedTuple):
    """Identifies an object. ``form`` separates whole objects, rows of Tables and metadata, which cannot be compared with each other."""

    resource: str
    form: str
    namespace: str
    name: str

    @property
    def shown(self) -> str:
        """``namespace/name``, or the name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class SeenObject(NamedTuple):
    """An object in a response. ``tree`` of a Table's row is its cells by column."""

    key: SeenKey
    resource_version: str
    tree: JSONObject


#: Maximum number of states of one object: as many writes may be answered before a watch brings the first of them.
_HISTORY: Final = 4


class _State(NamedTuple):
    resource_version: str
    tree: bytes


class ObjectStates:
    """The last states of objects, in a bounded amount of memory.

    >>> states = ObjectStates()
    >>> pod = SeenObject(SeenKey("pods", "", "default", "web-0"), "7", {"status": {"phase": "Pending"}})
    >>> states.replace(pod)
    >>> states.replace(pod)
    {'status': {'phase': 'Pending'}}
    """

    def __init__(self, limit: int = MAX_STATES) -> None:
        self._limit = limit
        self._size = 0
        #: The last states of each object, the newest at the end.
        self._states: OrderedDict[SeenKey, tuple[_State, ...]] = OrderedDict()

    def replace(self, seen: SeenObject, *, deleted: bool = False, is_event: bool = False) -> JSONObject | None:
        """Return the previous state of an object, and store the new one.

        Args:
            seen: The new state.
            deleted: Store none.
            is_event: The state comes from a watch. The response to a write, or another watch, may have brought this version before; the
                state before it is returned again then, because this event made that change.

        Returns:
            The state before. None: the object was not seen before.
        """
        history = self._states.pop(seen.key, ())
        self._size -= _size(history)
        versions = [state.resource_version for state in history]
        if is_event and seen.resource_version and seen.resource_version in versions:
            at = versions.index(seen.resource_version)
            before = history[at - 1] if at else None
        else:
            before = history[-1] if history else None
            history = (*history[1 - _HISTORY :], _State(seen.resource_version, msgspec.json.encode(seen.tree)))
        if not deleted:
            self._states[seen.key] = history
            self._size += _size(history)
            while self._size > self._limit and self._states:
                _, oldest = self._states.popitem(last=False)
                self._size -= _size(oldest)
        return None if before is None else msgspec.json.decode(before.tree, type=dict)


def _size(history: tuple[_State, ...]) -> int:
    return sum(len(state.tree) for state in history)


class SeenObjectReader:
    """Finds the objects in the responses of one request. It remembers a Table's columns, which only a watch's first event names."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._columns: list[str] = []

    def objects(self, tree: JSONObject) -> Iterator[SeenObject]:
        """Yield the objects of a list, the rows of a Table, or the object itself. A Status contains none."""
        kind = tree.get("kind")
        if kind == "Status":
            return
        if kind == _TABLE:
            yield from self._rows(tree)
        elif isinstance(items := tree.get("items"), list) and str(kind).endswith("List"):
            # Items of built-in lists have no kind.
            common = {"apiVersion": tree.get("apiVersion", ""), "kind": str(kind).removesuffix("List")}
            for item in items:
                if isinstance(item, dict):
                    yield from self._object({**common, **item})
        else:
            yield from self._object(tree)

    def _object(self, tree: JSONObject) -> Iterator[SeenObject]:
        metadata = tree.get("metadata")
        if isinstance(metadata, dict) and metadata.get("name"):
            form = _PARTIAL if tree.get("kind") == _PARTIAL else ""
            key = SeenKey(self._resource, form, str(metadata.get("namespace") or ""), str(metadata["name"]))
            yield SeenObject(key, str(metadata.get("resourceVersion") or ""), tree)

    def _rows(self, tree: JSONObject) -> Iterator[SeenObject]:
        definitions = tree.get("columnDefinitions")
        if isinstance(definitions, list) and definitions:
            self._columns = [str(one.get("name", "")) for one in definitions if isinstance(one, dict)]
        for row in tree.get("rows") or ():
            found = row.get("object") if isinstance(row, dict) else None
            metadata = found.get("metadata") if isinstance(found, dict) else None
            if not isinstance(metadata, dict):
                continue
            cells = row.get("cells") or []
            named = {column: cell for column, cell in zip(self._columns, cells, strict=False) if column not in ("Name", "Age")}
            key = SeenKey(self._resource, _TABLE, str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
            yield SeenObject(key, str(metadata.get("resourceVersion") or ""), named)
