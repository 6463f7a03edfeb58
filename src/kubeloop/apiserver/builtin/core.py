"""Strategies of ConfigMaps, Events, Leases, Namespaces, Secrets and ServiceAccounts.

Source: pkg/registry/core, pkg/registry/coordination, pkg/apis/core/validation.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from kubeloop.apiserver.builtin.conversion import convert_event
from kubeloop.apiserver.builtin.kind import BuiltinStrategy, value_at
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import NOT_NEGATIVE, NOT_POSITIVE, check_immutable, each
from kubeloop.apiserver.validation.metadata import validate_object_meta
from kubeloop.endpoints.go_json_errors import json_fault
from kubeloop.merge.go_text import copy_tree
from kubeloop.meta.field_error import Errors, FieldError, forbidden, invalid, required, too_long
from kubeloop.meta.names import config_key, dns1123_label, dns1123_subdomain, path_segment, qualified_name
from kubeloop.types import JSONObject

_MISPLACED = "does not match event.namespace"
_IMMUTABLE_EVENT_FIELDS = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "reason", "type", "eventTime"),
    *("action", "related", "reportingController", "reportingInstance"),
)

#: Empty values of Go's type, for fields that are absent.
_EMPTY_EVENT_FIELDS = {"count": 0, **dict.fromkeys(("reason", "message", "type", "action", "reportingController", "reportingInstance"), "")}


class EventStrategy(BuiltinStrategy):
    """Strategy of Events of both groups. The rules use the field names of the core group, as upstream's internal type does."""

    metadata_checks_on_update = ()

    def errors_on_create(self, context: WriteRequest, obj: JSONObject, *, namespaced: bool) -> list[FieldError]:
        errors = list(_core_event(obj, self.kind.group))
        if self.kind.group:
            errors += self._object_meta(obj, namespaced)
            errors += _new_event(convert_event(obj, "v1"))
        return errors or list(validate_object_meta(obj["metadata"], namespaced=namespaced, name_rule=path_segment))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        errors = list(_core_event(obj, self.kind.group))
        if not self.kind.group:
            return errors
        new, before = convert_event(obj, "v1"), convert_event(old, "v1")
        errors += self._object_meta_update(obj, old)
        if new.get("series") != before.get("series"):
            errors += _event_series(new)
        for name in _IMMUTABLE_EVENT_FIELDS:
            key = {"reportingController": "reportingComponent"}.get(name, name)
            empty = _EMPTY_EVENT_FIELDS.get(name)
            errors += check_immutable(name, new.get(key, empty), before.get(key, empty))
        return errors

    def selectable_fields(self, obj: JSONObject) -> dict[str, str]:
        result = {label: value_at(obj, label) for label in self.field_labels}
        if "source" in result:
            result["source"] = value_at(obj, "source.component") or value_at(obj, "reportingComponent")
        return result


def _core_event(obj: JSONObject, group: str) -> Errors:
    """Validate the rules of both groups. An event with an eventTime must have further fields."""
    event = convert_event(obj, "v1") if group else obj
    namespace, about = event["metadata"].get("namespace", ""), (event.get("involvedObject") or {}).get("namespace", "")
    if event.get("eventTime") is None:
        if about != namespace and not (not about and namespace in ("", "default")):
            yield invalid("involvedObject.namespace", about, _MISPLACED)
    else:
        if not about and namespace not in ("default", "kube-system"):
            yield invalid("involvedObject.namespace", about, _MISPLACED)
        yield from _events_event(event, "reportingController" if group else "reportingComponent")
    yield from each("namespace", namespace, dns1123_subdomain(namespace))


def _events_event(event: JSONObject, controller_name: str) -> Errors:
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


def _event_series(event: JSONObject) -> Errors:
    series = event.get("series")
    if series is None:
        return
    if series.get("count", 0) < 2:
        yield invalid("series.count", "", "should be at least 2")
    if series.get("lastObservedTime") is None:
        yield required("series.lastObservedTime")


