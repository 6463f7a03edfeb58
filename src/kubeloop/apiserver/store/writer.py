"""Creates and updates objects: the steps from a decoded body to storage.

Order, as in k8s.io/apiserver pkg/registry: default, field ownership, admission that mutates, preparation, validation, admission that
validates, compare-and-write. Updates start again after a concurrent write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kubeloop.apiserver.admission import Admission, Attributes
from kubeloop.apiserver.admission.chain import attributes_of
from kubeloop.apiserver.ownership import Owners, restore_times, restore_valid_entries
from kubeloop.apiserver.registry.object_meta import (
    carry_over,
    drop_repeated,
    fill_new,
    generate_name,
    increment_generation,
    metadata_of,
    set_namespace,
)
from kubeloop.apiserver.registry.objects import Objects, PreconditionFailed, StoredObject
from kubeloop.apiserver.registry.options import parse_uint_fault, resource_version_number
from kubeloop.apiserver.registry.resource import ConversionNeeded, ServedResource
from kubeloop.apiserver.registry.write_request import Change, WriteRequest
from kubeloop.apiserver.validation.empty_values import as_quoted, as_sent
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.encoding import decode
from kubeloop.meta.errors import AlreadyExists, ApiError
from kubeloop.meta.field_error import FieldError, invalid
from kubeloop.meta.kinds import GroupKind, GroupResource
from kubeloop.schema.validation import same
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

#: Attempts to generate a free name for ``generateName``, as upstream.
_NAME_ATTEMPTS = 8
#: Seconds after which Events expire by default (kube-apiserver's --event-ttl).
EVENT_TTL = 3600.0
_EVENTS = frozenset({GroupResource("", "events"), GroupResource("events.k8s.io", "events")})


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The object after a write. ``stored`` is None after a dry run, and after an update that completes a deletion."""

    obj: JSONObject
    stored: StoredObject | None = None
    created: bool = False


class WriteAuthorization(Protocol):
    """Checks the rights that a write needs besides the right to its verb. Both methods raise an ApiError to reject it."""

    def check_write(self, write: WriteRequest, obj: JSONObject, old: JSONObject | None) -> None:
        """Check a write between mutating admission and validation. If ``old`` is None, the write creates ``obj``."""

    def check_creation(self, write: WriteRequest) -> None:
        """Check an update that creates the object."""


