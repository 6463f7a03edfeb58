"""The strategy of Pods. Source: pkg/registry/core/pod/strategy.go, pkg/api/pod/util.go."""

from __future__ import annotations

from types import MappingProxyType

from kubeloop.apiserver.builtin.kind import BuiltinStrategy, StrategySettings, keep_metadata, value_at
from kubeloop.apiserver.builtin.pods.options import PodOptions, all_containers, deletion_cost_fits
from kubeloop.apiserver.builtin.pods.references import MIRROR
from kubeloop.apiserver.builtin.pods.resize import resize_error, restore_all_but_resources, validate_resize_changes
from kubeloop.apiserver.builtin.pods.security import APP_ARMOR, host_sysctl_error, validate_app_armor
from kubeloop.apiserver.builtin.pods.spec import validate_new_pod, validate_pod
from kubeloop.apiserver.builtin.pods.status import quality_of_service, validate_status_update
from kubeloop.apiserver.builtin.pods.update import check_annotation_changes, validate_ephemeral_changes, validate_spec_changes
from kubeloop.apiserver.builtin.pods.warnings import pod_warnings
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.empty_values import part_at
from kubeloop.merge.go_text import copy_tree
from kubeloop.meta.field_error import FieldError, forbidden
from kubeloop.meta.kinds import GroupKind
from kubeloop.meta.names import dns1123_label
from kubeloop.types import JSONObject

# matchLabelKeys and mismatchLabelKeys become expressions of the selector when a pod is created.
#
# Source: mutatePodAffinity, mutateTopologySpreadConstraints.


def apply_label_keys(value: JSONObject) -> None:
    """Add the expressions of matchLabelKeys and mismatchLabelKeys to the selectors, in place."""
    labels = value["metadata"].get("labels") or {}
    affinity = value["spec"].get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(kind) or {}
        for weighted in pods.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            _apply(weighted.get("podAffinityTerm") or {}, labels)
        for term in pods.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            _apply(term, labels)
    for constraint in value["spec"].get("topologySpreadConstraints") or ():
        _apply(constraint, labels)


def _apply(term: JSONObject, labels: dict[str, str]) -> None:
    selector = term.get("labelSelector")
    if selector is None:
        return
    for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(name) or ():
            if key in labels:
                expressions = selector.setdefault("matchExpressions", [])
                expressions.append({"key": key, "operator": operator, "values": [labels[key]]})


def deletion_grace(value: JSONObject) -> int:
    """Return the default grace period of a deletion in seconds: zero for a pod that has no node or has ended."""
    if not value["spec"].get("nodeName") or (value.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return 0
    seconds: int = value["spec"].get("terminationGracePeriodSeconds") or 0
    return max(seconds, 1) if seconds < 0 else seconds


def options_of(old: JSONObject | None) -> PodOptions:
    """Return options that still accept invalid values of the stored object. Source: GetValidationOptionsFromPodSpecAndMeta."""
    if old is None:
        return PodOptions(is_pod=True)
    spec = old["spec"]
    sysctls = (spec.get("securityContext") or {}).get("sysctls") or ()
    return PodOptions(
        is_pod=True,
        any_deletion_cost=not deletion_cost_fits(old["metadata"].get("annotations") or {}),
        host_sysctls=any(host_sysctl_error(one.get("name", ""), spec) for one in sysctls),
    )


class PodStrategy(BuiltinStrategy):
    """Strategy of Pods. The subresource of a request (``context.subresource``) decides which fields an update may change."""

    metadata_checks_on_update = ("update", "create")
    field_aliases = MappingProxyType({"spec.host": "spec.nodeName"})

    def __init__(self, kind: GroupKind, settings: StrategySettings) -> None:
        super().__init__(kind, settings)
        self.default_grace = deletion_grace

    def default(self, obj: JSONObject) -> None:
        super().default(obj)
        seconds = obj["spec"].get("terminationGracePeriodSeconds")
        if seconds is not None and seconds < 0:
            obj["spec"]["terminationGracePeriodSeconds"] = 1

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        super().prepare_create(context, obj)
        apply_label_keys(obj)
        for condition in (obj.get("status") or {}).get("conditions") or ():
            condition["lastTransitionTime"] = context.time or None
        context.warnings += _app_armor_from_annotations(obj)

    def initial_status(self, obj: JSONObject) -> JSONObject:
        status: JSONObject = {"phase": "Pending", "qosClass": quality_of_service(obj["spec"])}
        if obj["spec"].get("schedulingGates"):
            message = "Scheduling is blocked due to non-empty scheduling gates"
            gated = {"type": "PodScheduled", "status": "False", "lastProbeTime": None, "lastTransitionTime": None}
            status["conditions"] = [{**gated, "reason": "SchedulingGated", "message": message}]
        return status

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(validate_new_pod(obj, options_of(None)))

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        if context.subresource == "resize":
            if restore_all_but_resources(obj, old):
                keep_metadata(obj, old)
            return
        super().prepare_update(context, obj, old)
        if context.subresource == "ephemeralcontainers":
            containers = obj["spec"].get("ephemeralContainers")
            obj["spec"] = copy_tree(old["spec"])
            if containers:
                obj["spec"]["ephemeralContainers"] = containers
            else:
                obj["spec"].pop("ephemeralContainers", None)
            keep_metadata(obj, old)

    def errors_on_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject, *, namespaced: bool) -> list[FieldError]:
        """Return the errors of an update (see ``Strategy.errors_on_update``).

        If a pod cannot be written through the subresource at all, that is the only error.

        Args:
            context: The write.
            obj: The new object.
            old: The stored object.
            namespaced: Whether the kind has namespaces.

        Returns:
            The errors, in upstream's order.
        """
        error = _unfit(context.subresource, old)
        return [error] if error is not None else super().errors_on_update(context, obj, old, namespaced=namespaced)

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        options = options_of(old)
        if context.subresource == "resize":
            return [*validate_pod(obj, options), *validate_resize_changes(obj, old)]
        errors = [*validate_pod(obj, options), *check_annotation_changes(obj, old, options)]
        if context.subresource == "ephemeralcontainers":
            return [*errors, *validate_ephemeral_changes(obj, old)]
        return [*errors, *validate_spec_changes(obj, old, part_at(context.sent, "spec"))]

    def prepare_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        metadata = obj["metadata"]
        if old["metadata"].get("ownerReferences"):
            metadata["ownerReferences"] = copy_tree(old["metadata"]["ownerReferences"])
        else:
            metadata.pop("ownerReferences", None)
        obj["spec"] = copy_tree(old["spec"])
        status, before = obj.setdefault("status", {}), old.get("status") or {}
        if not status.get("qosClass") and before.get("qosClass"):
            status["qosClass"] = before["qosClass"]
        _keep_observed_generations(status, before)

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(validate_status_update(obj, old, options_of(old)))

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        messages = []
        if errors := dns1123_label(obj["metadata"].get("name", "")):
            messages.append(
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; "
                f"a DNS label is recommended: [{' '.join(errors)}]"
            )
        return messages + pod_warnings("", obj["metadata"], obj["spec"])

    def warnings_on_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[str]:
        return []

    def selectable_fields(self, obj: JSONObject) -> dict[str, str]:
        result = {label: value_at(obj, label) for label in self.field_labels}
        result["spec.hostNetwork"] = "true" if obj["spec"].get("hostNetwork") else "false"
        addresses = (obj.get("status") or {}).get("podIPs") or []
        # A selector may name status.podIPs, but upstream gives it no value.
        result["status.podIP"], result["status.podIPs"] = (addresses[0].get("ip", "") if addresses else ""), ""
        return result


