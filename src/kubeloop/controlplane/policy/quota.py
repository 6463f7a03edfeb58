"""ResourceQuota controller: recounts the usage of a namespace after deletions. Admission adds the usage of new objects.

Source: Kubernetes pkg/controller/resourcequota; documentation, "Resource Quotas".
"""

from __future__ import annotations

import msgspec

from kubeloop.api.apps.v1 import DaemonSet, Deployment, ReplicaSet, StatefulSet
from kubeloop.api.batch.v1 import CronJob, Job
from kubeloop.api.core.v1 import (
    ConfigMap,
    PersistentVolumeClaim,
    Pod,
    ReplicationController,
    ResourceQuota,
    ResourceQuotaStatus,
    Secret,
    Service,
    ServiceAccount,
)
from kubeloop.api.resource.v1 import ResourceClaim
from kubeloop.cache import EventType, Head
from kubeloop.codec import to_dict
from kubeloop.controller import Controller, Predicate, Result, WatchedKind, path_changed
from kubeloop.meta import Conflict, NotFound, ObjectKey
from kubeloop.meta.kinds import GroupResource
from kubeloop.meta.quantity import Quantity
from kubeloop.quota import EVALUATED, Amounts, count_name, evaluator_of, masked, plus
from kubeloop.types import JSONObject

#: Seconds after which a quota is recounted without an event, as upstream; fewer if it has kinds whose deletions are not watched.
RESYNC, UNWATCHED = 300.0, 5.0
#: Seconds that an object usually needs at most from admission to storage.
_ON_ITS_WAY = 0.2
_ENDED = frozenset({"Succeeded", "Failed"})
#: The kinds whose deletions are watched. Other controllers watch all of them, too, so that they share the informers.
_COUNTED = (
    PersistentVolumeClaim,
    ConfigMap,
    Secret,
    ServiceAccount,
    ReplicationController,
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
    CronJob,
    ResourceClaim,
)
_WATCHED = frozenset(
    GroupResource(info.gvk.group, info.plural or "") for info in (kind.__kind_info__ for kind in (Pod, Service, *_COUNTED))
)

_gone = Predicate(lambda event: event.type is EventType.DELETED)
_ended = Predicate(
    lambda event: event.old is not None and event.head.value("status.phase") in _ENDED and event.old.value("status.phase") not in _ENDED,
    ("status.phase",),
)
_DEADLINE = "spec.activeDeadlineSeconds"
#: A pod changed between the scopes Terminating and NotTerminating. Admission counts it in its new scope only.
_rescoped = Predicate(
    lambda event: event.old is not None and (event.head.value(_DEADLINE) is None) != (event.old.value(_DEADLINE) is None), (_DEADLINE,)
)
_retyped = Predicate(lambda event: event.old is not None and event.head.value("spec.type") != event.old.value("spec.type"), ("spec.type",))


class QuotaController(
    Controller[ResourceQuota],
    predicates=[path_changed("spec") | path_changed("status.hard")],
    watches=[
        WatchedKind(Pod, to="quotas_of", predicates=(_gone | _ended | _rescoped,)),
        WatchedKind(Service, to="quotas_of", predicates=(_gone | _retyped,)),
        *(WatchedKind(kind, to="quotas_of", predicates=(_gone,)) for kind in _COUNTED),
    ],
    name="resourcequota-controller",
):
    """Writes ``status.hard`` and ``status.used`` of quotas.

    Guarantees:
        The controller never overwrites usage that admission recorded after the controller read the quota.

    Not guaranteed:
        Objects that admission has accepted, but that are not stored a moment later, may not be counted; the next count, after five minutes
        at the latest, corrects that.
        Deletions of kinds that are not watched are counted within five seconds.
    """

    def quotas_of(self, obj: Head) -> list[ObjectKey]:
        return [ObjectKey("", obj.namespace, head.name) for head in self.lister(ResourceQuota).heads(obj.namespace)]

    async def reconcile(self, quota: ResourceQuota) -> Result | None:
        try:
            # Read from the server, so that this count is not older than admission's record.
            quota = await self.client.get(ResourceQuota, quota.metadata.name, namespace=quota.metadata.namespace)
            unwatched = await self._count(quota)
        except (Conflict, NotFound):
            return Result(requeue_after=1.0)  # Admission was faster, or the quota was deleted: then no further retry follows.
        return Result(requeue_after=UNWATCHED if unwatched else RESYNC)

    async def _count(self, quota: ResourceQuota) -> bool:
        """Count the usage of a quota and write it; return whether deletions of one of the counted kinds are not watched."""
        hard, noted = quota.spec.hard, quota.status.used
        kinds = _kinds(hard)
        result = await self._found(kinds, quota)
        if any(amount < noted.get(name, amount) for name, amount in result.items()):
            # Admitted objects may not be stored yet, so count again. Usage recorded after ``quota`` was read makes the write conflict.
            await self.clock.sleep(_ON_ITS_WAY)
            result = await self._found(kinds, quota)
        used = masked({**noted, **result}, hard)
        status = ResourceQuotaStatus(hard=dict(hard), used=used)
        if status != quota.status:
            await self.client.update_status(msgspec.structs.replace(quota, status=status))
        return any(kind not in _WATCHED for kind in kinds)

    async def _found(self, kinds: list[GroupResource], quota: ResourceQuota) -> Amounts:
        tree = to_dict(quota)
        result: Amounts = {}
        for kind in kinds:
            result = plus(result, await self._used(kind, tree))
        return result

    async def _used(self, kind: GroupResource, quota: JSONObject) -> Amounts:
        """Return the usage of the quota's resources by objects of ``kind``; empty if the server does not serve the kind."""
        evaluator = evaluator_of(kind)
        names = evaluator.names(quota["spec"]["hard"])
        path = await self._path(kind, quota["metadata"]["namespace"])
        if path is None:
            return {}
        used: Amounts = dict.fromkeys(names, Quantity(0))
        if kind not in EVALUATED or set(names) == {count_name(kind)}:
            answer = await self._get(f"{path}?limit=1")
            number = len(answer.get("items") or ()) + (answer["metadata"].get("remainingItemCount") or 0)
            return dict.fromkeys(names, Quantity(number))
        now = self.clock.wall()
        for obj in (await self._get(path)).get("items") or ():
            if evaluator.counts(quota, obj):
                used = plus(used, masked(evaluator.usage(obj, now), names))
        return used

    async def _get(self, path: str) -> JSONObject:
        answer = await self.client.transport.request("GET", path)
        result: JSONObject = msgspec.json.decode(answer.body)
        return result

    async def _path(self, kind: GroupResource, namespace: str) -> str | None:
        for resource in await self.client.mapper.resources():
            if resource.namespaced and resource.gvr.group_resource == kind and "list" in resource.verbs:
                return f"{resource.gvr.group_version.path}/namespaces/{namespace}/{kind.resource}"
        return None


def _kinds(hard: Amounts) -> list[GroupResource]:
    """Return the kinds whose objects count for one of the resources of a quota."""
    result = {kind: None for kind, evaluator in EVALUATED.items() if evaluator.names(hard)}
    for name in hard:
        if name.startswith("count/"):
            resource, _, group = name.removeprefix("count/").partition(".")
            result[GroupResource(group, resource)] = None
    return list(result)
