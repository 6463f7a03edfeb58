"""Persistent volume claims. Source: ValidatePersistentVolumeClaim, pkg/registry/core/persistentvolumeclaim."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from kubeloop.apiserver.builtin.claim_spec import claim_spec, claim_warnings
from kubeloop.apiserver.builtin.difference import difference
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.quantities import is_native, quantity
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.request.empty_values import part_at
from kubeloop.apiserver.validation.formats import each, immutable, one_of, unsupported
from kubeloop.meta.field_error import Errors, FieldError, forbidden, invalid
from kubeloop.meta.names import qualified_name
from kubeloop.meta.quantity import Quantity
from kubeloop.types import JSONObject

# How far the expansion of a volume has come. Source: ValidatePersistentVolumeClaimStatusUpdate.


_STAGES = ("ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible", "NodeResizePending")


def claim_status(status: JSONObject) -> Errors:
    for name, amount in (status.get("capacity") or {}).items():
        yield from _amount(f"status.capacity[{name}]", amount)
    path = "status.allocatedResourceStatuses"
    for name, stage in (status.get("allocatedResourceStatuses") or {}).items():
        yield from _resource(path, name)
        if stage not in _STAGES:
            yield unsupported(path, name, sorted(_STAGES))
    path = "status.allocatedResources"
    for name, amount in (status.get("allocatedResources") or {}).items():
        faults = list(_resource(path, name))
        yield from faults or _amount(f"{path}[{name}]", amount)


def _resource(path: str, name: str) -> Errors:
    faults = list(each(path, name, qualified_name(name)))
    yield from faults
    if not faults and is_native(name):
        yield from one_of(path, name, ("storage",))


def _amount(path: str, text: str) -> Errors:
    whole = quantity(text).value()
    if whole < 0:
        yield invalid(path, whole, "must be a valid resource quantity")


_STRUCT = "core.PersistentVolumeClaimSpec"
_SOURCES = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_FIXED = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


class ClaimStrategy(BuiltinStrategy):
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
        return list(claim_spec("spec", obj["spec"]))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        found = list(claim_spec("spec", obj["spec"], any_group=True))
        now, before, status = obj["spec"], old["spec"], obj.get("status") or {}
        found += _storage_class(obj, old)
        masked, known = _comparable(obj, old)
        if masked != known:
            shown = difference(_STRUCT, known, masked, part_at(context.sent, "spec"))
            found.append(forbidden("spec", f"{_FIXED}\n{shown}"))
        size, capacity = _storage(now), quantity((status.get("capacity") or {}).get("storage", "0"))
        # A claim shrinks as far as it has not grown yet: that is how an expansion that failed is taken back.
        if size < _storage(before) and size <= capacity:
            found.append(forbidden("spec.resources.requests.storage", "field can not be less than status.capacity"))
        found += immutable("volumeMode", now.get("volumeMode"), before.get("volumeMode"))
        if status.get("currentVolumeAttributesClassName") is not None and not now.get("volumeAttributesClassName"):
            what = "nil" if now.get("volumeAttributesClassName") is None else "empty string"
            detail = f"update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
            found.append(forbidden("spec.volumeAttributesClassName", detail))
        return found

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(claim_status(obj.get("status") or {}))

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        found = []
        if _OLD_CLASS in (obj["metadata"].get("annotations") or {}):
            found.append(f'metadata.annotations[{_OLD_CLASS}]: deprecated since v1.8; use "storageClassName" attribute instead')
        return [*found, *claim_warnings("spec", obj["spec"])]


def _storage(spec: JSONObject) -> Quantity:
    return quantity(((spec.get("resources") or {}).get("requests") or {}).get("storage", "0"))


def _from_annotation(obj: JSONObject, old: JSONObject) -> bool:
    """A class that was told by the annotation of old becomes a field."""
    before, now = (one["metadata"].get("annotations") or {} for one in (old, obj))
    named = _OLD_CLASS in before and old["spec"].get("storageClassName") is None
    return named and obj["spec"].get("storageClassName") == before[_OLD_CLASS] == now.get(_OLD_CLASS, before[_OLD_CLASS])


def _storage_class(obj: JSONObject, old: JSONObject) -> Iterator[FieldError]:
    if not _from_annotation(obj, old):
        now, before = ((one["metadata"].get("annotations") or {}).get(_OLD_CLASS, "") for one in (obj, old))
        yield from immutable(f"metadata.annotations.{_OLD_CLASS}", now, before)


def _comparable(obj: JSONObject, old: JSONObject) -> tuple[JSONObject, JSONObject]:
    """Both specs but for what may change: the volume once, the class of a claim without, size and attributes of one that is bound."""
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
    """``dataSource`` and ``dataSourceRef`` say the same; one that cannot be used goes, unless the claim has had one (``in_use``).

    Source: EnforceDataSourceBackwardsCompatibility, NormalizeDataSources; references across namespaces are behind a gate.
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
