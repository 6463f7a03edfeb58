"""Namespaces. Source: pkg/apis/core/validation, pkg/registry/core/namespace."""

from __future__ import annotations

import copy
from typing import Any

from kubeloop.apiserver.builtin.kind import BuiltinStrategy, value_at
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.validation.formats import each
from kubeloop.meta.field_error import FieldError, invalid
from kubeloop.meta.names import dns1123_label, qualified_name

JSONObject = dict[str, Any]

_NOT_QUALIFIED = "name is neither a standard finalizer name nor is it fully qualified"


class NamespaceStrategy(BuiltinStrategy):
    """``spec.finalizers`` hold a namespace until its content is gone; only the subresource finalize changes them."""

    metadata_checks_on_update = ("create", "update")

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return dns1123_label(name, prefix)

    def initial_status(self, obj: JSONObject) -> JSONObject:
        return {"phase": "Active"}

    def prepare_create(self, context: RequestContext, obj: JSONObject) -> None:
        super().prepare_create(context, obj)
        spec = obj.setdefault("spec", {})
        if "kubernetes" not in (spec.get("finalizers") or ()):
            spec["finalizers"] = [*(spec.get("finalizers") or ()), "kubernetes"]
        # A generated name is known only now.
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")

    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return _finalizers(obj, indexed=False)

    def prepare_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_update(context, obj, old)
        if context.subresource != "finalize":
            obj["spec"] = copy.deepcopy(old.get("spec") or {})
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = old["metadata"]["name"]

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return _finalizers(obj, indexed=context.subresource == "finalize")

    def validate_status_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        phase = (obj.get("status") or {}).get("phase", "")
        if not obj["metadata"].get("deletionTimestamp"):
            if phase != "Active":
                return [invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty")]
        elif phase != "Terminating":
            return [invalid("status.Phase", phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")]
        return []

    def begin_deletion(self, obj: JSONObject) -> None:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}

    def selectable_fields(self, obj: JSONObject) -> dict[str, str]:
        return {"status.phase": value_at(obj, "status.phase")}


def _finalizers(obj: JSONObject, *, indexed: bool) -> list[FieldError]:
    found: list[FieldError] = []
    for at, name in enumerate((obj.get("spec") or {}).get("finalizers") or ()):
        path = f"spec.finalizers[{at}]" if indexed else "spec.finalizers"
        found += each(path, name, qualified_name(name))
        if "/" not in name and name not in ("kubernetes", "orphan", "foregroundDeletion"):
            found.append(invalid(path, name, _NOT_QUALIFIED))
    return found
