"""APIServices as they are written; what becomes of them is in ``aggregation``.

Source: kube-aggregator pkg/apis/apiregistration/validation, pkg/registry/apiservice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.provisioning.api_services import available
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.validation.formats import each, one_of
from kubeloop.meta.field_error import FieldError, invalid, required
from kubeloop.meta.names import dns1035_label, dns1123_subdomain, path_segment, port_number

JSONObject = dict[str, Any]
Errors = Iterator[FieldError]


class APIServiceStrategy(BuiltinStrategy):
    metadata_checks_on_update = ("update",)
    status_keeps_metadata = True

    def prepare_create(self, context: RequestContext, obj: JSONObject) -> None:
        local = obj["spec"].get("service") is None
        obj["status"] = {"conditions": [available(context.time)]} if local else {}

    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"]))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return [*self._object_meta(obj, False), *_spec(obj["spec"])]

    def validate_status_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        conditions = (obj.get("status") or {}).get("conditions") or ()
        return [
            error
            for at, condition in enumerate(conditions)
            for error in one_of(f"status.conditions[{at}].status", condition.get("status", ""), ("True", "False", "Unknown"))
        ]

    def _object_meta(self, obj: JSONObject, namespaced: bool) -> list[FieldError]:
        """The name says version and group; what is wrong with it stands where the rules of names would tell it."""
        found = super()._object_meta(obj, namespaced)
        name, spec = obj["metadata"].get("name", ""), obj["spec"]
        wanted = f"{spec.get('version', '')}.{spec.get('group', '')}"
        if name and name != wanted and not path_segment(name):
            found.insert(0, invalid("metadata.name", name, f'must be `spec.version+"."+spec.group`: "{wanted}"'))
        if prefix := obj["metadata"].get("generateName"):
            found.insert(0, invalid("metadata.generateName", prefix, f'must be `spec.version+"."+spec.group`: "{wanted}"'))
        return found

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return path_segment(name)


def _spec(spec: JSONObject) -> Errors:
    group, version = spec.get("group", ""), spec.get("version", "")
    if not group and version != "v1":
        yield required("spec.group", "only v1 may have an empty group and it better be legacy kube")
    if group:
        yield from each("spec.group", group, dns1123_subdomain(group))
    yield from each("spec.version", version, dns1035_label(version))
    for name, most in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        if not 0 < spec.get(name, 0) <= most:
            yield invalid(f"spec.{name}", spec.get(name, 0), f"must be positive and less than {most}")
    service, bundle, insecure = spec.get("service"), spec.get("caBundle") or "", bool(spec.get("insecureSkipTLSVerify"))
    if service is None:
        if bundle:
            size = len(bundle) * 3 // 4 - bundle.count("=", -2)
            yield invalid("spec.caBundle", f"{size} bytes", "local APIServices may not have a caBundle")
        if insecure:
            yield invalid("spec.insecureSkipTLSVerify", True, "local APIServices may not have insecureSkipTLSVerify")
        return
    for name in ("namespace", "name"):
        if not service.get(name):
            yield required(f"spec.service.{name}")
    if faults := port_number(service.get("port", 0)):
        yield invalid("spec.service.port", service.get("port", 0), f"port is not valid: {', '.join(faults)}")
    if insecure and bundle:
        yield invalid("spec.insecureSkipTLSVerify", True, "may not be true if caBundle is present")