class Writer:
    """Creates and updates objects of any resource. A server has one; it stores no state of requests.

    Example:
        >>> outcome = await writer.create(scope.write(name="shop"), namespace)
        >>> outcome.obj["metadata"]["resourceVersion"]
    """

    def __init__(
        self,
        objects: Objects,
        admission: Admission,
        owners: Owners,
        clock: Clock,
        authorization: WriteAuthorization,
        event_ttl: float = EVENT_TTL,
    ) -> None:
        """Create the writer.

        Args:
            objects: Objects over storage.
            admission: The chain of admission plug-ins.
            owners: Field managers of objects.
            clock: The server's clock.
            authorization: Checks the rights that a write needs besides the right to its verb.
            event_ttl: Seconds after which Events expire (kube-apiserver's --event-ttl).
        """
        self._authorization = authorization
        self.objects = objects
        self.admission = admission
        self.owners = owners
        self.clock = clock
        self._event_ttl = event_ttl
        #: Seconds between two leases for Events; some Events live that much longer. Source: upstream's etcd3 leaseManager.
        self._lease_spacing = min(60.0, event_ttl / 20)
        self._lease = 0
        self._lease_since = 0.0

    async def create(self, write: WriteRequest, obj: JSONObject) -> WriteResult:
        """Create an object. ``obj`` is decoded and conformed; the caller must not change it afterwards.

        Raises:
            AlreadyExists: An object of this name exists.
            Invalid: The object is not valid.
            BadRequest: The object does not fit the request.
            ApiError: Admission or authorization rejects the object.
        """
        try:
            return await self._create(write, obj)
        finally:
            await write.finish()

    async def _create(self, write: WriteRequest, obj: JSONObject) -> WriteResult:
        resource, strategy = write.resource, write.resource.strategy
        metadata = metadata_of(obj)
        set_namespace(metadata, write.namespace)
        asked_version = metadata.pop("resourceVersion", "")
        generated = not metadata.get("name") and bool(metadata.get("generateName"))
        fill_new(metadata, self.clock.wall())
        strategy.default(obj)
        if write.manager:
            await self._own(write, obj, None)
        await self._mutate(write, attributes_of(write, "CREATE", obj, None), obj)
        self._authorization.check_write(write, obj, None)
        if strategy.has_generation:
            metadata["generation"] = 1
        strategy.drop_disabled(obj)
        strategy.prepare_create(write, obj)
        errors = write.findings + kind_errors(resource, obj) + strategy.errors_on_create(write, obj, namespaced=resource.namespaced)
        if errors:
            errors = as_quoted(errors, resource.stored_kind, write.sent)
            raise api_errors.invalid(GroupKind(resource.stored_group, obj.get("kind", "")), metadata.get("name", ""), errors)
        write.warnings += strategy.warnings(write, obj)
        if write.by_update:
            self._authorization.check_creation(write)
        await self.admission.validate(attributes_of(write, "CREATE", obj, None))
        _settle(resource, obj)
        if write.dry_run:
            # A dry run does not reach upstream's storage, which rejects a resourceVersion.
            metadata.update({"resourceVersion": asked_version} if asked_version else {})
        else:
            check_new_version(asked_version)
        return await self._insert(write, obj, generated)

    async def update(
        self,
        write: WriteRequest,
        change: Change,
        *,
        status: bool = False,
        check_uid: bool = False,
        retry: bool = False,
        create: Callable[[], JSONObject] | None = None,
        create_always: bool = False,
    ) -> WriteResult:
        """Replace an object by the result of ``change`` for its current state.

        Args:
            write: The write request.
            change: Returns the new object.
            status: Update ``/status``: only the status changes.
            check_uid: Another uid in the new object is a conflict rather than invalid (PUT).
            retry: Apply ``change`` again after a concurrent write (patches), even where updates must name a version.
            create: Returns the object to create if there is none and updates may create the kind; None: NotFound.
            create_always: Updates may create any kind.

        Raises:
            NotFound: The object does not exist and is not created.
            Conflict: The object has another version or uid, or was changed concurrently.
            Invalid: The new object is not valid.
            BadRequest: The new object does not fit the request.
            ApiError: Admission or authorization rejects the new object.
        """
        resource = write.resource
        write.by_update = True
        while True:
            current = await self.objects.get(resource, write.namespace, write.name)
            if current is None:
                if create is not None and (create_always or resource.strategy.allow_create_on_update):
                    try:
                        created = await self.create(write, _without_version(create(), dry_run=write.dry_run))
                    except AlreadyExists:
                        if retry and await self.objects.get(resource, write.namespace, write.name) is not None:
                            continue  # a concurrent create was first: it is an update now
                        raise
                    return WriteResult(created.obj, created.stored, created=True)
                raise api_errors.not_found(resource.gvr.group_resource, write.name)
            try:
                obj = await change(current.obj)
            except ConversionNeeded as need:
                await self.objects.convert_missing(resource, need)
                continue
            if check_uid:
                self._check_uid(write, obj, current)
            unconditional = self._check_version(write, obj, current)
            link = metadata_of(obj).get("selfLink")
            try:
                await self._revise(write, obj, current.obj, status=status)
                outcome = await self._replace(write, obj, current)
                return _with_link(outcome, link) if link and write.dry_run else outcome
            except PreconditionFailed:
                if not (unconditional or retry):
                    raise api_errors.conflict(resource.gvr.group_resource, write.name, api_errors.STALE) from None
            finally:
                await write.finish()

    async def _insert(self, write: WriteRequest, obj: JSONObject, generated: bool) -> WriteResult:
        resource, metadata = write.resource, obj["metadata"]
        for attempt in range(_NAME_ATTEMPTS):
            if attempt:
                metadata["name"] = generate_name(metadata["generateName"])
            if write.dry_run:
                present = await self.objects.get(resource, write.namespace, metadata["name"])
                if present is None:
                    return WriteResult(await self.objects.dry_run(resource, obj))
                existing = present.obj
            else:
                try:
                    stored = await self.objects.write(resource, obj, expected=0, lease=await self._event_lease(resource))
                    return WriteResult(stored.obj, stored)
                except PreconditionFailed as error:
                    existing = decode(error.current.value) if error.current else {"metadata": {}}
            if not generated:
                break
        raise self._exists(write, metadata["name"], existing)

    @staticmethod
    def _exists(write: WriteRequest, name: str, present: JSONObject) -> Exception:
        being_deleted = bool(present["metadata"].get("deletionTimestamp"))
        refused = api_errors.already_exists(write.resource.gvr.group_resource, name, being_deleted=being_deleted)
        assert isinstance(refused, AlreadyExists)
        return refused

    @staticmethod
    def _check_uid(write: WriteRequest, obj: JSONObject, current: StoredObject) -> None:
        requested, uid = metadata_of(obj).get("uid"), current.obj["metadata"]["uid"]
        if requested and requested != uid:
            key = write.resource.upstream_key(write.namespace, write.name, dry_run=write.dry_run)
            reason = (
                f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
                f"Precondition failed: UID in precondition: {requested}, UID in object meta: {uid}"
            )
            raise api_errors.conflict(write.resource.gvr.group_resource, write.name, reason)

    @staticmethod
    def _check_version(write: WriteRequest, obj: JSONObject, current: StoredObject) -> bool:
        """Set the version that an update replaces, and return whether the update is unconditional."""
        metadata = metadata_of(obj)
        requested = metadata.get("resourceVersion") or "0"
        number = resource_version_number(requested)
        if number is None:
            raise api_errors.internal(parse_uint_fault(requested))
        resource = write.resource
        if number == 0 and not resource.strategy.allow_unconditional_update:
            error = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise api_errors.invalid(GroupKind(resource.gvr.group, resource.gvr.resource), write.name, [error])
        if number not in (0, current.revision):
            raise api_errors.conflict(resource.gvr.group_resource, write.name, api_errors.STALE)
        metadata["resourceVersion"] = str(current.revision)
        return number == 0

    async def _revise(self, write: WriteRequest, obj: JSONObject, old: JSONObject, *, status: bool) -> None:
        resource, strategy = write.resource, write.resource.strategy
        write.findings.clear()
        metadata = metadata_of(obj)
        set_namespace(metadata, write.namespace)
        strategy.default(obj)
        if write.manager:
            await self._own(write, obj, old)
        await self._mutate(write, attributes_of(write, "UPDATE", obj, old), obj)
        self._authorization.check_write(write, obj, old)
        carry_over(metadata, old["metadata"])
        strategy.drop_disabled(obj)
        if status:
            strategy.prepare_status_update(write, obj, old)
        else:
            strategy.prepare_update(write, obj, old)
            increment_generation(resource, obj, old)
        metadata = metadata_of(obj)
        check = strategy.errors_on_status_update if status else strategy.errors_on_update
        errors = write.findings + kind_errors(resource, obj) + check(write, obj, old, namespaced=resource.namespaced)
        if errors:
            errors = as_quoted(errors, resource.stored_kind, write.sent)
            raise api_errors.invalid(_said_kind(resource, obj), metadata.get("name") or write.name, errors)
        warn = strategy.warnings_on_status_update if status else strategy.warnings_on_update
        write.warnings += warn(write, obj, old)
        await self.admission.validate(attributes_of(write, "UPDATE", obj, old), write.view)
        _settle(resource, obj)

    async def _mutate(self, write: WriteRequest, attributes: Attributes, obj: JSONObject) -> None:
        """Run mutating admission. Metadata that admission made invalid is restored, with a Warning."""
        before = metadata_of(obj).get("managedFields")
        if write.view is None:
            await self.admission.mutate(attributes)
        else:
            await self.admission.mutate_view(attributes, write.view)
        metadata = metadata_of(obj)
        drop_repeated(metadata, write.warnings, after_admission=True)
        restore_valid_entries(metadata, before, write.warnings)

    async def _own(self, write: WriteRequest, obj: JSONObject, old: JSONObject | None) -> None:
        """Update ``managedFields`` of ``obj``. If ``old`` is None, the object is being created."""
        scope = self.owners.scope(write.resource, write.subresource)
        live = scope.empty if old is None else old
        with as_sent(obj, write.sent):
            try:
                await self.objects.compute_converted(write.resource, lambda: self.owners.updated(scope, live, obj, write.manager))
            except ApiError:
                # A webhook failed to convert fields of other managers: upstream writes nevertheless, without managedFields.
                metadata_of(obj).pop("managedFields", None)

    async def _replace(self, write: WriteRequest, obj: JSONObject, current: StoredObject) -> WriteResult:
        resource = write.resource
        owned = obj["metadata"].get("managedFields")

        def is_stored() -> bool:
            return _is_stored(self.objects.encode(resource, obj), current.stored)

        def is_unchanged() -> bool:
            if owned is not None:
                obj["metadata"]["managedFields"] = owned
            if restore_times(current.obj, obj, lambda: obj == current.obj and is_stored()):
                return True
            # Objects of most kinds are stored as they were read; of kinds that are converted only the stored form shows a change.
            return (obj == current.obj or not self.objects.is_plain(resource)) and is_stored()

        if await self.objects.compute_converted(resource, is_unchanged):
            return WriteResult(current.obj, current)
        if ends_deletion(resource, obj):
            obj["metadata"]["resourceVersion"] = str(current.revision)
            if not write.dry_run:
                await self.objects.remove(current)
            return WriteResult(obj)
        if write.dry_run:
            obj["metadata"]["resourceVersion"] = str(current.revision)
            return WriteResult(await self.objects.dry_run(resource, obj))
        stored = await self.objects.write(resource, obj, expected=current.revision, lease=await self._event_lease(resource))
        return WriteResult(stored.obj, stored)

    async def _event_lease(self, resource: ServedResource) -> int:
        """Return the lease that all Events of one minute share, so that they need only one timer. Return 0 for other kinds."""
        if resource.gvr.group_resource not in _EVENTS:
            return 0
        now = self.clock.now()
        if not self._lease or now - self._lease_since > self._lease_spacing:
            self._lease = await self.objects.storage.grant(self._event_ttl + self._lease_spacing)
            self._lease_since = now
        return self._lease