def _new_event(event: JSONObject) -> Errors:
    """Check that a new event of events.k8s.io does not set the deprecated fields of the core group."""
    yield from _event_series(event)
    if event.get("eventTime") is None:
        yield required("eventTime")
    if event.get("type", "") not in ("Normal", "Warning"):
        yield invalid("type", "", f"has invalid value: {event.get('type', '')}")
    for name in ("firstTimestamp", "lastTimestamp", "count"):
        if event.get(name):
            yield invalid(name, "", "needs to be unset")
    if any((event.get("source") or {}).values()):
        yield invalid("source", "", "needs to be unset")


# Leases. Source: pkg/apis/coordination/validation.


class LeaseStrategy(BuiltinStrategy):
    """Strategy of Leases."""

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_lease_spec(obj["spec"]))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_lease_spec(obj["spec"]))


def _lease_spec(spec: JSONObject) -> Iterator[FieldError]:
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        yield invalid("spec.leaseDurationSeconds", seconds, NOT_POSITIVE)
    if transitions is not None and transitions < 0:
        yield invalid("spec.leaseTransitions", transitions, NOT_NEGATIVE)


# Namespaces. Source: pkg/apis/core/validation, pkg/registry/core/namespace.


_NOT_QUALIFIED = "name is neither a standard finalizer name nor is it fully qualified"


