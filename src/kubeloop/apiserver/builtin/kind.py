"""The strategy of a built-in kind: defaults by its schema and Go type, status kept apart; children add their kind's validation."""

from __future__ import annotations

import copy
from typing import Any

from kubeloop.apiserver.builtin.defaulting import apply_defaults, drop_gated
from kubeloop.apiserver.registry.strategy import Strategy
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.meta.kinds import GroupKind, GroupVersionKind
from kubeloop.schema.strict import zero
from kubeloop.types import JSONObject


class BuiltinStrategy(Strategy):
    """One kind, in the version that an object says it is in.

    Guarantees
        Defaults as upstream's; ``status`` is empty on create and out of reach of the main resource when the kind has ``/status``.

    Not guaranteed
        Validation of the spec: kinds without a strategy of their own accept whatever their types allow.
    """

    #: Whether a write to ``/status`` leaves labels, annotations, finalizers and owners as they are (ResetObjectMetaForStatus).
    status_keeps_metadata = False

    def __init__(self, kind: GroupKind) -> None:
        self.kind = kind

    def gvk(self, obj: JSONObject) -> GroupVersionKind:
        return GroupVersionKind(self.kind.group, str(obj.get("apiVersion", "")).rpartition("/")[2], self.kind.kind)

    def default(self, obj: JSONObject) -> None:
        apply_defaults(obj, self.gvk(obj))

    def drop_disabled(self, obj: JSONObject) -> None:
        drop_gated(obj, self.gvk(obj))

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        if self.has_status:
            self._set_status(obj, self.initial_status(obj))

    def initial_status(self, obj: JSONObject) -> Any:
        """What a new object's status is, whatever the request says; Go's empty status unless the kind says otherwise."""
        return zero(self.gvk(obj), "status")

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        if self.has_status:
            self._set_status(obj, copy.deepcopy(old.get("status")))

    def prepare_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_status_update(context, obj, old)
        if self.status_keeps_metadata:
            keep_metadata(obj, old)

    @staticmethod
    def _set_status(obj: JSONObject, status: Any) -> None:
        if status is None:
            obj.pop("status", None)
        else:
            obj["status"] = status

    def selectable_fields(self, obj: JSONObject) -> dict[str, str]:
        return {label: value_at(obj, label) for label in self.field_labels}


def keep_metadata(obj: JSONObject, old: JSONObject) -> None:
    """Labels, annotations, finalizers and owners as they were. Source: ResetObjectMetaForStatus."""
    metadata, before = obj["metadata"], old["metadata"]
    for name in ("labels", "annotations", "finalizers", "ownerReferences"):
        metadata.pop(name, None)
        if name in before:
            metadata[name] = copy.deepcopy(before[name])


def value_at(obj: JSONObject, path: str) -> str:
    """The value at a dotted path as a field selector compares it: empty when absent."""
    found: Any = obj
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    if found is None:
        return ""
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found)
