"""Strategy of ResourceSlices. Source: ValidateResourceSlice, pkg/registry/resource/resourceslice."""

from __future__ import annotations

from functools import partial
from typing import Any

from kubeloop.apiserver.builtin.devices.device import validate_counters, validate_device
from kubeloop.apiserver.builtin.devices.fields import name_key, validate_driver_name, validate_pool_name, validate_unique_items
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.scheduling import validate_node_selector
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import check_immutable, validate_subdomain_field
from kubeloop.meta.field_error import Errors, FieldError, invalid, required
from kubeloop.types import JSONObject

_MOST_DEVICES, _MOST_COMPLEX_DEVICES, _MOST_COUNTER_SETS = 128, 64, 8
_ONE_OF = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"


class ResourceSliceStrategy(BuiltinStrategy):
    """Strategy of ResourceSlices."""

    def drop_disabled(self, obj: JSONObject) -> None:
        """Do nothing: the methods below drop fields, because upstream counts a dropped field as a change."""

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        super().drop_disabled(obj)
        super().prepare_create(context, obj)
        _stamp_taints(obj, context.time)

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        if obj["spec"] != old["spec"]:
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        super().drop_disabled(obj)
        super().prepare_update(context, obj, old)
        _stamp_taints(obj, context.time)

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_spec(_as_sent(obj["spec"], context.sent), None))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_spec(_as_sent(obj["spec"], context.sent), old["spec"]))

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        driver = obj["spec"].get("driver", "")
        if driver == driver.lower():
            return []
        return [f'spec.driver: driver names should be lowercase; "{driver}" contains uppercase characters']


def _as_sent(spec: JSONObject, sent: Any) -> JSONObject:
    """Return the spec with the empty lists of the request body restored. An empty list counts as set, and at most one list may be set."""
    sent_spec = sent.get("spec") if isinstance(sent, dict) else None
    if not isinstance(sent_spec, dict):
        return spec
    return spec | {name: [] for name in ("devices", "sharedCounters") if sent_spec.get(name) == [] and name not in spec}


def _stamp_taints(obj: JSONObject, time: str) -> None:
    """Set ``timeAdded`` of new taints."""
    for one in obj["spec"].get("devices") or ():
        for taint in one.get("taints") or ():
            if taint.get("timeAdded") is None and time:
                taint["timeAdded"] = time


def _spec(spec: JSONObject, old: JSONObject | None) -> Errors:
    yield from validate_driver_name("spec.driver", spec.get("driver", ""))
    pool = spec.get("pool") or {}
    yield from validate_pool_name("spec.pool.name", pool.get("name", ""))
    if pool.get("resourceSliceCount", 0) <= 0:
        yield invalid("spec.pool.resourceSliceCount", pool.get("resourceSliceCount", 0), "must be greater than zero")
    if pool.get("generation", 0) < 0:
        yield invalid("spec.pool.generation", pool["generation"], "must be greater than or equal to zero")
    if old is not None:
        yield from check_immutable("spec.pool.name", pool.get("name", ""), (old.get("pool") or {}).get("name", ""))
        yield from check_immutable("spec.driver", spec.get("driver", ""), old.get("driver", ""))
        yield from check_immutable("spec.nodeName", spec.get("nodeName"), old.get("nodeName"))
    yield from _nodes(spec)
    devices, shared = spec.get("devices"), spec.get("sharedCounters")
    if devices is not None and shared is not None:
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    known = {one.get("name", ""): one for one in (old or {}).get("devices") or ()}
    complex_ = any(one.get("taints") or one.get("consumesCounters") for one in devices or ())
    maximum = _MOST_COMPLEX_DEVICES if complex_ else _MOST_DEVICES
    check = partial(validate_device, known, bool(spec.get("perDeviceNodeSelection")))
    yield from validate_unique_items("spec.devices", devices, maximum, check, name_key)
    yield from validate_unique_items("spec.sharedCounters", shared, _MOST_COUNTER_SETS, partial(validate_counters, "name"), name_key)


def _nodes(spec: JSONObject) -> Errors:
    """Check that the slice names its nodes in exactly one way."""
    values, name, selector = [], spec.get("nodeName"), spec.get("nodeSelector")
    if name:
        values.append("`nodeName`")
        yield from validate_subdomain_field("spec.nodeName", name)
    elif name is not None:
        yield invalid("spec.nodeName", name, "must be either unset or set to a non-empty string")
    if selector is not None:
        values.append("`nodeSelector`")
        yield from validate_node_selector("spec.nodeSelector", selector, False)
        terms = selector.get("nodeSelectorTerms")
        if len(terms or ()) != 1:
            yield invalid("spec.nodeSelector.nodeSelectorTerms", _as_go_prints(terms), "must have exactly one node selector term")
    for field in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(field):
            values.append(f"`{field}`")
        elif spec.get(field) is not None:
            yield invalid(f"spec.{field}", spec[field], "must be either unset or set to true")
    if not values:
        yield required("spec", _ONE_OF)
    elif len(values) > 1:
        yield invalid("spec", f"{{{', '.join(values)}}}", f"{_ONE_OF}, but multiple fields are set")


def _as_go_prints(terms: list[JSONObject] | None) -> list[JSONObject] | None:
    def requirements(value: list[JSONObject] | None) -> list[JSONObject] | None:
        if value is None:
            return None
        return [{"Key": one.get("key", ""), "Operator": one.get("operator", ""), "Values": one.get("values")} for one in value]

    if terms is None:
        return None
    return [
        {"MatchExpressions": requirements(one.get("matchExpressions")), "MatchFields": requirements(one.get("matchFields"))}
        for one in terms
    ]
