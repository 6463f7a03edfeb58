"""Resource claims, their templates, and device classes. Source: pkg/apis/resource/validation, pkg/registry/resource."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from kubeloop.apiserver.builtin.devices.claim_spec import MOST_CONFIGURATIONS, claim_spec
from kubeloop.apiserver.builtin.devices.claim_status import claim_status, device_of, results_of
from kubeloop.apiserver.builtin.devices.collections import items
from kubeloop.apiserver.builtin.devices.configuration import configuration
from kubeloop.apiserver.builtin.devices.names import Requests
from kubeloop.apiserver.builtin.devices.selectors import selectors
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.resources import is_extended
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import immutable
from kubeloop.apiserver.validation.metadata import template_meta
from kubeloop.meta.field_error import FieldError, invalid
from kubeloop.types import JSONObject


class DeviceClassStrategy(BuiltinStrategy):
    metadata_checks_on_update = ("create", "update")

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        # Upstream declares this rule for names only.
        return [] if prefix else super().validate_name(name, prefix)

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"], {}))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"], old["spec"]))


def _spec(spec: JSONObject, old: JSONObject) -> Iterator[FieldError]:
    yield from selectors("spec.selectors", spec.get("selectors"))
    configs, extended = spec.get("config"), spec.get("extendedResourceName")
    stored = partial(configuration, stored=configs == old.get("config"))
    yield from items("spec.config", configs, MOST_CONFIGURATIONS, stored)
    if extended is not None and not is_extended(extended):
        yield invalid("spec.extendedResourceName", extended, "must be a valid extended resource name")


class ResourceClaimStrategy(BuiltinStrategy):
    metadata_checks_on_update = ("create", "update")
    status_keeps_metadata = True

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(claim_spec("spec", obj["spec"]))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(immutable("spec", obj["spec"], old["spec"]))

    def prepare_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_status_update(context, obj, old)
        status = obj.get("status") or {}
        gone = {device_of(one) for one in results_of(old.get("status") or {})} - {device_of(one) for one in results_of(status)}
        kept = [one for one in status.get("devices") or () if device_of(one) not in gone]
        if kept:
            status["devices"] = kept
        else:
            status.pop("devices", None)

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        requests = Requests(obj["spec"].get("devices") or {})
        deleted = "deletionTimestamp" in obj["metadata"]
        return list(claim_status("status", obj.get("status") or {}, old.get("status") or {}, requests, deleted=deleted))


class ResourceClaimTemplateStrategy(BuiltinStrategy):
    metadata_checks_on_update = ("create", "update")

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        spec = obj["spec"]
        return [*template_meta("spec.metadata", spec.get("metadata")), *claim_spec("spec.spec", spec.get("spec") or {})]

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return [*self.validate_create(context, obj), *immutable("spec", obj["spec"], old["spec"])]
