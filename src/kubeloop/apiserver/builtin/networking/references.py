"""References to objects of any kind. Source: validateIngressTypedLocalObjectReference, ValidateCrossVersionObjectReference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.validation.formats import each, subdomain_field
from kubeloop.meta.field_error import FieldError, required
from kubeloop.meta.names import path_segment

JSONObject = dict[str, Any]


def typed_reference(path: str, reference: JSONObject) -> Iterator[FieldError]:
    if reference.get("apiGroup") is not None:
        yield from subdomain_field(f"{path}.apiGroup", reference["apiGroup"])
    yield from kind_and_name(path, reference)


def kind_and_name(path: str, reference: JSONObject) -> Iterator[FieldError]:
    for name in ("kind", "name"):
        if not reference.get(name):
            yield required(f"{path}.{name}")
        else:
            yield from each(f"{path}.{name}", reference[name], path_segment(reference[name]))
