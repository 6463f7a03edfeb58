"""The base strategy of built-in kinds: defaults by Go type, and a separate status. Subclasses add the validation of their kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubeloop.apiserver.builtin.defaulters import apply_defaults, drop_gated
from kubeloop.apiserver.registry.strategy import Strategy
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.merge.go_text import copy_tree
from kubeloop.meta.kinds import GroupKind, GroupVersionKind
from kubeloop.schema.strict import zero
from kubeloop.types import JSONObject


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySettings:
    """The rules of a built-in resource that differ only by a value. For their meaning see the attributes of ``Strategy``.

    Attributes:
        allows_loopback: Endpoints may have loopback addresses, as those of process pods. Kubernetes refuses them.
    """

    allows_loopback: bool
    has_generation: bool
    has_status: bool
    allow_create_on_update: bool
    allow_unconditional_update: bool
    default_propagation: str
    returns_deleted: bool
    standard_finalizers: bool
    field_labels: tuple[str, ...]
    unknown_field: str


class BuiltinStrategy(Strategy):
    """Strategy of a built-in kind, in the version that an object names.

    Guarantees
        Defaults are upstream's. If the kind has ``/status``, a new object has an empty status, and the main resource cannot change it.

    Not guaranteed
        The spec is not validated: a kind without a subclass accepts all values of its types.
    """

    #: Whether a write to ``/status`` leaves labels, annotations, finalizers and owners unchanged (ResetObjectMetaForStatus).
    status_keeps_metadata = False

    def __init__(self, kind: GroupKind, settings: StrategySettings) -> None:
        self.kind = kind
        self.allows_loopback = settings.allows_loopback
        self.has_generation = settings.has_generation
        self.has_status = settings.has_status
        self.allow_create_on_update = settings.allow_create_on_update
        self.allow_unconditional_update = settings.allow_unconditional_update
        self.default_propagation = settings.default_propagation
        self.returns_deleted = settings.returns_deleted
        self.standard_finalizers = settings.standard_finalizers
        self.field_labels = settings.field_labels
        self.unknown_field = settings.unknown_field

    def gvk(self, obj: JSONObject) -> GroupVersionKind:
        """Return the kind with the version of the object."""
        return GroupVersionKind(self.kind.group, str(obj.get("apiVersion", "")).rpartition("/")[2], self.kind.kind)

    def default(self, obj: JSONObject) -> None:
        apply_defaults(obj, self.gvk(obj))

    def drop_disabled(self, obj: JSONObject) -> None:
        drop_gated(obj, self.gvk(obj))

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        if self.has_status:
            self._set_status(obj, self.initial_status(obj))

    def initial_status(self, obj: JSONObject) -> Any:
        """Return the status of a new object, which replaces the status in the request. By default it is Go's empty status."""
        return zero(self.gvk(obj), "status")

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        if self.has_status:
            self._set_status(obj, copy_tree(old.get("status")))

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
    """Restore labels, annotations, finalizers and owner references from ``old``. Source: ResetObjectMetaForStatus."""
    metadata, before = obj["metadata"], old["metadata"]
    for name in ("labels", "annotations", "finalizers", "ownerReferences"):
        metadata.pop(name, None)
        if name in before:
            metadata[name] = copy_tree(before[name])


def value_at(obj: JSONObject, path: str) -> str:
    """Return the value at a dotted path in the form of field selectors, or an empty text if it is absent."""
    value: Any = obj
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
