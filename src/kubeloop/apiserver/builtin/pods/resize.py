"""Validates writes through ``/resize``, which may change cpu and memory of containers and of the whole pod.

Source: dropNonResizeUpdates and ValidatePodResize, with the feature gates of a default 1.36 server; KEP-1287.
"""

from __future__ import annotations

import copy
from typing import Any

from kubeloop.apiserver.builtin.pods.references import MIRROR
from kubeloop.apiserver.builtin.pods.status import quality_of_service
from kubeloop.meta.field_error import Errors, FieldError, forbidden, invalid
from kubeloop.types import JSONObject

_KINDS = ("containers", "initContainers")
_PARTS = ("requests", "limits")
_COMPUTE = ("cpu", "memory")
#: Upstream's path of the whole object.
_WHOLE = "[]"


def restore_all_but_resources(obj: JSONObject, old: JSONObject) -> bool:
    """Restore spec and status from ``old``, except resources and resize policies.

    Return False, with nothing restored, if containers were added or removed; validation reports that.
    """
    new, before = obj["spec"], old["spec"]
    if any(len(new.get(kind) or ()) != len(before.get(kind) or ()) for kind in _KINDS):
        return False
    spec = copy.deepcopy(before)
    for kind in _KINDS:
        if new.get(kind):
            spec[kind] = _resized(new[kind], spec[kind])
    _set(spec, "resources", new.get("resources"))
    obj["spec"] = spec
    _set(obj, "status", copy.deepcopy(old.get("status")))
    return True


def _resized(new: list[JSONObject], old: list[JSONObject]) -> list[JSONObject]:
    """Return ``old``, changed in place, with the resources of ``new``; ``new`` itself if containers were renamed."""
    if any(one.get("name") != before.get("name") for one, before in zip(new, old, strict=True)):
        return new
    for one, before in zip(new, old, strict=True):
        for name in ("resources", "resizePolicy"):
            _set(before, name, one.get(name))
    return old


def _set(tree: JSONObject, name: str, value: Any) -> None:
    if value is None:
        tree.pop(name, None)
    else:
        tree[name] = value


def resize_error(old: JSONObject) -> FieldError | None:
    """Return the error for a pod that cannot be resized at all, or None. If there is one, it is the only error of the write."""
    if MIRROR in (old["metadata"].get("annotations") or {}):
        return forbidden(_WHOLE, "static pods cannot be resized")
    if (old["spec"].get("os") or {}).get("name") == "windows":
        return forbidden(_WHOLE, "windows pods cannot be resized")
    return None


def validate_resize_changes(obj: JSONObject, old: JSONObject) -> list[FieldError]:
    """Validate a resize after the new pod itself was validated. The checks stop where upstream's do."""
    new, before = obj["spec"], old["spec"]
    all_errors: list[FieldError] = []
    quality = (old.get("status") or {}).get("qosClass") or quality_of_service(before)
    if quality != quality_of_service(new):
        qos = (obj.get("status") or {}).get("qosClass", "")
        all_errors.append(invalid("spec", qos, "Pod QOS Class may not change as a result of resizing"))
    if not _node_resizes(old):
        all_errors.append(forbidden("spec", "Pod running on node without support for resize"))
    masked_resources = new.get("resources")
    if _names_resources(before) or _names_resources(new):
        masked_resources, errors = _pod_level(new.get("resources"), before.get("resources"))
        all_errors += errors
    misplaced = list(_misplaced(new, before))
    if misplaced:
        return all_errors + misplaced
    for kind in reversed(_KINDS):
        for index, (one, was) in enumerate(_pairs(new, before, kind)):
            all_errors += _removed(f"spec.{kind}[{index}].resources", one.get("resources") or {}, was.get("resources") or {})
    for one, was in _pairs(new, before, "containers"):
        if _differs(one, was):
            all_errors.append(forbidden("spec", "only cpu and memory resources are mutable"))
    for index, (one, was) in enumerate(_pairs(new, before, "initContainers")):
        all_errors += _init_container(f"spec.initContainers[{index}]", one, was)
    if all_errors:
        return all_errors
    rest, rest_before = ({name: value for name, value in spec.items() if name not in (*_KINDS, "resources")} for spec in (new, before))
    if rest != rest_before or _plain(masked_resources) != _plain(before.get("resources")):
        all_errors.append(forbidden("spec", "only cpu and memory resources are mutable"))
    return all_errors


