"""Specs of persistent volume claims, in claims and in templates of them. Source: ValidatePersistentVolumeClaimSpec."""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.apiserver.builtin.quantities import quantity
from kubeloop.apiserver.validation.formats import each, one_of, subdomain_field
from kubeloop.apiserver.validation.metadata import template_meta
from kubeloop.apiserver.validation.selectors import label_selector
from kubeloop.meta.field_error import FieldError, Printed, forbidden, invalid, required
from kubeloop.meta.names import dns1123_label, dns1123_subdomain
from kubeloop.types import JSONObject

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")

#: Upstream quotes the field's path rather than its value, and a path shows nothing of itself.
_A_PATH = Printed("{}")


def claim_template(path: str, template: JSONObject) -> Iterator[FieldError]:
    yield from template_meta(f"{path}.metadata", template.get("metadata"))
    yield from claim_spec(f"{path}.spec", template.get("spec") or {})


def access_modes(path: str, modes: list[str]) -> Iterator[FieldError]:
    for mode in modes:
        yield from one_of(path, mode, ACCESS_MODES)
    if "ReadWriteOncePod" in modes and set(modes) & set(ACCESS_MODES[:3]):
        yield forbidden(path, "may not use ReadWriteOncePod with other access modes")


def claim_spec(path: str, spec: JSONObject, *, any_value: bool = False, any_group: bool = False) -> Iterator[FieldError]:
    modes = spec.get("accessModes") or []
    if not modes:
        yield required(f"{path}.accessModes", "at least 1 access mode is required")
    yield from label_selector(f"{path}.selector", spec.get("selector"), any_value=any_value)
    yield from access_modes(f"{path}.accessModes", modes)
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        yield required(f"{path}.resources[storage]")
    elif quantity(storage) <= 0:
        yield invalid(f"{path}.resources[storage]", storage, "must be greater than zero")
    if spec.get("storageClassName"):
        yield from subdomain_field(f"{path}.storageClassName", spec["storageClassName"])
    if spec.get("volumeMode") is not None:
        yield from one_of(f"{path}.volumeMode", spec["volumeMode"], ("Block", "Filesystem"))
    yield from _sources(path, spec, any_group)
    if spec.get("volumeAttributesClassName"):
        yield from subdomain_field(f"{path}.volumeAttributesClassName", spec["volumeAttributesClassName"])


def _sources(path: str, spec: JSONObject, any_group: bool) -> Iterator[FieldError]:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    for name, found in (("dataSource", source), ("dataSourceRef", reference)):
        if found is not None:
            yield from _source(f"{path}.{name}", found, any_group)
    if source is None or reference is None:
        return
    if reference.get("namespace"):
        yield invalid(path, _A_PATH, "may not be specified when dataSourceRef.namespace is specified")
    elif any((source.get(name) or "") != (reference.get(name) or "") for name in ("apiGroup", "kind", "name")):
        yield invalid(path, _A_PATH, "must match dataSourceRef")


def _source(path: str, source: JSONObject, any_group: bool) -> Iterator[FieldError]:
    for name in ("name", "kind"):
        if not source.get(name):
            yield required(f"{path}.{name}")
    group = source.get("apiGroup") or ""
    if not group and source.get("kind") != "PersistentVolumeClaim":
        yield invalid(path, source.get("kind", ""), "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
    if group and not any_group:
        yield from each(f"{path}.apiGroup", group, dns1123_subdomain(group))
    if source.get("namespace"):
        yield from each(f"{path}.namespace", source["namespace"], dns1123_label(source["namespace"]))


def claim_warnings(path: str, spec: JSONObject) -> Iterator[str]:
    """Fractions of a byte. Source: GetWarningsForPersistentVolumeClaimSpec."""
    resources = spec.get("resources") or {}
    for part in ("requests", "limits"):
        size = (resources.get(part) or {}).get("storage", "0")
        if quantity(size).milli_value() % 1000:
            yield f'{path}.resources.{part}[storage]: fractional byte value "{size}" is invalid, must be an integer'
