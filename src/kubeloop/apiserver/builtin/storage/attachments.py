"""Strategies of StorageClasses, VolumeAttachments and VolumeAttributesClasses.

Source: pkg/apis/storage/validation, pkg/registry/storage/volumeattachment.
"""

from __future__ import annotations

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.volume_plugins import validate_csi_driver_name
from kubeloop.apiserver.builtin.storage.volume import validate_inline_volume
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import MAX_INT32, check_immutable, check_one_of, each, validate_subdomain_field
from kubeloop.meta.field_error import Errors, FieldError, duplicate, forbidden, invalid, required, too_long
from kubeloop.meta.names import out_of_range, qualified_name
from kubeloop.types import JSONObject

# Storage classes. Source: ValidateStorageClass, ValidateStorageClassUpdate.


_PARAMETERS = 512
_PARAMETERS_SIZE = 256 * 1024


class StorageClassStrategy(BuiltinStrategy):
    """Strategy of StorageClasses."""

    metadata_checks_on_update = ("create", "update")

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_class(obj))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        names = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
        return [*_class(obj), *(error for name in names for error in check_immutable(name, obj.get(name), old.get(name)))]


def _class(obj: JSONObject) -> Errors:
    yield from validate_provisioner("provisioner", obj.get("provisioner", ""))
    yield from validate_parameters(obj.get("parameters") or {})
    if obj.get("reclaimPolicy"):
        yield from check_one_of("reclaimPolicy", obj["reclaimPolicy"], ("Delete", "Retain"))
    if obj.get("volumeBindingMode") is None:
        yield required("volumeBindingMode")
    else:
        yield from check_one_of("volumeBindingMode", obj["volumeBindingMode"], ("Immediate", "WaitForFirstConsumer"))
    yield from _topologies(obj.get("allowedTopologies") or [])


def validate_provisioner(path: str, name: str) -> Errors:
    """Validate the name of a provisioner, in lower case."""
    if not name:
        yield required(path)
    else:
        lower = name.lower()
        yield from each(path, lower, qualified_name(lower))


def validate_parameters(field_value: dict[str, str]) -> Errors:
    """Validate the parameters of a class."""
    if len(field_value) > _PARAMETERS:
        yield too_long("parameters", _PARAMETERS)
        return
    if "" in field_value:
        yield invalid("parameters", "", "field can not be empty.")
    if sum(len(key.encode()) + len(value.encode()) for key, value in field_value.items()) > _PARAMETERS_SIZE:
        yield too_long("parameters", _PARAMETERS_SIZE)


def _topologies(terms: list[JSONObject]) -> Errors:
    # Upstream compares each term with as many empty ones as there are terms, and with those before it.
    seen: list[frozenset[tuple[str, frozenset[str]]]] = [frozenset()] * len(terms)
    for index, term in enumerate(terms):
        here = f"allowedTopologies[{index}].matchLabelExpressions"
        keys: dict[str, frozenset[str]] = {}
        for expression_at, expression in enumerate(term.get("matchLabelExpressions") or ()):
            path, key, values = f"{here}[{expression_at}]", expression.get("key", ""), expression.get("values") or []
            if not values:
                yield required(f"{path}.values")
            known: set[str] = set()
            for value_at, value in enumerate(values):
                if value in known:
                    yield duplicate(f"{path}.values[{value_at}]", value)
                known.add(value)
            yield from each(f"{path}.key", key, qualified_name(key))
            if key in keys:
                yield duplicate(f"{path}.key", key)
            keys[key] = frozenset(known)
        whole = frozenset(keys.items())
        for _ in range(seen.count(whole)):
            yield duplicate(here, "")
        seen.append(whole)


_METADATA = 256 * 1024
_MESSAGE = 1024
_ONE_SOURCE = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


class VolumeAttachmentStrategy(BuiltinStrategy):
    """Strategy of VolumeAttachments."""

    metadata_checks_on_update = ("create",)
    metadata_checks_on_status = ("create",)
    status_keeps_metadata = True

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_attachment(obj))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        errors = list(_attachment(obj))
        if obj["spec"] != old["spec"]:
            errors += check_immutable("spec", obj["spec"], None)
        return errors

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return self.validate_update(context, obj, old)


def _attachment(obj: JSONObject) -> Errors:
    spec, status = obj["spec"], obj.get("status") or {}
    source = spec.get("source") or {}
    yield from validate_csi_driver_name("spec.attacher", spec.get("attacher", ""))
    yield from _source("spec.source", source)
    yield from validate_subdomain_field("spec.nodeName", spec.get("nodeName", ""))
    metadata = status.get("attachmentMetadata") or {}
    if sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items()) > _METADATA:
        yield too_long("status.attachmentMetadata", _METADATA)
    for name in ("attachError", "detachError"):
        yield from _error(f"status.{name}", status.get(name) or {})
    if source.get("persistentVolumeName") is not None:
        yield from validate_subdomain_field("spec.source.persistentVolumeName", source["persistentVolumeName"])


def _source(path: str, source: JSONObject) -> Errors:
    name, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    if name is None and inline is None:
        yield required(path, _ONE_SOURCE)
    elif name is not None and inline is not None:
        yield forbidden(path, _ONE_SOURCE)
    elif inline is not None:
        yield from validate_inline_volume(f"{path}.inlineVolumeSpec", inline)
    elif not name:
        yield required(f"{path}.persistentVolumeName", "must specify non empty persistentVolumeName")


def _error(path: str, error: JSONObject) -> Errors:
    if len(error.get("message", "").encode()) > _MESSAGE:
        yield too_long(f"{path}.message", _METADATA)  # Upstream checks one limit and names the other.
    code = error.get("errorCode")
    if code is not None and code < 0:
        yield invalid(f"{path}.errorCode", code, out_of_range(0, MAX_INT32))


class VolumeAttributesClassStrategy(BuiltinStrategy):
    """Strategy of VolumeAttributesClasses."""

    metadata_checks_on_update = ("update", "create")

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_attributes_class(obj))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        errors = []
        if obj.get("driverName", "") != old.get("driverName", ""):
            errors.append(forbidden("driverName", "updates to driverName are forbidden."))
        if (obj.get("parameters") or {}) != (old.get("parameters") or {}):
            errors.append(forbidden("parameters", "updates to parameters are forbidden."))
        return [*errors, *_attributes_class(obj)]


def _attributes_class(obj: JSONObject) -> Errors:
    yield from validate_provisioner("driverName", obj.get("driverName", ""))
    if not obj.get("parameters"):
        yield required("parameters", "must contain at least one key/value pair")
    yield from validate_parameters(obj.get("parameters") or {})
