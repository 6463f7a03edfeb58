"""ResourceQuota: rejects writes that exceed a quota of the namespace, and adds the usage of other writes to the quota's status.

Source: k8s.io/apiserver pkg/admission/plugin/resourcequota. A controller subtracts the usage of deleted objects.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from kubeloop.apiserver.admission.cached_lister import CachedList
from kubeloop.apiserver.admission.chain import Attributes, new_forbidden
from kubeloop.apiserver.ownership import SERVER
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.registry.write_request import ObjectWriter, WriteRequest
from kubeloop.endpoints.access import SYSTEM
from kubeloop.meta.errors import Conflict, NotFound
from kubeloop.meta.kinds import GroupResource, GroupVersionResource
from kubeloop.quota import Amounts, Evaluator, amounts_of, evaluator_of, masked, plus, texts_of
from kubeloop.quota.amounts import less_at_least_zero, without_zeros
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

QUOTAS = GroupVersionResource("", "v1", "resourcequotas")


class QuotaStatus:
    """Reads and writes the status of quotas. ``writer`` returns the object writer, which is created after the plug-ins that it runs."""

    def __init__(self, registry: Registry, objects: Objects, writer: Callable[[], ObjectWriter]) -> None:
        self._registry = registry
        self._objects = objects
        self._writer = writer

    async def read(self, namespace: str, name: str) -> JSONObject | None:
        """Return the newest stored quota, or None if it does not exist. The object is shared and must not be changed."""
        stored = await self._objects.get(self._resource, namespace, name)
        return None if stored is None else stored.obj

    async def note(self, quota: JSONObject, used: dict[str, str]) -> None:
        """Write the usage into the status of a quota.

        Raises:
            Conflict: The quota has changed since it was read.
            NotFound: The quota was deleted.
        """
        metadata = quota["metadata"]
        write = WriteRequest(self._resource, metadata["namespace"], metadata["name"], SYSTEM, "status", manager=SERVER)

        async def change(_: JSONObject) -> JSONObject:
            changed = copy.deepcopy(quota)
            changed["status"]["used"] = used
            return changed

        await self._writer().update(write, change, status=True)

    @property
    def _resource(self) -> ServedResource:
        result = self._registry.get(QUOTAS)
        assert result is not None
        return result


_REVIEWS = "authorization.k8s.io"
#: Resources that are never stored, and Events, which no quota limits.
_IGNORED = frozenset(
    {
        GroupResource("", "bindings"),
        GroupResource("", "events"),
        GroupResource("events.k8s.io", "events"),
        GroupResource(_REVIEWS, "localsubjectaccessreviews"),
    }
)
#: Further attempts to write a quota that other writers change at the same time.
_RETRIES = 3

#: Writes ``status.used`` of a quota. Raises Conflict if the quota has changed since it was read, NotFound if it was deleted.
NoteUsage = Callable[[JSONObject, dict[str, str]], Awaitable[None]]


@dataclass(slots=True)
class _Charge:
    """A quota that counts a write, and its usage after the write. ``used`` is None if the write does not change the usage."""

    quota: JSONObject
    used: Amounts | None


class QuotaAdmission:
    """Plug-in ResourceQuota: rejects writes that exceed a quota, and adds the usage of other writes to the quota's status.

    Guarantees
        With any number of concurrent writes, the usage stays within ``status.hard``: a write of the usage names the resource version of the
        quota that was checked. Writes in one namespace are checked one after the other, so that they do not conflict.

    Not guaranteed
        The usage may exceed that of the existing objects: a write that fails after admission counts until the controller recounts.
    """

    def __init__(self, quotas: CachedList, read: Callable[[str, str], Awaitable[JSONObject | None]], note: NoteUsage, clock: Clock) -> None:
        """Create the plug-in.

        Args:
            quotas: All ResourceQuotas.
            read: Returns the newest stored quota by namespace and name; None if it was deleted.
            note: Writes the usage of a quota.
            clock: The clock for pauses between attempts.
        """
        self._quotas = quotas
        self._read = read
        self._note = note
        self._clock = clock
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def mutate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only validates."""

    async def validate(self, attributes: Attributes) -> None:
        namespace = attributes.namespace
        if not namespace or attributes.operation not in ("CREATE", "UPDATE") or attributes.obj is None:
            return
        value = await self._quotas.items(namespace)
        if not value:
            return
        resource = attributes.resource.gvr.group_resource
        if resource in _IGNORED:
            return
        evaluator = evaluator_of(resource)
        if not _is_charged(attributes, evaluator):
            return
        turn = self._locks.setdefault(namespace, asyncio.Lock())
        async with turn:
            await self._charge(attributes, evaluator, [one["metadata"]["name"] for one in value])

    async def _charge(self, attributes: Attributes, evaluator: Evaluator, names: list[str]) -> None:
        for attempt in range(_RETRIES + 1):
            newest = [await self._read(attributes.namespace, name) for name in names]
            charges = self._judged(attributes, evaluator, [one for one in newest if one is not None])
            if attributes.dry_run:
                return
            names = []
            for charge in charges:
                if charge.used is None:
                    continue
                try:
                    await self._note(charge.quota, texts_of(charge.used))
                except (Conflict, NotFound):
                    if attempt == _RETRIES:
                        raise
                    names.append(charge.quota["metadata"]["name"])
            if not names:
                return

    def _judged(self, attributes: Attributes, evaluator: Evaluator, quotas: list[JSONObject]) -> list[_Charge]:
        """Return the new usage of each quota.

        Raises:
            Forbidden: The write exceeds a quota.
        """
        obj, now = attributes.obj, self._clock.wall()
        assert obj is not None
        counting = [quota for quota in quotas if _counts(quota, obj, evaluator)]
        for quota in counting:
            _check_known(attributes, evaluator, quota)
        if not counting:
            return []
        usage = evaluator.usage(obj, now)
        negative = sorted(name for name, amount in usage.items() if amount < 0)
        if negative:
            raise new_forbidden(attributes, f"quota usage is negative for resource(s): {','.join(negative)}")
        old = attributes.old if attributes.operation == "UPDATE" else None
        change = usage if old is None else less_at_least_zero(usage, evaluator.usage(old, now))
        charges = []
        for quota in counting:
            own = change if old is None or _counts(quota, old, evaluator) else usage
            charges.append(_Charge(quota, _used_after(attributes, quota, without_zeros(own))))
        return charges


