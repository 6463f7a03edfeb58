"""Events, in the core group and in events.k8s.io: one object with two sets of names. Source: pkg/apis/core/validation/events.go."""

from __future__ import annotations

from kubeloop.apiserver.builtin.conversion import convert_event
from kubeloop.apiserver.builtin.kind import BuiltinStrategy, value_at
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import each, immutable
from kubeloop.apiserver.validation.metadata import object_meta
from kubeloop.meta.field_error import Errors, FieldError, invalid, required
from kubeloop.meta.names import dns1123_subdomain, path_segment, qualified_name
from kubeloop.types import JSONObject

_MISPLACED = "does not match event.namespace"
_IMMUTABLE = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "reason", "type", "eventTime"),
    *("action", "related", "reportingController", "reportingInstance"),
)

#: What Go's type holds where a document says nothing.
_EMPTY = {"count": 0, **dict.fromkeys(("reason", "message", "type", "action", "reportingController", "reportingInstance"), "")}


class EventStrategy(BuiltinStrategy):
    """Both groups; the rules speak of core's names, which is what upstream's internal type has."""

    metadata_checks_on_update = ()

    def errors_on_create(self, context: WriteRequest, obj: JSONObject, *, namespaced: bool) -> list[FieldError]:
        found = list(_legacy(obj, self.kind.group))
        if self.kind.group:
            found += self._object_meta(obj, namespaced)
            found += _new(convert_event(obj, "v1"))
        return found or list(object_meta(obj["metadata"], namespaced=namespaced, name_rule=path_segment))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        found = list(_legacy(obj, self.kind.group))
        if not self.kind.group:
            return found
        new, before = convert_event(obj, "v1"), convert_event(old, "v1")
        found += self._object_meta_update(obj, old)
        if new.get("series") != before.get("series"):
            found += _series(new)
        for name in _IMMUTABLE:
            key = {"reportingController": "reportingComponent"}.get(name, name)
            empty = _EMPTY.get(name)
            found += immutable(name, new.get(key, empty), before.get(key, empty))
        return found

    def selectable_fields(self, obj: JSONObject) -> dict[str, str]:
        found = {label: value_at(obj, label) for label in self.field_labels}
        if "source" in found:
            found["source"] = value_at(obj, "source.component") or value_at(obj, "reportingComponent")
        return found


def _legacy(obj: JSONObject, group: str) -> Errors:
    """What both groups ask of an event; one with an eventTime must say more."""
    event = convert_event(obj, "v1") if group else obj
    namespace, about = event["metadata"].get("namespace", ""), (event.get("involvedObject") or {}).get("namespace", "")
    if event.get("eventTime") is None:
        if about != namespace and not (not about and namespace in ("", "default")):
            yield invalid("involvedObject.namespace", about, _MISPLACED)
    else:
        if not about and namespace not in ("default", "kube-system"):
            yield invalid("involvedObject.namespace", about, _MISPLACED)
        yield from _modern(event, "reportingController" if group else "reportingComponent")
    yield from each("namespace", namespace, dns1123_subdomain(namespace))


def _modern(event: JSONObject, controller_name: str) -> Errors:
    controller = event.get("reportingComponent", "")
    if not controller:
        yield required(controller_name)
    yield from each(controller_name, controller, qualified_name(controller))
    for name in ("reportingInstance", "action", "reason"):
        value = event.get(name, "")
        if not value:
            yield required(name)
        if len(value.encode()) > 128:
            yield invalid(name, "", "can have at most 128 characters")
    if len(event.get("message", "").encode()) > 1024:
        yield invalid("message", "", "can have at most 1024 characters")


def _series(event: JSONObject) -> Errors:
    series = event.get("series")
    if series is None:
        return
    if series.get("count", 0) < 2:
        yield invalid("series.count", "", "should be at least 2")
    if series.get("lastObservedTime") is None:
        yield required("series.lastObservedTime")


def _new(event: JSONObject) -> Errors:
    """events.k8s.io no longer takes what the core group has replaced."""
    yield from _series(event)
    if event.get("eventTime") is None:
        yield required("eventTime")
    if event.get("type", "") not in ("Normal", "Warning"):
        yield invalid("type", "", f"has invalid value: {event.get('type', '')}")
    for name in ("firstTimestamp", "lastTimestamp", "count"):
        if event.get(name):
            yield invalid(name, "", "needs to be unset")
    if any((event.get("source") or {}).values()):
        yield invalid("source", "", "needs to be unset")
