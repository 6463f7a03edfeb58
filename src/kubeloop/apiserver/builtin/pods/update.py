"""Validates updates of pods. Source: ValidatePodUpdate, ValidatePodEphemeralContainersUpdate, ValidatePodResize."""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver.builtin.difference import difference
from kubeloop.apiserver.builtin.pods.options import PodOptions
from kubeloop.apiserver.builtin.pods.references import MIRROR
from kubeloop.apiserver.builtin.pods.scheduling import validate_tolerations
from kubeloop.apiserver.builtin.pods.security import APP_ARMOR
from kubeloop.apiserver.builtin.pods.spec import validate_pod_annotations
from kubeloop.apiserver.validation.formats import MAX_INT32
from kubeloop.merge.go_text import copy_tree
from kubeloop.meta.field_error import Errors, FieldError, forbidden, invalid, required
from kubeloop.meta.names import out_of_range
from kubeloop.types import JSONObject

_MUTABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def check_annotation_changes(field_value: JSONObject, old: JSONObject, options: PodOptions) -> Errors:
    """Check that the AppArmor and mirror pod annotations stay unchanged, and validate the new annotations."""
    new, before = field_value["metadata"].get("annotations") or {}, old["metadata"].get("annotations") or {}
    for key, value in before.items():
        if new.get(key) != value:
            yield from _fixed(key, "remove or update")
    for key in new:
        if key not in before:
            yield from _fixed(key, "add")
    yield from validate_pod_annotations("metadata.annotations", new, field_value["spec"], options)


def _fixed(key: str, verb: str) -> Errors:
    if key.startswith(APP_ARMOR):
        yield forbidden(f"metadata.annotations[{key}]", f"may not {verb} AppArmor annotations")
    if key == MIRROR:
        yield forbidden(f"metadata.annotations[{key}]", f"may not {verb} mirror pod annotation")


def validate_spec_changes(value: JSONObject, old: JSONObject, sent: Any) -> list[FieldError]:
    """Validate an update after the new pod itself was validated. The checks stop where upstream's do. ``sent`` is the spec in the body."""
    new, before = value["spec"], old["spec"]
    errors: list[FieldError] = []
    for kind in ("containers", "initContainers"):
        if len(new.get(kind) or ()) != len(before.get(kind) or ()):
            return [*errors, forbidden(f"spec.{kind}", "pod updates may not add or remove containers")]
        for index, container in enumerate(new.get(kind) or ()):
            image = container.get("image", "")
            if not image:
                errors.append(required(f"spec.{kind}[{index}].image"))
            if image != image.strip():
                errors.append(invalid(f"spec.{kind}[{index}].image", image, "must not have leading or trailing whitespace"))
    seconds, seconds_before = new.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    here = "spec.activeDeadlineSeconds"
    if seconds is not None:
        if not 0 <= seconds <= MAX_INT32:
            return [*errors, invalid(here, seconds, out_of_range(0, MAX_INT32))]
        if seconds_before is not None and seconds_before < seconds:
            return [*errors, invalid(here, seconds, "must be less than or equal to previous value")]
    elif seconds_before is not None:
        errors.append(invalid(here, None, "must not update from a positive integer to nil value"))
    errors += _added_tolerations(new.get("tolerations") or [], before.get("tolerations") or [])
    errors += _deleted_gates(new.get("schedulingGates") or [], before.get("schedulingGates") or [])
    if new != before:
        errors += _rest(new, before, sent)
    return errors


def _added_tolerations(new: list[JSONObject], old: list[JSONObject]) -> Errors:
    plain = [{name: value for name, value in one.items() if name != "tolerationSeconds"} for one in new]
    for one in old:
        if {name: value for name, value in one.items() if name != "tolerationSeconds"} not in plain:
            yield forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
            return
    yield from validate_tolerations("spec.tolerations", new)