def _with_link(outcome: WriteResult, link: str) -> WriteResult:
    """Return a result with ``selfLink``. Storage would remove this field, but a dry run does not reach storage."""
    return WriteResult({**outcome.obj, "metadata": {**outcome.obj["metadata"], "selfLink": link}})


def _is_stored(encoded: bytes, stored: bytes) -> bool:
    """Return whether an update changes nothing: the documents are equal apart from the order of fields, so that their lengths are equal."""
    return encoded == stored or (len(encoded) == len(stored) and same(decode(encoded), decode(stored)))


def kind_errors(resource: ServedResource, obj: JSONObject) -> list[FieldError]:
    """Return errors of a custom object whose kind is not that of the path. Decoding checks built-in objects."""
    errors = []
    if resource.custom:
        if obj.get("kind") != resource.kind:
            errors.append(invalid("kind", obj.get("kind"), f"must be {resource.kind}"))
        if obj.get("apiVersion") != resource.gvk.api_version:
            errors.append(invalid("apiVersion", obj.get("apiVersion"), f"must be {resource.gvk.api_version}"))
    return errors


def _settle(resource: ServedResource, obj: JSONObject) -> None:
    """Prune a custom object by its schema once more, as upstream before it stores it: admission or an apply may have added fields."""
    if resource.custom:
        resource.strategy.conform(obj)


