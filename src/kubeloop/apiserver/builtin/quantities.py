"""Arithmetic on resource lists (``{"cpu": "500m"}``) for defaults, validation and quality of service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from kubeloop.meta.quantity import Quantity
from kubeloop.types import JSONObject

ResourceList = Mapping[str, str]

#: Resources that a whole pod may have, besides huge pages. Source: component-helpers resource/helpers.go.
POD_LEVEL = ("cpu", "memory")


def quantity(text: str) -> Quantity:
    """Parse a quantity."""
    return Quantity(text)


def is_huge_page(name: str) -> bool:
    """Return whether a resource is huge pages of some size."""
    return name.startswith("hugepages-")


def is_native(name: str) -> bool:
    """Return whether a resource is in the namespace kubernetes.io, explicitly or by default."""
    return "/" not in name or "kubernetes.io/" in name


def may_overcommit(name: str) -> bool:
    """Return whether limits of a resource may exceed its requests."""
    return is_native(name) and not is_huge_page(name)


def is_pod_level(name: str) -> bool:
    """Return whether a whole pod may have the resource."""
    return name in POD_LEVEL or is_huge_page(name)


def rounded_to_milli(text: str) -> str:
    """Return a quantity rounded up to three decimals, which is Kubernetes' precision of resources."""
    value = Quantity(text)
    thousandths = value.as_fraction() * 1000
    if thousandths.denominator == 1:
        return text
    up = -((-thousandths).__floor__()) if thousandths > 0 else thousandths.__floor__()
    return str(Quantity(Fraction(up, 1000), value.format))


def added(first: ResourceList, second: ResourceList) -> dict[str, str]:
    """Return the sum by resource, in the format of the first list that has it."""
    total = dict(first)
    for name, text in second.items():
        total[name] = str(Quantity(total[name]) + Quantity(text)) if name in total else text
    return total


def larger(first: ResourceList, second: ResourceList) -> dict[str, str]:
    """Return the greater quantity of each resource."""
    maximum = dict(first)
    for name, text in second.items():
        if name not in maximum or Quantity(text) > Quantity(maximum[name]):
            maximum[name] = text
    return maximum


def aggregate(spec: JSONObject, part: str) -> dict[str, str]:
    """Return the total of a pod's containers. ``part`` is ``requests`` or ``limits``.

    Init containers run one after the other; restartable ones (sidecars) keep running beside all later containers.
    Source: component-helpers AggregateContainerRequests.
    """
    total: dict[str, str] = {}
    for container in spec.get("containers") or ():
        total = added(total, _of(container, part))
    sidecars: dict[str, str] = {}
    maximum: dict[str, str] = {}
    for container in spec.get("initContainers") or ():
        need = _of(container, part)
        if container.get("restartPolicy") == "Always":
            total, sidecars = added(total, need), added(sidecars, need)
            need = sidecars
        else:
            need = added(need, sidecars)
        maximum = larger(maximum, need)
    return larger(total, maximum)


def _of(container: JSONObject, part: str) -> ResourceList:
    result: ResourceList = (container.get("resources") or {}).get(part) or {}
    return result


def containers_of(spec: JSONObject) -> Iterable[JSONObject]:
    """Yield the init containers and the regular containers of a pod."""
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()
