"""Strategies of Ingresses and IngressClasses. Source: ValidateIngressCreate, ValidateIngressUpdate, pkg/registry/networking/ingress."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.empty_values import part_at
from kubeloop.apiserver.validation.formats import (
    check_immutable,
    check_one_of,
    each,
    ip_warnings,
    sloppy_ip,
    validate_dns_label_field,
    validate_ip_address,
    validate_subdomain_field,
)
from kubeloop.meta.field_error import Errors, FieldError, forbidden, invalid, required, too_long
from kubeloop.meta.names import (
    dns1123_label,
    dns1123_subdomain,
    path_segment,
    port_name,
    port_number,
    wildcard_dns1123_subdomain,
    wrong_pattern,
)
from kubeloop.types import JSONObject

# References to objects of any kind. Source: validateIngressTypedLocalObjectReference, ValidateCrossVersionObjectReference.


def validate_typed_reference(path: str, reference: JSONObject) -> Iterator[FieldError]:
    """Validate a reference with API group, kind and name."""
    if reference.get("apiGroup") is not None:
        yield from validate_subdomain_field(f"{path}.apiGroup", reference["apiGroup"])
    yield from validate_kind_and_name(path, reference)


def validate_kind_and_name(path: str, reference: JSONObject) -> Iterator[FieldError]:
    """Validate kind and name of a reference."""
    for name in ("kind", "name"):
        if not reference.get(name):
            yield required(f"{path}.{name}")
        else:
            yield from each(f"{path}.{name}", reference[name], path_segment(reference[name]))


# Ingress classes. Source: ValidateIngressClass, ValidateIngressClassUpdate.


_CONTROLLER_LIMIT = 250
_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


class IngressClassStrategy(BuiltinStrategy):
    """Strategy of IngressClasses."""

    metadata_checks_on_update = ("update", "create")

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_class_spec(obj["spec"]))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        fixed = check_immutable("spec.controller", obj["spec"].get("controller", ""), old["spec"].get("controller", ""))
        return [*fixed, *_class_spec(obj["spec"])]


def _class_spec(spec: JSONObject) -> Errors:
    controller = spec.get("controller", "")
    if len(controller.encode()) > _CONTROLLER_LIMIT:
        yield too_long("spec.controller", _CONTROLLER_LIMIT)
    yield from validate_domain_prefixed_path("spec.controller", controller)
    if spec.get("parameters") is not None:
        yield from _parameters("spec.parameters", spec["parameters"])


def validate_domain_prefixed_path(path: str, value: str) -> Errors:
    """Validate a path such as ``acme.io/foo``. Source: IsDomainPrefixedPath."""
    if not value:
        yield required(path)
        return
    host, _, rest = value.partition("/")
    if not host or not rest:
        yield invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')
        return
    yield from validate_subdomain_field(path, host)
    if not re.fullmatch(_PATH, rest):
        yield invalid(path, rest, wrong_pattern("Invalid path", _PATH))


def _parameters(path: str, parameters: JSONObject) -> Errors:
    yield from validate_typed_reference(path, parameters)
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        yield required(f"{path}.scope")
        return
    yield from check_one_of(f"{path}.scope", scope, ("Cluster", "Namespace"))
    if scope == "Namespace":
        if namespace is None:
            yield required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'")
        else:
            yield from validate_dns_label_field(f"{path}.namespace", namespace)
    elif scope == "Cluster" and namespace is not None:
        yield forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'")


CLASS_ANNOTATION = "kubernetes.io/ingress.class"
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_NOT_IN_PATHS = ("//", "/./", "/../", "%2f", "%2F")
_NOT_AN_ADDRESS = "must be a DNS name, not an IP address"


class IngressStrategy(BuiltinStrategy):
    """Strategy of Ingresses. It accepts invalid secret names and wildcard rules that are stored already."""

    metadata_checks_on_update = ("update", "create")

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        spec, result = obj["spec"], list(_spec(obj["spec"], context.sent, any_secret=False, any_wildcard=False))
        annotation = (obj["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
        if annotation is not None and spec.get("ingressClassName") not in (None, annotation):
            path = f"annotations.{CLASS_ANNOTATION}"
            result.append(invalid(path, annotation, "must match `ingressClassName` when both are specified"))
        return result

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        before = old["spec"]
        any_secret = any(list(_secret("", tls)) for tls in before.get("tls") or ())
        any_wildcard = any("*" in rule.get("host", "") and list(_rule_value("", rule)) for rule in before.get("rules") or ())
        return list(_spec(obj["spec"], context.sent, any_secret=any_secret, any_wildcard=any_wildcard))

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        known = {one.get("ip") for one in _addresses(old)}
        return [
            error for index, one in enumerate(_addresses(obj)) for error in _address(f"status.loadBalancer.ingress[{index}]", one, known)
        ]

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        annotated = CLASS_ANNOTATION in (obj["metadata"].get("annotations") or {})
        if not annotated or obj["spec"].get("ingressClassName") is not None:
            return []
        return [f"annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"]

    def warnings_on_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[str]:
        return []

    def warnings_on_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[str]:
        value = enumerate(_addresses(obj))
        return [text for index, one in value for text in ip_warnings(f"status.loadBalancer.ingress[{index}]", one.get("ip", ""))]


def _addresses(obj: JSONObject) -> list[JSONObject]:
    return ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []


def _address(path: str, ingress: JSONObject, known: set[str | None]) -> Errors:
    if (address := ingress.get("ip")) and address not in known:
        yield from each(f"{path}.ip", address, validate_ip_address(address))
    if host := ingress.get("hostname"):
        yield from validate_subdomain_field(f"{path}.hostname", host)
        if sloppy_ip(host) is not None:
            yield invalid(f"{path}.hostname", host, _NOT_AN_ADDRESS)


def _spec(spec: JSONObject, sent: Any, *, any_secret: bool, any_wildcard: bool) -> Errors:
    """Validate the spec. ``sent`` is the request body, which tells whether the list of rules is empty or absent."""
    rules, backend = spec.get("rules") or [], spec.get("defaultBackend")
    if not rules and backend is None:
        yield invalid("spec", part_at(sent, "spec.rules"), "either `defaultBackend` or `rules` must be specified")
    if backend is not None:
        yield from _backend("spec.defaultBackend", backend)
    for index, rule in enumerate(rules):
        here, host = f"spec.rules[{index}]", rule.get("host", "")
        if host:
            if sloppy_ip(host) is not None:
                yield invalid(f"{here}.host", host, _NOT_AN_ADDRESS)
            yield from each(f"{here}.host", host, _host(host))
        if "*" not in host or not any_wildcard:
            yield from _rule_value(here, rule)
    for index, tls in enumerate(spec.get("tls") or ()):
        for host_at, host in enumerate(tls.get("hosts") or ()):
            yield from each(f"spec.tls[{index}].hosts[{host_at}]", host, _host(host))
        if not any_secret:
            yield from _secret(f"spec.tls[{index}].secretName", tls)
    if spec.get("ingressClassName") is not None:
        yield from validate_subdomain_field("spec.ingressClassName", spec["ingressClassName"])


def _host(name: str) -> list[str]:
    return wildcard_dns1123_subdomain(name) if "*" in name else dns1123_subdomain(name)


def _secret(path: str, tls: JSONObject) -> Errors:
    if tls.get("secretName"):
        yield from validate_subdomain_field(path, tls["secretName"])


def _rule_value(path: str, rule: JSONObject) -> Errors:
    if rule.get("http") is None:
        return
    paths = rule["http"].get("paths") or []
    if not paths:
        yield required(f"{path}.http.paths")
    for index, one in enumerate(paths):
        yield from _path(f"{path}.http.paths[{index}]", one)


def _path(path: str, http_path: JSONObject) -> Errors:
    kind, target = http_path.get("pathType"), http_path.get("path", "")
    if kind is None:
        yield required(f"{path}.pathType", "pathType must be specified")
        return
    literal = kind in ("Exact", "Prefix")
    if (literal or (kind == "ImplementationSpecific" and target)) and not target.startswith("/"):
        yield invalid(f"{path}.path", target, "must be an absolute path")
    if literal:
        for part in _NOT_IN_PATHS:
            if part in target:
                yield invalid(f"{path}.path", target, f"must not contain '{part}'")
        for end in ("/..", "/."):
            if target.endswith(end):
                yield invalid(f"{path}.path", target, f"cannot end with '{end}'")
    yield from check_one_of(f"{path}.pathType", kind, _PATH_TYPES)
    yield from _backend(f"{path}.backend", http_path.get("backend") or {})


def _backend(path: str, backend: JSONObject) -> Errors:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        yield invalid(path, "", "cannot set both resource and service backends")
    elif resource is not None:
        yield from validate_typed_reference(f"{path}.resource", resource)
    elif service is not None:
        yield from _service(path, service)
    else:
        yield invalid(path, "", "resource or service backend is required")


def _service(path: str, service: JSONObject) -> Errors:
    if not service.get("name"):
        yield required(f"{path}.service.name")
    else:
        yield from each(f"{path}.service.name", service["name"], dns1123_label(service["name"]))
    port = service.get("port") or {}
    name, number = port.get("name"), port.get("number")
    if name and number:
        yield invalid(path, "", "cannot set both port name & port number")
    elif name:
        yield from each(f"{path}.service.port.name", name, port_name(name))
    elif number:
        yield from each(f"{path}.service.port.number", number, port_number(number))
    else:
        yield required(path, "port name or number is required")
