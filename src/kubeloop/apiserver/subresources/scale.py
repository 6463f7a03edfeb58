"""``/scale``: the replicas of a workload or custom resource as an autoscaling/v1 Scale. Source: Kubernetes API concepts, autoscaling/v1."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from kubeloop.apiserver import refusals
from kubeloop.apiserver.answers import Answer
from kubeloop.apiserver.crd import paths
from kubeloop.apiserver.decoding import decode_object, media_type_of
from kubeloop.apiserver.exchange import Exchange
from kubeloop.apiserver.object_meta import check_name, metadata_of
from kubeloop.apiserver.options import write_options
from kubeloop.apiserver.patching import conform_patched, read_patch
from kubeloop.apiserver.resource import Column, ScalePaths, ServedResource
from kubeloop.apiserver.tables import human_duration
from kubeloop.meta.field_error import invalid
from kubeloop.meta.kinds import GroupKind, GroupVersionKind
from kubeloop.meta.selectors import selector_from, selector_from_labels
from kubeloop.meta.time import parse_time
from kubeloop.schema import strict

JSONObject = dict[str, Any]

SCALE = GroupVersionKind("autoscaling", "v1", "Scale")
_KEPT = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


async def get(exchange: Exchange) -> Answer:
    found = await exchange.parts.reader.get(exchange.resource, exchange.namespace, exchange.info.name)
    return _answer(exchange, scale_of(exchange.resource, found.obj))


async def update(exchange: Exchange) -> Answer:
    options = write_options(exchange.request, "UpdateOptions")
    media_type = media_type_of(exchange.request.header("Content-Type"))
    decoded = decode_object(await exchange.body(), media_type, exchange.resource, SCALE)
    exchange.accept_problems(decoded, options, SCALE.kind)
    check_name(metadata_of(decoded.obj), exchange.info.name)

    async def change(old: JSONObject) -> JSONObject:
        return _scaled(exchange.resource, old, decoded.obj)

    outcome = await exchange.parts.writer.update(
        exchange.call(dry_run=options.dry_run), change, check_uid=True, retry=_is_free(decoded.obj)
    )
    return _answer(exchange, scale_of(exchange.resource, outcome.obj))


async def patch(exchange: Exchange) -> Answer:
    sent = read_patch(await exchange.body(), exchange.request.header("Content-Type"), exchange.resource)
    options = write_options(exchange.request, "PatchOptions")
    schemas = exchange.parts.schemas

    async def change(old: JSONObject) -> JSONObject:
        patched = sent.apply(scale_of(exchange.resource, old), schemas.kind(SCALE), schemas)
        wanted = conform_patched(patched, exchange.resource, SCALE).obj
        check_name(metadata_of(wanted), exchange.info.name)
        return _scaled(exchange.resource, old, wanted)

    outcome = await exchange.parts.writer.update(exchange.call(dry_run=options.dry_run), change, retry=True)
    return _answer(exchange, scale_of(exchange.resource, outcome.obj))


def scale_of(resource: ServedResource, obj: JSONObject) -> JSONObject:
    """The Scale of an object."""
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


def _custom(where: ScalePaths, obj: JSONObject) -> tuple[int, int, str]:
    replicas = paths.read_number(obj, where.spec_replicas) or 0
    there = paths.read_number(obj, where.status_replicas) or 0
    selector = (paths.read_text(obj, where.selector) or "") if where.selector else ""
    return replicas, there, selector


def _selector(selector: JSONObject | None, *, plain: bool) -> str:
    return str(selector_from_labels(selector) if plain else selector_from(selector))


def _is_free(scale: JSONObject) -> bool:
    return not metadata_of(scale).get("resourceVersion")


def _scaled(resource: ServedResource, old: JSONObject, scale: JSONObject) -> JSONObject:
    """The object with the replicas that the Scale asks for; version and uid of the Scale are preconditions."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if replicas < 0 and resource.scale is None:
        error = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise refusals.invalid(GroupKind(SCALE.group, SCALE.kind), old["metadata"]["name"], [error])
    obj = copy.deepcopy(old)
    given = metadata_of(scale)
    obj["metadata"]["uid"] = given.get("uid") or old["metadata"]["uid"]
    obj["metadata"]["resourceVersion"] = given.get("resourceVersion") or old["metadata"]["resourceVersion"]
    where = ".spec.replicas" if resource.scale is None else resource.scale.spec_replicas
    node = obj
    *parents, last = where.strip(".").split(".")
    for name in parents:
        node = node.setdefault(name, {})
    node[last] = replicas
    return obj


def _answer(exchange: Exchange, scale: JSONObject) -> Answer:
    shown = replace(exchange.resource, kind=SCALE.kind, custom=True, columns=_COLUMNS)
    return exchange.parts.renderer.object(shown, exchange.accepted, exchange.request, scale)


_COLUMNS = (
    Column("Name", "string", "", "Name of the scaled object.", 0, lambda obj, _: obj["metadata"]["name"]),
    Column("Desired", "integer", "", "Replicas that are wanted.", 0, lambda obj, _: obj["spec"].get("replicas", 0)),
    Column("Available", "integer", "", "Replicas that there are.", 0, lambda obj, _: obj["status"]["replicas"]),
    Column("Age", "string", "", "Time since the scaled object was created.", 0, lambda obj, now: _age(obj, now)),
)


def _age(obj: JSONObject, now: float) -> str:
    return human_duration(now - parse_time(obj["metadata"]["creationTimestamp"]).timestamp())
