"""Validates regular, init and ephemeral containers.

Source: validateContainers, validateInitContainers, validateEphemeralContainers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kubeloop.apiserver.builtin.pods.environment import validate_environment, validate_environment_from
from kubeloop.apiserver.builtin.pods.options import PodOptions
from kubeloop.apiserver.builtin.pods.ports import check_host_port_conflicts, validate_container_ports, validate_lifecycle, validate_probes
from kubeloop.apiserver.builtin.pods.resources import validate_container_resources
from kubeloop.apiserver.builtin.pods.security import validate_container_security
from kubeloop.apiserver.builtin.pods.volumes import validate_devices, validate_mounts, validate_pull_policy
from kubeloop.apiserver.validation.formats import check_one_of, unsupported, validate_dns_label_field
from kubeloop.meta.field_error import Errors, FieldError, FieldErrorType, duplicate, forbidden, invalid, not_found, required
from kubeloop.types import JSONObject

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
#: Fields that an ephemeral container must not have, in the order of the Go type.
_NOT_EPHEMERAL = ("ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules", *_PROBES, "lifecycle")


@dataclass(frozen=True, slots=True)
class PodContext:
    """The parts of a pod that its containers refer to."""

    spec: JSONObject
    options: PodOptions
    volumes: dict[str, JSONObject] = field(default_factory=dict)
    claims: set[str] = field(default_factory=set)

    @property
    def host_users(self) -> bool:
        """Whether the containers use the user namespace of the host."""
        return self.spec.get("hostUsers") is not False

    @property
    def grace(self) -> int | None:
        """The termination grace period in seconds, or None if it is not set."""
        return self.spec.get("terminationGracePeriodSeconds")

    @property
    def restart_policy(self) -> str:
        """The restart policy of the pod."""
        return str(self.spec.get("restartPolicy", ""))


def validate_containers(path: str, pod: PodContext) -> Errors:
    """Validate the regular containers."""
    containers = pod.spec.get("containers") or []
    if not containers:
        yield required(path)
        return
    names: set[str] = set()
    for index, container in enumerate(containers):
        here, name = f"{path}[{index}]", container.get("name", "")
        yield from _common(here, container, pod)
        if name in names:
            yield duplicate(f"{here}.name", name)
        names.add(name)
        if container.get("lifecycle") is not None:
            yield from validate_lifecycle(f"{here}.lifecycle", container["lifecycle"], pod.grace)
        yield from validate_probes(here, container, pod.grace)
        yield from _restart_policy(here, container)
    yield from check_host_port_conflicts(path, containers)


def validate_init_containers(path: str, pod: PodContext) -> Errors:
    """Validate the init containers."""
    names = {container.get("name", "") for container in pod.spec.get("containers") or ()}
    for index, container in enumerate(pod.spec.get("initContainers") or ()):
        here, name = f"{path}[{index}]", container.get("name", "")
        yield from _common(here, container, pod)
        if container.get("restartPolicy") is None:
            if container.get("restartPolicyRules"):
                yield required(f"{here}.restartPolicy", "must specify restartPolicy when restart rules are used")
        else:
            yield from _restart_policy(here, container)
        if name in names:
            yield duplicate(f"{here}.name", name)
        elif name:
            names.add(name)
        # Init containers run one after the other, so only ports of the same container conflict. Upstream reports each as the first one.
        yield from check_host_port_conflicts(path, [container])
        sidecar = container.get("restartPolicy") == "Always"
        if sidecar:
            if container.get("lifecycle") is not None:
                yield from validate_lifecycle(f"{here}.lifecycle", container["lifecycle"], pod.grace)
            yield from validate_probes(here, container, pod.grace)
            continue
        for unfit in ("lifecycle", *_PROBES):
            if container.get(unfit) is not None:
                yield forbidden(f"{here}.{unfit}", "may not be set for init containers without restartPolicy=Always")
        for policy_at, policy in enumerate(container.get("resizePolicy") or ()):
            if policy.get("restartPolicy") == "RestartContainer":
                detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                yield invalid(f"{here}.resizePolicy[{policy_at}].restartPolicy", "RestartContainer", detail)


def validate_ephemeral_containers(path: str, pod: PodContext) -> Errors:
    """Validate the ephemeral containers."""
    others = {one.get("name", "") for kind in ("containers", "initContainers") for one in pod.spec.get(kind) or ()}
    names = set(others)
    for index, container in enumerate(pod.spec.get("ephemeralContainers") or ()):
        here, name = f"{path}[{index}]", container.get("name", "")
        yield from _common(here, container, pod)
        yield from check_image_without_spaces(here, container)
        if name in names:
            yield duplicate(f"{here}.name", name)
        names.add(name)
        target = container.get("targetContainerName")
        if target and target not in others:
            yield not_found(f"{here}.targetContainerName", target)
        for unfit in _NOT_EPHEMERAL:
            # Upstream compares with Go's zero value, which an empty object is only for a struct.
            if container.get(unfit) if unfit == "resources" else container.get(unfit) is not None:
                yield forbidden(f"{here}.{unfit}", "cannot be set for an Ephemeral Container")
        for mount_at, mount in enumerate(container.get("volumeMounts") or ()):
            for unfit in ("subPath", "subPathExpr"):
                if mount.get(unfit):
                    yield forbidden(f"{here}.volumeMounts[{mount_at}].{unfit}", "cannot be set for an Ephemeral Container")


def check_image_without_spaces(path: str, container: JSONObject) -> Errors:
    """Check that the image has no spaces around it. Templates may have them for compatibility."""
    image = container.get("image", "")
    if image != image.strip():
        yield invalid(f"{path}.image", image, "must not have leading or trailing whitespace")


def _common(path: str, container: JSONObject, pod: PodContext) -> Errors:
    if name := container.get("name"):
        yield from validate_dns_label_field(f"{path}.name", name)
    else:
        yield required(f"{path}.name")
    if not container.get("image"):
        yield required(f"{path}.image")
    policy = container.get("terminationMessagePolicy", "")
    if not policy:
        yield required(f"{path}.terminationMessagePolicy")
    else:
        yield from check_one_of(f"{path}.terminationMessagePolicy", policy, ("File", "FallbackToLogsOnError"))
    yield from validate_container_ports(f"{path}.ports", container.get("ports") or [])
    yield from validate_environment(f"{path}.env", container.get("env") or [])
    yield from validate_environment_from(f"{path}.envFrom", container.get("envFrom") or [])
    yield from validate_mounts(f"{path}.volumeMounts", container, pod.volumes)
    yield from validate_devices(f"{path}.volumeDevices", container, pod.volumes)
    yield from validate_pull_policy(f"{path}.imagePullPolicy", container.get("imagePullPolicy", ""))
    yield from validate_container_resources(f"{path}.resources", container.get("resources") or {}, pod.claims, pod.options)
    yield from _resize_policy(f"{path}.resizePolicy", container.get("resizePolicy") or [], pod.restart_policy)
    yield from validate_container_security(f"{path}.securityContext", container.get("securityContext"), host_users=pod.host_users)


def _resize_policy(path: str, policies: list[JSONObject], restart_policy: str) -> Errors:
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        name, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if name in seen:
            yield duplicate(f"{path}[{index}]", name)
        seen.add(name)
        for value, known in ((name, ("cpu", "memory")), (restart, ("NotRequired", "RestartContainer"))):
            if not value:
                yield required(path)
            elif value not in known:
                yield unsupported(path, value, known)
        if restart_policy == "Never" and restart != "NotRequired":
            yield invalid(path, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")


def _restart_policy(path: str, container: JSONObject) -> Errors:
    """Validate the restart policy of a container and its rules (KEP-5307)."""
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or []
    if policy is None:
        if not rules:
            return
        yield required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used")
    else:
        yield from check_one_of(f"{path}.restartPolicy", policy, ("Always", "Never", "OnFailure"))
    if len(rules) > 20:
        yield _too_many(f"{path}.restartPolicyRules", len(rules), 20)
    for index, rule in enumerate(rules):
        here, codes = f"{path}.restartPolicyRules[{index}]", rule.get("exitCodes")
        yield from check_one_of(f"{here}.action", rule.get("action", ""), ("Restart", "RestartAllContainers"))
        if codes is None:
            yield required(f"{here}.exitCodes", "must be specified")
            continue
        yield from check_one_of(f"{here}.exitCodes.operator", codes.get("operator", ""), ("In", "NotIn"))
        if len(codes.get("values") or ()) > 255:
            yield _too_many(f"{here}.exitCodes.values", len(codes["values"]), 255)


def _too_many(path: str, count: int, limit: int) -> FieldError:
    return FieldError(FieldErrorType.TOO_MANY, path, count, f"must have at most {limit} items")
