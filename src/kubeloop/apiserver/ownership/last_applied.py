"""From client-side apply to server-side apply: what ``kubectl apply`` wrote down earlier counts as kubectl's own.

Source: k8s.io/apimachinery pkg/util/managedfields/internal (lastappliedmanager.go, lastappliedupdater.go).
"""

from __future__ import annotations

import json
from typing import Any, Final

from kubeloop.apiserver.ownership.scopes import Scope
from kubeloop.apiserver.validation.metadata import ANNOTATIONS_LIMIT
from kubeloop.merge.fields import FieldSet, TypeMismatch, compare, field_set
from kubeloop.merge.fields.checking import check
from kubeloop.merge.fields.elements import json_text

JSONObject = dict[str, Any]

#: The one manager for whom this is done.
KUBECTL: Final = "kubectl"
ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"


def allowed_conflicts(live: JSONObject, scope: Scope) -> FieldSet:
    """Fields that the annotation has as they are live: taking them from others is the same user's move from one apply to the other."""
    text = _annotations(live).get(ANNOTATION)
    if not text:
        return FieldSet()
    try:
        applied = json.loads(text)
    except ValueError:
        return FieldSet()
    if not isinstance(applied, dict) or applied.get("apiVersion") != scope.api_version or not applied.get("kind"):
        return FieldSet()
    type_ = scope.versions.type_of(scope.api_version)
    try:
        check(applied, type_)
        change = compare(applied, live, type_)
        return field_set(applied, type_) - change.modified - change.added - change.removed
    except TypeMismatch:
        return FieldSet()


def renew(obj: JSONObject, config: JSONObject) -> JSONObject:
    """``obj`` with its annotation, if it has one, saying ``config``; without one that grew too large."""
    annotations = _annotations(obj)
    if not annotations.get(ANNOTATION):
        return obj
    kept = dict(annotations)
    kept[ANNOTATION] = _text(config)
    if sum(len(name.encode()) + len(value.encode()) for name, value in kept.items()) > ANNOTATIONS_LIMIT:
        del kept[ANNOTATION]
    return {**obj, "metadata": {**obj["metadata"], "annotations": kept}}


def _text(config: JSONObject) -> str:
    """As upstream encodes it: names sorted, a line break at the end."""
    metadata = {**config["metadata"]}
    if "annotations" in metadata:
        metadata["annotations"] = {name: value for name, value in _annotations(config).items() if name != ANNOTATION}
    return json_text({**config, "metadata": metadata}) + "\n"


def _annotations(obj: JSONObject) -> dict[str, str]:
    metadata = obj.get("metadata")
    found = metadata.get("annotations") if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}
