"""Strategies: the defaults, preparation and validation of a kind.

Each resource has one strategy, which has no state. The store calls it; a strategy never reads or writes storage. Objects are JSON trees,
changed in place. Modelled on k8s.io/apiserver pkg/registry/rest RESTCreateStrategy and RESTUpdateStrategy.
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

    #: Whether objects have ``metadata.generation``, which increases when anything outside metadata and status changes.
    has_generation: bool = False
    #: Whether the main resource ignores ``status`` and ``/status`` changes nothing else.
    has_status: bool = False
    #: Whether an update may create the object when it does not exist (Kubernetes allows it for few kinds, Leases and Endpoints among them).
    allow_create_on_update: bool = False
    #: Whether an update without resourceVersion overwrites unconditionally.
    allow_unconditional_update: bool = True
    #: Returns the grace period in seconds of an object that is deleted without ``gracePeriodSeconds`` (Pods). None deletes at once.
    default_grace: Callable[[JSONObject], int] | None = None
    #: Whether the response of a completed deletion is the object instead of a Status (Pods, Services, ServiceAccounts and few others).
    returns_deleted: bool = False
    #: Default propagation policy of a deletion: "background" or "orphan".
    default_propagation: str = "background"

    def conform(self, obj: JSONObject) -> list[str]:
        """Prune a decoded custom object in place. Returns the paths of removed fields (``spec.ports[0].junk``), sorted.

        Built-in kinds are converted to their Go types (``schema.strict``) instead, and so is metadata.
        """
        return []

    def default(self, obj: JSONObject) -> None:
        """Set the defaults of the kind's version, except for metadata, on each write and each read of an older stored version."""

    def drop_disabled(self, obj: JSONObject) -> None:
        """Remove fields of disabled feature gates, before ``prepare_create`` and ``prepare_update``. managedFields still name them."""

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        """Prepare an object to be created, after the mutating admission and before validation."""
        if self.has_status:
            obj.pop("status", None)

    #: Checks of metadata that upstream's validation of the kind repeats on updates: "update" (immutable fields), "create" (all fields).
    #: Each repetition adds one more cause of the same error.
    metadata_checks_on_update: tuple[str, ...] = ("update",)
    #: Checks of metadata that upstream's validation of the kind repeats on updates of ``/status``, as ``metadata_checks_on_update``.
    metadata_checks_on_status: tuple[str, ...] = ("update",)
    #: Whether finalizers without a domain must be Kubernetes' own, as in core and the groups that share its validation.
    standard_finalizers: bool = False

    def errors_on_create(self, context: WriteRequest, obj: JSONObject, *, namespaced: bool) -> list[FieldError]:
        """Return all errors of a new object, including those of its metadata, in upstream's order. The store calls this method."""
        result = self._object_meta(obj, namespaced) + self.validate_create(context, obj)
        return result or list(validate_object_meta(obj["metadata"], namespaced=namespaced, name_rule=path_segment))

    def errors_on_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject, *, namespaced: bool) -> list[FieldError]:
        """Return all errors of an update, including those of the metadata, in upstream's order. The store calls this method.

        Args:
            context: The write request.
            obj: The new object.
            old: The stored object.
            namespaced: The resource is namespaced.
        """
        result = self._common_update(obj, old, namespaced)
        for check in self.metadata_checks_on_update:
            result += self._object_meta(obj, namespaced) if check == "create" else self._object_meta_update(obj, old)
        return result + self.validate_update(context, obj, old)

    def errors_on_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject, *, namespaced: bool) -> list[FieldError]:
        """Return all errors of an update of ``/status``, including those of the metadata. See ``errors_on_update``.

        Args:
            context: The write request.
            obj: The new object.
            old: The stored object.
            namespaced: The resource is namespaced.
        """
        result = self._common_update(obj, old, namespaced)
        for check in self.metadata_checks_on_status:
            result += self._object_meta(obj, namespaced) if check == "create" else self._object_meta_update(obj, old)
        return result + self.validate_status_update(context, obj, old)

    @staticmethod
    def _common_update(obj: JSONObject, old: JSONObject, namespaced: bool) -> list[FieldError]:
        result = list(validate_object_meta(obj["metadata"], namespaced=namespaced, name_rule=path_segment))
        return result + list(validate_object_meta_update(obj["metadata"], old["metadata"]))

    def _object_meta(self, obj: JSONObject, namespaced: bool) -> list[FieldError]:
        result = list(validate_object_meta(obj["metadata"], namespaced=namespaced, name_rule=self.validate_name))
        return result + list(check_standard_finalizers(obj["metadata"])) if self.standard_finalizers else result

    def _object_meta_update(self, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        result = list(validate_object_meta_update(obj["metadata"], old["metadata"]))
        return result + list(check_standard_finalizers(obj["metadata"])) if self.standard_finalizers else result

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        """Return the errors of a new object, except for metadata."""
        return []

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        """Prepare an update. ``old`` is the stored object, which must not be changed."""
        if self.has_status:
            if "status" in old:
                obj["status"] = old["status"]
            else:
                obj.pop("status", None)

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        """Return the errors of an update, except for metadata."""
        return []

    def prepare_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        """Prepare an update of ``/status``: copy all but the status from ``old`` (also metadata such as labels, for some kinds)."""
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
        """Return the errors of an update of ``/status``, except for metadata."""
        return []

    def deletion_fault(self, name: str) -> str:
        """Return why the object with this name cannot be deleted, or "" if it can."""
        return ""

    def begin_deletion(self, obj: JSONObject) -> None:
        """Change an object at its first deletion, before deletionTimestamp is set, for example its finalizers or status.

        ``metadata`` may be changed in place. Other parts belong to the stored object, and may only be replaced.
        """

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        """Return the errors of ``metadata.name`` (``prefix``: of generateName). By default names are DNS-1123 subdomains."""
        from kubeloop.meta.names import dns1123_subdomain

        return dns1123_subdomain(name, prefix)

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        """Return texts for Warning headers of a create (deprecated fields and the like)."""
        return []

    def warnings_on_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[str]:
        """Return texts for Warning headers of an update of the main resource."""
        return self.warnings(context, obj)

    def warnings_on_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[str]:
        """Return texts for Warning headers of an update of ``/status``."""
        return []

    def warnings_on_delete(self, *, policy_named: bool) -> list[str]:
        """Return texts for Warning headers of a deletion. ``policy_named``: the request names a propagation policy."""
        return []

    def counts_for_generation(self, obj: JSONObject) -> object:
        """Return the part of an object whose change increases ``metadata.generation``."""
        apart = {"metadata", "apiVersion", "kind"} | ({"status"} if self.has_status else set())
        return {name: value for name, value in obj.items() if name not in apart}

    def selectable_fields(self, obj: JSONObject) -> dict[str, str]:
        """Return the values of fields for field selectors, besides metadata.name and metadata.namespace."""
        return {}

    #: Fields for field selectors besides metadata.name and metadata.namespace.
    field_labels: tuple[str, ...] = ()

    #: Error text for an unsupported field, with ``{field}`` and ``{version}`` (GROUP/VERSION). Kinds have different texts.
    unknown_field: str = "field label not supported: {field}"

    #: Old name of a field for field selectors that is still valid -> its current name.
    field_aliases: Mapping[str, str] = MappingProxyType({})
