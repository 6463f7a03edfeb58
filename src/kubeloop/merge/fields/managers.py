"""Computes the managed fields after an update or an apply: the bookkeeping of field managers.

Source: structured-merge-diff's merge/update.go; KEP-555; Kubernetes documentation "Server-Side Apply".
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from kubeloop.merge.fields.comparison import StateComparison, compare, equal, field_set
from kubeloop.merge.fields.errors import MISMATCHES, ApplyConflict, FieldConflict, MissingVersion, prefixed
from kubeloop.merge.fields.field_set import FieldSet, Filter
from kubeloop.merge.fields.field_types import MergeType
from kubeloop.merge.fields.tree import LEAF, SELF, Node
from kubeloop.merge.fields.typed_values import merge, remove, with_named_fields
from kubeloop.types import JSONObject

# Field sets after a schema changed: an owner of parts of a field that has become atomic owns the whole field.
#
# Source: KEP-2155; structured-merge-diff's typed/reconcile_schema.


def reconcile(fields: FieldSet, type_: MergeType) -> FieldSet:
    """Return the fields that a manager owns by the current schema; ``fields`` itself if nothing changes.

    The manager of a field that became granular owns only the field itself, not its parts.
    """
    if type_.map is None or type_.map.atomic:
        return fields
    root = _node(fields.root, type_)
    return fields if root is fields.root else FieldSet(root)


def _node(node: Node, type_: MergeType) -> Node:
    """Return a node in which fields that the type declares atomic are leaves; ``node`` itself if nothing changes. The node has children."""
    if type_.map is not None:
        map_ = type_.map
        if map_.free:
            return node
        if map_.atomic:
            return LEAF
        if not any(node.values()):
            return node
        fields, values = map_.fields, map_.values
        changed: Node = {}
        for element, below in node.items():
            if below:
                field = fields.get(element[2:], values) if element[0] == "f" else values
                if field is not None and (found := _node(below, field)) is not below:
                    changed[element] = found
        return {**node, **changed} if changed else node
    if type_.scalar is None and type_.list is not None:
        if type_.list.atomic:
            return LEAF
        if not any(node.values()):
            return node
        items = type_.list.items
        changed = {
            element: found for element, below in node.items() if below and element != SELF and (found := _node(below, items)) is not below
        }
        return {**node, **changed} if changed else node
    return node


#: The caller's identifier of a manager.
M = TypeVar("M", bound=Hashable)


class VersionedSet(NamedTuple):
    """The fields that one manager owns, with names as in ``api_version``. ``applied`` says whether it owns them by server-side apply."""

    set: FieldSet
    api_version: str
    applied: bool


class Versions(Protocol):
    """The types of the versions of one kind, and the conversion between versions."""

    def type_of(self, api_version: str) -> MergeType:
        """Return the type in a version. Raises MissingVersion."""

    def convert(self, obj: JSONObject, api_version: str) -> JSONObject:
        """Return ``obj`` in another version, or ``obj`` itself if it already has this version. ``obj`` is not changed.

        Raises:
            MissingVersion: The version does not exist; the fields that managers own in it are dropped.
            TypeMismatch: The object cannot be converted. An apply fails; an update drops all managers.
        """


def update(
    live: JSONObject,
    new: JSONObject,
    api_version: str,
    managers: Mapping[M, VersionedSet],
    manager: M,
    versions: Versions,
    filters: Mapping[str, Filter] | None = None,
) -> dict[M, VersionedSet]:
    """Return the managers after ``manager`` wrote ``new`` over ``live``, both in ``api_version``.

    ``manager`` gains the fields that it changed or added. Other managers lose these fields, and all managers lose removed fields. A manager
    without fields is left out.

    Args:
        live: The stored object; empty for a creation.
        new: The object as written.
        api_version: The version of ``live`` and ``new``.
        managers: The managers before the write.
        manager: The manager that writes.
        versions: Types and conversions of the kind.
        filters: Filter by version: the fields that this endpoint can own. None: all fields.

    Raises:
        TypeMismatch: A state does not fit its type.
    """
    with MISMATCHES:
        filters = filters or {}
        old = _Old(live, versions)
        reconciled = _reconciled(old, managers, versions)
        changes = _Changes(old, new, api_version, versions, filters)
        kept, _ = _others(changes, reconciled, manager)
        mine = reconciled.get(manager)
        owned = FieldSet() if mine is None else mine.set
        change = changes.of(api_version)
        owned = (owned - change.removed) | change.modified | change.added
        if api_version in filters:
            owned = filters[api_version](owned)
        return _with(kept, manager, VersionedSet(owned, api_version, False))


def apply(
    live: JSONObject,
    applied: JSONObject,
    api_version: str,
    managers: Mapping[M, VersionedSet],
    manager: M,
    versions: Versions,
    filters: Mapping[str, Filter] | None = None,
    *,
    force: bool = False,
) -> tuple[JSONObject | None, dict[M, VersionedSet]]:
    """Return the object after ``manager`` applied ``applied`` to ``live``, or None if it is unchanged, and the managers after the apply.

    Fields that the manager applied before and now leaves out are removed, unless other managers own them. Call ``check`` on the
    configuration first.

    Args:
        live: The stored object; empty for a creation.
        applied: The applied configuration.
        api_version: The version of ``live`` and ``applied``.
        managers: The managers before the apply.
        manager: The manager that applies.
        versions: Types and conversions of the kind.
        filters: Filter by version: the fields that this endpoint can own. None: all fields.
        force: Take over fields that other managers own instead of raising ApplyConflict.

    Raises:
        ApplyConflict: Other managers own fields that would change, and ``force`` is False.
        TypeMismatch: A state does not fit its type.
    """
    with MISMATCHES:
        filters = filters or {}
        old = _Old(live, versions)
        reconciled = _reconciled(old, managers, versions)
        type_ = versions.type_of(api_version)
        merged = merge(live, applied, type_)
        last = reconciled.get(manager)
        owned = field_set(applied, type_)
        if api_version in filters:
            owned = filters[api_version](owned)
        current = {**reconciled, manager: VersionedSet(owned, api_version, True)}
        # An applier that repeats every field of its last configuration removes nothing, so pruning is skipped, unless a manager owns
        # fields in another version.
        keeps = (
            last is None or not last.set or (not last.set - owned and all(one.api_version == api_version for one in reconciled.values()))
        )
        if keeps or last is None:
            new = merged
        else:
            with prefixed("failed to prune fields"):
                new = _Pruning(merged, last, current, versions).run(api_version)
        kept, conflicts = _others(_Changes(old, new, api_version, versions, filters), current, manager)
        if conflicts and not force:
            raise ApplyConflict(conflicts)
        return None if equal(live, new) else new, _with(kept, manager, current[manager])


def _with(managers: dict[M, VersionedSet], manager: M, owned: VersionedSet) -> dict[M, VersionedSet]:
    if owned.set:
        managers[manager] = owned
    else:
        managers.pop(manager, None)
    return managers


class _Old:
    """An object before a write, converted on demand."""

    def __init__(self, live: JSONObject, versions: Versions) -> None:
        self._live = live
        self._versions = versions
        self._known: dict[str, JSONObject] = {}

    def in_version(self, api_version: str) -> JSONObject:
        """Return the object in a version. Raises MissingVersion, TypeMismatch."""
        known = self._known.get(api_version)
        if known is None:
            known = self._known[api_version] = self._versions.convert(self._live, api_version)
        return known


def _reconciled(old: _Old, managers: Mapping[M, VersionedSet], versions: Versions) -> dict[M, VersionedSet]:
    """Return the managers with their field sets adapted to the current schemas. Managers of versions that no longer exist are left out.

    Raises:
        TypeMismatch: The stored object does not fit a version in which a manager owns fields.
    """
    out: dict[M, VersionedSet] = {}
    for manager, owned in managers.items():
        try:
            old.in_version(owned.api_version)
            fields = reconcile(owned.set, versions.type_of(owned.api_version))
        except MissingVersion:
            continue
        out[manager] = owned if fields is owned.set else owned._replace(set=fields)
    return out


class _Changes:
    """The changes of a write as each API version names them; computed on demand."""

    def __init__(self, old: _Old, new: JSONObject, api_version: str, versions: Versions, filters: Mapping[str, Filter]) -> None:
        self._old = old
        self._new = new
        self._written = api_version
        self._versions = versions
        self._filters = filters
        self._known: dict[str, StateComparison] = {}

    def of(self, api_version: str) -> StateComparison:
        """Return the changes in a version. Raises MissingVersion."""
        known = self._known.get(api_version)
        if known is None:
            new = self._new
            with prefixed("failed to convert old object"):
                live = self._old.in_version(api_version)
            if api_version != self._written:
                with prefixed("failed to convert new object"):
                    new = self._versions.convert(new, api_version)
            with prefixed("failed to compare objects"):
                known = compare(live, new, self._versions.type_of(api_version))
            keep = self._filters.get(api_version)
            if keep is not None:
                known = StateComparison(keep(known.added), keep(known.modified), keep(known.removed))
            self._known[api_version] = known
        return known


def _others(changes: _Changes, managers: Mapping[M, VersionedSet], manager: M) -> tuple[dict[M, VersionedSet], list[FieldConflict]]:
    """Return the managers after ``manager`` wrote, and the conflicts, which are the changed fields that other managers owned.

    Other managers lose changed and removed fields; the entry of ``manager`` stays as it is.
    """
    kept: dict[M, VersionedSet] = {}
    conflicts: list[FieldConflict] = []
    for other, owned in managers.items():
        if other == manager:
            kept[other] = owned
            continue
        try:
            change = changes.of(owned.api_version)
        except MissingVersion:
            continue
        fields = owned.set
        if change:
            taken = fields & (change.modified | change.added)
            conflicts += [FieldConflict(other, path) for path in taken]
            fields = (fields - taken) - change.removed
        if fields:
            kept[other] = owned._replace(set=fields)
    return kept, conflicts


class _Pruning:
    """Removes from a merged object the fields that its applier no longer applies, unless other managers own them."""

    def __init__(self, merged: JSONObject, last: VersionedSet, managers: Mapping[Any, VersionedSet], versions: Versions) -> None:
        self._merged = merged
        self._last = last
        self._managers = managers
        self._versions = versions

    def run(self, api_version: str) -> JSONObject:
        last, versions = self._last, self._versions
        try:
            with prefixed("failed to convert merged object to last applied version"):
                merged = versions.convert(self._merged, last.api_version)
        except MissingVersion:
            return self._merged
        type_ = versions.type_of(last.api_version)
        named = with_named_fields(last.set, type_)
        with prefixed("failed add back owned items"):
            pruned = self._with_owned(merged, remove(merged, named, type_))
        try:
            with prefixed("failed add back dangling items: failed to convert pruned object to last applied version"):
                pruned = versions.convert(pruned, last.api_version)
        except MissingVersion:
            return versions.convert(merged, api_version)
        # Fields that vanished with a container although the applier never applied them (they have no owner, or an updater) are restored.
        gone = self._all(merged, type_) - self._all(pruned, type_)
        return versions.convert(remove(merged, gone & named, type_), api_version)

    def _with_owned(self, merged: JSONObject, pruned: JSONObject) -> JSONObject:
        """Return ``pruned`` with the fields of ``merged`` that a manager owns, in each version in which a manager owns fields."""
        owned: dict[str, FieldSet] = {}
        for manager in self._managers.values():
            owned[manager.api_version] = owned.get(manager.api_version, FieldSet()) | manager.set
        # The version of the last apply first: a conversion may need fields that pruning removed.
        for version in sorted(owned, key=lambda version: (version != self._last.api_version, version)):
            try:
                with prefixed(f"failed to convert merged object at version {version}"):
                    merged = self._versions.convert(merged, version)
                with prefixed(f"failed to convert pruned object at version {version}"):
                    pruned = self._versions.convert(pruned, version)
            except MissingVersion:
                continue
            type_ = self._versions.type_of(version)
            gone = self._all(merged, type_) - (self._all(pruned, type_) | with_named_fields(owned[version], type_))
            pruned = remove(merged, gone, type_)
        return pruned

    @staticmethod
    def _all(obj: JSONObject, type_: MergeType) -> FieldSet:
        return with_named_fields(field_set(obj, type_), type_)
