"""Validates environment variables and references of the downward API. Source: ValidateEnv, ValidateEnvFrom and the selectors they use."""

from __future__ import annotations

import re

from kubeloop.apiserver.builtin.quantities import quantity
from kubeloop.apiserver.validation.formats import check_no_parent_steps, each, unsupported, validate_dns_label_field
from kubeloop.meta.field_error import Errors, invalid, required
from kubeloop.meta.names import config_key, dns1123_subdomain, qualified_name, relaxed_environment_name
from kubeloop.types import JSONObject

ENVIRONMENT_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
VOLUME_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_DOWNWARD_LABELS = {*ENVIRONMENT_FIELDS, *VOLUME_FIELDS, "spec.restartPolicy", "status.phase", "spec.schedulerName"}
_RESOURCES = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_HUGE_PAGES = ("requests.hugepages-", "limits.hugepages-")
_BYTE_DIVISORS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_SUBSCRIPT = re.compile(r"(.+?)\['(.*)'\]", re.DOTALL)


def validate_environment(path: str, variables: list[JSONObject]) -> Errors:
    """Validate environment variables."""
    for index, variable in enumerate(variables):
        here = f"{path}[{index}]"
        if name := variable.get("name"):
            yield from each(f"{here}.name", name, relaxed_environment_name(name))
        else:
            yield required(f"{here}.name")
        if variable.get("valueFrom") is not None:
            yield from _value_from(f"{here}.valueFrom", variable["valueFrom"], variable.get("value", ""))


def _value_from(path: str, source: JSONObject, value: str) -> Errors:
    values = [name for name in _SOURCES if source.get(name) is not None]
    for name in values:
        here, current = f"{path}.{name}", source[name]
        if name == "fieldRef":
            yield from validate_object_field(here, current, ENVIRONMENT_FIELDS)
        elif name == "resourceFieldRef":
            yield from validate_resource_field(here, current, volume=False)
        elif name == "fileKeyRef":
            yield from _file_key(here, current)
        else:
            yield from _key_selector(here, current)
    if not values:
        yield invalid(path, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`")
    elif value:
        yield invalid(path, "", "may not be specified when `value` is not empty")
    elif len(values) > 1:
        yield invalid(path, "", "may not have more than one field specified at a time")


def validate_object_field(path: str, selector: JSONObject, allowed: tuple[str, ...]) -> Errors:
    """Validate a reference to a field of the pod itself, in environment variables and downward API volumes."""
    if not selector.get("apiVersion"):
        yield required(f"{path}.apiVersion")
        return
    field_path = selector.get("fieldPath", "")
    if not field_path:
        yield required(f"{path}.fieldPath")
        return
    subscripted = _SUBSCRIPT.fullmatch(field_path)
    error = _conversion_fault(selector["apiVersion"], field_path, subscripted)
    if error:
        yield invalid(f"{path}.fieldPath", field_path, f"error converting fieldPath: {error}")
    elif subscripted:
        name, key = subscripted.groups()
        key = key.lower() if name == "metadata.annotations" else key
        yield from each(path, key, qualified_name(key))
    elif _renamed(field_path) not in allowed:
        yield unsupported(f"{path}.fieldPath", _renamed(field_path), allowed)


def _renamed(field_path: str) -> str:
    return "spec.nodeName" if field_path == "spec.host" else field_path


def _conversion_fault(api_version: str, field_path: str, subscripted: re.Match[str] | None) -> str:
    """Return why upstream cannot convert a field path, or an empty text if it can. Source: ConvertDownwardAPIFieldLabel."""
    if api_version != "v1":
        return f"unsupported pod version: {api_version}"
    if subscripted:
        if subscripted[1] in ("metadata.annotations", "metadata.labels"):
            return ""
        return f"field label does not support subscript: {field_path}"
    return "" if field_path in _DOWNWARD_LABELS or field_path == "spec.host" else f"field label not supported: {field_path}"


def validate_resource_field(path: str, selector: JSONObject, *, volume: bool) -> Errors:
    """Validate a reference to a resource of a container."""
    name = selector.get("resource", "")
    if volume and not selector.get("containerName"):
        yield required(f"{path}.containerName")
    elif not name:
        yield required(f"{path}.resource")
    elif name not in _RESOURCES and not name.startswith(_HUGE_PAGES):
        yield unsupported(f"{path}.resource", name, _RESOURCES)
    divisor = str(quantity(selector.get("divisor") or "0"))
    if divisor == "0":
        return
    if name in ("limits.cpu", "requests.cpu"):
        if divisor not in ("1m", "1"):
            yield invalid(f"{path}.divisor", name, "only divisor's values 1m and 1 are supported with the cpu resource")
        return
    kind = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}.get(name.partition(".")[2])
    if kind is None and name.startswith(_HUGE_PAGES):
        kind = "hugepages"
    if kind and divisor not in _BYTE_DIVISORS:
        shown = ", ".join(_BYTE_DIVISORS)
        yield invalid(f"{path}.divisor", name, f"only divisor's values {shown} are supported with the {kind} resource")


def _key_selector(path: str, selector: JSONObject) -> Errors:
    name = selector.get("name", "")
    yield from each(f"{path}.name", name, dns1123_subdomain(name))
    if key := selector.get("key"):
        yield from each(f"{path}.key", key, config_key(key))
    else:
        yield required(f"{path}.key")


def _file_key(path: str, selector: JSONObject) -> Errors:
    if key := selector.get("key"):
        yield from each(f"{path}.key", key, relaxed_environment_name(key))
    else:
        yield required(f"{path}.key")
    if name := selector.get("volumeName"):
        yield from validate_dns_label_field(f"{path}.volumeName", name)
    else:
        yield required(f"{path}.volumeName")
    if where := selector.get("path"):
        yield from check_no_parent_steps(f"{path}.path", where)
    else:
        yield required(f"{path}.path")


def validate_environment_from(path: str, sources: list[JSONObject]) -> Errors:
    """Validate the sources of ``envFrom``."""
    for index, source in enumerate(sources):
        here = f"{path}[{index}]"
        if prefix := source.get("prefix"):
            yield from each(f"{here}.prefix", prefix, relaxed_environment_name(prefix))
        values = [name for name in ("configMapRef", "secretRef") if source.get(name) is not None]
        for name in values:
            referred = source[name].get("name", "")
            if referred:
                yield from each(f"{here}.{name}.name", referred, dns1123_subdomain(referred, True))
            else:
                yield required(f"{here}.{name}.name")
        if not values:
            yield invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(values) > 1:
            yield invalid(path, "", "may not have more than one field specified at a time")
