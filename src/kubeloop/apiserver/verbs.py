"""The verbs of a resource: from a routed request to an answer. What each does lives in reading, writing, deleting, watching."""

from __future__ import annotations

import copy
from dataclasses import replace

from kubeloop.apiserver import api_errors
from kubeloop.apiserver.answers import Answer, StreamingResponse, success
from kubeloop.apiserver.apply import apply, is_apply
from kubeloop.apiserver.decoding import Decoded, decode_object, media_type_of
from kubeloop.apiserver.negotiation import JSON, check_streams
from kubeloop.apiserver.object_meta import check_name, metadata_of, set_namespace
from kubeloop.apiserver.options import (
    DeleteOptions,
    ListOptions,
    WriteOptions,
    delete_options,
    invalid_version,
    list_options,
    resource_version_number,
    write_options,
)
from kubeloop.apiserver.owner_references import drop_repeated
from kubeloop.apiserver.patch import conform_patched, read_patch
from kubeloop.apiserver.registry_store import Outcome
from kubeloop.apiserver.request_scope import RequestScope
from kubeloop.apiserver.selection import Selection
from kubeloop.apiserver.watch import WatchDependencies, Watcher
from kubeloop.meta.errors import NotFound
from kubeloop.meta.status import StatusDetails
from kubeloop.types import JSONObject


async def get(exchange: RequestScope) -> Answer:
    version = exchange.request.parameter("resourceVersion")
    found = await exchange.parts.reader.get(exchange.resource, exchange.namespace, exchange.info.name, version)
    return exchange.parts.renderer.object(exchange.resource, exchange.accepted, exchange.request, found.obj, stored=found)


async def list_(exchange: RequestScope) -> Answer:
    options = list_options(exchange.request, watch=False)
    selection = Selection(exchange.resource, options.label_selector, options.field_selector)
    if not options.limit and not options.continue_token:
        await exchange.parts.objects.require_defined_versions(exchange.resource)
    page = await exchange.parts.reader.page(exchange.resource, exchange.namespace, options, selection)
    return exchange.parts.renderer.page(exchange.resource, exchange.accepted, exchange.request, page)


async def watch(exchange: RequestScope) -> StreamingResponse:
    parts, request = exchange.parts, exchange.request
    options = list_options(request, watch=True)
    selection = Selection(exchange.resource, options.label_selector, options.field_selector)
    if exchange.info.name_in_path:
        selection = Selection(exchange.resource, options.label_selector, f"metadata.name={exchange.info.name}")
    if options.resource_version and resource_version_number(options.resource_version) is None:
        raise api_errors.internal(invalid_version(options.resource_version))
    check_streams(exchange.accepted)
    form = parts.renderer.watch_form(exchange.resource, exchange.accepted, request)
    await parts.objects.require_defined_versions(exchange.resource)
    watcher_parts = WatchDependencies(parts.objects, parts.cache, parts.reader, parts.clock, parts.default_timeout)
    watcher = Watcher(exchange.resource, exchange.namespace, options, selection, form, watcher_parts)
    media_type = exchange.accepted.media_type
    return StreamingResponse(watcher.frames(), JSON if media_type == JSON else f"{media_type};stream=watch")


async def create(exchange: RequestScope) -> Answer:
    options = write_options(exchange.request, "CreateOptions")
    decoded = await _decode(exchange, options)
    exchange.accept_problems(decoded, options, exchange.resource.kind)
    drop_repeated(metadata_of(decoded.obj), exchange.context.warnings, after_admission=False)
    call = exchange.call(name=metadata_of(decoded.obj).get("name") or "", dry_run=options.dry_run, manager=exchange.manager(options))
    return _outcome(exchange, await exchange.parts.writer.create(call, decoded.obj), 201)


async def update(exchange: RequestScope, *, status: bool = False) -> Answer:
    options = write_options(exchange.request, "UpdateOptions")
    decoded = await _decode(exchange, options)
    exchange.accept_problems(decoded, options, exchange.resource.kind)
    set_namespace(metadata_of(decoded.obj), exchange.namespace)
    check_name(metadata_of(decoded.obj), exchange.info.name)
    drop_repeated(metadata_of(decoded.obj), exchange.context.warnings, after_admission=False)

    async def change(_: JSONObject) -> JSONObject:
        return copy.deepcopy(decoded.obj)

    call = exchange.call(dry_run=options.dry_run, manager=exchange.manager(options))
    outcome = await exchange.parts.writer.update(call, change, status=status, check_uid=True, create=lambda: decoded.obj)
    return _outcome(exchange, outcome, 201 if outcome.created else 200)


