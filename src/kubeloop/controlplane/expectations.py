"""Expectations: a controller that has just created or deleted waits until its cache shows it, or it would do the same again.

Level-based: nothing is counted from events. What was written is looked for in the cache, by uid and by version.
Source: Kubernetes pkg/controller/controller_utils.go (ControllerExpectations); KEP-5504 (resource versions can be compared).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kubeloop.cache import Informer
from kubeloop.meta import ObjectKey, Resource
from kubeloop.timing import Clock

#: After this many seconds the cache is believed whatever it shows, as upstream: a write may never show up, if it was undone at once.
GIVE_UP = 300.0


@dataclass(slots=True)
class _Expected:
    since: float
    created: dict[str, int] = field(default_factory=dict)
    deleted: dict[str, tuple[str, str]] = field(default_factory=dict)


class Expectations:
    """What is still to be seen in ``informer``, by the key of the owner for whom it was written."""

    def __init__(self, informer: Informer[Resource], clock: Clock) -> None:
        self._informer = informer
        self._clock = clock
        self._expected: dict[ObjectKey, _Expected] = {}

    def created(self, owner: ObjectKey, obj: Resource) -> None:
        """``obj`` is the server's answer to a create."""
        self._of(owner).created[obj.metadata.uid] = int(obj.metadata.resource_version or 0)

    def deleted(self, owner: ObjectKey, obj: Resource) -> None:
        """The server accepted the deletion of ``obj``."""
        self._of(owner).deleted[obj.metadata.uid] = (obj.metadata.namespace, obj.metadata.name)

    def met(self, owner: ObjectKey) -> bool:
        """Whether the cache shows everything that was written for ``owner``, or has not for so long that it is believed anyway."""
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
            # Owners that are gone are never asked about again.
            self._expected = {key: one for key, one in self._expected.items() if now - one.since <= GIVE_UP}
            expected = self._expected[owner] = _Expected(now)
        return expected
