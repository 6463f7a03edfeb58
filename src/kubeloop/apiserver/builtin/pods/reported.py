"""What a kubelet and the scheduler report of a pod's devices and users. Source: ValidatePodStatusUpdate."""

from __future__ import annotations

from kubeloop.apiserver.builtin.pods.options import Errors, JSONObject
from kubeloop.apiserver.validation.formats import each, label_name_field, one_of, subdomain_field, user_id
from kubeloop.meta.field_error import duplicate, forbidden, invalid, required, too_long

_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_HEALTH = ("Healthy", "Unhealthy", "Unknown")
_LONGEST_MESSAGE = 1024
_A_CLAIM = (
    "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"
)
_ONE_OF = "an entry in spec.initContainers.{0} or spec.containers.{0}"


def claims(status: JSONObject, spec: JSONObject) -> Errors:
    """Claims that were made for the pod, by the names that it has for them."""
    known, seen = {one.get("name", "") for one in spec.get("resourceClaims") or ()}, set()
    for at, one in enumerate(status.get("resourceClaimStatuses") or ()):
        path, name = f"status.resourceClaimStatuses[{at}]", one.get("name", "")
        if name not in known:
            yield invalid(f"{path}.name", name, "must match the name of an entry in `spec.resourceClaims`")
        if name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)
        if one.get("resourceClaimName") is not None:
            yield from subdomain_field(f"{path}.resourceClaimName", one["resourceClaimName"])
    if status.get("extendedResourceClaimStatus") is not None:
        yield from _extended("status.extendedResourceClaimStatus", status["extendedResourceClaimStatus"], spec)


def _extended(path: str, found: JSONObject, spec: JSONObject) -> Errors:
    """The claim that stands for extended resources, and which request of it is whose."""
    containers = {one.get("name", ""): one for kind in ("initContainers", "containers") for one in spec.get(kind) or ()}
    mappings = found.get("requestMappings") or []
    if not mappings:
        yield required(f"{path}.requestMappings", "at least one request mapping is required")
    seen: set[tuple[str, ...]] = set()
    for at, one in enumerate(mappings):
        here, key = f"{path}.requestMappings[{at}]", tuple(one.get(name, "") for name in ("containerName", "resourceName", "requestName"))
        container = containers.get(key[0])
        if container is None:
            yield invalid(f"{here}.containerName", key[0], f"must match the name of {_ONE_OF.format('name')}")
        elif key[1] not in ((container.get("resources") or {}).get("requests") or {}):
            detail = f"must match the extended resource name of {_ONE_OF.format('resources.requests')}"
            yield invalid(f"{here}.resourceName", key[1], detail)
        yield from label_name_field(f"{path}.requestName", key[2])
        if key in seen:
            for name, value in zip(("containerName", "resourceName", "requestName"), key, strict=True):
                yield duplicate(f"{here}.{name}", value)
        seen.add(key)
    if not found.get("resourceClaimName"):
        yield required(f"{path}.resourceClaimName")
    else:
        yield from subdomain_field(f"{path}.resourceClaimName", found["resourceClaimName"])


def users(status: JSONObject, spec: JSONObject) -> Errors:
    """As whom containers run."""
    system = (spec.get("os") or {}).get("name", "linux")
    for name in _STATUSES:
        for at, container in enumerate(status.get(name) or ()):
            user, path = (container.get("user") or {}).get("linux"), f"status.{name}[{at}].user.linux"
            if user is None:
                continue
            if system == "windows":
                yield forbidden(path, "cannot be set for a windows pod")
            elif system == "linux":
                for field in ("uid", "gid"):
                    yield from each(f"{path}.{field}", user.get(field, 0), user_id(user.get(field, 0)))
                for index, group in enumerate(user.get("supplementalGroups") or ()):
                    yield from each(f"{path}.supplementalGroups[{index}]", group, user_id(group))


def devices(status: JSONObject, spec: JSONObject) -> Errors:
    """How the devices do that containers have."""
    for name, kind in (("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")):
        containers = {one.get("name", ""): one for one in reversed(spec.get(kind) or ())}
        for at, container in enumerate(status.get(name) or ()):
            for index, resource in enumerate(container.get("allocatedResourcesStatus") or ()):
                path = f"status.{name}[{at}].allocatedResourcesStatus[{index}]"
                yield from _allocated(path, resource, containers.get(container.get("name", "")))
    for at, container in enumerate(status.get("ephemeralContainerStatuses") or ()):
        if container.get("allocatedResourcesStatus"):
            path = f"status.ephemeralContainerStatuses[{at}].allocatedResourcesStatus"
            yield forbidden(path, "must not be specified in container status")


def _allocated(path: str, resource: JSONObject, container: JSONObject | None) -> Errors:
    name = resource.get("name", "")
    # Of containers that are not in the spec nothing is known.
    if container is not None:
        own = container.get("resources") or {}
        if name.startswith("claim:"):
            held = [(one.get("name", ""), one.get("request")) for one in own.get("claims") or ()]
            if name not in [f"claim:{claim}/{request}" if request else f"claim:{claim}" for claim, request in held]:
                yield invalid(f"{path}.name", name, _A_CLAIM)
        elif name not in (own.get("requests") or {}):
            yield invalid(f"{path}.name", name, "must match one of the container's resource requests")
    seen = set()
    for at, one in enumerate(resource.get("resources") or ()):
        here, identity, message = f"{path}.resources[{at}]", one.get("resourceID", ""), one.get("message")
        yield from one_of(f"{here}.health", one.get("health", ""), _HEALTH)
        if message is not None and not message:
            yield required(f"{here}.message", "must be non-empty if specified")
        elif message is not None and len(message.encode()) > _LONGEST_MESSAGE:
            yield too_long(f"{here}.message", _LONGEST_MESSAGE)
        if identity in seen:
            yield duplicate(f"{here}.resourceID", identity)
        seen.add(identity)
