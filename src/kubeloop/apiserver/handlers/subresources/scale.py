"""``/scale``: the replicas of a workload or custom resource as an autoscaling/v1 Scale. Source: Kubernetes API concepts, autoscaling/v1."""

from __future__ import annotations

import copy
from dataclasses import replace

from kubeloop.apiserver.crd import paths
from kubeloop.apiserver.handlers.patch import conform_patched, conversion_error, is_apply, read_configuration, read_patch
from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.apiserver.ownership import scale_scope
from kubeloop.apiserver.ownership.entries import InvalidEntries, to_parent, to_scale
from kubeloop.apiserver.registry.decoding import SCHEME, Decoded, conform, decode_object, media_type_of
from kubeloop.apiserver.registry.object_meta import check_name, metadata_of, set_namespace
from kubeloop.apiserver.registry.options import WriteParameters, write_options
from kubeloop.apiserver.registry.resource import ScalePaths, ServedResource
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.tables import human_duration
from kubeloop.endpoints.tables.layout import TableColumn
from kubeloop.merge.fields import Path
from kubeloop.meta.errors import BadRequest
from kubeloop.meta.field_error import invalid
from kubeloop.meta.kinds import GroupKind, GroupVersionKind
from kubeloop.meta.selectors import selector_from, selector_from_labels
from kubeloop.meta.time import parse_time
from kubeloop.schema import strict
from kubeloop.serving.answer import Answer
from kubeloop.types import JSONObject

SCALE = GroupVersionKind("autoscaling", "v1", "Scale")
#: The smallest int32 stands for missing replicas of a custom object.
_UNSAID = -(2**31)
_KEPT = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


async def get(scope: RequestScope) -> Answer:
    """Return the Scale of an object."""
    result = await scope.services.reader.get(scope.resource, scope.namespace, scope.info.name)
    return _answer(scope, scale_of(scope.resource, result.obj))


async def update(scope: RequestScope) -> Answer:
    """Set the replicas of an object by its Scale."""
    options = write_options(scope.request, "UpdateOptions")
    owners = _ReplicaOwners(scope, scope.manager(options))
    decoded = _decoded(scope, await scope.body(), options)
    set_namespace(metadata_of(decoded.obj), scope.namespace)
    check_name(metadata_of(decoded.obj), scope.info.name)

    async def change(old: JSONObject) -> JSONObject:
        return owners.scaled(old, copy.deepcopy(decoded.obj))

    outcome = await scope.services.writer.update(
        _write_request(scope, dry_run=options.dry_run), change, check_uid=True, retry=_is_free(decoded.obj)
    )
    return _answer(scope, scale_of(scope.resource, outcome.obj))


def _decoded(scope: RequestScope, body: bytes, options: WriteParameters) -> Decoded:
    media_type = media_type_of(scope.request.header("Content-Type"))
    try:
        decoded = decode_object(body, media_type, scope.resource, SCALE)
        scope.accept_problems(decoded, options, SCALE.kind)
    except BadRequest:
        if scope.resource.custom:
            # Upstream looks up the kind for the message in a scheme without Scale.
            raise api_errors.bad_request(f"no kind is registered for the type v1.Scale in {SCHEME}") from None
        raise
    return decoded


async def patch(scope: RequestScope) -> Answer:
    """Patch the Scale of an object."""
    if is_apply(scope.request):
        return await _apply(scope)
    body = await scope.body()
    scope.audit_sent_patch(body)
    sent = read_patch(body, scope.request.header("Content-Type"), scope.resource, typed=True)
    options = write_options(scope.request, "PatchOptions")
    schemas = scope.services.schemas
    owners = _ReplicaOwners(scope, scope.manager(options))
    judged = False

    async def change(old: JSONObject) -> JSONObject:
        nonlocal judged
        sent.lenient = options.field_validation == "Ignore"
        patched = sent.apply(owners.live(old), schemas.kind(SCALE), schemas)
        decoded = conform_patched(sent, patched, scope.resource, SCALE)
        desired = decoded.obj
        if not judged:
            scope.warnings += sent.check_fields(patched, decoded, options.field_validation)
            judged = True
        check_name(metadata_of(desired), scope.info.name)
        return owners.scaled(old, desired)

    outcome = await scope.services.writer.update(_write_request(scope, dry_run=options.dry_run), change, retry=True)
    return _answer(scope, scale_of(scope.resource, outcome.obj))


