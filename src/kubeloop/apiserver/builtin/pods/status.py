"""Pod status: quality of service, and what an update of it may say. Source: ValidatePodStatusUpdate, qos.ComputePodQOS."""

from __future__ import annotations

from kubeloop.apiserver.builtin.pods.options import Errors, JSONObject, PodOptions, all_containers
from kubeloop.apiserver.builtin.pods.reported import claims, devices, users
from kubeloop.apiserver.builtin.pods.update import annotation_changes
from kubeloop.apiserver.builtin.quantities import added, containers_of, quantity
from kubeloop.apiserver.validation.formats import each, immutable, ip_address, sloppy_ip, subdomain_field
from kubeloop.meta.field_error import FieldError, FieldErrorType, forbidden, invalid
from kubeloop.meta.names import qualified_name

_SYSTEM_CONDITIONS = {"PodScheduled", "Ready", "Initialized"}
_COMPUTE = ("cpu", "memory")


def quality_of_service(spec: JSONObject) -> str:
    """Guaranteed, Burstable or BestEffort, from cpu and memory of the pod or of its containers."""
    whole = spec.get("resources")
    parts = [whole] if whole is not None else [container.get("resources") or {} for container in containers_of(spec)]
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    guaranteed = True
    for part in parts:
        own = _positive(part.get("limits") or {})
        requests, limits = added(requests, _positive(part.get("requests") or {})), added(limits, own)
        if len(own) < len(_COMPUTE) and (whole is None or part.get("limits")):
            guaranteed = False
    if not requests and not limits:
        return "BestEffort"
    if guaranteed and len(requests) == len(limits):
        guaranteed = all(name in limits and quantity(limits[name]) == quantity(text) for name, text in requests.items())
        return "Guaranteed" if guaranteed else "Burstable"
    return "Burstable"


def _positive(found: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in found.items() if name in _COMPUTE and quantity(text) > 0}


def status_update(found: JSONObject, old: JSONObject, options: PodOptions) -> Errors:
    status, before, spec = found.get("status") or {}, old.get("status") or {}, old["spec"]
    yield from annotation_changes(found, old, options)
    for at, condition in enumerate(status.get("conditions") or ()):
        if condition.get("observedGeneration", 0) < 0:
            here = f"status.conditions[{at}].observedGeneration"
            yield invalid(here, condition["observedGeneration"], "must be a non-negative integer")
        if (kind := condition.get("type", "")) not in _SYSTEM_CONDITIONS:
            yield from each(f"status.conditions[{at}].Type", kind, qualified_name(kind))
    nominated = status.get("nominatedNodeName", "")
    if nominated and nominated != before.get("nominatedNodeName", ""):
        yield from subdomain_field("status.nominatedNodeName", nominated)
        if spec.get("nodeName"):
            yield forbidden("status.nominatedNodeName", "may not be set on pods that are already bound to a node")
    if status.get("observedGeneration", 0) < 0:
        yield invalid("status.observedGeneration", status["observedGeneration"], "must be a non-negative integer")
    yield from immutable("status.qosClass", status.get("qosClass", ""), before.get("qosClass", ""))
    for name, kind in (
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
        ("ephemeralContainerStatuses", ""),
    ):
        yield from _transitions(f"status.{name}", status.get(name) or [], before.get(name) or [], spec, kind)
    yield from claims(status, spec)
    yield from _addresses("status.podIPs", status.get("podIPs") or [], before.get("podIPs") or [])
    hosts = status.get("hostIPs") or []
    if hosts:
        if status.get("hostIP", "") != hosts[0].get("ip", ""):
            yield invalid("status.hostIPs[0].ip", hosts[0].get("ip", ""), "must be equal to `hostIP`")
        yield from _addresses("status.hostIPs", hosts, before.get("hostIPs") or [])
    yield from users(status, spec)
    yield from devices(status, spec)


def _transitions(path: str, new: list[JSONObject], old: list[JSONObject], spec: JSONObject, kind: str) -> Errors:
    """A terminated container comes back only where its restart policy says so."""
    if kind != "ephemeralContainers" and _all_restart(spec):
        return
    running = {one.get("name", "") for one in new if (one.get("state") or {}).get("terminated") is None}
    containers = {one.get("name", ""): one for one in (spec.get(kind) or () if kind != "ephemeralContainers" else ())}
    for at, status in enumerate(old):
        terminated = (status.get("state") or {}).get("terminated")
        if terminated is None or status.get("name", "") not in running:
            continue
        container = containers.get(status.get("name", ""))
        if container is None or not _restarts(container, spec, terminated.get("exitCode", 0)):
            yield forbidden(f"{path}[{at}].state", "may not be transitioned to non-terminated state")


def _all_restart(spec: JSONObject) -> bool:
    """A rule may restart all containers at once, and then any of them comes back."""
    for container, _ in all_containers(spec, ""):
        if any(rule.get("action") == "RestartAllContainers" for rule in container.get("restartPolicyRules") or ()):
            return True
    return False


def _restarts(container: JSONObject, spec: JSONObject, code: int) -> bool:
    """Source: ContainerShouldRestart."""
    policy = container.get("restartPolicy")
    if policy is not None and any(_matches(rule, code) for rule in container.get("restartPolicyRules") or ()):
        return True
    policy = policy or spec.get("restartPolicy", "Always")
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def _matches(rule: JSONObject, code: int) -> bool:
    codes = rule.get("exitCodes") or {}
    return codes.get("operator") in ("In", "NotIn") and (code in (codes.get("values") or ())) == (codes["operator"] == "In")


def _addresses(path: str, new: list[JSONObject], old: list[JSONObject]) -> Errors:
    before = {one.get("ip", "") for one in old}
    for at, one in enumerate(new):
        address = one.get("ip", "")
        if address not in before:
            yield from each(f"{path}[{at}]", address, ip_address(address))
    if len(new) < 2:
        return
    parsed = [sloppy_ip(one.get("ip", "")) for one in new]
    versions = {address.version for address in parsed if address is not None}
    if None in parsed:
        at = parsed.index(None)
        yield FieldError(
            FieldErrorType.INTERNAL, path, None, f"failed to check for dual stack with error:invalid IP[{at}]: {new[at].get('ip', '')}"
        )
        versions = set()
    if len(versions) < 2 or len(new) > 2:
        yield invalid(path, new, "may specify no more than one IP for each IP family")
