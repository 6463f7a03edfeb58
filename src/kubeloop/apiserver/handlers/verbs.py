"""Handlers of the verbs of a resource. They decode the request and render the answer; the store and ``Watcher`` do the work."""

from __future__ import annotations

from dataclasses import replace

from kubeloop.apiserver.handlers.patch import apply, conform_patched, is_apply, read_patch
from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.apiserver.handlers.watch import WatchDependencies, Watcher
from kubeloop.apiserver.registry.decoding import Decoded, decode_object, media_type_of
from kubeloop.apiserver.registry.object_meta import check_name, drop_repeated, metadata_of, set_namespace
from kubeloop.apiserver.registry.options import (
    DeleteParameters,
    ListParameters,
    WriteParameters,
    delete_options,
    invalid_version,
    list_options,
    resource_version_number,
    write_options,
)
from kubeloop.apiserver.store.reader import Selection
from kubeloop.apiserver.store.writer import WriteResult
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.negotiation import JSON, require_streamable
from kubeloop.endpoints.responses import success
from kubeloop.merge.go_text import copy_tree
from kubeloop.meta.errors import NotFound
from kubeloop.meta.status import StatusDetails
from kubeloop.serving.answer import Answer, StreamingResponse
from kubeloop.types import JSONObject


async def get(scope: RequestScope) -> Answer:
    """Serve a get: return one object."""
    version = scope.request.parameter("resourceVersion")
    stored = await scope.services.reader.get(scope.resource, scope.namespace, scope.info.name, version)
    return scope.services.renderer.object(scope.resource, scope.accepted, scope.request, stored.obj, stored=stored)


async def list_(scope: RequestScope) -> Answer:
    """Serve a list: return one page of objects."""
    options = list_options(scope.request, watch=False)
    selection = Selection(scope.resource, options.label_selector, options.field_selector)
    if not options.limit and not options.continue_token:
        await scope.services.objects.require_defined_versions(scope.resource)
    page = await scope.services.reader.page(scope.resource, scope.namespace, options, selection)
    return scope.services.renderer.page(scope.resource, scope.accepted, scope.request, page)


async def watch(scope: RequestScope) -> StreamingResponse:
    """Serve a watch: return the stream of its events."""
    parts, request = scope.services, scope.request
    options = list_options(request, watch=True)
    selection = Selection(scope.resource, options.label_selector, options.field_selector)
    if scope.info.name_in_path:
        selection = Selection(scope.resource, options.label_selector, f"metadata.name={scope.info.name}")
    if options.resource_version and resource_version_number(options.resource_version) is None:
        raise api_errors.internal(invalid_version(options.resource_version))
    require_streamable(scope.accepted)
    form = parts.renderer.watch_form(scope.resource, scope.accepted, request)
    await parts.objects.require_defined_versions(scope.resource)
    watcher_parts = WatchDependencies(parts.objects, parts.cache, parts.reader, parts.clock, parts.default_timeout)
    watcher = Watcher(scope.resource, scope.namespace, options, selection, form, watcher_parts)
    media_type = scope.accepted.media_type
    return StreamingResponse(watcher.frames(), JSON if media_type == JSON else f"{media_type};stream=watch")


async def create(scope: RequestScope) -> Answer:
    """Serve a create: store the object in the body."""
    options = write_options(scope.request, "CreateOptions")
    decoded = await _decode(scope, options)
    scope.accept_problems(decoded, options, scope.resource.kind)
    drop_repeated(metadata_of(decoded.obj), scope.warnings, after_admission=False)
    write = scope.write(name=metadata_of(decoded.obj).get("name") or "", dry_run=options.dry_run, manager=scope.manager(options))
    return _outcome(scope, await scope.services.writer.create(write, decoded.obj), 201)


async def update(scope: RequestScope, *, status: bool = False) -> Answer:
    """Serve an update: replace an object or, if ``status`` is True, its status."""
    options = write_options(scope.request, "UpdateOptions")
    decoded = await _decode(scope, options)
    scope.accept_problems(decoded, options, scope.resource.kind)
    set_namespace(metadata_of(decoded.obj), scope.namespace)
    check_name(metadata_of(decoded.obj), scope.info.name)
    drop_repeated(metadata_of(decoded.obj), scope.warnings, after_admission=False)

    async def change(_: JSONObject) -> JSONObject:
        return copy_tree(decoded.obj)

    write = scope.write(dry_run=options.dry_run, manager=scope.manager(options))
    outcome = await scope.services.writer.update(write, change, status=status, check_uid=True, create=lambda: decoded.obj)
    return _outcome(scope, outcome, 201 if outcome.created else 200)


