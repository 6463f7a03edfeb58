"""Strategies: the defaults, preparation and validation of a kind.

Each resource has one, without state. The store calls it; it never reads or writes storage. Objects are JSON trees, changed in place.
Modelled on the duties of k8s.io/apiserver pkg/registry/rest RESTCreateStrategy and RESTUpdateStrategy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from kubeloop.apiserver.validation.metadata import check_standard_finalizers, validate_object_meta, validate_object_meta_update
from kubeloop.meta.field_error import FieldError
from kubeloop.meta.names import path_segment
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from kubeloop.apiserver.registry.write_request import WriteRequest


class Strategy:
    """The behaviour of a kind without special rules. Subclasses override the rules that differ.

    Example:
        >>> class ConfigMapStrategy(Strategy):
        ...     def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        ...         return list(key_errors(obj.get("data") or {}))
    """

    #: Whether ``metadata.generation`` is kept: raised when anything outside metadata and status changes.
    has_generation: bool = False
    #: Whether the main resource ignores ``status`` and ``/status`` changes nothing else.
    has_status: bool = False
    #: Whether an update may create the object when it does not exist (Kubernetes allows it for few kinds, Leases and Endpoints among them).
    allow_create_on_update: bool = False
    #: Whether an update without resourceVersion overwrites unconditionally.
    allow_unconditional_update: bool = True
    #: Grace in seconds that a deletion without ``gracePeriodSeconds`` gets; None deletes at once. A function of the object (Pods).
    default_grace: Callable[[JSONObject], int] | None = None
    #: Whether a deletion that is done answers with the object rather than with a Status (Pods, Services, ServiceAccounts and few others).
    returns_deleted: bool = False
    #: What becomes of dependents when a deletion names no policy: "background" or "orphan".
    default_propagation: str = "background"

    def conform(self, obj: JSONObject) -> list[str]:
        """Custom resources only: prune a decoded body in place; returns paths of the fields that went (``spec.ports[0].junk``), sorted.

        Built-in kinds are conformed to their Go types (``schema.strict``) instead, and metadata always is.
        """
        return []

    def default(self, obj: JSONObject) -> None:
        """Fill in the defaults of the kind's version (not metadata), on each write and each read of older storage."""

    def drop_disabled(self, obj: JSONObject) -> None:
        """Remove fields of disabled feature gates, before ``prepare_create`` and ``prepare_update``. managedFields still name them."""

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        """Prepare an object to be created, after the mutating admission and before validation."""
        if self.has_status:
            obj.pop("status", None)

    #: What the kind's own validation does to metadata on an update, besides what is done for all kinds: "update" (what may not change),
    #: "create" (the whole again). Upstream repeats itself, and each repetition shows as one more cause of the same fault.
    metadata_checks_on_update: tuple[str, ...] = ("update",)
    #: The same for ``/status``.
    metadata_checks_on_status: tuple[str, ...] = ("update",)
    #: Whether finalizers without a domain must be Kubernetes' own, as in core and the groups that share its validation.
    standard_finalizers: bool = False

    def errors_on_create(self, context: WriteRequest, obj: JSONObject, *, namespaced: bool) -> list[FieldError]:
        """All that is wrong with an object to be created, metadata included, in upstream's order. What the pipeline calls."""
        found = self._object_meta(obj, namespaced) + self.validate_create(context, obj)
        return found or list(validate_object_meta(obj["metadata"], namespaced=namespaced, name_rule=path_segment))

    def errors_on_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject, *, namespaced: bool) -> list[FieldError]:
        """All that is wrong with an update, metadata included, in upstream's order. What the pipeline calls."""
        found = self._common_update(obj, old, namespaced)
        for check in self.metadata_checks_on_update:
            found += self._object_meta(obj, namespaced) if check == "create" else self._object_meta_update(obj, old)
        return found + self.validate_update(context, obj, old)

    def errors_on_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject, *, namespaced: bool) -> list[FieldError]:
        """As ``errors_on_update``, for ``/status``."""
        found = self._common_update(obj, old, namespaced)
        for check in self.metadata_checks_on_status:
            found += self._object_meta(obj, namespaced) if check == "create" else self._object_meta_update(obj, old)
        return found + self.validate_status_update(context, obj, old)

    @staticmethod
    def _common_update(obj: JSONObject, old: JSONObject, namespaced: bool) -> list[FieldError]:
        found = list(validate_object_meta(obj["metadata"], namespaced=namespaced, name_rule=path_segment))
        return found + list(validate_object_meta_update(obj["metadata"], old["metadata"]))

    def _object_meta(self, obj: JSONObject, namespaced: bool) -> list[FieldError]:
        found = list(validate_object_meta(obj["metadata"], namespaced=namespaced, name_rule=self.validate_name))
        return found + list(check_standard_finalizers(obj["metadata"])) if self.standard_finalizers else found

    def _object_meta_update(self, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        found = list(validate_object_meta_update(obj["metadata"], old["metadata"]))
        return found + list(check_standard_finalizers(obj["metadata"])) if self.standard_finalizers else found

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        """Everything but metadata."""
        return []

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        """Prepare an update. ``old`` is the stored object, which must not be changed."""
        if self.has_status:
            if "status" in old:
                obj["status"] = old["status"]
            else:
                obj.pop("status", None)

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return []

    def prepare_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        """For ``/status``: keep everything of ``old`` but the status (and metadata such as labels, where the kind says so)."""
        status = obj.get("status")
        metadata = obj.get("metadata")
        obj.clear()
        obj.update(old)
        if metadata is not None:
            obj["metadata"] = metadata
        if status is None:
            obj.pop("status", None)
        else:
            obj["status"] = status

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return []

    def deletion_fault(self, name: str) -> str:
        """Why the object of this name must not be deleted by a request that names it; empty if it may be."""
        return ""

    def begin_deletion(self, obj: JSONObject) -> None:
        """Called on the first deletion, before deletionTimestamp is set: may add finalizers that hold the object, or change its status."""

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        """Messages about ``metadata.name`` (or generateName when ``prefix``); DNS-1123 subdomain unless the kind says otherwise."""
        from kubeloop.meta.names import dns1123_subdomain

        return dns1123_subdomain(name, prefix)

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        """Texts for Warning headers of a create or update (deprecated fields and the like)."""
        return []

    def warnings_on_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[str]:
        """The same for an update of the main resource."""
        return self.warnings(context, obj)

    def warnings_on_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[str]:
        """The same for an update of ``/status``."""
        return []

    def warnings_on_delete(self, *, policy_named: bool) -> list[str]:
        """The same for a deletion; ``policy_named``: the request says what becomes of dependents."""
        return []

    def counts_for_generation(self, obj: JSONObject) -> object:
        """What must differ between two states for ``metadata.generation`` to grow, where ``has_generation``."""
        apart = {"metadata", "apiVersion", "kind"} | ({"status"} if self.has_status else set())
        return {name: value for name, value in obj.items() if name not in apart}

    def selectable_fields(self, obj: JSONObject) -> dict[str, str]:
        """Values that field selectors of this kind may name, besides metadata.name and metadata.namespace."""
        return {}

    #: Field selector names that the kind supports besides metadata.name and metadata.namespace.
    field_labels: tuple[str, ...] = ()

    #: What a selector of another field is told, with ``{field}`` and ``{version}`` (GROUP/VERSION); kinds have words of their own.
    unknown_field: str = "field label not supported: {field}"

    #: Old names of those, which are still understood.
    field_aliases: Mapping[str, str] = MappingProxyType({})
