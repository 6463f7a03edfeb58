"""Tokens in Secrets, disruption budgets, quotas and aggregated roles: the same with our controllers and with kube-controller-manager."""

from __future__ import annotations

import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.authentication.v1 import TokenReview, TokenReviewSpec
from kubeloop.api.core.v1 import ResourceQuota, ResourceQuotaSpec, Secret
from kubeloop.api.policy.v1 import PodDisruptionBudget, PodDisruptionBudgetSpec
from kubeloop.api.rbac.v1 import AggregationRule, ClusterRole, PolicyRule
from kubeloop.client import Client
from kubeloop.meta import LabelSelector, ObjectMeta, Quantity
from tests.controlplane.workloads import deployment

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

_LONG = 90.0


async def test_a_secret_of_a_service_account_gets_a_token_that_the_server_accepts(client: Client) -> None:
    kind, account = "kubernetes.io/service-account-token", {"kubernetes.io/service-account.name": "default"}
    await client.create(Secret(metadata=ObjectMeta(name="t", annotations=account), type=kind))
    secret = await client.wait_for(Secret, "t", lambda secret: "token" in secret.data, timeout=_LONG)
    assert sorted(secret.data) == ["ca.crt", "namespace", "token"]
    assert secret.data["namespace"].decode() == client.namespace
    answer = await client.create(TokenReview(spec=TokenReviewSpec(token=secret.data["token"].decode())))
    assert answer.status.user.username == f"system:serviceaccount:{client.namespace}:default"


async def test_a_disruption_budget_counts_the_healthy_pods(client: Client) -> None:
    chosen = PodDisruptionBudgetSpec(min_available="50%", selector=LabelSelector(match_labels={"app": "d"}))
    await client.create(PodDisruptionBudget(metadata=ObjectMeta(name="b"), spec=chosen))
    await client.create(deployment("d", 3))
    await client.wait_for(PodDisruptionBudget, "b", lambda disruption_budget: disruption_budget.status.current_healthy == 3, timeout=_LONG)
    found = await client.get(PodDisruptionBudget, "b")
    assert (found.status.desired_healthy, found.status.expected_pods, found.status.disruptions_allowed) == (2, 3, 1)


async def test_a_quota_counts_present_pods_and_no_deleted_ones(client: Client) -> None:
    await client.create(ResourceQuota(metadata=ObjectMeta(name="q"), spec=ResourceQuotaSpec(hard={"pods": Quantity("5")})))
    await client.wait_for(ResourceQuota, "q", lambda quota: quota.status.used.get("pods") == Quantity("0"), timeout=_LONG)
    await client.create(deployment("d", 2))
    await client.wait_for(ResourceQuota, "q", lambda quota: quota.status.used.get("pods") == Quantity("2"), timeout=_LONG)
    await client.patch(Deployment, "d", {"spec": {"replicas": 0}})
    await client.wait_for(ResourceQuota, "q", lambda quota: quota.status.used.get("pods") == Quantity("0"), timeout=_LONG)


async def test_an_aggregated_role_has_the_rules_of_the_roles_that_its_selectors_match(client: Client) -> None:
    name = str(client.namespace)
    chosen = AggregationRule(cluster_role_selectors=[LabelSelector(match_labels={"for": name})])
    await client.create(ClusterRole(metadata=ObjectMeta(name=name), aggregation_rule=chosen))
    rule = PolicyRule(verbs=["get"], api_groups=["example.com"], resources=["things"])
    await client.create(ClusterRole(metadata=ObjectMeta(name=f"{name}-part", labels={"for": name}), rules=[rule]))
    found = await client.wait_for(ClusterRole, name, lambda role: role.rules, timeout=_LONG)
    assert [(one.verbs, one.api_groups, one.resources) for one in found.rules] == [(["get"], ["example.com"], ["things"])]
    view = await client.wait_for(ClusterRole, "view", lambda role: role.rules, timeout=_LONG)
    assert any("configmaps" in one.resources for one in view.rules)
    for one in (name, f"{name}-part"):
        await client.delete(ClusterRole, one)
