"""Storage classes. Source: ValidateStorageClass, ValidateStorageClassUpdate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.validation.formats import each, immutable, one_of
from kubeloop.meta.field_error import FieldError, duplicate, invalid, required, too_long
from kubeloop.meta.names import qualified_name

JSONObject = dict[str, Any]
Errors = Iterator[FieldError]

_PARAMETERS = 512
_PARAMETERS_SIZE = 256 * 1024


class StorageClassStrategy(BuiltinStrategy):
    metadata_checks_on_update = ("create", "update")

    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return list(_class(obj))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        names = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
        return [*_class(obj), *(error for name in names for error in immutable(name, obj.get(name), old.get(name)))]


def _class(obj: JSONObject) -> Errors:
    yield from provisioner("provisioner", obj.get("provisioner", ""))
    yield from parameters(obj.get("parameters") or {})
    if obj.get("reclaimPolicy"):
        yield from one_of("reclaimPolicy", obj["reclaimPolicy"], ("Delete", "Retain"))
    if obj.get("volumeBindingMode") is None:
        yield required("volumeBindingMode")
    else:
        yield from one_of("volumeBindingMode", obj["volumeBindingMode"], ("Immediate", "WaitForFirstConsumer"))
    yield from _topologies(obj.get("allowedTopologies") or [])


def provisioner(path: str, name: str) -> Errors:
    """The name of whoever makes volumes of a class, told in lower case."""
    if not name:
        yield required(path)
    else:
        lower = name.lower()
        yield from each(path, lower, qualified_name(lower))


def parameters(found: dict[str, str]) -> Errors:
    if len(found) > _PARAMETERS:
        yield too_long("parameters", _PARAMETERS)
        return
    if "" in found:
        yield invalid("parameters", "", "field can not be empty.")
    if sum(len(key.encode()) + len(value.encode()) for key, value in found.items()) > _PARAMETERS_SIZE:
        yield too_long("parameters", _PARAMETERS_SIZE)


def _topologies(terms: list[JSONObject]) -> Errors:
    # Upstream compares each term with as many empty ones as there are terms, and with those before it.
    seen: list[frozenset[tuple[str, frozenset[str]]]] = [frozenset()] * len(terms)
    for at, term in enumerate(terms):
        here = f"allowedTopologies[{at}].matchLabelExpressions"
        keys: dict[str, frozenset[str]] = {}
        for expression_at, expression in enumerate(term.get("matchLabelExpressions") or ()):
            path, key, values = f"{here}[{expression_at}]", expression.get("key", ""), expression.get("values") or []
            if not values:
                yield required(f"{path}.values")
            known: set[str] = set()
            for value_at, value in enumerate(values):
                if value in known:
                    yield duplicate(f"{path}.values[{value_at}]", value)
                known.add(value)
            yield from each(f"{path}.key", key, qualified_name(key))
            if key in keys:
                yield duplicate(f"{path}.key", key)
            keys[key] = frozenset(known)
        whole = frozenset(keys.items())
        for _ in range(seen.count(whole)):
            yield duplicate(here, "")
        seen.append(whole)