def _unfit(subresource: str, old: JSONObject) -> FieldError | None:
    """Return why a pod cannot be written through ``subresource`` at all, or None if it can."""
    if subresource == "resize":
        return resize_error(old)
    if subresource == "ephemeralcontainers" and MIRROR in (old["metadata"].get("annotations") or {}):
        return forbidden("[]", "static pods do not support ephemeral containers")
    return None


def _keep_observed_generations(status: JSONObject, before: JSONObject) -> None:
    """Restore ``observedGeneration`` in a write of a client that does not know the field. Conditions are matched by type, in order."""
    if not status.get("observedGeneration") and before.get("observedGeneration"):
        status["observedGeneration"] = before["observedGeneration"]
    known: dict[str, list[int]] = {}
    for condition in before.get("conditions") or ():
        known.setdefault(condition.get("type", ""), []).append(condition.get("observedGeneration", 0))
    for condition in status.get("conditions") or ():
        generations = known.get(condition.get("type", "")) or [0]
        generation = generations.pop(0)
        if not condition.get("observedGeneration") and generation:
            condition["observedGeneration"] = generation


def _app_armor_from_annotations(obj: JSONObject) -> list[str]:
    """Set the AppArmor field from the old annotation, and return the warnings."""
    annotations, spec = obj["metadata"].get("annotations") or {}, obj["spec"]
    if (spec.get("os") or {}).get("name") == "windows":
        return []
    messages = []
    of_pod = (spec.get("securityContext") or {}).get("appArmorProfile")
    for container, _ in all_containers(spec, ""):
        key = APP_ARMOR + container.get("name", "")
        if key not in annotations or (container.get("securityContext") or {}).get("appArmorProfile") is not None:
            continue
        profile = _profile(annotations[key])
        if profile is not None and profile == of_pod:
            continue
        if profile is not None:
            if container.get("securityContext") is None:
                container["securityContext"] = {}
            container["securityContext"]["appArmorProfile"] = profile
        messages.append(f'metadata.annotations[{key}]: deprecated since v1.30; use the "appArmorProfile" field instead')
    return messages


def _profile(annotation: str) -> JSONObject | None:
    if annotation == "unconfined":
        return {"type": "Unconfined"}
    if annotation == "runtime/default":
        return {"type": "RuntimeDefault"}
    if annotation.startswith("localhost/") and annotation != "localhost/":
        profile = {"type": "Localhost", "localhostProfile": annotation.removeprefix("localhost/")}
        return None if list(validate_app_armor("", profile)) else profile
    return None
