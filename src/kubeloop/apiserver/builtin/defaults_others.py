"""Defaults of the groups other than core, apps and batch. Source: pkg/apis/*/defaults.go, kube-aggregator, apiextensions-apiserver."""

from __future__ import annotations

import copy

from kubeloop.apiserver.builtin.defaults_core import Rule, absent, missing
from kubeloop.types import JSONObject

_RBAC = "rbac.authorization.k8s.io"
_SCALE_UP: JSONObject = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}],
}
_SCALE_DOWN: JSONObject = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}


def _first_autoscaler(value: JSONObject) -> None:
    spec = value["spec"]
    spec.setdefault("minReplicas", 1)
    if "autoscaling.alpha.kubernetes.io/metrics" not in (value["metadata"].get("annotations") or {}):
        spec.setdefault("targetCPUUtilizationPercentage", 80)


def _autoscaler(field_value: JSONObject) -> None:
    spec = field_value["spec"]
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        resource = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
        spec["metrics"] = [{"type": "Resource", "resource": resource}]
    behavior = spec.get("behavior")
    if behavior is not None:
        for name, default in (("scaleUp", _SCALE_UP), ("scaleDown", _SCALE_DOWN)):
            values = {key: value for key, value in (behavior.get(name) or {}).items() if value is not None}
            behavior[name] = {**copy.deepcopy(default), **values}


def _network_policy(policy: JSONObject) -> None:
    spec = policy["spec"]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _ingress_class(value: JSONObject) -> None:
    parameters = value["spec"].get("parameters")
    if parameters is not None:
        absent(scope="Cluster")(parameters)


def _csi_driver(driver: JSONObject) -> None:
    absent(
        attachRequired=True,
        podInfoOnMount=False,
        storageCapacity=False,
        fsGroupPolicy="ReadWriteOnceWithFSType",
        requiresRepublish=False,
        seLinuxMount=False,
    )(driver["spec"])
    if not driver["spec"].get("volumeLifecycleModes"):
        driver["spec"]["volumeLifecycleModes"] = ["Persistent"]


def _binding(binding: JSONObject) -> None:
    role = binding.setdefault("roleRef", {})
    role["apiGroup"] = role.get("apiGroup") or _RBAC
    for subject in binding.get("subjects") or ():
        if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = _RBAC


def _match_resources(value: JSONObject) -> None:
    absent(matchPolicy="Equivalent")(value)
    for name in ("namespaceSelector", "objectSelector"):
        if value.get(name) is None:
            value[name] = {}


def _webhook(webhook: JSONObject) -> None:
    absent(failurePolicy="Fail", timeoutSeconds=10)(webhook)
    _match_resources(webhook)


def _mutating_webhook(webhook: JSONObject) -> None:
    _webhook(webhook)
    webhook.setdefault("reinvocationPolicy", "Never")


def _definition(crd: JSONObject) -> None:
    names = crd["spec"].setdefault("names", {})
    names["singular"] = names.get("singular") or names.get("kind", "").lower()
    if not names.get("listKind") and names.get("kind"):
        names["listKind"] = names["kind"] + "List"
    if crd["spec"].get("conversion") is None:
        crd["spec"]["conversion"] = {"strategy": "None"}
    status = crd.setdefault("status", {})
    if not status.get("storedVersions"):
        status["storedVersions"] = [one["name"] for one in crd["spec"].get("versions") or () if one.get("storage")][:1]


def _device_request(request: JSONObject) -> None:
    request["allocationMode"] = request.get("allocationMode") or "ExactCount"
    if request["allocationMode"] == "ExactCount" and not request.get("count"):
        request["count"] = 1


def _service_reference(reference: JSONObject) -> None:
    reference.setdefault("port", 443)


def _not_zero(**values: int) -> Rule:
    """Return a rule for numbers that are not pointers in Go, where zero means that the client did not set the field."""

    def rule(obj: JSONObject) -> None:
        for name, value in values.items():
            obj[name] = obj.get(name) or value

    return rule


OTHERS: dict[str, Rule] = {
    "autoscaling/v1/HorizontalPodAutoscaler": _first_autoscaler,
    "autoscaling/v2/HorizontalPodAutoscaler": _autoscaler,
    "v1.NetworkPolicyPort": absent(protocol="TCP"),
    "networking.k8s.io/v1/NetworkPolicy": _network_policy,
    "networking.k8s.io/v1/IngressClass": _ingress_class,
    "storage.k8s.io/v1/StorageClass": absent(reclaimPolicy="Delete", volumeBindingMode="Immediate"),
    "storage.k8s.io/v1/CSIDriver": _csi_driver,
    "rbac.authorization.k8s.io/v1/RoleBinding": _binding,
    "rbac.authorization.k8s.io/v1/ClusterRoleBinding": _binding,
    "v1.ValidatingWebhook": _webhook,
    "v1.MutatingWebhook": _mutating_webhook,
    "v1.RuleWithOperations": absent(scope="*"),
    "v1.NamedRuleWithOperations": absent(scope="*"),
    "v1.MatchResources": _match_resources,
    "v1.ValidatingAdmissionPolicySpec": absent(failurePolicy="Fail"),
    "v1.MutatingAdmissionPolicySpec": absent(failurePolicy="Fail"),
    "v1.ServiceReference": _service_reference,
    "discovery.k8s.io/v1/EndpointSlice": lambda endpoint_slice: _slice_ports(endpoint_slice.get("ports") or []),
    "v1.FlowSchemaSpec": _not_zero(matchingPrecedence=1000),
    "v1.ExemptPriorityLevelConfiguration": missing(nominalConcurrencyShares=0, lendablePercent=0),
    "v1.LimitedPriorityLevelConfiguration": missing(nominalConcurrencyShares=30, lendablePercent=0),
    "v1.QueuingConfiguration": _not_zero(handSize=8, queues=64, queueLengthLimit=50),
    "scheduling.k8s.io/v1/PriorityClass": absent(preemptionPolicy="PreemptLowerPriority"),
    "v1.ExactDeviceRequest": _device_request,
    "v1.DeviceSubRequest": _device_request,
    "v1.DeviceToleration": missing(operator="Equal"),
    "apiextensions.k8s.io/v1/CustomResourceDefinition": _definition,
}


def _slice_ports(ports: list[JSONObject]) -> None:
    for port in ports:
        if port.get("name") is None:
            port["name"] = ""
        if port.get("protocol") is None:
            port["protocol"] = "TCP"