def _deleted_gates(new: list[JSONObject], old: list[JSONObject]) -> Errors:
    before = {gate.get("name", "") for gate in old}
    for index, gate in enumerate(new):
        name = gate.get("name", "")
        if name not in before:
            detail = f"only deletion is allowed, but found new scheduling gate '{name}'"
            yield forbidden(f"spec.schedulingGates[{index}].name", detail)


def _rest(new: JSONObject, old: JSONObject, sent: Any) -> Errors:
    """Check that an update of a pod changes only the mutable fields of the spec."""
    masked = copy_tree(new)
    for kind in ("containers", "initContainers"):
        for container, before in zip(masked.get(kind) or (), old.get(kind) or (), strict=True):
            _keep(container, before, "image")
    for name in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        _keep(masked, old, name)
    if (old.get("terminationGracePeriodSeconds") or 0) < 0 and masked.get("terminationGracePeriodSeconds") == 1:
        _keep(masked, old, "terminationGracePeriodSeconds")
    if old.get("schedulingGates"):
        yield from _gated(masked, old)
    if masked != old:
        shown = difference("core.PodSpec", old, masked, sent)
        yield forbidden("spec", f"pod updates may not change fields other than {_MUTABLE}\n{shown}")


def _keep(masked: JSONObject, old: JSONObject, name: str) -> None:
    if name in old:
        masked[name] = old[name]
    else:
        masked.pop(name, None)


def _gated(masked: JSONObject, old: JSONObject) -> Errors:
    """Check the changes of a pod with scheduling gates, which may be restricted to fewer nodes."""
    selector, before = masked.get("nodeSelector") or {}, old.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in before.items()):
        yield invalid("spec.nodeSelector", selector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)")
    _keep(masked, old, "nodeSelector")
    affinity, affinity_before = masked.get("affinity") or {}, old.get("affinity") or {}
    node, node_before = affinity.get("nodeAffinity"), affinity_before.get("nodeAffinity")
    if node == node_before:
        return
    yield from _narrowed(node, node_before)
    if node_before is not None:
        masked["affinity"] = {**affinity, "nodeAffinity": node_before}
    else:
        affinity.pop("nodeAffinity", None)
        if not affinity and old.get("affinity") is None:
            masked.pop("affinity", None)


def _narrowed(new: JSONObject | None, old: JSONObject | None) -> Errors:
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    before = ((old or {}).get(name) or {}).get("nodeSelectorTerms") or []
    terms = ((new or {}).get(name) or {}).get("nodeSelectorTerms") or []
    path = f"spec.affinity.nodeAffinity.{name}.nodeSelectorTerms"
    if before and len(before) != len(terms):
        yield invalid(path, terms or None, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
        return
    for index, term in enumerate(before):
        if not _only_additions(terms[index], term):
            yield invalid(f"{path}[{index}]", terms[index], "only additions are allowed (no mutations or deletions)")


def _only_additions(new: JSONObject, old: JSONObject) -> bool:
    parts = ("matchExpressions", "matchFields")
    if not any(old.get(part) for part in parts) and any(new.get(part) for part in parts):
        return False
    return all((new.get(part) or [])[: len(old.get(part) or [])] == (old.get(part) or []) for part in parts)


def validate_ephemeral_changes(value: JSONObject, old: JSONObject) -> Errors:
    """Validate an update through ``/ephemeralcontainers``, which may only add containers."""
    new = {one.get("name", ""): one for one in value["spec"].get("ephemeralContainers") or ()}
    for one in old["spec"].get("ephemeralContainers") or ():
        name = one.get("name", "")
        if name not in new:
            yield forbidden("spec.ephemeralContainers", f'existing ephemeral containers "{name}" may not be removed\n')
        elif new[name] != one:
            shown = difference("core.EphemeralContainer", one, new[name])
            yield forbidden("spec.ephemeralContainers", f'existing ephemeral containers "{name}" may not be changed\n{shown}')
