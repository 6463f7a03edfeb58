"""Cluster roles that are put together from others."""

from __future__ import annotations

import pytest

from kubeloop.api.rbac.v1 import AggregationRule, ClusterRole, PolicyRule
from kubeloop.client import Client
from kubeloop.meta import LabelSelector, ObjectMeta

pytestmark = pytest.mark.server


def role(name: str, label: str, *resources: str) -> ClusterRole:
    rules = [PolicyRule(api_groups=["example.com"], resources=[one], verbs=["get"]) for one in resources]
    return ClusterRole(metadata=ObjectMeta(name=name, labels={"part-of": label}), rules=rules)


def resources_of(role: ClusterRole) -> list[str]:
    return [one for rule in role.rules for one in rule.resources]


async def test_a_role_has_the_rules_of_the_roles_that_it_selects_by_name_and_each_once(client: Client) -> None:
    name = client.namespace or ""
    whole, first, second = f"{name}-whole", f"{name}-a", f"{name}-b"
    selectors = [LabelSelector(match_labels={"part-of": name})]
    made = ClusterRole(
        metadata=ObjectMeta(name=whole, labels={"part-of": name}), aggregation_rule=AggregationRule(cluster_role_selectors=selectors)
    )
    await client.create(made)
    await client.create(role(second, name, "gears", "bolts"))
    await client.create(role(first, name, "bolts"))
    await client.create(role(f"{name}-c", "another", "nuts"))
    try:
        await client.wait_for(ClusterRole, whole, lambda role: resources_of(role) == ["bolts", "gears"], timeout=60)
        await client.delete(ClusterRole, first)
        await client.wait_for(ClusterRole, whole, lambda role: resources_of(role) == ["gears", "bolts"], timeout=60)
        await client.patch(ClusterRole, second, {"metadata": {"labels": {"part-of": None}}})
        found = await client.wait_for(ClusterRole, whole, lambda role: not role.rules, timeout=60)
        assert found.aggregation_rule is not None
    finally:
        for one in (whole, second, f"{name}-c"):
            await client.delete(ClusterRole, one)


async def test_rules_of_definitions_that_come_later_are_in_view_edit_and_admin(client: Client) -> None:
    name = f"{client.namespace}-late"
    label = "rbac.authorization.k8s.io/aggregate-to-view"
    rules = [PolicyRule(api_groups=["example.com"], resources=[name], verbs=["list"])]
    await client.create(ClusterRole(metadata=ObjectMeta(name=name, labels={label: "true"}), rules=rules))
    try:
        for one in ("view", "edit", "admin"):
            # edit selects what edit has, and what view has by its own label: the roles of a cluster are chained.
            await client.wait_for(ClusterRole, one, lambda role: name in resources_of(role), timeout=60)
    finally:
        await client.delete(ClusterRole, name)
        await client.wait_for(ClusterRole, "admin", lambda role: name not in resources_of(role), timeout=60)