async def _apply(scope: RequestScope) -> Answer:
    configuration = await read_configuration(scope)
    options = configuration.options
    owners = _ReplicaOwners(scope, options.field_manager)

    async def change(old: JSONObject) -> JSONObject:
        config = configuration.read()
        tree = owners.applied(old, config, force=options.force)
        configuration.check_repeated()
        desired = conform(tree, SCALE, SCALE, scope.resource, conversion_error(config, scale_scope()), merged=True).obj
        check_name(metadata_of(desired), scope.info.name)
        return owners.carried_back(old, desired)

    outcome = await scope.services.writer.update(_write_request(scope, dry_run=options.dry_run), change, retry=True)
    return _answer(scope, scale_of(scope.resource, outcome.obj))


class _ReplicaOwners:
    """Field management of a Scale, whose managedFields are the entries of the scaled object that own the replicas."""

    def __init__(self, scope: RequestScope, manager: str) -> None:
        self._resource = scope.resource
        self._owners = scope.services.writer.owners
        self._manager = manager
        self._paths = _replica_paths(scope)

    def scaled(self, old: JSONObject, scale: JSONObject) -> JSONObject:
        """Return the object after a write of its Scale. The Scale may be changed in place."""
        self._owners.updated(scale_scope(), self.live(old), scale, self._manager)
        return self.carried_back(old, scale)

    def applied(self, old: JSONObject, config: JSONObject, *, force: bool) -> JSONObject:
        """Return the Scale after ``config`` was applied to it.

        Raises:
            ApiError: As ``Owners.applied``; InternalError if upstream cannot convert the Scale of a custom resource.
        """
        live = self.live(old)
        self._owners.check_kind(scale_scope(), config)
        if self._resource.custom:
            _check_live_convertible(live)
        scale = self._owners.applied(scale_scope(), live, config, self._manager, force=force)
        if self._resource.custom:
            _check_convertible(live, scale, config)
        return scale

    def carried_back(self, old: JSONObject, scale: JSONObject) -> JSONObject:
        """Return the object with the replicas and owners of its Scale."""
        obj = _scaled(self._resource, old, scale)
        try:
            entries = to_parent(
                old["metadata"].get("managedFields"),
                metadata_of(scale).get("managedFields"),
                self._paths,
                self._resource.gvk.api_version,
            )
        except InvalidEntries:
            return obj  # unreadable managedFields do not change
        obj["metadata"].pop("managedFields", None)
        if entries:
            obj["metadata"]["managedFields"] = entries
        return obj

    def live(self, old: JSONObject) -> JSONObject:
        """Return the Scale of the object before the write, with the managedFields entries that own the replicas.

        If a custom object has no replicas field, the Scale has the smallest int32, as upstream.
        """
        scale = scale_of(self._resource, old)
        if not _says_replicas(self._resource, old):
            scale["spec"]["replicas"] = _UNSAID
        try:
            entries = to_scale(old["metadata"].get("managedFields"), self._paths)
        except InvalidEntries:
            entries = []
        if entries:
            scale["metadata"]["managedFields"] = entries
        return scale


_INCONVERTIBLE = "to proper version: request to convert CR to an invalid group/version: autoscaling/v1"


def _check_live_convertible(live: JSONObject) -> None:
    """Reject the first apply to the replicas of a custom resource, because upstream's converter does not know Scale.

    Raises:
        InternalError
    """
    if not live["metadata"].get("managedFields"):
        named = "/; autoscaling/v1, Kind=Scale"
        raise api_errors.internal(f"failed to create manager for existing fields: failed to convert live object ({named}) {_INCONVERTIBLE}")


def _check_convertible(live: JSONObject, scale: JSONObject, config: JSONObject) -> None:
    """Reject an apply that changes the Scale of a custom resource, because upstream's converter does not know Scale.

    Raises:
        InternalError
    """
    if any(scale.get(part) != live.get(part) for part in ("spec", "status")) or _plain(scale) != _plain(live):
        metadata = metadata_of(config)
        named = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}; autoscaling/v1, Kind=Scale"
        raise api_errors.internal(f"failed to convert new object ({named}) {_INCONVERTIBLE}")


def _plain(scale: JSONObject) -> JSONObject:
    return {name: value for name, value in scale["metadata"].items() if name != "managedFields"}


def _replica_paths(scope: RequestScope) -> dict[str, Path | None]:
    """Return the path of the replicas in each API version; None for a version without ``/scale``."""
    siblings = scope.services.registry.siblings(scope.resource.gvr.group_resource)
    return {one.gvk.api_version: _replica_path(one) for one in siblings}


