"""Strategies of CustomResourceDefinitions and of custom resources."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kubeloop.apiserver.crd import definition as defaults
from kubeloop.apiserver.crd import paths, validation
from kubeloop.apiserver.crd.definition import (
    CLEANUP_FINALIZER,
    has_status_subresource,
    scale_subresource,
    schema_of,
    set_condition,
    versions_of,
)
from kubeloop.apiserver.registry.resource import ScalePaths
from kubeloop.apiserver.registry.strategy import Strategy
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.metadata import validate_embedded_meta
from kubeloop.endpoints import api_errors
from kubeloop.merge.go_text import copy_tree
from kubeloop.meta.field_error import FieldError, invalid
from kubeloop.meta.kinds import GroupResource
from kubeloop.meta.names import qualified_name
from kubeloop.meta.time import format_time
from kubeloop.schema import TypeSchema
from kubeloop.schema.crd_rules import unrecognised_formats
from kubeloop.schema.custom_objects import apply_defaults, check_lists, drop_nulls, prune
from kubeloop.schema.object_metadata import check_metadata, coerce_metadata
from kubeloop.schema.structural import has_rules, parse
from kubeloop.schema.validation import validate
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from kubeloop.apiserver.crd.rules import SchemaRules

# CustomResourceDefinitions. Source: apiextensions-apiserver registry/customresourcedefinition.


class DefinitionStrategy(Strategy):
    """Strategy of CustomResourceDefinitions. A create or update ignores the status in the body; group and plural are immutable.

    A deletion first deletes the instances.
    """

    has_generation = True
    has_status = True
    allow_unconditional_update = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def default(self, obj: JSONObject) -> None:
        defaults.apply(obj)

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        obj["status"] = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": None}
        defaults.add_stored_version(obj)

    def _object_meta(self, obj: JSONObject, namespaced: bool) -> list[FieldError]:
        return validation.with_name_error(obj, super()._object_meta(obj, namespaced))

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return validation.check_create(obj)

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        obj["status"] = copy.deepcopy(old.get("status") or {})
        defaults.add_stored_version(obj)

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return validation.check_update(obj, old)

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return validation.check_status_update(obj)

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        texts: dict[str, None] = {}
        for version in versions_of(obj):
            schema = schema_of(version) or {}
            for name in unrecognised_formats(schema):
                texts[f'unrecognized format "{name}"'] = None
        return list(texts)

    def begin_deletion(self, obj: JSONObject) -> None:
        """Begin the deletion: a finalizer keeps the definition while instances exist.

        Unlike for other kinds, upstream sets no deletionGracePeriodSeconds and leaves the generation unchanged.
        """
        metadata = obj["metadata"]
        metadata["deletionTimestamp"] = format_time(self._clock.wall())
        finalizers = metadata.get("finalizers") or []
        if CLEANUP_FINALIZER not in finalizers:
            metadata["finalizers"] = [*finalizers, CLEANUP_FINALIZER]
        obj["status"] = copy_tree(obj.get("status") or {})
        message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
        set_condition(obj, "Terminating", "True", "InstanceDeletionPending", message, self._clock.wall())


# Custom resources: the structural schema of a version prunes, defaults and validates its objects. CEL rules (``x-kubernetes-validations``)
# are evaluated last, if the schema reports no error that would make them fail.
#
# Source: apiextensions-apiserver registry/customresource.


_COMPARABLE: Final = msgspec.json.Encoder(order="sorted")
_NOTHING: Final = TypeSchema(type="object")
_MOST_REPLICAS: Final = 2**31 - 1
_STANDARD_FINALIZERS: Final = ("orphan", "foregroundDeletion", "kubernetes")


class CustomResourceStrategy(Strategy):
    """Strategy of one version of a custom resource.

    ``generation`` increases with every change outside of metadata (and outside of status, if there is a status subresource).
    """

    has_generation = True
    allow_unconditional_update = False

    def __init__(
        self,
        version: JSONObject,
        resource: GroupResource,
        *,
        kind: str = "",
        terminating: bool = False,
        schemas: Mapping[str, TypeSchema] | None = None,
    ) -> None:
        """Parse the schemas.

        Args:
            version: The version, as in the definition.
            resource: Group and resource of the definition.
            kind: Kind of the objects; empty accepts any kind.
            terminating: The definition is being deleted, so no object may be created.
            schemas: Schemas of all versions of the definition by name; None or empty if this version is the only one.
        """
        self._resource = resource
        self._kind = kind
        self._terminating = terminating
        self._schemas = {} if schemas is None else schemas
        source = schema_of(version)
        self.schema: TypeSchema = parse(source)
        self.has_status = has_status_subresource(version)
        self.scale = _scale(version)
        self._rules = _rules(self.schema)
        self._selectable = {field["jsonPath"].removeprefix("."): field["jsonPath"] for field in version.get("selectableFields") or []}
        self.field_labels = tuple(self._selectable)
        self._status_schema = self.schema.properties.get("status")

    def conform(self, obj: JSONObject) -> list[str]:
        """Prune a decoded body in place. Return the paths of the removed fields (``spec.ports[0].junk``), sorted.

        Raises:
            DecodeError: The metadata of an embedded resource is invalid.
        """
        schema = self._schema_of(obj)
        if schema is None:
            return []
        unknown = prune(obj, schema)
        drop_nulls(obj, schema)
        return sorted(unknown + coerce_metadata(obj, schema))

    def _schema_of(self, obj: JSONObject) -> TypeSchema | None:
        """Return the schema for the apiVersion and kind in the object, or None if the version has no schema or the kind is another."""
        group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
        if self._kind and (group, obj.get("kind")) != (self._resource.group, self._kind):
            return None
        return self._schemas.get(version, _NOTHING) if self._schemas else self.schema

    def default(self, obj: JSONObject) -> None:
        apply_defaults(obj, self.schema)

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        if self._terminating:
            why = "create not allowed while custom resource definition is terminating"
            raise api_errors.forbidden(self._resource, obj["metadata"].get("name", ""), why)
        super().prepare_create(context, obj)

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        errors = validate(obj, self.schema)
        errors.extend(_scale_faults(obj, self.scale, ("spec", "status")))
        errors.extend(check_metadata(obj, self.schema, validate_embedded_meta))
        errors.extend(check_lists(obj, self.schema))
        errors.extend(self._broken_rules(context, obj, None, errors))
        return errors

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        errors = validate(obj, self.schema, old=old)
        errors.extend(_scale_faults(obj, self.scale, ("spec", "status")))
        errors.extend(check_metadata(obj, self.schema, validate_embedded_meta))
        errors.extend(self._list_faults(obj, old))
        errors.extend(self._broken_rules(context, obj, old, errors))
        return errors

    def prepare_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        """Restore everything but the status from ``old``, including metadata except managedFields and resourceVersion."""
        has_status, status = "status" in obj, obj.get("status")
        values = obj.get("metadata") or {}
        obj.clear()
        obj.update(copy.deepcopy(old))
        for name in ("managedFields", "resourceVersion"):
            if name in values:
                obj["metadata"][name] = values[name]
            else:
                obj["metadata"].pop(name, None)
        if has_status:
            obj["status"] = status
        else:
            obj.pop("status", None)

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        errors: list[FieldError] = []
        if "status" in obj and self._status_schema is not None:
            before = {"old": old["status"]} if "status" in old else {}
            errors.extend(validate(obj["status"], self._status_schema, at="status", **before))
        errors.extend(_scale_faults(obj, self.scale, ("status",)))
        errors.extend(self._list_faults(obj, old))
        errors.extend(self._broken_rules(context, obj, old, errors))
        return errors

    def _broken_rules(self, context: WriteRequest, obj: JSONObject, old: JSONObject | None, errors: list[FieldError]) -> list[FieldError]:
        return [] if self._rules is None else self._rules.check(obj, old, errors, context.warnings)

    def counts_for_generation(self, obj: JSONObject) -> object:
        """Return the parts of an object whose change increases the generation: all but metadata and, with a ``/status``, the status."""
        counting = {name: value for name, value in obj.items() if name != "metadata" and not (name == "status" and self.has_status)}
        # As text, in which 1.0 differs from 1: upstream sees a change when a number has another Go type.
        return _COMPARABLE.encode(counting)

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        return [text for name in sorted(set(obj["metadata"].get("finalizers") or ())) for text in _finalizer_warnings(name)]

    def selectable_fields(self, obj: JSONObject) -> dict[str, str]:
        return {name: _as_text(_read(obj, path)) for name, path in self._selectable.items()}

    def _list_faults(self, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        """Return errors of duplicate list items. As upstream, duplicates that existed before are accepted."""
        errors = check_lists(obj, self.schema)
        return errors if errors and not check_lists(old, self.schema) else []


def _rules(schema: TypeSchema) -> SchemaRules | None:
    if not has_rules(schema):
        return None
    # Imported late: CEL takes time to load, and most definitions have no rules.
    from kubeloop.apiserver.crd.rules import SchemaRules

    return SchemaRules(schema)


def _scale(version: JSONObject) -> ScalePaths | None:
    scale = scale_subresource(version)
    if scale is None:
        return None
    return ScalePaths(scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath") or "")


def _scale_faults(obj: JSONObject, scale: ScalePaths | None, parts: tuple[str, ...]) -> Iterator[FieldError]:
    if scale is None:
        return
    for part, path in (("spec", scale.spec_replicas), ("status", scale.status_replicas)):
        if part not in parts:
            continue
        try:
            number = paths.read_number(obj, path) or 0
        except paths.WrongType as exc:
            yield invalid(path, 0, str(exc))
            continue
        if number < 0:
            yield invalid(path, number, "should be a non-negative integer")
        elif number > _MOST_REPLICAS:
            yield invalid(path, number, f"should be less than or equal to {_MOST_REPLICAS}")
    if scale.selector:
        try:
            paths.read_text(obj, scale.selector)
        except paths.WrongType as exc:
            yield invalid(scale.selector, "", str(exc))


def _finalizer_warnings(name: str) -> Iterator[str]:
    path = "metadata.finalizers"
    for message in qualified_name(name):
        yield f'{path}: "{name}": {message}'
    if "/" not in name and name not in _STANDARD_FINALIZERS:
        better = "a domain-qualified finalizer name" + (" including a path (/)" if "." in name else "")
        yield f'{path}: "{name}": prefer {better} to avoid accidental conflicts with other finalizer writers'


def _read(obj: JSONObject, path: str) -> Any:
    try:
        value = paths.read(obj, path)
    except paths.WrongType:
        return None
    return None if value is paths.MISSING else value


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
