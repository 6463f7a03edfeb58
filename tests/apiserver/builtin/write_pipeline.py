"""Creates and updates of built-in objects without a server: conform, default, prepare, validate, in the pipeline's order."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cache

from kubeloop.apiserver.builtin import strategies
from kubeloop.apiserver.builtin.services.cluster_ips import default_ip_families, sync_cluster_ip_fields
from kubeloop.apiserver.registry.strategy import Strategy
from kubeloop.apiserver.validation.empty_values import as_quoted
from kubeloop.meta.field_error import FieldError
from kubeloop.meta.kinds import GroupResource
from kubeloop.schema import builtin
from kubeloop.schema.document import ResourceInfo
from kubeloop.schema.strict import conform
from kubeloop.types import JSONObject
from tests.apiserver.write_requests import write_request


@dataclass
class Outcome:
    """``obj`` is what a client would read, unless there are ``faults``."""

    obj: JSONObject
    faults: list[FieldError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def causes(self) -> list[tuple[str, str, str]]:
        return [(fault.field, fault.body, fault.type.value) for fault in self.faults]


@cache
def strategy(group: str, resource: str) -> Strategy:
    return strategies()[GroupResource(group, resource)]()


@cache
def _resources() -> dict[tuple[str, str, str], ResourceInfo]:
    return {(one.gvr.group, one.gvr.version, one.gvr.resource): one for one in builtin().resources()}


def resource(path: str) -> ResourceInfo:
    """Of a collection's path, as ``/api/v1/namespaces/n/pods``."""
    parts = path.strip("/").split("/")
    group, version = ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2])
    return _resources()[group, version, parts[-1]]


def create(path: str, body: JSONObject) -> Outcome:
    """As if it were created at ``path``, with the service account that a pod always has."""
    info = resource(path)
    kind = strategy(info.gvr.group, info.gvr.resource)
    obj = conform({"apiVersion": info.gvk.api_version, "kind": info.kind, **body}, info.gvk).obj
    metadata = obj["metadata"]
    metadata |= {"uid": "u", "creationTimestamp": "2020-01-01T00:00:00Z"}
    if info.namespaced:
        metadata["namespace"] = "n"
    if "name" not in metadata and "generateName" in metadata:
        metadata["name"] = f"{metadata['generateName']}abcde"
    if info.kind == "Pod":
        obj["spec"].setdefault("serviceAccountName", "default")
    kind.default(obj)
    context = write_request(namespace=metadata.get("namespace", ""), sent=body)
    kind.drop_disabled(obj)
    kind.prepare_create(context, obj)
    faults = _settle_service(obj, None) if info.kind == "Service" else []
    faults = faults or kind.errors_on_create(context, obj, namespaced=info.namespaced)
    faults = as_quoted(faults, info.gvk.group_kind, body)
    return Outcome(obj, faults, [] if faults else [*context.warnings, *kind.warnings(context, obj)])


def _settle_service(obj: JSONObject, old: JSONObject | None) -> list[FieldError]:
    sync_cluster_ip_fields(obj, old)
    faults = default_ip_families(obj, old)
    spec = obj["spec"]
    if not faults and spec.get("type") != "ExternalName" and not spec.get("clusterIP"):
        spec |= {"clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"]}
    return faults


def update(path: str, body: JSONObject, old: JSONObject, subresource: str = "") -> Outcome:
    """As if ``old``, an outcome's object, were replaced."""
    info = resource(path)
    kind = strategy(info.gvr.group, info.gvr.resource)
    obj, old = conform(body, info.gvk).obj, copy.deepcopy(old)
    for each in (obj, old):
        each["metadata"]["resourceVersion"] = "1"
    context = write_request(namespace=old["metadata"].get("namespace", ""), subresource=subresource, sent=body)
    kind.default(obj)
    kind.drop_disabled(obj)
    if subresource == "status":
        kind.prepare_status_update(context, obj, old)
        faults = kind.errors_on_status_update(context, obj, old, namespaced=info.namespaced)
    else:
        kind.prepare_update(context, obj, old)
        faults = _settle_service(obj, old) if info.kind == "Service" else []
        faults = faults or kind.errors_on_update(context, obj, old, namespaced=info.namespaced)
    return Outcome(obj, as_quoted(faults, info.gvk.group_kind, body), context.warnings)
