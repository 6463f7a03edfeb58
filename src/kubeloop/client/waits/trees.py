"""Reads generations and conditions from an object's JSON tree."""

from __future__ import annotations

import msgspec

from kubeloop.codec import document_of, to_dict
from kubeloop.meta import Resource, Unstructured
from kubeloop.types import JSONObject


def tree_of(obj: Resource) -> JSONObject:
    """Return the object as a JSON tree that callers must not change."""
    if isinstance(obj, Unstructured):
        return obj.to_dict()
    document = document_of(obj)
    tree = to_dict(obj) if document is None else msgspec.json.decode(document, type=JSONObject)
    # Items of a list do not say their kind.
    return tree | {"apiVersion": obj.api_version, "kind": obj.kind} if obj.kind else tree


def below(tree: JSONObject, *names: str) -> JSONObject:
    """Return the object at a path, or an empty one if the path has no object."""
    for name in names:
        inner = tree.get(name)
        if not isinstance(inner, dict):
            return {}
        tree = inner
    return tree


def number(tree: JSONObject, name: str, missing: int = 0) -> int:
    """Return a field that should be a number; ``missing`` if it is not."""
    value = tree.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else missing


def condition_of(tree: JSONObject, name: str) -> JSONObject | None:
    """Return the condition of that type, compared case-insensitively as by kubectl, or None if there is none."""
    conditions = below(tree, "status").get("conditions")
    for one in conditions if isinstance(conditions, list) else ():
        if isinstance(one, dict) and str(one.get("type", "")).lower() == name.lower():
            return one
    return None


def status_of(tree: JSONObject, name: str) -> str:
    """Return a condition's status: ``True``, ``False``, ``Unknown``, or an empty text if it is missing or of an older generation."""
    condition = condition_of(tree, name)
    if condition is None or is_outdated(tree, condition):
        return ""
    return str(condition.get("status", ""))


def is_outdated(tree: JSONObject, condition: JSONObject | None = None) -> bool:
    """Return whether the status (or that condition) is older than the last change of the spec (kubectl wait: getObservedGeneration)."""
    generation = number(below(tree, "metadata"), "generation", -1)
    observed = number(condition or {}, "observedGeneration", -1)
    if observed < 0:
        observed = number(below(tree, "status"), "observedGeneration", -1)
    return 0 <= observed < generation


def describe_condition(tree: JSONObject, name: str) -> str:
    """Describe a condition: ``Ready=False (ContainersNotReady: containers with unready status: [c])``."""
    condition = condition_of(tree, name)
    if condition is None:
        known = [str(one.get("type")) for one in below(tree, "status").get("conditions") or () if isinstance(one, dict)]
        return f"no condition {name}" + (f", only {', '.join(known)}" if known else "")
    why = ": ".join(str(condition[part]) for part in ("reason", "message") if condition.get(part))
    state = f"{condition.get('type')}={condition.get('status')}" + (f" ({why})" if why else "")
    return f"{state}, of an older generation" if is_outdated(tree, condition) else state
