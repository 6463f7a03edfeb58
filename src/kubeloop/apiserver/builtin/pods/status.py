"""Computes the quality of service of pods, and validates updates of their status. Source: ValidatePodStatusUpdate, qos.ComputePodQOS."""

from __future__ import annotations

from kubeloop.apiserver.builtin.pods.options import PodOptions, all_containers
from kubeloop.apiserver.builtin.pods.update import check_annotation_changes
from kubeloop.apiserver.builtin.quantities import added, containers_of, quantity
from kubeloop.apiserver.validation.formats import (
    check_immutable,
    check_one_of,
    each,
    sloppy_ip,
    validate_dns_label_field,
    validate_ip_address,
    validate_subdomain_field,
    validate_user_id,
)
from kubeloop.meta.field_error import Errors, FieldError, FieldErrorType, duplicate, forbidden, invalid, required, too_long
from kubeloop.meta.names import qualified_name
from kubeloop.types import JSONObject

# Reports of kubelet and scheduler about devices and users. Source: ValidatePodStatusUpdate.


_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_HEALTH = ("Healthy", "Unhealthy", "Unknown")
_LONGEST_MESSAGE = 1024
_A_CLAIM = (
    "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"
)
_ONE_OF = "an entry in spec.initContainers.{0} or spec.containers.{0}"


def validate_claims(status: JSONObject, spec: JSONObject) -> Errors:
    """Validate the statuses of generated resource claims."""
    known, seen = {one.get("name", "") for one in spec.get("resourceClaims") or ()}, set()
    for index, one in enumerate(status.get("resourceClaimStatuses") or ()):
        path, name = f"status.resourceClaimStatuses[{index}]", one.get("name", "")
        if name not in known:
            yield invalid(f"{path}.name", name, "must match the name of an entry in `spec.resourceClaims`")
        if name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)
        if one.get("resourceClaimName") is not None:
            yield from validate_subdomain_field(f"{path}.resourceClaimName", one["resourceClaimName"])
    if status.get("extendedResourceClaimStatus") is not None:
        yield from _extended("status.extendedResourceClaimStatus", status["extendedResourceClaimStatus"], spec)


def _extended(path: str, field_value: JSONObject, spec: JSONObject) -> Errors:
    """Validate the claim for extended resources and its mapping to requests."""
    containers = {one.get("name", ""): one for kind in ("initContainers", "containers") for one in spec.get(kind) or ()}
    mappings = field_value.get("requestMappings") or []
    if not mappings:
        yield required(f"{path}.requestMappings", "at least one request mapping is required")
    seen: set[tuple[str, ...]] = set()
    for index, one in enumerate(mappings):
        here, key = (
            f"{path}.requestMappings[{index}]",
            tuple(one.get(name, "") for name in ("containerName", "resourceName", "requestName")),
        )
        container = containers.get(key[0])
        if container is None:
            yield invalid(f"{here}.containerName", key[0], f"must match the name of {_ONE_OF.format('name')}")
        elif key[1] not in ((container.get("resources") or {}).get("requests") or {}):
            detail = f"must match the extended resource name of {_ONE_OF.format('resources.requests')}"
            yield invalid(f"{here}.resourceName", key[1], detail)
        yield from validate_dns_label_field(f"{path}.requestName", key[2])
        if key in seen:
            for name, value in zip(("containerName", "resourceName", "requestName"), key, strict=True):
                yield duplicate(f"{here}.{name}", value)
        seen.add(key)
    if not field_value.get("resourceClaimName"):
        yield required(f"{path}.resourceClaimName")
    else:
        yield from validate_subdomain_field(f"{path}.resourceClaimName", field_value["resourceClaimName"])


def validate_users(status: JSONObject, spec: JSONObject) -> Errors:
    """Validate the users in the statuses of containers."""
    system = (spec.get("os") or {}).get("name", "linux")
    for name in _STATUSES:
        for position, container in enumerate(status.get(name) or ()):
            user, path = (container.get("user") or {}).get("linux"), f"status.{name}[{position}].user.linux"
            if user is None:
                continue
            if system == "windows":
                yield forbidden(path, "cannot be set for a windows pod")
            elif system == "linux":
                for field in ("uid", "gid"):
                    yield from each(f"{path}.{field}", user.get(field, 0), validate_user_id(user.get(field, 0)))
                for index, group in enumerate(user.get("supplementalGroups") or ()):
                    yield from each(f"{path}.supplementalGroups[{index}]", group, validate_user_id(group))


def validate_devices(status: JSONObject, spec: JSONObject) -> Errors:
    """Validate the health of the devices of containers."""
    for name, kind in (("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")):
        containers = {one.get("name", ""): one for one in reversed(spec.get(kind) or ())}
        for position, container in enumerate(status.get(name) or ()):
            for index, resource in enumerate(container.get("allocatedResourcesStatus") or ()):
                path = f"status.{name}[{position}].allocatedResourcesStatus[{index}]"
                yield from _allocated(path, resource, containers.get(container.get("name", "")))
    for position, container in enumerate(status.get("ephemeralContainerStatuses") or ()):
        if container.get("allocatedResourcesStatus"):
            path = f"status.ephemeralContainerStatuses[{position}].allocatedResourcesStatus"
            yield forbidden(path, "must not be specified in container status")


