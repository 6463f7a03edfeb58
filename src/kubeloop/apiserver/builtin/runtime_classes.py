"""Runtime classes. Source: pkg/apis/node/validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.options import PodOptions
from kubeloop.apiserver.builtin.pods.resources import container_resources
from kubeloop.apiserver.builtin.pods.scheduling import tolerations
from kubeloop.apiserver.builtin.pods.warnings import node_label_warnings
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.validation.formats import immutable, label_name_field
from kubeloop.apiserver.validation.selectors import labels
from kubeloop.meta.field_error import FieldError, duplicate, required

JSONObject = dict[str, Any]
Errors = Iterator[FieldError]


class RuntimeClassStrategy(BuiltinStrategy):
    metadata_checks_on_update = ("create", "update")

    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return list(_class(obj))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return [*_class(obj), *immutable("handler", obj.get("handler", ""), old.get("handler", ""))]

    def warnings(self, context: RequestContext, obj: JSONObject) -> list[str]:
        selector = (obj.get("scheduling") or {}).get("nodeSelector") or {}
        return list(node_label_warnings("scheduling.nodeSelector", selector))


def _class(obj: JSONObject) -> Errors:
    handler, overhead, scheduling = obj.get("handler", ""), obj.get("overhead"), obj.get("scheduling")
    if not handler:
        yield required("handler")
    else:
        yield from label_name_field("handler", handler)
    if overhead is not None:
        yield from container_resources("overhead", {"limits": overhead.get("podFixed") or {}}, set(), PodOptions())
    if scheduling is not None:
        yield from labels("scheduling.nodeSelector", scheduling.get("nodeSelector"))
        yield from _tolerations("scheduling.tolerations", scheduling.get("tolerations") or [])


def _tolerations(path: str, found: list[JSONObject]) -> Errors:
    yield from tolerations(path, found)
    known: set[tuple[str, ...]] = set()
    for at, toleration in enumerate(found):
        key = tuple(toleration.get(name, "") for name in ("key", "operator", "value", "effect"))
        if key in known:
            yield duplicate(f"{path}[{at}]", _shown(toleration))
        known.add(key)


def _shown(toleration: JSONObject) -> JSONObject:
    """As Go prints it."""
    shown: JSONObject = {name: toleration.get(name.lower(), "") for name in ("Key", "Operator", "Value", "Effect")}
    return {**shown, "TolerationSeconds": toleration.get("tolerationSeconds")}