async def patch(exchange: RequestScope, *, status: bool = False) -> Answer:
    resource, name = exchange.resource, exchange.info.name
    if is_apply(exchange.request):
        outcome = await apply(exchange, status=status)
        return _outcome(exchange, outcome, 201 if outcome.created else 200)
    body = await exchange.body()
    exchange.audit_sent_patch(body)
    sent = read_patch(body, exchange.request.header("Content-Type"), resource)
    options = write_options(exchange.request, "PatchOptions")
    schema = None if resource.custom else resource.schema
    warned = False

    async def change(old: JSONObject) -> JSONObject:
        nonlocal warned
        sent.lenient = options.field_validation == "Ignore"
        patched = sent.apply(old, schema, exchange.parts.schemas)
        decoded = conform_patched(sent, patched, resource, resource.gvk)
        exchange.context.sent = patched
        if not warned:
            exchange.context.warnings += sent.judge(patched, decoded, options.field_validation)
            warned = True
        check_name(metadata_of(decoded.obj), name)
        return decoded.obj

    call = exchange.call(dry_run=options.dry_run, manager=exchange.manager(options))
    # Applied again to whatever a concurrent write left, unless the patch itself names a version.
    return _outcome(exchange, await exchange.parts.writer.update(call, change, status=status, retry=True), 200)


async def delete(exchange: RequestScope) -> Answer:
    body = await exchange.body()
    options = delete_options(exchange.request, body)
    if body:
        exchange.audit_sent({"kind": "DeleteOptions", "apiVersion": "v1", **options.tree()})
    _warn_of_deletion(exchange, options)
    resource = exchange.resource
    if fault := resource.strategy.deletion_fault(exchange.info.name):
        raise api_errors.forbidden(resource.gvr.group_resource, exchange.info.name, fault)
    deleted = await exchange.parts.deleter.delete(exchange.call(dry_run=options.dry_run), options)
    if deleted.gone and not resource.strategy.returns_deleted:
        gvr, metadata = resource.gvr, deleted.obj["metadata"]
        return success(StatusDetails(name=exchange.info.name, group=gvr.group, kind=gvr.resource, uid=metadata["uid"]))
    # Who asks in the old way for dependents to go is told when they have not gone yet; nobody else is.
    status = 202 if options.orphan_dependents is False and not deleted.gone else 200
    return exchange.parts.renderer.object(resource, exchange.accepted, exchange.request, deleted.obj, stored=deleted.stored, status=status)


async def delete_collection(exchange: RequestScope) -> Answer:
    options = _of_pages(list_options(exchange.request, watch=False))
    selection = Selection(exchange.resource, options.label_selector, options.field_selector)
    body = await exchange.body()
    how = delete_options(exchange.request, body)
    if body:
        exchange.audit_sent({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/__internal", **how.tree()})
    _warn_of_deletion(exchange, how)
    page = await exchange.parts.reader.page(exchange.resource, exchange.namespace, options, selection)
    for kv in page.items:
        metadata = exchange.parts.objects.tree(exchange.resource, kv)["metadata"]
        call = exchange.call(name=metadata["name"], dry_run=how.dry_run)
        call.namespace, call.of_collection = metadata.get("namespace", ""), True
        try:
            await exchange.parts.deleter.delete(call, how)
        except NotFound:
            continue  # somebody else was faster
    return exchange.parts.renderer.page(exchange.resource, exchange.accepted, exchange.request, page)


def _of_pages(options: ListOptions) -> ListOptions:
    """Upstream deletes by pages, so that a version without a match means exactly that version, as with any list by pages."""
    if options.resource_version in ("", "0") or options.resource_version_match:
        return options
    return replace(options, resource_version_match="Exact")


def _warn_of_deletion(exchange: RequestScope, options: DeleteOptions) -> None:
    named = options.propagation_policy is not None or options.orphan_dependents is not None
    exchange.context.warnings += exchange.resource.strategy.warnings_on_delete(policy_named=named)


async def _decode(exchange: RequestScope, options: WriteOptions) -> Decoded:
    media_type = media_type_of(exchange.request.header("Content-Type"))
    return decode_object(await exchange.body(), media_type, exchange.resource, field_validation=options.field_validation)


def _outcome(exchange: RequestScope, outcome: Outcome, status: int) -> Answer:
    renderer = exchange.parts.renderer
    if outcome.stored is not None:
        return renderer.object(exchange.resource, exchange.accepted, exchange.request, outcome.obj, stored=outcome.stored, status=status)
    return renderer.object(exchange.resource, exchange.accepted, exchange.request, outcome.obj, status=status)
