"""LimitRanger: sets default resources of containers, and checks the limits for containers, pods and claims.

Source: plugin/pkg/admission/limitranger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kubeloop.apiserver.admission.cached_lister import CachedList
from kubeloop.apiserver.admission.chain import Attributes, join_messages, new_forbidden
from kubeloop.apiserver.builtin.quantities import aggregate
from kubeloop.meta.kinds import GroupResource
from kubeloop.meta.quantity import Quantity
from kubeloop.types import JSONObject

ResourceList = Mapping[str, str]

_PODS = GroupResource("", "pods")
_CLAIMS = GroupResource("", "persistentvolumeclaims")
_ANNOTATION = "kubernetes.io/limit-ranger"
#: Above this value upstream compares whole units, because thousandths do not fit into 64 bits.
_LARGEST_MILLI = (2**63 - 1) // 1000


class LimitRanger:
    """Plug-in LimitRanger: applies the LimitRanges of a namespace one after the other, in the order of their names.

    ``ranges`` lists the LimitRanges of all namespaces.
    """

    resources = frozenset({_PODS, _CLAIMS})

    def __init__(self, ranges: CachedList) -> None:
        self._ranges = ranges

    async def mutate(self, attributes: Attributes) -> None:
        if not _is_limited(attributes):
            return
        obj = attributes.obj
        if obj is None or attributes.resource.gvr.group_resource != _PODS:
            return
        for one in await self._ranges.items(attributes.namespace):
            _fill_in(obj, one)

    async def validate(self, attributes: Attributes) -> None:
        if not _is_limited(attributes):
            return
        obj = attributes.obj
        if obj is None:
            return
        check = _pod_faults if attributes.resource.gvr.group_resource == _PODS else _claim_faults
        for one in await self._ranges.items(attributes.namespace):
            errors = [error for limit in (one.get("spec") or {}).get("limits") or () for error in check(limit, obj)]
            if errors:
                raise new_forbidden(attributes, join_messages(errors))


def _is_limited(attributes: Attributes) -> bool:
    if attributes.old is not None and attributes.old["metadata"].get("deletionTimestamp"):
        return False
    if attributes.subresource:
        return attributes.subresource == "resize" and attributes.operation == "UPDATE"
    if attributes.resource.gvr.group_resource == _PODS:
        return attributes.operation == "CREATE"
    return attributes.operation in ("CREATE", "UPDATE")


def _fill_in(pod: JSONObject, limit_range: JSONObject) -> None:
    defaults: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    for limit in (limit_range.get("spec") or {}).get("limits") or ():
        if limit.get("type") == "Container":
            defaults["requests"] |= limit.get("defaultRequest") or {}
            defaults["limits"] |= limit.get("default") or {}
    messages: list[str] = []
    for kind, word in (("containers", "container"), ("initContainers", "init container")):
        for container in pod["spec"].get(kind) or ():
            messages += _complete(container, defaults, word)
    if messages:
        metadata = pod["metadata"]
        metadata["annotations"] = {**(metadata.get("annotations") or {}), _ANNOTATION: f"LimitRanger plugin set: {'; '.join(messages)}"}


def _complete(container: JSONObject, defaults: dict[str, dict[str, str]], word: str) -> Iterator[str]:
    """Set the missing defaults of one container, and yield a description of each."""
    for part in ("requests", "limits"):
        resources = container.get("resources") or {}
        present = resources.get(part) or {}
        missing = {name: text for name, text in defaults[part].items() if name not in present}
        if missing:
            container["resources"] = {**resources, part: {**present, **missing}}
            yield f"{', '.join(sorted(missing))} {part[:-1]} for {word} {container.get('name', '')}"


def _pod_faults(limit: JSONObject, pod: JSONObject) -> Iterator[str]:
    spec = pod["spec"]
    if limit.get("type") == "Container":
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            resources = container.get("resources") or {}
            yield from _faults(limit, resources.get("requests") or {}, resources.get("limits") or {})
    elif limit.get("type") == "Pod":
        yield from _faults(limit, _of_pod(spec, "requests"), _of_pod(spec, "limits"))


def _of_pod(spec: JSONObject, part: str) -> ResourceList:
    whole = (spec.get("resources") or {}).get(part) or {}
    return {**aggregate(spec, part), **{name: text for name, text in whole.items() if name in ("cpu", "memory")}}


def _claim_faults(limit: JSONObject, claim: JSONObject) -> Iterator[str]:
    if limit.get("type") != "PersistentVolumeClaim":
        return
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    for name, bound in sorted((limit.get("min") or {}).items()):
        yield from _minimum("PersistentVolumeClaim", name, bound, requests, {})
    for name, bound in sorted((limit.get("max") or {}).items()):
        subject = f"maximum {name} usage per PersistentVolumeClaim is {bound}"
        if name not in requests:
            yield f"{subject}.  No request is specified"
        elif _exceeds(requests[name], bound):
            yield f"{subject}, but request is {requests[name]}"


def _faults(limit: JSONObject, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    kind = limit["type"]
    for name, bound in sorted((limit.get("min") or {}).items()):
        yield from _minimum(kind, name, bound, requests, limits)
    for name, bound in sorted((limit.get("max") or {}).items()):
        yield from _maximum(kind, name, bound, requests, limits)
    for name, bound in sorted((limit.get("maxLimitRequestRatio") or {}).items()):
        yield from _ratio(kind, name, bound, requests, limits)


def _minimum(kind: str, name: str, bound: str, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    subject = f"minimum {name} usage per {kind} is {bound}"
    if name not in requests:
        yield f"{subject}.  No request is specified"
    elif _exceeds(bound, requests[name]):
        yield f"{subject}, but request is {requests[name]}"
    elif name in limits and _exceeds(bound, limits[name]):
        yield f"{subject}, but limit is {limits[name]}"


def _maximum(kind: str, name: str, bound: str, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    subject = f"maximum {name} usage per {kind} is {bound}"
    if name not in limits:
        yield f"{subject}.  No limit is specified"
    elif _exceeds(limits[name], bound):
        yield f"{subject}, but limit is {limits[name]}"
    elif name in requests and _exceeds(requests[name], bound):
        yield f"{subject}, but request is {requests[name]}"


def _ratio(kind: str, name: str, bound: str, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    subject = f"{name} max limit to request ratio per {kind} is {bound}"
    request, limit = _comparable(requests.get(name, "0"), limits.get(name, "0"), bound)[:2]
    if not request:
        yield f"{subject}, but no request is specified or request is 0"
        return
    if not limit:
        yield f"{subject}, but no limit is specified or limit is 0"
        return
    ratio = limit / request
    if ratio * 1000 > Quantity(bound).milli_value():
        yield f"{subject}, but provided ratio is {ratio:f}"


def _exceeds(first: str, second: str) -> bool:
    one, other = _comparable(first, second)
    return one > other


def _comparable(*texts: str) -> list[int]:
    amounts = [Quantity(text) for text in texts]
    whole = [amount.value() for amount in amounts]
    return [amount.milli_value() for amount in amounts] if max(whole) <= _LARGEST_MILLI else whole
