"""Which groups and versions discovery shows, in which order: what this server serves by itself, and what APIServices name.

Source: kube-aggregator pkg/apis/apiregistration/v1/helper (SortedByGroupAndVersion); k8s.io/apiserver
pkg/endpoints/discovery/aggregated (calculateAPIGroupsLocked), whose order of equal groups is another.
"""

from __future__ import annotations

from typing import Final

from kubeloop.apiserver.aggregation.registered import OWN_GROUP, Registered, Table, is_remote
from kubeloop.apiserver.builtin.bootstrap.api_services import group_priority, version_priority
from kubeloop.apiserver.registry.registry import Registry, by_priority
from kubeloop.meta.kinds import GroupVersion
from kubeloop.schema import builtin

#: Of groups and versions of custom resources.
_CUSTOM: Final = (1000, 100)
#: Of aggregation itself, which comes before all that can be registered.
_FIRST: Final = 20001


class Order:
    """A view of what is registered, as it is now; the core group is left out but for ``versions``."""

    def __init__(self, registry: Registry, table: Table | None = None) -> None:
        self._registry = registry
        self.table = table or Table()

    def groups(self) -> list[str]:
        """As ``/apis`` lists them: by priority, then by the names of APIServices, in which versions come before groups."""
        found = ((group, version) for group in self._groups() for version in self.versions(group))
        ordered = sorted(found, key=lambda one: (-self._priorities(*one)[0], f"{one[1]}.{one[0]}"))
        return list(dict.fromkeys(group for group, _ in ordered))

    def aggregated_groups(self) -> list[str]:
        """As the aggregated document has them: by the highest priority of their versions, then by name."""
        found = [group for group in self._groups() if self.aggregated_versions(group)]
        return sorted(found, key=lambda group: (-max(self._priorities(group, one)[0] for one in self.aggregated_versions(group)), group))

    def versions(self, group: str) -> list[str]:
        """The preferred one first."""
        own = [one for one in self._registry.versions(group) if self._registry.resources(GroupVersion(group, one))]
        named = [one.version for one in self.table.services.values() if one.group == group and _is_shown(one)]
        known = next((info.versions for info in builtin().groups() if info.name == group), ())
        rank = {version: at for at, version in enumerate(known)}
        ordered = by_priority(dict.fromkeys([*own, *named]))
        return sorted(ordered, key=lambda one: (-self._priorities(group, one)[1], rank.get(one, len(rank))))

    def aggregated_versions(self, group: str) -> list[str]:
        """Without those that an APIService only names."""
        return [one for one in self.versions(group) if self.remote(group, one) or self._registry.resources(GroupVersion(group, one))]

    def remote(self, group: str, version: str) -> Registered | None:
        """The APIService of a version that another server serves."""
        found = self.table.of(group, version)
        return found if found is not None and is_remote(found) else None

    def _groups(self) -> set[str]:
        return {
            group for group in (*self._registry.groups(), *(one.group for one in self.table.services.values() if _is_shown(one))) if group
        }

    def _priorities(self, group: str, version: str) -> tuple[int, int]:
        """Of the group, as this version has it, and of the version."""
        if group == OWN_GROUP:
            return _FIRST, 0
        found = self.table.of(group, version)
        if found is not None:
            return found.group_priority, found.version_priority
        known = group_priority(group)
        return _CUSTOM if known is None else (known, version_priority(group, version))


def _is_shown(service: Registered) -> bool:
    """What the server registers by itself is shown for what it serves, not for what it is said to serve."""
    return service.group != OWN_GROUP and (service.service is not None or not service.managed)