class NamespaceStrategy(BuiltinStrategy):
    """Strategy of Namespaces. ``spec.finalizers`` keep a namespace until it is empty; only the subresource ``finalize`` changes them."""

    metadata_checks_on_update = ("create", "update")

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return dns1123_label(name, prefix)

    def initial_status(self, obj: JSONObject) -> JSONObject:
        return {"phase": "Active"}

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        super().prepare_create(context, obj)
        spec = obj.setdefault("spec", {})
        if "kubernetes" not in (spec.get("finalizers") or ()):
            spec["finalizers"] = [*(spec.get("finalizers") or ()), "kubernetes"]
        # A generated name is known only here.
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return _finalizers(obj, indexed=False)

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_update(context, obj, old)
        if context.subresource != "finalize":
            obj["spec"] = copy_tree(old.get("spec") or {})
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = old["metadata"]["name"]

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return _finalizers(obj, indexed=context.subresource == "finalize")

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        phase = (obj.get("status") or {}).get("phase", "")
        if not obj["metadata"].get("deletionTimestamp"):
            if phase != "Active":
                return [invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty")]
        elif phase != "Terminating":
            return [invalid("status.Phase", phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")]
        return []

    def begin_deletion(self, obj: JSONObject) -> None:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}

    def selectable_fields(self, obj: JSONObject) -> dict[str, str]:
        return {"status.phase": value_at(obj, "status.phase")}


def _finalizers(obj: JSONObject, *, indexed: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, name in enumerate((obj.get("spec") or {}).get("finalizers") or ()):
        path = f"spec.finalizers[{index}]" if indexed else "spec.finalizers"
        errors += each(path, name, qualified_name(name))
        if "/" not in name and name not in ("kubernetes", "orphan", "foregroundDeletion"):
            errors.append(invalid(path, name, _NOT_QUALIFIED))
    return errors


_LIMIT = 1024 * 1024
_FIXED = "field is immutable when `immutable` is set"
_TOKEN_OWNER = "kubernetes.io/service-account.name"  # noqa: S105 - an annotation
_MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"


def _frozen(obj: JSONObject, old: JSONObject, *names: str) -> Errors:
    """Check that the fields are unchanged if ``immutable`` is set."""
    if not old.get("immutable"):
        return
    if not obj.get("immutable"):
        yield forbidden("immutable", _FIXED)
    for name in names:
        if (obj.get(name) or {}) != (old.get(name) or {}):
            yield forbidden(name, _FIXED)


def _utf8_size(value: str) -> int:
    """Return the size of a base64 value in decoded bytes."""
    return len(value) * 3 // 4 - value.count("=", -2)


class ConfigMapStrategy(BuiltinStrategy):
    """Strategy of ConfigMaps."""

    metadata_checks_on_update = ("update", "create")

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_config_map(obj))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return [*_frozen(obj, old, "data", "binaryData"), *_config_map(obj)]


def _config_map(obj: JSONObject) -> Errors:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    for key in data:
        yield from each(f"data[{key}]", key, config_key(key))
        if key in binary:
            yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    for key in binary:
        yield from each(f"binaryData[{key}]", key, config_key(key))
    if sum(len(value.encode()) for value in data.values()) + sum(map(_utf8_size, binary.values())) > _LIMIT:
        yield too_long("[]", _LIMIT)  # Upstream prints the path of a whole object this way.


class SecretStrategy(BuiltinStrategy):
    """Strategy of Secrets."""

    metadata_checks_on_update = ("update", "create")

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_secret(obj))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return [*check_immutable("type", obj.get("type", ""), old.get("type", "")), *_frozen(obj, old, "data"), *_secret(obj)]


def _secret(obj: JSONObject) -> Errors:
    data = obj.get("data") or {}
    for key in data:
        yield from each(f"data[{key}]", key, config_key(key))
    if sum(map(_utf8_size, data.values())) > _LIMIT:
        yield too_long("data", _LIMIT)
    match obj.get("type", ""):
        case "kubernetes.io/service-account-token":
            if not (obj["metadata"].get("annotations") or {}).get(_TOKEN_OWNER):
                yield required(f"metadata.annotations[{_TOKEN_OWNER}]")
        case "kubernetes.io/dockercfg":
            yield from _json_key(data, ".dockercfg")
        case "kubernetes.io/dockerconfigjson":
            yield from _json_key(data, ".dockerconfigjson")
        case "kubernetes.io/basic-auth":
            if "username" not in data and "password" not in data:
                yield required("data[username]")
                yield required("data[password]")
        case "kubernetes.io/ssh-auth":
            if not data.get("ssh-privatekey"):
                yield required("data[ssh-privatekey]")
        case "kubernetes.io/tls":
            for key in ("tls.crt", "tls.key"):
                if key not in data:
                    yield required(f"data[{key}]")


def _json_key(data: JSONObject, key: str) -> Errors:
    if key not in data:
        yield required(f"data[{key}]")
        return
    if error := _not_an_object(base64.b64decode(data[key])):
        yield invalid(f"data[{key}]", "<secret contents redacted>", error)


def _not_an_object(text: bytes) -> str:
    """Return Go's message about data that is not a JSON object, else an empty text. The message does not quote the secret data."""
    if error := json_fault(text):
        return error
    value = json.loads(text)
    if value is None or isinstance(value, dict):
        return ""
    kinds = {str: "string", list: "array", bool: "bool", int: "number", float: "number"}
    return f"json: cannot unmarshal {kinds[type(value)]} into Go value of type map[string]interface {{}}"


class ServiceAccountStrategy(BuiltinStrategy):
    """Strategy of ServiceAccounts."""

    metadata_checks_on_update = ("update", "create")

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        _names_only(obj)

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        _names_only(obj)

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        if _MOUNTABLE not in (obj["metadata"].get("annotations") or {}):
            return []
        message = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        return [f"metadata.annotations[{_MOUNTABLE}]: {message}"]

    def warnings_on_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[str]:
        return [] if _MOUNTABLE in (old["metadata"].get("annotations") or {}) else self.warnings(context, obj)


def _names_only(obj: JSONObject) -> None:
    """Remove all fields but the name from references to secrets."""
    if obj.get("secrets"):
        obj["secrets"] = [{"name": one["name"]} if one.get("name") else {} for one in obj["secrets"]]
