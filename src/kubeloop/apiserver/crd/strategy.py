"""The strategy of customresourcedefinitions.apiextensions.k8s.io. Source: apiextensions-apiserver registry/customresourcedefinition."""

from __future__ import annotations

import copy

from kubeloop.apiserver.crd import definition as defaults
from kubeloop.apiserver.crd import validation
from kubeloop.apiserver.crd.definition import CLEANUP_FINALIZER, schema_of, set_condition, versions_of
from kubeloop.apiserver.registry.strategy import Strategy
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.meta.field_error import FieldError
from kubeloop.meta.time import format_time
from kubeloop.schema.crd_rules import unrecognised_formats
from kubeloop.timing import Clock
from kubeloop.types import JSONObject


class DefinitionStrategy(Strategy):
    """Definitions: their status is the server's; group and plural never change; deletion first removes the instances.

    Refused although Kubernetes does it: conversion webhooks (Forbidden, with the way out).
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
        return validation.with_name_rule(obj, super()._object_meta(obj, namespaced))

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
        """On the first DELETE: from then on a finalizer holds the definition while instances exist.

        Upstream marks definitions in a way of their own: no deletionGracePeriodSeconds, and the generation stays.
        """
        metadata = obj["metadata"]
        metadata["deletionTimestamp"] = format_time(self._clock.wall())
        finalizers = metadata.get("finalizers") or []
        if CLEANUP_FINALIZER not in finalizers:
            metadata["finalizers"] = [*finalizers, CLEANUP_FINALIZER]
        message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
        set_condition(obj, "Terminating", "True", "InstanceDeletionPending", message, self._clock.wall())