def _pairs(new: JSONObject, old: JSONObject, kind: str) -> list[tuple[JSONObject, JSONObject]]:
    return list(zip(new.get(kind) or (), old.get(kind) or (), strict=True))


def _node_resizes(old: JSONObject) -> bool:
    """Return whether the node can resize pods: such nodes report the resources of running containers."""
    for one in (old.get("status") or {}).get("containerStatuses") or ():
        if (one.get("state") or {}).get("running") is not None:
            return one.get("resources") is not None
    return True


def _names_resources(spec: JSONObject) -> bool:
    resources = spec.get("resources") or {}
    return any(resources.get(part) for part in _PARTS)


def _pod_level(new: JSONObject | None, old: JSONObject | None) -> tuple[JSONObject | None, list[FieldError]]:
    """Return the resources of the whole pod with the old cpu and memory, and their errors."""
    if old is not None and new is None:
        return new, [forbidden("spec.resources", "pod-level resources cannot be removed")]
    errors = [
        forbidden(f"spec.resources.{part}", f"pod-level resource {part} cannot be removed")
        for part in _PARTS
        if old is not None and new is not None and _lacks(new.get(part) or {}, old.get(part) or {})
    ]
    masked = None if new is None else {**new, **_masked(new, old or {})}
    if old is None and not _plain(masked):
        masked = None
    if _plain(masked) != _plain(old):
        errors.append(forbidden("spec", "only cpu and memory resources are mutable at pod-level"))
    return masked, errors


def _misplaced(new: JSONObject, old: JSONObject) -> Errors:
    for kind in _KINDS:
        if len(new.get(kind) or ()) != len(old.get(kind) or ()):
            yield forbidden(f"spec.{kind}", f"{kind} may not be added or removed on resize")
            continue
        for index, (one, was) in enumerate(_pairs(new, old, kind)):
            if one.get("name") != was.get("name"):
                yield forbidden(f"spec.{kind}[{index}].name", f"{kind} may not be renamed or reordered on resize")


def _removed(path: str, new: JSONObject, old: JSONObject) -> Errors:
    for part in _PARTS:
        if _lacks(new.get(part) or {}, old.get(part) or {}):
            yield forbidden(f"{path}.{part}", f"resource {part} cannot be removed")


def _lacks(new: JSONObject, old: JSONObject) -> bool:
    return not old.keys() <= new.keys()


def _init_container(path: str, new: JSONObject, old: JSONObject) -> Errors:
    if _differs(new, old):
        yield forbidden(path, "only cpu and memory resources for init or sidecar containers are mutable")
    if new == old or new.get("restartPolicy") == "Always":
        return
    for policy in new.get("resizePolicy") or ():
        if policy.get("restartPolicy") == "RestartContainer":
            yield forbidden(path, "non-sidecar init containers with a resize policy of RestartContainer cannot be resized")


def _differs(new: JSONObject, old: JSONObject) -> bool:
    """Return whether two states of a container differ in more than cpu and memory. Upstream ignores the claims of the new one."""
    resources = old.get("resources") or {}
    if _plain(_masked(new.get("resources") or {}, resources)) != _plain(resources):
        return True
    rest, rest_before = ({name: value for name, value in one.items() if name != "resources"} for one in (new, old))
    return rest != rest_before


def _masked(new: JSONObject, old: JSONObject) -> JSONObject:
    """Return requests and limits with the old cpu and memory."""
    masked = {}
    for part in _PARTS:
        others = {name: text for name, text in (new.get(part) or {}).items() if name not in _COMPUTE}
        masked[part] = others | {name: text for name, text in (old.get(part) or {}).items() if name in _COMPUTE}
    return masked


def _plain(resources: JSONObject | None) -> JSONObject | None:
    """Return resources without empty lists and maps. None and empty resources stay different for a pod, as upstream."""
    return None if resources is None else {name: value for name, value in resources.items() if value}
