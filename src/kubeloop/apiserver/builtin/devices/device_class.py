"""Device classes. Source: ValidateDeviceClass, pkg/registry/resource/deviceclass."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from kubeloop.apiserver.builtin.devices.claim_spec import MOST_CONFIGURATIONS
from kubeloop.apiserver.builtin.devices.collections import items
from kubeloop.apiserver.builtin.devices.configuration import configuration
from kubeloop.apiserver.builtin.devices.selectors import selectors
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.resources import is_extended
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.meta.field_error import FieldError, invalid

JSONObject = dict[str, Any]


class DeviceClassStrategy(BuiltinStrategy):
    metadata_checks_on_update = ("create", "update")

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        # Upstream declares this rule for names only.
        return [] if prefix else super().validate_name(name, prefix)

    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"], {}))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"], old["spec"]))


def _spec(spec: JSONObject, old: JSONObject) -> Iterator[FieldError]:
    yield from selectors("spec.selectors", spec.get("selectors"))
    configs, extended = spec.get("config"), spec.get("extendedResourceName")
    stored = partial(configuration, stored=configs == old.get("config"))
    yield from items("spec.config", configs, MOST_CONFIGURATIONS, stored)
    if extended is not None and not is_extended(extended):
        yield invalid("spec.extendedResourceName", extended, "must be a valid extended resource name")