async def patch(scope: RequestScope, *, status: bool = False) -> Answer:
    """Serve a patch or a server-side apply of an object or, if ``status`` is True, of its status."""
    resource, name = scope.resource, scope.info.name
    if is_apply(scope.request):
        outcome = await apply(scope, status=status)
        return _outcome(scope, outcome, 201 if outcome.created else 200)
    body = await scope.body()
    scope.audit_sent_patch(body)
    sent = read_patch(body, scope.request.header("Content-Type"), resource)
    options = write_options(scope.request, "PatchOptions")
    schema = None if resource.custom else resource.schema
    warned = False

    async def change(old: JSONObject) -> JSONObject:
        nonlocal warned
        sent.lenient = options.field_validation == "Ignore"
        patched = sent.apply(old, schema, scope.services.schemas)
        decoded = conform_patched(sent, patched, resource, resource.gvk, old)
        write.sent = patched
        if not warned:
            scope.warnings += sent.check_fields(patched, decoded, options.field_validation)
            warned = True
        check_name(metadata_of(decoded.obj), name)
        return decoded.obj

    write = scope.write(dry_run=options.dry_run, manager=scope.manager(options))
    # The patch is applied again after a concurrent write, unless it contains a version.
    return _outcome(scope, await scope.services.writer.update(write, change, status=status, retry=True), 200)


async def delete(scope: RequestScope) -> Answer:
    """Serve a delete: delete one object."""
    body = await scope.body()
    options = delete_options(scope.request, body)
    if body:
        scope.audit_sent({"kind": "DeleteOptions", "apiVersion": "v1", **options.tree()})
    _warn_of_deletion(scope, options)
    resource = scope.resource
    if error := resource.strategy.deletion_fault(scope.info.name):
        raise api_errors.forbidden(resource.gvr.group_resource, scope.info.name, error)
    deleted = await scope.services.deleter.delete(scope.write(dry_run=options.dry_run), options)
    if deleted.gone and not resource.strategy.returns_deleted:
        gvr, metadata = resource.gvr, deleted.obj["metadata"]
        return success(StatusDetails(name=scope.info.name, group=gvr.group, kind=gvr.resource, uid=metadata["uid"]))
    # Only a request with the deprecated orphanDependents gets 202 while dependents remain.
    status = 202 if options.orphan_dependents is False and not deleted.gone else 200
    return scope.services.renderer.object(resource, scope.accepted, scope.request, deleted.obj, stored=deleted.stored, status=status)


async def delete_collection(scope: RequestScope) -> Answer:
    """Serve a deletecollection: delete the objects that a list with the same options returns, and return that list."""
    options = _of_pages(list_options(scope.request, watch=False))
    selection = Selection(scope.resource, options.label_selector, options.field_selector)
    body = await scope.body()
    method = delete_options(scope.request, body)
    if body:
        scope.audit_sent({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/__internal", **method.tree()})
    _warn_of_deletion(scope, method)
    page = await scope.services.reader.page(scope.resource, scope.namespace, options, selection)
    for kv in page.items:
        metadata = scope.services.objects.tree(scope.resource, kv)["metadata"]
        write = scope.write(name=metadata["name"], namespace=metadata.get("namespace", ""), dry_run=method.dry_run, of_collection=True)
        try:
            await scope.services.deleter.delete(write, method)
        except NotFound:
            continue  # a concurrent deletion was first
    return scope.services.renderer.page(scope.resource, scope.accepted, scope.request, page)


def _of_pages(options: ListParameters) -> ListParameters:
    """Return the options of a paged list. Upstream deletes by pages, so a version without resourceVersionMatch must match exactly."""
    if options.resource_version in ("", "0") or options.resource_version_match:
        return options
    return replace(options, resource_version_match="Exact")


def _warn_of_deletion(scope: RequestScope, options: DeleteParameters) -> None:
    named = options.propagation_policy is not None or options.orphan_dependents is not None
    scope.warnings += scope.resource.strategy.warnings_on_delete(policy_named=named)


async def _decode(scope: RequestScope, options: WriteParameters) -> Decoded:
    media_type = media_type_of(scope.request.header("Content-Type"))
    return decode_object(await scope.body(), media_type, scope.resource, field_validation=options.field_validation)


def _outcome(scope: RequestScope, outcome: WriteResult, status: int) -> Answer:
    renderer = scope.services.renderer
    if outcome.stored is not None:
        return renderer.object(scope.resource, scope.accepted, scope.request, outcome.obj, stored=outcome.stored, status=status)
    return renderer.object(scope.resource, scope.accepted, scope.request, outcome.obj, status=status)
