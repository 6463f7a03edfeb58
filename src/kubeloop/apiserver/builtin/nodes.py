"""Strategy of Nodes. Source: ValidateNode, ValidateNodeUpdate, pkg/registry/core/node."""

from __future__ import annotations

import re

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.resources import check_resource_value
from kubeloop.apiserver.builtin.pods.scheduling import TAINT_EFFECTS
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import check_one_of, cidr_warnings, each, validate_cidr
from kubeloop.meta.field_error import Errors, FieldError, FieldErrorType, duplicate, forbidden, invalid, required
from kubeloop.meta.names import label_value, qualified_name
from kubeloop.schema.internal_values import internal_value
from kubeloop.types import JSONObject

_FEATURE = re.compile(r"[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*")
_ONCE = 'node updates may not change podCIDR except from "" to valid'


class NodeStrategy(BuiltinStrategy):
    """Strategy of Nodes. A new node may have a status, because kubelets register themselves."""

    metadata_checks_on_update = ("create", "update")

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        """Leave the status as it is."""

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_node(obj))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return [*_node(obj), *_changes(obj, old)]

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_changes(obj, old))

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        spec = obj["spec"]
        messages = ["spec.externalID: this field is deprecated, and is unused by Kubernetes"] if spec.get("externalID") else []
        return messages + [
            text for index, value in enumerate(spec.get("podCIDRs") or ()) for text in cidr_warnings(f"spec.podCIDRs[{index}]", value)
        ]

    def selectable_fields(self, obj: JSONObject) -> dict[str, str]:
        return {"spec.unschedulable": "true" if obj["spec"].get("unschedulable") else "false"}


def _node(node: JSONObject) -> Errors:
    spec, status = node["spec"], node.get("status") or {}
    # Upstream names the metadata here, though taints are in the spec.
    yield from _taints("metadata.taints", spec.get("taints") or [])
    yield from _resources(status)
    capacity = ((status.get("nodeInfo") or {}).get("swap") or {}).get("capacity")
    if capacity is not None and capacity <= 0:
        yield invalid("metadata.nodeSwapStatus.capacity", capacity, "must be greater than 0")
    yield from _features(status)
    ranges = spec.get("podCIDRs") or []
    for index, value in enumerate(ranges):
        yield from each(f"spec.podCIDRs[{index}]", value, validate_cidr(value))
    faulty = [index for index, value in enumerate(ranges) if any(error.startswith("must be a valid") for error in validate_cidr(value))]
    if len(ranges) > 1 and faulty:
        why = f"invalid CIDR[{faulty[0]}]: <nil> (invalid CIDR address: {ranges[faulty[0]]})"
        detail = f"invalid PodCIDRs. failed to check with dual stack with error:{why}"
        yield FieldError(FieldErrorType.INTERNAL, "spec.podCIDRs", None, detail)
    if len(ranges) > 1 and (len(ranges) > 2 or len({":" in value for value in ranges}) < 2):
        yield invalid("spec.podCIDRs", ranges, "may specify no more than one CIDR for each IP family")


def _taints(path: str, taints: list[JSONObject]) -> Errors:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        here, key, value, effect = f"{path}[{index}]", taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        yield from each(f"{here}.key", key, qualified_name(key))
        if errors := label_value(value):
            yield invalid(f"{here}.value", value, ";".join(errors))
        if not effect:
            yield required(f"{here}.effect")
        else:
            yield from check_one_of(f"{here}.effect", effect, TAINT_EFFECTS)
        if (key, effect) in seen:
            yield FieldError(
                FieldErrorType.DUPLICATE, here, internal_value("core.Taint", taint), "taints must be unique by key and effect pair"
            )
        seen.add((key, effect))


def _resources(status: JSONObject) -> Errors:
    for part in ("capacity", "allocatable"):
        for name, text in (status.get(part) or {}).items():
            yield from check_resource_value(f"status.{part}.{name}", name, text)


def _features(status: JSONObject) -> Errors:
    features = status.get("declaredFeatures") or []
    path = "status.declaredFeatures"
    for index, feature in enumerate(features):
        if not _FEATURE.fullmatch(feature):
            detail = (
                f'invalid feature name "{feature}": must start with an UpperCamelCase segment, with subsequent segments separated by '
                "'/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
            )
            yield invalid(f"{path}[{index}]", feature, detail)
        if index + 1 < len(features):
            following = features[index + 1]
            if feature == following:
                yield duplicate(f"{path}[{index + 1}]", following)
            elif feature > following:
                yield invalid(f"{path}[{index + 1}]", following, "list must be sorted alphabetically")


def _changes(node: JSONObject, old: JSONObject) -> Errors:
    spec, before, status = node["spec"], old["spec"], node.get("status") or {}
    yield from _resources(status)
    yield from _features(status)
    seen = []
    for index, address in enumerate(status.get("addresses") or ()):
        if address in seen:
            yield duplicate(f"status.addresses[{index}]", address)
        seen.append(address)
    ranges, ranges_before = spec.get("podCIDRs") or [], before.get("podCIDRs") or []
    if ranges_before and len(ranges) != len(ranges_before):
        yield forbidden("spec.podCIDRs", _ONCE)
    elif ranges_before:
        for value, value_before in zip(ranges, ranges_before, strict=True):
            if value != value_before:
                yield forbidden("spec.podCIDRs", _ONCE)
    if before.get("providerID") and before["providerID"] != spec.get("providerID"):
        yield forbidden("spec.providerID", 'node updates may not change providerID except from "" to valid')
    yield from _taints("metadata.taints", spec.get("taints") or [])
    if spec.get("externalID", "") != before.get("externalID", ""):
        yield forbidden("spec.externalID", "may not be updated")
