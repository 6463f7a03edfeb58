"""Aggregated cluster roles, such as ``view``, ``edit`` and ``admin``.

Source: Kubernetes pkg/controller/clusterroleaggregation; documentation, "Aggregated ClusterRoles".
"""

from __future__ import annotations

from kubeloop.api.rbac.v1 import ClusterRole, PolicyRule
from kubeloop.cache import Head
from kubeloop.controller import Controller, Watch
from kubeloop.meta import NotFound, ObjectKey, ObjectMeta, selector_from

#: Upstream's name, so that either control plane takes over from the other.
MANAGER = "clusterrole-aggregation-controller"
_RULE = "aggregationRule"


class ClusterRoleAggregator(Controller[ClusterRole], watches=[Watch(ClusterRole, to="all_aggregated", paths=(_RULE,))], name=MANAGER):
    """Keeps the rules of a role with an ``aggregationRule`` equal to those of the roles that its selectors match, each once."""

    def all_aggregated(self, _: Head) -> list[ObjectKey]:
        """Return all aggregated roles: there are few roles, and any may contribute to any."""
        return [ObjectKey("", "", head.name) for head in self.lister(ClusterRole).heads() if head.value(_RULE)]

    async def reconcile(self, role: ClusterRole) -> None:
        if role.aggregation_rule is None:
            return
        wanted: list[PolicyRule] = []
        for one in role.aggregation_rule.cluster_role_selectors:
            chosen = self.lister(ClusterRole).each(label_selector=selector_from(one))
            for source in sorted(chosen, key=lambda found: found.metadata.name):
                if source.metadata.name != role.metadata.name:
                    wanted += [rule for rule in source.rules if rule not in wanted]
        if wanted == role.rules:
            return
        try:
            applied = ClusterRole(metadata=ObjectMeta(name=role.metadata.name), rules=wanted)
            await self.client.apply(applied, field_manager=MANAGER, force=True)
        except NotFound:
            return
