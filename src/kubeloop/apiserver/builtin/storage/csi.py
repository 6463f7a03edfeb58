"""Strategies of CSIDrivers, CSINodes and CSIStorageCapacities. Source: pkg/apis/storage/validation."""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.volume_plugins import validate_csi_driver_name
from kubeloop.apiserver.builtin.pods.warnings import selector_warnings
from kubeloop.apiserver.builtin.quantities import quantity
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.empty_values import part_at
from kubeloop.apiserver.validation.formats import (
    IMMUTABLE,
    NOT_NEGATIVE,
    check_immutable,
    check_not_negative,
    check_one_of,
    each,
    validate_subdomain_field,
)
from kubeloop.apiserver.validation.metadata import validate_label_selector
from kubeloop.meta.field_error import Errors, FieldError, duplicate, invalid, required
from kubeloop.meta.names import qualified_name
from kubeloop.schema.internal_values import internal_value
from kubeloop.types import JSONObject

_GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
_NODE_ID = 256
_TOKENS_IN_ATTRIBUTES = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in "
    "volume attributes"
)


class CSIDriverStrategy(BuiltinStrategy):
    """Strategy of CSIDrivers."""

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_driver(obj["spec"]))

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_update(context, obj, old)
        if obj["spec"] != old["spec"]:
            # The kind has no generation until its first change.
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        spec, before = obj["spec"], old["spec"]
        return [
            *_driver(spec),
            *check_immutable("spec.attachedRequired", spec.get("attachRequired"), before.get("attachRequired")),
            *check_immutable("spec.volumeLifecycleModes", spec.get("volumeLifecycleModes"), before.get("volumeLifecycleModes")),
        ]

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        spec = obj["spec"]
        return [_TOKENS_IN_ATTRIBUTES] if spec.get("tokenRequests") and spec.get("serviceAccountTokenInSecrets") is None else []

    def warnings_on_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[str]:
        changed = (obj["spec"].get("tokenRequests") or []) != (old["spec"].get("tokenRequests") or [])
        return self.warnings(context, obj) if changed else []


def _driver(spec: JSONObject) -> Errors:
    # Upstream's name of this field differs from the API's.
    for name, upstream_name in (("attachRequired", "attachedRequired"), ("podInfoOnMount", ""), ("storageCapacity", "")):
        if spec.get(name) is None:
            yield required(f"spec.{upstream_name or name}")
    if spec.get("fsGroupPolicy") is not None:
        yield from check_one_of("spec.fsGroupPolicy", spec["fsGroupPolicy"], _GROUP_POLICIES)
    tokens = spec.get("tokenRequests") or []
    yield from _tokens("spec.tokenRequests", tokens)
    for mode in spec.get("volumeLifecycleModes") or ():
        yield from check_one_of("spec.volumeLifecycleModes", mode, ("Persistent", "Ephemeral"))
    if spec.get("seLinuxMount") is None:
        yield required("spec.seLinuxMount")
    period, in_secrets = spec.get("nodeAllocatableUpdatePeriodSeconds"), spec.get("serviceAccountTokenInSecrets")
    if period is not None and period < 10:
        yield invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, "must be greater than or equal to 10 seconds")
    if in_secrets is not None and not tokens:
        detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        yield invalid("spec.serviceAccountTokenInSecrets", in_secrets, detail)


def _tokens(path: str, requests: list[JSONObject]) -> Errors:
    audiences: set[str] = set()
    for index, request in enumerate(requests):
        audience, seconds = request.get("audience", ""), request.get("expirationSeconds")
        if audience in audiences:
            yield duplicate(f"{path}[{index}].audience", audience)
            continue
        audiences.add(audience)
        if seconds is not None and seconds < 600:
            yield invalid(f"{path}[{index}].expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
        if seconds is not None and seconds > 1 << 32:
            yield invalid(f"{path}[{index}].expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")


class CSINodeStrategy(BuiltinStrategy):
    """Strategy of CSINodes."""

    metadata_checks_on_update = ("create",)

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_node_drivers(obj["spec"].get("drivers") or []))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        drivers = obj["spec"].get("drivers") or []
        changed = (
            invalid("spec.drivers", _shown(driver, part_at(context.sent, f"spec.drivers[{index}]")), IMMUTABLE)
            for before in old["spec"].get("drivers") or ()
            for index, driver in enumerate(drivers)
            if driver.get("name") == before.get("name") and _shown(driver) != _shown(before)
        )
        return [*_node_drivers(drivers), *changed]


def _shown(driver: JSONObject, sent: Any = None) -> Any:
    """Format a driver as Go does. The number of volumes is left out, because it may change."""
    return internal_value("storage.CSINodeDriver", {**driver, "allocatable": None}, sent)


def _node_drivers(drivers: list[JSONObject]) -> Errors:
    names: set[str] = set()
    for index, driver in enumerate(drivers):
        path, name, node = f"spec.drivers[{index}]", driver.get("name", ""), driver.get("nodeID", "")
        yield from validate_csi_driver_name(f"{path}.name", name)
        if not node:
            yield required(f"{path}.nodeID")
        if len(node.encode()) > _NODE_ID:
            yield invalid(f"{path}.nodeID", node, f"must be {_NODE_ID} characters or less")
        yield from check_not_negative(f"{path}.allocatable.count", (driver.get("allocatable") or {}).get("count"))
        if name in names:
            yield duplicate(f"{path}.name", name)
        names.add(name)
        yield from _topology_keys(path, driver.get("topologyKeys") or [])


def _topology_keys(path: str, keys: list[str]) -> Errors:
    known: set[str] = set()
    for key in keys:
        if not key:
            yield required(path)
        if key in known:
            yield duplicate(path, key)
        known.add(key)
        yield from each(path, key, qualified_name(key))


class CSIStorageCapacityStrategy(BuiltinStrategy):
    """Strategy of CSIStorageCapacities."""

    metadata_checks_on_update = ("create", "update")

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_capacity(obj, any_value=False))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        any_value = bool(list(validate_label_selector("", old.get("nodeTopology"))))
        errors = list(_capacity(obj, any_value=any_value))
        for name in ("nodeTopology", "storageClassName"):
            errors += check_immutable(name, obj.get(name), old.get(name))
        return errors

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        return list(selector_warnings("nodeTopology", obj.get("nodeTopology") or {}))


def _capacity(obj: JSONObject, *, any_value: bool) -> Errors:
    yield from validate_label_selector("nodeTopology", obj.get("nodeTopology"), any_value=any_value)
    yield from validate_subdomain_field("storageClassName", obj.get("storageClassName", ""))
    capacity = obj.get("capacity")
    if capacity is not None and quantity(capacity) < 0:
        yield invalid("capacity", capacity, NOT_NEGATIVE)
