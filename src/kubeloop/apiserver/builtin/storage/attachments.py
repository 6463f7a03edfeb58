"""Volume attachments and attribute classes. Source: pkg/apis/storage/validation, pkg/registry/storage/volumeattachment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.volume_plugins import csi_driver_name
from kubeloop.apiserver.builtin.storage.storage_class import parameters, provisioner
from kubeloop.apiserver.builtin.storage.volume import inline_volume
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.validation.formats import MAX_INT32, immutable, subdomain_field
from kubeloop.meta.field_error import FieldError, forbidden, invalid, required, too_long
from kubeloop.meta.names import out_of_range

JSONObject = dict[str, Any]
Errors = Iterator[FieldError]

_METADATA = 256 * 1024
_MESSAGE = 1024
_ONE_SOURCE = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


class VolumeAttachmentStrategy(BuiltinStrategy):
    metadata_checks_on_update = ("create",)
    metadata_checks_on_status = ("create",)
    status_keeps_metadata = True

    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return list(_attachment(obj))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        found = list(_attachment(obj))
        if obj["spec"] != old["spec"]:
            found += immutable("spec", obj["spec"], None)
        return found

    def validate_status_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return self.validate_update(context, obj, old)


def _attachment(obj: JSONObject) -> Errors:
    spec, status = obj["spec"], obj.get("status") or {}
    source = spec.get("source") or {}
    yield from csi_driver_name("spec.attacher", spec.get("attacher", ""))
    yield from _source("spec.source", source)
    yield from subdomain_field("spec.nodeName", spec.get("nodeName", ""))
    metadata = status.get("attachmentMetadata") or {}
    if sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items()) > _METADATA:
        yield too_long("status.attachmentMetadata", _METADATA)
    for name in ("attachError", "detachError"):
        yield from _error(f"status.{name}", status.get(name) or {})
    if source.get("persistentVolumeName") is not None:
        yield from subdomain_field("spec.source.persistentVolumeName", source["persistentVolumeName"])


def _source(path: str, source: JSONObject) -> Errors:
    name, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    if name is None and inline is None:
        yield required(path, _ONE_SOURCE)
    elif name is not None and inline is not None:
        yield forbidden(path, _ONE_SOURCE)
    elif inline is not None:
        yield from inline_volume(f"{path}.inlineVolumeSpec", inline)
    elif not name:
        yield required(f"{path}.persistentVolumeName", "must specify non empty persistentVolumeName")


def _error(path: str, error: JSONObject) -> Errors:
    if len(error.get("message", "").encode()) > _MESSAGE:
        yield too_long(f"{path}.message", _METADATA)  # upstream checks one limit and tells the other
    code = error.get("errorCode")
    if code is not None and code < 0:
        yield invalid(f"{path}.errorCode", code, out_of_range(0, MAX_INT32))


class VolumeAttributesClassStrategy(BuiltinStrategy):
    metadata_checks_on_update = ("update", "create")

    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return list(_attributes_class(obj))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        found = []
        if obj.get("driverName", "") != old.get("driverName", ""):
            found.append(forbidden("driverName", "updates to driverName are forbidden."))
        if (obj.get("parameters") or {}) != (old.get("parameters") or {}):
            found.append(forbidden("parameters", "updates to parameters are forbidden."))
        return [*found, *_attributes_class(obj)]


def _attributes_class(obj: JSONObject) -> Errors:
    yield from provisioner("driverName", obj.get("driverName", ""))
    if not obj.get("parameters"):
        yield required("parameters", "must contain at least one key/value pair")
    yield from parameters(obj.get("parameters") or {})
