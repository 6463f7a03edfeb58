"""The field manager of the server: updates ``metadata.managedFields`` on every write, and merges applied configurations.

Source: k8s.io/apimachinery pkg/util/managedfields (the chain of managers); Kubernetes documentation "Server-Side Apply".
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from kubeloop.apiserver.ownership.entries import (
    APPLY,
    UPDATE,
    InvalidEntries,
    ManagedFields,
    decode,
    encode,
    identifier,
    is_reset,
    manager_named,
)
from kubeloop.apiserver.ownership.managers import KUBECTL, allowed_conflicts, cap_updaters, update_last_applied
from kubeloop.apiserver.ownership.scopes import Scope, Scopes
from kubeloop.apiserver.registry.object_meta import timestamp
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.endpoints import api_errors
from kubeloop.merge.fields import ApplyConflict, FieldConflict, FieldSet, TypeMismatch
from kubeloop.merge.fields.checks import check
from kubeloop.merge.fields.managers import VersionedSet, apply, update
from kubeloop.meta.errors import ApiError
from kubeloop.meta.status import StatusCause, StatusDetails
from kubeloop.meta.strconv import go_quoted
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

# The error for an apply that conflicts with other managers.
#
# Source: k8s.io/apimachinery pkg/util/managedfields/internal/conflict.go; Kubernetes documentation "Server-Side Apply", "Conflicts".


def apply_conflict(conflicts: Sequence[FieldConflict]) -> ApiError:
    """Return a Conflict with a cause for each field, in this order. The message groups the fields by manager."""
    causes = [
        StatusCause(reason="FieldManagerConflict", message=f"conflict with {_shown(one.manager)}", field=one.field) for one in conflicts
    ]
    return api_errors.refusal(409, "Conflict", _message(conflicts), StatusDetails(causes=causes))


def _message(conflicts: Sequence[FieldConflict]) -> str:
    if len(conflicts) == 1:
        return f"Apply failed with 1 conflict: conflict with {_shown(conflicts[0].manager)}: {conflicts[0].field}"
    fields: dict[str, list[str]] = {}
    for conflict in conflicts:
        fields.setdefault(conflict.manager, []).append(conflict.field)
    lines = []
    for manager in sorted(fields):
        lines.append(f"conflicts with {_shown(manager)}:")
        lines += [f"- {field}" for field in fields[manager]]
    shown = "\n".join(lines)
    return f"Apply failed with {len(conflicts)} conflicts: {shown}"


def _shown(text: str) -> str:
    """Format a manager without the time of its write, as upstream does."""
    manager = manager_named(text)
    shown = go_quoted(manager.name)
    if manager.subresource:
        shown += f" with subresource {go_quoted(manager.subresource)}"
    return f"{shown} using {manager.api_version}" if manager.operation == UPDATE else shown


_LOG = logging.getLogger("kubeloop.apiserver.ownership")


#: Manager of the fields that existed before the first apply, if no manager was recorded.
BEFORE_FIRST_APPLY: Final = "before-first-apply"
#: Manager of the current write, separate from the fields that the same manager owned before. No identifier equals it, because identifiers
#: are JSON.
_SELF: Final = "current-operation"

#: Fields without an owner: the identity of the object, and fields that the server sets.
_UNOWNED: Final = FieldSet.from_paths(
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    ),
)


class Owners:
    """Field management for all resources. It has no state of requests.

    Guarantees
        ``managedFields`` records the manager that last set or applied each field. A manager that changes nothing owns nothing new.
        A field that an applied configuration no longer contains is removed, unless another manager owns it.

    Not guaranteed
        Writes that do not fit the schema are not recorded: as upstream, their managers are dropped.
    """

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._scopes = Scopes(registry)
        self._clock = clock

    def scope(self, resource: ServedResource, subresource: str) -> Scope:
        """Return the scope of writes to a resource or one of its subresources."""
        return self._scopes.of(resource, subresource)

    def updated(self, scope: Scope, live: JSONObject, new: JSONObject, manager: str) -> None:
        """Set the managedFields of ``new`` for an update. Never raises.

        Args:
            scope: The resource and subresource of the write.
            live: The stored object; ``scope.empty`` for a creation.
            new: The new object; it is changed in place.
            manager: Name of the field manager.
        """
        metadata = new["metadata"]
        managed = _started(live, metadata.get("managedFields"), trust_request=not scope.subresource)
        # An object without managedFields gets none until its first apply.
        counted = managed.fields or not (live.get("metadata") or {}).get("uid")
        try:
            _check_kind(scope, new)
            _check_fits(scope, live)
            _check_fits(scope, new)
            _check_versions(managed)
            if counted:
                self._update(scope, _bare(live), _bare(new), managed, manager)
        except TypeMismatch as error:
            _LOG.debug("discarding managedFields of %s %s: %s", scope.gvk.kind, metadata.get("name", ""), error)
            managed = ManagedFields()
        metadata.pop("managedFields", None)
        if managed.fields:
            metadata["managedFields"] = encode(managed)

    def applied(self, scope: Scope, live: JSONObject, config: JSONObject, manager: str, *, force: bool) -> JSONObject:
        """Merge an applied configuration into an object.

        Args:
            scope: The resource and subresource of the write.
            live: The stored object; ``scope.empty`` for a creation.
            config: The applied configuration.
            manager: Name of the field manager.
            force: Take fields from other managers instead of a conflict.

        Returns:
            The new object with its managedFields, before defaulting and pruning. It shares unchanged parts with ``live`` and ``config``.

        Raises:
            BadRequest: The configuration has another kind, or sets managedFields.
            Conflict: Other managers own some of the fields.
            InternalError: The configuration does not fit the schema.
        """
        self.check_kind(scope, config)
        try:
            managed = decode((live.get("metadata") or {}).get("managedFields"))
        except InvalidEntries as error:
            raise api_errors.internal(f"failed to decode managed fields: {error}") from None
        bare = _bare(live)
        misfit = _misfit(scope, bare)
        if misfit and not managed.fields:
            why = f"failed to convert new object ({_named(live, scope)}) to smd typed: {misfit}"
            raise api_errors.internal(f"failed to create manager for existing fields: {why}")
        self._check(scope, config)
        if misfit:
            raise api_errors.internal(f"failed to create typed live object ({_named(live, scope)}): {misfit}")
        if not managed.fields:
            self._update(scope, scope.empty, bare, managed, BEFORE_FIRST_APPLY)
        merged = self._apply(scope, bare, config, managed, manager, force=force)
        if manager == KUBECTL:
            merged = update_last_applied(merged, config)
        metadata = {**(merged.get("metadata") or {})}
        entries = encode(managed)
        if entries:
            metadata["managedFields"] = entries
        return {**merged, "metadata": metadata}

    def _update(self, scope: Scope, live: JSONObject, new: JSONObject, managed: ManagedFields, manager: str) -> None:
        fields: dict[str, VersionedSet] = update(live, new, scope.api_version, managed.fields, _SELF, scope.versions, scope.filters)
        mine = fields.pop(_SELF, None)
        owned = FieldSet() if mine is None else mine.set - _UNOWNED
        if owned:
            me = identifier(manager, UPDATE, scope.api_version, scope.subresource)
            before = fields.get(me)
            fields[me] = VersionedSet(owned if before is None else owned | before.set, scope.api_version, False)
            managed.times[me] = self._now()
        managed.fields = fields
        cap_updaters(managed)

    def _apply(
        self, scope: Scope, live: JSONObject, config: JSONObject, managed: ManagedFields, manager: str, *, force: bool
    ) -> JSONObject:
        me = identifier(manager, APPLY, scope.api_version, scope.subresource)

        def run(force: bool) -> tuple[JSONObject | None, dict[str, VersionedSet]]:
            return apply(live, config, scope.api_version, managed.fields, me, scope.versions, scope.filters, force=force)

        try:
            try:
                new, fields = run(force)
            except ApplyConflict as error:
                conflicts = list(error.conflicts)
                if manager == KUBECTL:
                    allowed = allowed_conflicts(live, scope)
                    conflicts = [one for one in conflicts if one.path not in allowed]
                if conflicts:
                    raise apply_conflict(conflicts) from None
                new, fields = run(True)
        except TypeMismatch as error:
            raise api_errors.internal(str(error)) from None
        mine = fields.get(me)
        if mine is not None:
            owned = mine.set - _UNOWNED
            if owned:
                fields[me] = mine._replace(set=owned)
            else:
                del fields[me]
        managed.fields = fields
        if new is None:
            return live  # As upstream: a manager that joins without a change gets no time.
        managed.times[me] = self._now()
        return new

    @staticmethod
    def check_kind(scope: Scope, config: JSONObject) -> None:
        """Check the kind of an applied configuration.

        Raises:
            BadRequest: The configuration has another kind, or sets managedFields.
        """
        group, version, kind = _said(config)
        if (group, version, kind) != tuple(scope.gvk):
            raise api_errors.bad_request(f"invalid object type: {group}/{version}, Kind={kind}")
        metadata = config.get("metadata")
        if isinstance(metadata, dict) and isinstance(metadata.get("managedFields"), list):
            raise api_errors.bad_request("metadata.managedFields must be nil")

    @staticmethod
    def _check(scope: Scope, config: JSONObject) -> None:
        try:
            check(config, scope.versions.type_of(scope.api_version))
        except TypeMismatch as error:
            raise api_errors.internal(f"failed to create typed patch object ({_named(config, scope)}): {error}") from None

    def _now(self) -> str:
        return timestamp(self._clock.wall())


def _check_kind(scope: Scope, new: JSONObject) -> None:
    """Check the apiVersion and kind of an object. Raises TypeMismatch if they differ, which is possible for custom objects."""
    if new.get("kind") != scope.gvk.kind or new.get("apiVersion") != scope.api_version:
        raise TypeMismatch(f"failed to convert new object to proper version: {new.get('apiVersion')}, Kind={new.get('kind')}")


def _started(live: JSONObject, values: Any, *, trust_request: bool) -> ManagedFields:
    """Return the owners before the write: those in the request if it may set them and they are valid, or else the stored ones."""
    if trust_request:
        if is_reset(values):
            return ManagedFields()
        if values:
            try:
                return decode(values)
            except InvalidEntries:
                pass  # Clients that drop managedFields by accident do no harm this way.
    try:
        return decode((live.get("metadata") or {}).get("managedFields"))
    except InvalidEntries:
        return ManagedFields()


def _check_fits(scope: Scope, obj: JSONObject) -> None:
    """Check that a custom object matches its type. Raises TypeMismatch if not. Built-in objects were checked when they were decoded."""
    if scope.checked:
        check(_bare(obj), scope.versions.type_of(scope.api_version), allow_duplicates=True)


def _misfit(scope: Scope, obj: JSONObject) -> str:
    try:
        _check_fits(scope, obj)
    except TypeMismatch as error:
        return str(error)
    return ""


def _said(config: JSONObject) -> tuple[str, str, str]:
    """Return group, version and kind as Go reads them: empty if they are not strings, or the apiVersion has no version."""
    api_version, kind = config.get("apiVersion"), config.get("kind")
    kind = kind if isinstance(kind, str) else ""
    api_version = api_version if isinstance(api_version, str) else ""
    if api_version.count("/") > 1:
        return "", "", ""
    group, _, version = api_version.rpartition("/")
    return group, version, kind


def _check_versions(managed: ManagedFields) -> None:
    """Check the apiVersions in managedFields. Raises TypeMismatch if one is malformed. An unknown version only loses its fields."""
    for owned in managed.fields.values():
        if owned.api_version.count("/") > 1:
            raise TypeMismatch(f"unexpected GroupVersion string: {owned.api_version}")


def _bare(obj: JSONObject) -> JSONObject:
    """Return the object without managedFields, because that field has no owners."""
    metadata = obj.get("metadata")
    if not metadata or "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}}


def _named(obj: JSONObject, scope: Scope) -> str:
    """Format the identity of an object as upstream does: namespace, name and kind."""
    metadata = obj.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    gvk = scope.gvk
    namespace, name = (known.get(part) for part in ("namespace", "name"))
    named = f"{namespace if isinstance(namespace, str) else ''}/{name if isinstance(name, str) else ''}"
    return f"{named}; {gvk.group}/{gvk.version}, Kind={gvk.kind}"
