"""Persistent volume claims. Source: ValidatePersistentVolumeClaim, pkg/registry/core/persistentvolumeclaim."""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver.builtin.claim_spec import claim_spec, claim_warnings
from kubeloop.apiserver.builtin.difference import difference
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.quantities import quantity
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.meta.field_error import FieldError, forbidden

JSONObject = dict[str, Any]

_SOURCES = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_FIXED = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


class ClaimStrategy(BuiltinStrategy):
    metadata_checks_on_update = ("create", "update")

    def prepare_create(self, context: RequestContext, obj: JSONObject) -> None:
        super().prepare_create(context, obj)
        _mirror_source(obj["spec"], in_use=False)

    def prepare_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_update(context, obj, old)
        before = old["spec"]
        _mirror_source(obj["spec"], in_use=before.get("dataSource") is not None or before.get("dataSourceRef") is not None)

    def initial_status(self, obj: JSONObject) -> JSONObject:
        return {"phase": "Pending"}

    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return list(claim_spec("spec", obj["spec"]))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        found = list(claim_spec("spec", obj["spec"], any_group=True))
        masked, before = dict(obj["spec"]), dict(old["spec"])
        if not before.get("volumeName"):
            # Who binds the claim sets it.
            masked.pop("volumeName", None)
        bound = (obj.get("status") or {}).get("phase") == "Bound"
        size, size_before = (quantity(((one.get("resources") or {}).get("requests") or {}).get("storage", "0")) for one in (masked, before))
        if bound:
            for one in (masked, before):
                one.pop("volumeAttributesClassName", None)
                one["resources"] = {**(one.get("resources") or {}), "requests": None}
        if masked != before:
            found.append(forbidden("spec", f"{_FIXED}\n{difference(before, masked)}"))
        if bound and size < size_before:
            found.append(forbidden("spec.resources.requests.storage", "field can not be less than status.capacity"))
        return found

    def warnings(self, context: RequestContext, obj: JSONObject) -> list[str]:
        found = []
        if _OLD_CLASS in (obj["metadata"].get("annotations") or {}):
            found.append(f'metadata.annotations[{_OLD_CLASS}]: deprecated since v1.8; use "storageClassName" attribute instead')
        return [*found, *claim_warnings("spec", obj["spec"])]


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