def _allocated(path: str, resource: JSONObject, container: JSONObject | None) -> Errors:
    name = resource.get("name", "")
    # A container that is not in the spec is not checked.
    if container is not None:
        own = container.get("resources") or {}
        if name.startswith("claim:"):
            held = [(one.get("name", ""), one.get("request")) for one in own.get("claims") or ()]
            if name not in [f"claim:{claim}/{request}" if request else f"claim:{claim}" for claim, request in held]:
                yield invalid(f"{path}.name", name, _A_CLAIM)
        elif name not in (own.get("requests") or {}):
            yield invalid(f"{path}.name", name, "must match one of the container's resource requests")
    seen = set()
    for index, one in enumerate(resource.get("resources") or ()):
        here, identity, message = f"{path}.resources[{index}]", one.get("resourceID", ""), one.get("message")
        yield from check_one_of(f"{here}.health", one.get("health", ""), _HEALTH)
        if message is not None and not message:
            yield required(f"{here}.message", "must be non-empty if specified")
        elif message is not None and len(message.encode()) > _LONGEST_MESSAGE:
            yield too_long(f"{here}.message", _LONGEST_MESSAGE)
        if identity in seen:
            yield duplicate(f"{here}.resourceID", identity)
        seen.add(identity)


_SYSTEM_CONDITIONS = {"PodScheduled", "Ready", "Initialized"}
_COMPUTE = ("cpu", "memory")


def quality_of_service(spec: JSONObject) -> str:
    """Return Guaranteed, Burstable or BestEffort, from cpu and memory of the pod or of its containers."""
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


def _positive(value: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in value.items() if name in _COMPUTE and quantity(text) > 0}


def validate_status_update(value: JSONObject, old: JSONObject, options: PodOptions) -> Errors:
    """Validate an update of the status."""
    status, before, spec = value.get("status") or {}, old.get("status") or {}, old["spec"]
    yield from check_annotation_changes(value, old, options)
    for index, condition in enumerate(status.get("conditions") or ()):
        if condition.get("observedGeneration", 0) < 0:
            here = f"status.conditions[{index}].observedGeneration"
            yield invalid(here, condition["observedGeneration"], "must be a non-negative integer")
        if (kind := condition.get("type", "")) not in _SYSTEM_CONDITIONS:
            yield from each(f"status.conditions[{index}].Type", kind, qualified_name(kind))
    nominated = status.get("nominatedNodeName", "")
    if nominated and nominated != before.get("nominatedNodeName", ""):
        yield from validate_subdomain_field("status.nominatedNodeName", nominated)
        if spec.get("nodeName"):
            yield forbidden("status.nominatedNodeName", "may not be set on pods that are already bound to a node")
    if status.get("observedGeneration", 0) < 0:
        yield invalid("status.observedGeneration", status["observedGeneration"], "must be a non-negative integer")
    yield from check_immutable("status.qosClass", status.get("qosClass", ""), before.get("qosClass", ""))
    for name, kind in (
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
        ("ephemeralContainerStatuses", ""),
    ):
        yield from _transitions(f"status.{name}", status.get(name) or [], before.get(name) or [], spec, kind)
    yield from validate_claims(status, spec)
    yield from _addresses("status.podIPs", status.get("podIPs") or [], before.get("podIPs") or [])
    hosts = status.get("hostIPs") or []
    if hosts:
        if status.get("hostIP", "") != hosts[0].get("ip", ""):
            yield invalid("status.hostIPs[0].ip", hosts[0].get("ip", ""), "must be equal to `hostIP`")
        yield from _addresses("status.hostIPs", hosts, before.get("hostIPs") or [])
    yield from validate_users(status, spec)
    yield from validate_devices(status, spec)


def _transitions(path: str, new: list[JSONObject], old: list[JSONObject], spec: JSONObject, kind: str) -> Errors:
    """Check that a terminated container restarts only if its restart policy allows it.

    Args:
        path: Path of the container statuses.
        new: The new statuses.
        old: The stored statuses.
        spec: Spec of the pod.
        kind: Field of the containers in the spec.
    """
    if kind != "ephemeralContainers" and _all_restart(spec):
        return
    running = {one.get("name", "") for one in new if (one.get("state") or {}).get("terminated") is None}
    containers = {one.get("name", ""): one for one in (spec.get(kind) or () if kind != "ephemeralContainers" else ())}
    for index, status in enumerate(old):
        terminated = (status.get("state") or {}).get("terminated")
        if terminated is None or status.get("name", "") not in running:
            continue
        container = containers.get(status.get("name", ""))
        if container is None or not _restarts(container, spec, terminated.get("exitCode", 0)):
            yield forbidden(f"{path}[{index}].state", "may not be transitioned to non-terminated state")


def _all_restart(spec: JSONObject) -> bool:
    """Return whether a rule can restart all containers, so that any of them may run again."""
    for container, _ in all_containers(spec, ""):
        if any(rule.get("action") == "RestartAllContainers" for rule in container.get("restartPolicyRules") or ()):
            return True
    return False


def _restarts(container: JSONObject, spec: JSONObject, code: int) -> bool:
    """Return whether a container restarts after an exit code. Source: ContainerShouldRestart."""
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
    for index, one in enumerate(new):
        address = one.get("ip", "")
        if address not in before:
            yield from each(f"{path}[{index}]", address, validate_ip_address(address))
    if len(new) < 2:
        return
    parsed = [sloppy_ip(one.get("ip", "")) for one in new]
    versions = {address.version for address in parsed if address is not None}
    if None in parsed:
        index = parsed.index(None)
        yield FieldError(
            FieldErrorType.INTERNAL,
            path,
            None,
            f"failed to check for dual stack with error:invalid IP[{index}]: {new[index].get('ip', '')}",
        )
        versions = set()
    if len(versions) < 2 or len(new) > 2:
        yield invalid(path, new, "may specify no more than one IP for each IP family")
