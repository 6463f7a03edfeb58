"""Strategy of PersistentVolumeClaims. Source: ValidatePersistentVolumeClaim, pkg/registry/core/persistentvolumeclaim."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from kubeloop.apiserver.builtin.difference import difference
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.quantities import is_native, quantity
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.empty_values import part_at
from kubeloop.apiserver.validation.formats import check_immutable, check_one_of, each, unsupported, validate_subdomain_field
from kubeloop.apiserver.validation.metadata import check_template_meta, validate_label_selector
from kubeloop.meta.field_error import Errors, FieldError, Printed, forbidden, invalid, required
from kubeloop.meta.names import dns1123_label, dns1123_subdomain, qualified_name
from kubeloop.meta.quantity import Quantity
from kubeloop.types import JSONObject

# Specs of claims and claim templates. Source: ValidatePersistentVolumeClaimSpec.


ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")

#: Upstream passes the field's path as the value here, which prints as an empty struct.
_A_PATH = Printed("{}")


def validate_claim_template(path: str, template: JSONObject) -> Iterator[FieldError]:
    """Validate the template of a claim."""
    yield from check_template_meta(f"{path}.metadata", template.get("metadata"))
    yield from validate_claim_spec(f"{path}.spec", template.get("spec") or {})


def validate_access_modes(path: str, modes: list[str]) -> Iterator[FieldError]:
    """Validate access modes."""
    for mode in modes:
        yield from check_one_of(path, mode, ACCESS_MODES)
    if "ReadWriteOncePod" in modes and set(modes) & set(ACCESS_MODES[:3]):
        yield forbidden(path, "may not use ReadWriteOncePod with other access modes")


def validate_claim_spec(path: str, spec: JSONObject, *, any_value: bool = False, any_group: bool = False) -> Iterator[FieldError]:
    """Validate the spec of a claim.

    Args:
        path: Path of the spec.
        spec: The spec.
        any_value: Skip the values of the selector, because the stored object may have invalid ones.
        any_group: Skip the API group of the data source, for the same reason.

    Returns:
        The errors.
    """
    modes = spec.get("accessModes") or []
    if not modes:
        yield required(f"{path}.accessModes", "at least 1 access mode is required")
    yield from validate_label_selector(f"{path}.selector", spec.get("selector"), any_value=any_value)
    yield from validate_access_modes(f"{path}.accessModes", modes)
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        yield required(f"{path}.resources[storage]")
    elif quantity(storage) <= 0:
        yield invalid(f"{path}.resources[storage]", storage, "must be greater than zero")
    if spec.get("storageClassName"):
        yield from validate_subdomain_field(f"{path}.storageClassName", spec["storageClassName"])
    if spec.get("volumeMode") is not None:
        yield from check_one_of(f"{path}.volumeMode", spec["volumeMode"], ("Block", "Filesystem"))
    yield from _sources(path, spec, any_group)
    if spec.get("volumeAttributesClassName"):
        yield from validate_subdomain_field(f"{path}.volumeAttributesClassName", spec["volumeAttributesClassName"])


def _sources(path: str, spec: JSONObject, any_group: bool) -> Iterator[FieldError]:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    for name, value in (("dataSource", source), ("dataSourceRef", reference)):
        if value is not None:
            yield from _source(f"{path}.{name}", value, any_group)
    if source is None or reference is None:
        return
    if reference.get("namespace"):
        yield invalid(path, _A_PATH, "may not be specified when dataSourceRef.namespace is specified")
    elif any((source.get(name) or "") != (reference.get(name) or "") for name in ("apiGroup", "kind", "name")):
        yield invalid(path, _A_PATH, "must match dataSourceRef")


def _source(path: str, source: JSONObject, any_group: bool) -> Iterator[FieldError]:
    for name in ("name", "kind"):
        if not source.get(name):
            yield required(f"{path}.{name}")
    group = source.get("apiGroup") or ""
    if not group and source.get("kind") != "PersistentVolumeClaim":
        yield invalid(path, source.get("kind", ""), "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
    if group and not any_group:
        yield from each(f"{path}.apiGroup", group, dns1123_subdomain(group))
    if source.get("namespace"):
        yield from each(f"{path}.namespace", source["namespace"], dns1123_label(source["namespace"]))


def claim_warnings(path: str, spec: JSONObject) -> Iterator[str]:
    """Yield warnings about sizes with fractions of a byte. Source: GetWarningsForPersistentVolumeClaimSpec."""
    resources = spec.get("resources") or {}
    for part in ("requests", "limits"):
        size = (resources.get(part) or {}).get("storage", "0")
        if quantity(size).milli_value() % 1000:
            yield f'{path}.resources.{part}[storage]: fractional byte value "{size}" is invalid, must be an integer'


# State of a volume expansion. Source: ValidatePersistentVolumeClaimStatusUpdate.


_STAGES = ("ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible", "NodeResizePending")


def validate_claim_status(status: JSONObject) -> Errors:
    """Validate the status of a claim."""
    for name, amount in (status.get("capacity") or {}).items():
        yield from _amount(f"status.capacity[{name}]", amount)
    path = "status.allocatedResourceStatuses"
    for name, stage in (status.get("allocatedResourceStatuses") or {}).items():
        yield from _resource(path, name)
        if stage not in _STAGES:
            yield unsupported(path, name, sorted(_STAGES))
    path = "status.allocatedResources"
    for name, amount in (status.get("allocatedResources") or {}).items():
        errors = list(_resource(path, name))
        yield from errors or _amount(f"{path}[{name}]", amount)


def _resource(path: str, name: str) -> Errors:
    errors = list(each(path, name, qualified_name(name)))
    yield from errors
    if not errors and is_native(name):
        yield from check_one_of(path, name, ("storage",))


def _amount(path: str, text: str) -> Errors:
    whole = quantity(text).value()
    if whole < 0:
        yield invalid(path, whole, "must be a valid resource quantity")


_STRUCT = "core.PersistentVolumeClaimSpec"
_SOURCES = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_FIXED = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


class ClaimStrategy(BuiltinStrategy):
    """Strategy of PersistentVolumeClaims."""

    metadata_checks_on_update = ("create", "update")

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        super().prepare_create(context, obj)
        _mirror_source(obj["spec"], in_use=False)

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_update(context, obj, old)
        before = old["spec"]
        _mirror_source(obj["spec"], in_use=before.get("dataSource") is not None or before.get("dataSourceRef") is not None)

    def initial_status(self, obj: JSONObject) -> JSONObject:
        return {"phase": "Pending"}

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(validate_claim_spec("spec", obj["spec"]))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        errors = list(validate_claim_spec("spec", obj["spec"], any_group=True))
        now, before, status = obj["spec"], old["spec"], obj.get("status") or {}
        errors += _storage_class(obj, old)
        masked, known = _comparable(obj, old)
        if masked != known:
            shown = difference(_STRUCT, known, masked, part_at(context.sent, "spec"))
            errors.append(forbidden("spec", f"{_FIXED}\n{shown}"))
        size, capacity = _storage(now), quantity((status.get("capacity") or {}).get("storage", "0"))
        # A claim may shrink to its current capacity, which cancels a failed expansion.
        if size < _storage(before) and size <= capacity:
            errors.append(forbidden("spec.resources.requests.storage", "field can not be less than status.capacity"))
        errors += check_immutable("volumeMode", now.get("volumeMode"), before.get("volumeMode"))
        if status.get("currentVolumeAttributesClassName") is not None and not now.get("volumeAttributesClassName"):
            shown = "nil" if now.get("volumeAttributesClassName") is None else "empty string"
            detail = f"update to {shown} is forbidden when status.currentVolumeAttributesClassName is not nil"
            errors.append(forbidden("spec.volumeAttributesClassName", detail))
        return errors

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(validate_claim_status(obj.get("status") or {}))

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        messages = []
        if _OLD_CLASS in (obj["metadata"].get("annotations") or {}):
            messages.append(f'metadata.annotations[{_OLD_CLASS}]: deprecated since v1.8; use "storageClassName" attribute instead')
        return [*messages, *claim_warnings("spec", obj["spec"])]


def _storage(spec: JSONObject) -> Quantity:
    return quantity(((spec.get("resources") or {}).get("requests") or {}).get("storage", "0"))


def _from_annotation(obj: JSONObject, old: JSONObject) -> bool:
    """Return whether an update moves the class from the deprecated annotation to the field ``storageClassName``."""
    before, now = (one["metadata"].get("annotations") or {} for one in (old, obj))
    named = _OLD_CLASS in before and old["spec"].get("storageClassName") is None
    return named and obj["spec"].get("storageClassName") == before[_OLD_CLASS] == now.get(_OLD_CLASS, before[_OLD_CLASS])


def _storage_class(obj: JSONObject, old: JSONObject) -> Iterator[FieldError]:
    if not _from_annotation(obj, old):
        now, before = ((one["metadata"].get("annotations") or {}).get(_OLD_CLASS, "") for one in (obj, old))
        yield from check_immutable(f"metadata.annotations.{_OLD_CLASS}", now, before)


def _comparable(obj: JSONObject, old: JSONObject) -> tuple[JSONObject, JSONObject]:
    """Return the new and the old spec of a claim without the parts that may change.

    These are a volume or a class that was not set before, and size and attributes class of a bound claim.
    """
    masked, known = copy.deepcopy(obj["spec"]), dict(old["spec"])
    annotation = (old["metadata"].get("annotations") or {}).get(_OLD_CLASS)
    if not known.get("volumeName") and masked.get("volumeName"):
        known["volumeName"] = masked["volumeName"]
    if _from_annotation(obj, old):
        masked.pop("storageClassName")
    elif known.get("storageClassName") is None and annotation in (None, masked.get("storageClassName")):
        masked.pop("storageClassName", None)
    if (obj.get("status") or {}).get("phase") == "Bound":
        if (masked.get("resources") or {}).get("requests") is not None:
            masked["resources"]["requests"]["storage"] = ((known.get("resources") or {}).get("requests") or {}).get("storage", "0")
        masked.pop("volumeAttributesClassName", None)
        if "volumeAttributesClassName" in known:
            masked["volumeAttributesClassName"] = known["volumeAttributesClassName"]
    return masked, known


def _mirror_source(spec: JSONObject, *, in_use: bool) -> None:
    """Copy ``dataSource`` to ``dataSourceRef`` or back. An unusable source is dropped unless the stored claim has it (``in_use``).

    Source: EnforceDataSourceBackwardsCompatibility, NormalizeDataSources. References to other namespaces are behind a feature gate.
    """
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if reference is not None and reference.get("namespace"):
        reference = spec.pop("dataSourceRef") and None
    if source is not None and reference is None and not in_use and (source.get("apiGroup") or "", source.get("kind")) not in _SOURCES:
        source = spec.pop("dataSource") and None
    if source is not None and reference is None:
        spec["dataSourceRef"] = dict(source)
    elif reference is not None and source is None:
        spec["dataSource"] = dict(reference)
