"""At most ten managers that update: beyond that the oldest of a version melt into one named "ancient-changes".

Source: k8s.io/apimachinery pkg/util/managedfields/internal/capmanagers.go. Who applies is never melted down.
"""

from __future__ import annotations

from kubeloop.apiserver.ownership.entries import UPDATE, Managed, identifier, seconds
from kubeloop.merge.fields.managing import VersionedSet

MOST_UPDATERS = 10
ANCIENT = "ancient-changes"


def cap(managed: Managed) -> None:
    """Changes ``managed`` where it has more than ``MOST_UPDATERS`` managers that update."""
    if len(managed.fields) <= MOST_UPDATERS:
        return
    updaters = [manager for manager, owned in managed.fields.items() if not owned.applied]
    excess = len(updaters) - MOST_UPDATERS
    if excess <= 0:
        return
    updaters.sort(key=lambda manager: (seconds(managed.times.get(manager)), manager))
    first_of: dict[str, str] = {}
    for manager in updaters:
        if excess <= 0:
            return
        owned = managed.fields[manager]
        version = owned.api_version
        first = first_of.setdefault(version, manager)
        if first == manager:
            continue  # the first of its version makes room only once a second one joins it
        bucket = identifier(ANCIENT, UPDATE, version, "")
        if bucket not in managed.fields:
            managed.fields[bucket] = managed.fields.pop(first)
        managed.fields[bucket] = VersionedSet(owned.set | managed.fields[bucket].set, version, owned.applied)
        managed.times[bucket] = managed.times.get(manager)
        managed.fields.pop(manager, None)
        excess -= 1
