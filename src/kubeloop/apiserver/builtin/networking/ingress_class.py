"""Ingress classes. Source: ValidateIngressClass, ValidateIngressClassUpdate."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.networking.references import typed_reference
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.validation.formats import immutable, label_name_field, one_of, subdomain_field
from kubeloop.meta.field_error import FieldError, forbidden, invalid, required, too_long
from kubeloop.meta.names import wrong_pattern

JSONObject = dict[str, Any]
Errors = Iterator[FieldError]

_CONTROLLER_LIMIT = 250
_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


class IngressClassStrategy(BuiltinStrategy):
    metadata_checks_on_update = ("update", "create")

    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"]))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        fixed = immutable("spec.controller", obj["spec"].get("controller", ""), old["spec"].get("controller", ""))
        return [*fixed, *_spec(obj["spec"])]


def _spec(spec: JSONObject) -> Errors:
    controller = spec.get("controller", "")
    if len(controller.encode()) > _CONTROLLER_LIMIT:
        yield too_long("spec.controller", _CONTROLLER_LIMIT)
    yield from domain_prefixed_path("spec.controller", controller)
    if spec.get("parameters") is not None:
        yield from _parameters("spec.parameters", spec["parameters"])


def domain_prefixed_path(path: str, value: str) -> Errors:
    """Source: IsDomainPrefixedPath."""
    if not value:
        yield required(path)
        return
    host, _, rest = value.partition("/")
    if not host or not rest:
        yield invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')
        return
    yield from subdomain_field(path, host)
    if not re.fullmatch(_PATH, rest):
        yield invalid(path, rest, wrong_pattern("Invalid path", _PATH))


def _parameters(path: str, parameters: JSONObject) -> Errors:
    yield from typed_reference(path, parameters)
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        yield required(f"{path}.scope")
        return
    yield from one_of(f"{path}.scope", scope, ("Cluster", "Namespace"))
    if scope == "Namespace":
        if namespace is None:
            yield required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'")
        else:
            yield from label_name_field(f"{path}.namespace", namespace)
    elif scope == "Cluster" and namespace is not None:
        yield forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'")
