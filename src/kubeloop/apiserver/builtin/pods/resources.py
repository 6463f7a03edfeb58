"""Validates resource requirements of containers and pods. Source: validateResourceRequirements, validatePodResources."""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.apiserver.builtin.pods.options import PodOptions
from kubeloop.apiserver.builtin.quantities import aggregate, is_huge_page, is_native, is_pod_level, may_overcommit, quantity
from kubeloop.apiserver.validation.formats import NOT_NEGATIVE, each, unsupported, validate_dns_label_field
from kubeloop.meta.field_error import Errors, FieldError, FieldErrorType, duplicate, forbidden, invalid, required
from kubeloop.meta.names import qualified_name
from kubeloop.types import JSONObject

#: Resources that count objects.
COUNTED = {
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
}
_STANDARD = {
    *COUNTED,
    *("cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage"),
    *("limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.storage", "storage"),
}
_CONTAINER = {"cpu", "memory", "ephemeral-storage"}


def is_extended(name: str) -> bool:
    """Return whether a resource is an extended one, such as ``example.com/gpu``."""
    return not is_native(name) and not name.startswith("requests.") and not qualified_name(f"requests.{name}")


def validate_resource_name(path: str, name: str) -> Errors:
    """Validate the name of a resource."""
    if errors := qualified_name(name):
        yield from each(path, name, errors)
    elif "/" not in name and name not in _STANDARD and not name.startswith(("hugepages-", "requests.hugepages-")):
        yield invalid(path, name, "must be a standard resource type or fully qualified")


def validate_container_resource_name(path: str, name: str) -> Errors:
    """Validate the name of a resource of a container."""
    yield from validate_resource_name(path, name)
    if "/" not in name:
        if name not in _CONTAINER and not is_huge_page(name):
            yield invalid(path, name, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        yield invalid(path, name, "doesn't follow extended resource name standard")


def _pod_resource_name(path: str, name: str) -> Errors:
    errors = list(validate_resource_name(path, name))
    yield from errors
    if not errors and not is_pod_level(name):
        yield unsupported(path, name, ("cpu", "hugepages-", "memory"))


def check_resource_value(path: str, name: str, text: str) -> Errors:
    """Check that a quantity is not negative, and an integer for resources that are counted."""
    value = quantity(text)
    if value < 0:
        yield invalid(path, text, NOT_NEGATIVE)
    if (name in COUNTED or is_extended(name)) and value.milli_value() % 1000:
        yield invalid(path, text, "must be an integer")


def validate_container_resources(path: str, value: JSONObject, claims: set[str], options: PodOptions) -> Errors:
    """Validate the resource requirements of a container.

    Args:
        path: Path of the requirements.
        value: The requirements.
        claims: Names of the pod's resource claims.
        options: Options of the pod's validation.

    Returns:
        The errors.
    """
    yield from _requirements(path, value, validate_container_resource_name, claims, options)


def _requirements(path: str, value: JSONObject, name_rule: Callable[[str, str], Errors], claims: set[str], options: PodOptions) -> Errors:
    limits, requests = value.get("limits") or {}, value.get("requests") or {}
    for name, text in limits.items():
        here = f"{path}.limits[{name}]"
        yield from name_rule(here, name)
        yield from check_resource_value(here, name, text)
        yield from _huge_page(here, name, text, options)
    for name, text in requests.items():
        here = f"{path}.requests[{name}]"
        yield from name_rule(here, name)
        yield from check_resource_value(here, name, text)
        yield from _against_limit(path, name, text, limits.get(name))
        yield from _huge_page(here, name, text, options)
    names = {*limits, *requests}
    if not names & {"cpu", "memory"} and any(is_huge_page(name) for name in names):
        yield forbidden(path, "HugePages require cpu or memory")
    yield from _claims(f"{path}.claims", value.get("claims") or [], claims)


def _against_limit(path: str, name: str, text: str, limit: str | None) -> Errors:
    if limit is None:
        if not may_overcommit(name):
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
    elif quantity(text) != quantity(limit) and not may_overcommit(name):
        yield invalid(f"{path}.requests", text, f"must be equal to {name} limit of {limit}")
    elif quantity(text) > quantity(limit):
        yield invalid(f"{path}.requests", text, f"must be less than or equal to {name} limit of {limit}")


def _huge_page(path: str, name: str, text: str, options: PodOptions) -> Errors:
    if is_huge_page(name) and not options.indivisible_huge_pages and not _divisible(name, text):
        yield invalid(path, text, f"{text} is not positive integer multiple of {name}")


def _divisible(name: str, text: str) -> bool:
    try:
        page = quantity(name.removeprefix("hugepages-"))
    except ValueError:
        return False
    return page > 0 and page.milli_value() % 1000 == 0 and quantity(text).value() % page.value() == 0


def _claims(path: str, claims: list[JSONObject], known: set[str]) -> Errors:
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        here, name = f"{path}[{index}]", claim.get("name", "")
        if not name:
            yield required(here)
            continue
        if name in seen:
            yield duplicate(here, name)
        else:
            request = claim.get("request", "")
            if request:
                yield from validate_dns_label_field(f"{here}.request", request)
            key = f"{name}/{request}" if request else name
            if key in seen:
                yield duplicate(here, key)
            elif not request and any(one.startswith(f"{name}/") for one in seen):
                yield duplicate(here, name)
            seen.add(key)
        if name not in known:
            shown = f": {', '.join(sorted(known))}" if known else " which is empty"
            yield FieldError(FieldErrorType.NOT_FOUND, here, name, f"must be one of the names in pod.spec.resourceClaims{shown}")


def validate_pod_resources(path: str, spec: JSONObject, claims: set[str], options: PodOptions) -> Errors:
    """Validate the resources of the whole pod (KEP-2837), which must cover those of its containers.

    Args:
        path: Path of the requirements.
        spec: Spec of the pod.
        claims: Names of the pod's resource claims.
        options: Options of the pod's validation.

    Returns:
        The errors.
    """
    value = spec.get("resources")
    if value is None:
        return
    if (spec.get("os") or {}).get("name") == "windows":
        yield forbidden(path, "may not be set for a windows pod")
        return
    if value.get("claims") is not None:
        yield forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level")
    yield from _requirements(path, value, _pod_resource_name, claims, options)
    requests, limits = value.get("requests") or {}, value.get("limits") or {}
    for name, text in aggregate(spec, "requests").items():
        if name in requests and quantity(text) > quantity(requests[name]):
            detail = f"must be greater than or equal to aggregate container requests of {text}"
            yield invalid(f"{path}.requests[{name}]", requests[name], detail)
    for name, text in aggregate(spec, "limits").items():
        if is_huge_page(name) and name in limits and quantity(text) > quantity(limits[name]):
            yield invalid(f"{path}.limits[{name}]", limits[name], f"must be greater than or equal to aggregate container limits of {text}")
    for index, container in enumerate(spec.get("containers") or ()):
        for name, text in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and quantity(text) > quantity(limits[name]):
                here = f"{path}.containers[{index}][{name}].limits"
                yield invalid(here, text, f"must be less than or equal to pod limits of {limits[name]}")