def _replica_path(resource: ServedResource) -> Path | None:
    if not resource.custom:
        return "f:spec", "f:replicas"
    if resource.scale is None:
        return None
    return tuple(f"f:{name}" for name in resource.scale.spec_replicas.removeprefix(".").split("."))


class _ScaleView:
    """The view of an object for admission: a write through ``/scale`` appears as a write of a Scale."""

    kind = SCALE

    def __init__(self, resource: ServedResource) -> None:
        self._resource = resource

    def show(self, obj: JSONObject) -> JSONObject:
        """Return the Scale of an object."""
        return scale_of(self._resource, obj)

    def keep(self, obj: JSONObject, view: JSONObject) -> None:
        """Copy the replicas of a Scale, which admission may have changed, into the object."""
        _set_replicas(self._resource, obj, (view.get("spec") or {}).get("replicas", 0))


def _write_request(scope: RequestScope, *, dry_run: bool) -> WriteRequest:
    return scope.write(dry_run=dry_run, view=_ScaleView(scope.resource))


def scale_of(resource: ServedResource, obj: JSONObject) -> JSONObject:
    """Return the Scale of an object."""
    metadata = {name: obj["metadata"][name] for name in _KEPT if name in obj["metadata"]}
    if resource.scale is not None:
        replicas, there, selector = _custom(resource.scale, obj)
    else:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        replicas, there = spec.get("replicas", 0), status.get("replicas", 0)
        selector = _selector(spec.get("selector"), plain=resource.kind == "ReplicationController")
    tree = {
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version,
        "metadata": metadata,
        "spec": {"replicas": replicas},
        "status": {"replicas": there, "selector": selector},
    }
    return strict.conform(tree, SCALE).obj


def _says_replicas(resource: ServedResource, obj: JSONObject) -> bool:
    return resource.scale is None or paths.read_number(obj, resource.scale.spec_replicas) is not None


def _custom(scale_paths: ScalePaths, obj: JSONObject) -> tuple[int, int, str]:
    replicas = paths.read_number(obj, scale_paths.spec_replicas) or 0
    there = paths.read_number(obj, scale_paths.status_replicas) or 0
    selector = (paths.read_text(obj, scale_paths.selector) or "") if scale_paths.selector else ""
    return replicas, there, selector


def _selector(selector: JSONObject | None, *, plain: bool) -> str:
    return str(selector_from_labels(selector) if plain else selector_from(selector))


def _is_free(scale: JSONObject) -> bool:
    return not metadata_of(scale).get("resourceVersion")


def _scaled(resource: ServedResource, old: JSONObject, scale: JSONObject) -> JSONObject:
    """Return the object with the replicas of the Scale. Version and uid of the Scale are preconditions."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if replicas == _UNSAID and resource.scale is not None:
        raise api_errors.bad_request(f'the spec replicas field "{resource.scale.spec_replicas}" cannot be empty')
    if replicas < 0 and resource.scale is None:
        error = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise api_errors.invalid(GroupKind(SCALE.group, SCALE.kind), old["metadata"]["name"], [error])
    obj = copy.deepcopy(old)
    requested = metadata_of(scale)
    obj["metadata"]["uid"] = requested.get("uid") or old["metadata"]["uid"]
    obj["metadata"]["resourceVersion"] = requested.get("resourceVersion") or old["metadata"]["resourceVersion"]
    _set_replicas(resource, obj, replicas)
    return obj


def _set_replicas(resource: ServedResource, obj: JSONObject, replicas: int) -> None:
    path = ".spec.replicas" if resource.scale is None else resource.scale.spec_replicas
    node = obj
    *parents, last = path.strip(".").split(".")
    for name in parents:
        node = node.setdefault(name, {})
    node[last] = replicas


def _answer(scope: RequestScope, scale: JSONObject) -> Answer:
    view = replace(scope.resource, kind=SCALE.kind, custom=True, columns=_COLUMNS)
    return scope.services.renderer.object(view, scope.accepted, scope.request, scale)


_COLUMNS = (
    TableColumn("Name", "string", "", "Name of the scaled object.", 0, lambda obj, _: obj["metadata"]["name"]),
    TableColumn("Desired", "integer", "", "Replicas that are wanted.", 0, lambda obj, _: obj["spec"].get("replicas", 0)),
    TableColumn("Available", "integer", "", "Replicas that there are.", 0, lambda obj, _: obj["status"]["replicas"]),
    TableColumn("Age", "string", "", "Time since the scaled object was created.", 0, lambda obj, now: _age(obj, now)),
)


def _age(obj: JSONObject, now: float) -> str:
    return human_duration(now - parse_time(obj["metadata"]["creationTimestamp"]).timestamp())