def _said_kind(resource: ServedResource, obj: JSONObject) -> GroupKind:
    """Return the kind to name in the error of an invalid object, because a custom object may name another group."""
    group = str(obj.get("apiVersion", "")).rpartition("/")[0] if resource.custom else resource.stored_group
    return GroupKind(group, obj.get("kind", ""))


def _without_version(obj: JSONObject, *, dry_run: bool) -> JSONObject:
    """Return an object that an update creates without its resourceVersion. As upstream, a dry run does not remove it."""
    requested = metadata_of(obj).get("resourceVersion") or "0"
    if resource_version_number(requested) is None:
        raise api_errors.internal(parse_uint_fault(requested))
    if not dry_run:
        obj["metadata"].pop("resourceVersion", None)
    return obj


def check_new_version(requested: str) -> None:
    """Raise InternalError, as upstream's storage does, if a new object has a resourceVersion. A value that is not a number is ignored."""
    if requested and resource_version_number(requested):
        raise api_errors.internal("resourceVersion should not be set on objects to be created")


def ends_deletion(resource: ServedResource, obj: JSONObject) -> bool:
    """Return whether an update removes the last finalizer of an object that is being deleted."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"):
        return False
    # A namespace also has finalizers in its spec.
    return not (resource.gvr.group_resource == GroupResource("", "namespaces") and (obj.get("spec") or {}).get("finalizers"))