def _is_charged(attributes: Attributes, evaluator: Evaluator) -> bool:
    if attributes.operation == "CREATE":
        return not attributes.subresource
    assert attributes.obj is not None
    return attributes.old is not None and evaluator.update_changes_usage(attributes.subresource, attributes.old, attributes.obj)


def _hard(quota: JSONObject) -> dict[str, str]:
    result: dict[str, str] = (quota.get("status") or {}).get("hard") or {}
    return result


def _counts(quota: JSONObject, obj: JSONObject, evaluator: Evaluator) -> bool:
    return bool(evaluator.names(_hard(quota))) and evaluator.counts(quota, obj)


def _check_known(attributes: Attributes, evaluator: Evaluator, quota: JSONObject) -> None:
    assert attributes.obj is not None
    name, names = quota["metadata"]["name"], evaluator.names(_hard(quota))
    unsaid = evaluator.unsaid(names, attributes.obj)
    if unsaid:
        raise new_forbidden(attributes, f"failed quota: {name}: {unsaid}")
    used = quota["status"].get("used") or {}
    if any(one not in used for one in names):
        raise new_forbidden(attributes, f"status unknown for quota: {name}, resources: {','.join(names)}")


def _used_after(attributes: Attributes, quota: JSONObject, change: Amounts) -> Amounts | None:
    hard, used = amounts_of(_hard(quota)), amounts_of(quota["status"].get("used"))
    requested = masked(change, hard)
    after = plus(used, requested)
    exceeded = sorted(name for name in requested if after[name] > hard[name])
    if exceeded and attributes.subresource != "status":
        shown = [",".join(f"{name}={amounts[name]}" for name in exceeded if name in amounts) for amounts in (requested, used, hard)]
        why = f"exceeded quota: {quota['metadata']['name']}, requested: {shown[0]}, used: {shown[1]}, limited: {shown[2]}"
        raise new_forbidden(attributes, why)
    return after if after != used else None
