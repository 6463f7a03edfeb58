"""Arithmetic on resource lists (``{"cpu": "500m"}``) for defaults, validation and quality of service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from kubeloop.meta.quantity import Quantity
from kubeloop.types import JSONObject

ResourceList = Mapping[str, str]

#: Resources that may be given for a pod as a whole; huge pages besides. Source: component-helpers resource/helpers.go.
POD_LEVEL = ("cpu", "memory")


def quantity(text: str) -> Quantity:
    return Quantity(text)


def is_huge_page(name: str) -> bool:
    return name.startswith("hugepages-")


def is_native(name: str) -> bool:
    """In the kubernetes.io namespace, named or implied."""
    return "/" not in name or "kubernetes.io/" in name


def may_overcommit(name: str) -> bool:
    return is_native(name) and not is_huge_page(name)


def is_pod_level(name: str) -> bool:
    return name in POD_LEVEL or is_huge_page(name)


def rounded_to_milli(text: str) -> str:
    """Kubernetes keeps no more than three decimals of a resource; the rest is rounded up."""
    value = Quantity(text)
    thousandths = value.as_fraction() * 1000
    if thousandths.denominator == 1:
        return text
    up = -((-thousandths).__floor__()) if thousandths > 0 else thousandths.__floor__()
    return str(Quantity(Fraction(up, 1000), value.format))


def added(first: ResourceList, second: ResourceList) -> dict[str, str]:
    """Sum by resource; the format is that of the first list that names it."""
    total = dict(first)
    for name, text in second.items():
        total[name] = str(Quantity(total[name]) + Quantity(text)) if name in total else text
    return total


def larger(first: ResourceList, second: ResourceList) -> dict[str, str]:
    """The greater of two by resource."""
    most = dict(first)
    for name, text in second.items():
        if name not in most or Quantity(text) > Quantity(most[name]):
            most[name] = text
    return most


def aggregate(spec: JSONObject, part: str) -> dict[str, str]:
    """What the containers of a pod need together (``part``: requests or limits): init containers run one after the other, but
    restartable ones (sidecars) run on beside all that follow. Source: component-helpers AggregateContainerRequests."""
    total: dict[str, str] = {}
    for container in spec.get("containers") or ():
        total = added(total, _of(container, part))
    sidecars: dict[str, str] = {}
    most: dict[str, str] = {}
    for container in spec.get("initContainers") or ():
        need = _of(container, part)
        if container.get("restartPolicy") == "Always":
            total, sidecars = added(total, need), added(sidecars, need)
            need = sidecars
        else:
            need = added(need, sidecars)
        most = larger(most, need)
    return larger(total, most)


def _of(container: JSONObject, part: str) -> ResourceList:
    found: ResourceList = (container.get("resources") or {}).get(part) or {}
    return found


def containers_of(spec: JSONObject) -> Iterable[JSONObject]:
    """Init and regular containers."""
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()
