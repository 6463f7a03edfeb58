"""Functions and classes with which workload controllers create and delete pods: expectations, templates and batches.

Source: Kubernetes pkg/controller/controller_utils.go (ControllerExpectations, PodControl, slowStartBatch); KEP-5504 (resource versions
can be compared).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubeloop.api.core.v1 import Pod
from kubeloop.cache import Informer
from kubeloop.codec import decode
from kubeloop.meta import ObjectKey, Resource
from kubeloop.timing import Clock

#: Seconds after which expectations expire, as upstream: a write that was undone at once may never appear in the cache.
GIVE_UP = 300.0


@dataclass(slots=True)
class _Expected:
    since: float
    created: dict[str, int] = field(default_factory=dict)
    deleted: dict[str, tuple[str, str]] = field(default_factory=dict)


class Expectations:
    """Creations and deletions that an informer's cache does not show yet, by the key of the owner for which they were made.

    A controller that has created or deleted pods waits until its cache shows these writes; otherwise it would repeat them. Expectations do
    not count events: each write is looked up in the cache, by uid and resource version.
    """

    def __init__(self, informer: Informer[Resource], clock: Clock) -> None:
        self._informer = informer
        self._clock = clock
        self._expected: dict[ObjectKey, _Expected] = {}

    def created(self, owner: ObjectKey, obj: Resource) -> None:
        """Record a created object; ``obj`` is the server's response."""
        self._of(owner).created[obj.metadata.uid] = int(obj.metadata.resource_version or 0)

    def deleted(self, owner: ObjectKey, obj: Resource) -> None:
        """Record the accepted deletion of ``obj``."""
        self._of(owner).deleted[obj.metadata.uid] = (obj.metadata.namespace, obj.metadata.name)

    def met(self, owner: ObjectKey) -> bool:
        """Return whether the cache shows all writes for ``owner``, or the expectations have expired after GIVE_UP seconds."""
        expected = self._expected.get(owner)
        if expected is None:
            return True
        if self._clock.now() - expected.since <= GIVE_UP:
            version = int(self._informer.resource_version or 0)
            expected.created = {uid: written for uid, written in expected.created.items() if written > version}
            expected.deleted = {uid: name for uid, name in expected.deleted.items() if self._stands(uid, *name)}
            if expected.created or expected.deleted:
                return False
        del self._expected[owner]
        return True

    def _stands(self, uid: str, namespace: str, name: str) -> bool:
        head = self._informer.lister.head(name, namespace)
        return head is not None and head.uid == uid and not head.deleting

    def _of(self, owner: ObjectKey) -> _Expected:
        expected = self._expected.get(owner)
        if expected is None:
            now = self._clock.now()
            # Deleted owners are never checked again.
            self._expected = {key: one for key, one in self._expected.items() if now - one.since <= GIVE_UP}
            expected = self._expected[owner] = _Expected(now)
        return expected


def pod_from(template: dict[str, Any], owner: str, namespace: str) -> Pod:
    """Return a pod from a pod template, including unknown fields, with the name ``owner`` as the prefix of its generated name."""
    metadata = template.get("metadata") or {}
    stored = {name: metadata[name] for name in ("labels", "annotations", "finalizers") if metadata.get(name)}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**stored, "generateName": f"{owner}-", "namespace": namespace},
        "spec": template.get("spec") or {},
    }
    return decode(Pod, msgspec.json.encode(document))


async def in_growing_batches(action: Callable[[], Awaitable[None]], count: int) -> None:
    """Call ``action`` ``count`` times, in concurrent batches of 1, 2, 4 and so on (upstream's slowStartBatch).

    No batch follows a batch with a failure, so that a quota or a webhook does not have to refuse hundreds of requests.

    Raises:
        Exception: The first failure.
    """
    size = 1
    while count > 0:
        size = min(size, count)
        # All calls are equal: the first error represents the errors of its batch, which probably have the same reason.
        outcomes = await asyncio.gather(*(action() for _ in range(size)), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        count -= size
        size *= 2
