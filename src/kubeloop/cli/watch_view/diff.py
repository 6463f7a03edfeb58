"""Differences between two states of an object, with readable paths: ``status.conditions[Ready].status``.

Works on plain trees without a schema, so that custom kinds are shown like built-in ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kubeloop.types import JSONObject


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


#: A missing value, as opposed to null.
ABSENT: Final = _Absent()

#: Merge keys of Kubernetes' own lists (``x-kubernetes-list-map-keys``), the most specific first: conditions, containers and volumes,
#: ports, mounts, pod IPs, owners, tolerations and label expressions, topology constraints.
MERGE_KEYS: Final = ("type", "name", "containerPort", "port", "mountPath", "devicePath", "ip", "uid", "key", "topologyKey")

#: Paths that every write changes: left out unless all fields are requested.
_NOISE: Final = (
    ("metadata", "managedFields"),
    ("metadata", "resourceVersion"),
    ("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"),
)


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One difference. ``before`` or ``after`` is ``ABSENT`` if the path is new or gone.

    ``order``: only the order of a list's items changed; both sides then are the items' names.
    """

    path: str
    before: Any
    after: Any
    order: bool = False


def without_noise(tree: JSONObject) -> JSONObject:
    """Return the object without fields that change with every write; the argument stays unchanged."""
    for path in _NOISE:
        tree = _without(tree, path)
    return tree


def changes(before: JSONObject, after: JSONObject) -> list[FieldDifference]:
    """Return the differences, in the order of the objects' fields.

    Guarantees
        The result is empty if and only if the trees are equal as JSON (true is not 1). New maps are listed field by field, new lists item
        by item if these have a merge key, vanished maps and the items of lists as a whole. Lists whose items have a merge key are compared
        by it, lists of distinct words as sets if the common words have the same order, all others by position.
    """
    return list(_differ("", before, after))


def _without(tree: JSONObject, path: tuple[str, ...]) -> JSONObject:
    name, *rest = path
    if name not in tree:
        return tree
    if not rest:
        return {key: value for key, value in tree.items() if key != name}
    inner = tree[name]
    return {**tree, name: _without(inner, tuple(rest))} if isinstance(inner, dict) else tree


def _differ(path: str, before: Any, after: Any) -> Iterator[FieldDifference]:
    if before is ABSENT and isinstance(after, dict) and after:
        before = {}
    elif after is ABSENT and isinstance(before, dict) and before and not any(isinstance(one, dict | list) for one in before.values()):
        after = {}
    elif before is ABSENT and isinstance(after, list) and _merge_key([], after) is not None:
        before = []
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            yield from _differ(_field(path, name), before.get(name, ABSENT), after.get(name, ABSENT))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _lists(path, before, after)
    elif not _same(before, after):
        yield FieldDifference(path, before, after)


def _same(before: Any, after: Any) -> bool:
    # In Python True == 1; in JSON they differ.
    return isinstance(before, bool) is isinstance(after, bool) and bool(before == after)


def _field(path: str, name: str) -> str:
    if "." in name or "/" in name or not name:
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name


def _lists(path: str, before: list[Any], after: list[Any]) -> Iterator[FieldDifference]:
    key = _merge_key(before, after)
    if key is not None:
        yield from _by_name(path, {str(item[key]): item for item in before}, {str(item[key]): item for item in after})
    elif _distinct_scalars(before) and _distinct_scalars(after) and _in_order(before, after):
        yield from (FieldDifference(path, item, ABSENT) for item in before if not _in(item, after))
        yield from (FieldDifference(path, ABSENT, item) for item in after if not _in(item, before))
    elif _scalars(before) and _scalars(after):
        if len(before) != len(after) or not all(map(_same, before, after)):
            yield FieldDifference(path, before, after)
    else:
        for number in range(max(len(before), len(after))):
            old = before[number] if number < len(before) else ABSENT
            new = after[number] if number < len(after) else ABSENT
            yield from _item(f"{path}[{number}]", old, new)


def _by_name(path: str, before: JSONObject, after: JSONObject) -> Iterator[FieldDifference]:
    for name in dict.fromkeys([*before, *after]):
        yield from _item(f"{path}[{name}]", before.get(name, ABSENT), after.get(name, ABSENT))
    kept = [name for name in before if name in after]
    ordered = [name for name in after if name in before]
    if kept != ordered:
        yield FieldDifference(path, kept, ordered, order=True)


def _item(path: str, before: Any, after: Any) -> Iterator[FieldDifference]:
    if before is ABSENT or after is ABSENT:
        yield FieldDifference(path, before, after)
    else:
        yield from _differ(path, before, after)


def _merge_key(before: list[Any], after: list[Any]) -> str | None:
    if not (before or after) or not all(isinstance(item, dict) for item in (*before, *after)):
        return None
    return next((key for key in MERGE_KEYS if _names(key, before) and _names(key, after)), None)


def _names(key: str, items: list[JSONObject]) -> bool:
    """Return whether every item has the key, with distinct values."""
    names = [item.get(key) for item in items]
    return all(isinstance(name, str | int) for name in names) and len(set(map(str, names))) == len(names)


def _scalars(items: list[Any]) -> bool:
    return not any(isinstance(item, dict | list) for item in items)


def _distinct_scalars(items: list[Any]) -> bool:
    return _scalars(items) and all(isinstance(item, str) for item in items) and len(set(items)) == len(items)


def _in_order(before: list[Any], after: list[Any]) -> bool:
    return [item for item in before if item in after] == [item for item in after if item in before]


def _in(item: Any, items: list[Any]) -> bool:
    return item in items
