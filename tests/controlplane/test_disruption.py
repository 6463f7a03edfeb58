"""Disruption budgets: what their status says of the pods that they guard, and that evictions live within it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import Pod, PodCondition, PodStatus
from kubeloop.api.policy.v1 import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from kubeloop.client import Client
from kubeloop.controlplane.policy.disruption import Expected, count, status_of
from kubeloop.meta import IntOrString, LabelSelector, ObjectMeta, TooManyRequests
from tests.controlplane.workloads import deployment, is_rolled_out, pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def budget(app: str, *, least: IntOrString | None = None, most: IntOrString | None = None, name: str = "b") -> PodDisruptionBudget:
    spec = PodDisruptionBudgetSpec(min_available=least, max_unavailable=most, selector=LabelSelector(match_labels={"app": app}))
    return PodDisruptionBudget(metadata=ObjectMeta(name=name), spec=spec)


def numbers(one: PodDisruptionBudget) -> tuple[int, int, int, int]:
    status = one.status
    return status.expected_pods, status.desired_healthy, status.current_healthy, status.disruptions_allowed


def _reads(expected: tuple[int, int, int, int]) -> Callable[[PodDisruptionBudget], bool]:
    return lambda one: numbers(one) == expected


def state(one: PodDisruptionBudget) -> tuple[str, str, str]:
    [condition] = one.status.conditions
    return condition.type, condition.status, condition.reason


@pytest.mark.server
class TestOnAServer:
    async def test_healthy_pods_are_counted_against_what_is_wanted(self, client: Client) -> None:
        await client.create(deployment("web", 3))
        await client.wait_for(Deployment, "web", is_rolled_out, timeout=60)
        for name, least, most, expected in (
            ("number", 1, None, (3, 1, 3, 2)),
            ("part-rounded-up", "50%", None, (3, 2, 3, 1)),
            ("part-that-may-miss-rounded-up", None, "34%", (3, 1, 3, 2)),
            ("number-that-may-miss", None, 1, (3, 2, 3, 1)),
            ("more-than-there-are", 5, None, (3, 5, 3, 0)),
        ):
            made = budget("web", least=least, most=most, name=name)
            await client.create(made)
            found = await client.wait_for(PodDisruptionBudget, name, _reads(expected), timeout=60)
            allowed = ("True", "SufficientPods") if expected[3] else ("False", "InsufficientPods")
            assert state(found) == ("DisruptionAllowed", *allowed)
            assert found.status.observed_generation == found.metadata.generation

    async def test_an_eviction_takes_from_the_budget_until_another_pod_is_ready(self, client: Client) -> None:
        await client.create(deployment("web", 2))
        await client.wait_for(Deployment, "web", is_rolled_out, timeout=60)
        await client.create(budget("web", most=1))
        await client.wait_for(PodDisruptionBudget, "b", _reads((2, 1, 2, 1)), timeout=60)
        first = (await client.list(Pod, label_selector="app=web", namespace=client.namespace))[0]
        await client.pods.evict(first.metadata.name)
        await client.wait_gone(Pod, first.metadata.name, timeout=60)
        found = await client.wait_for(PodDisruptionBudget, "b", _reads((2, 1, 2, 1)), timeout=60)
        assert found.status.disrupted_pods == {}

    async def test_without_a_controller_that_says_how_many_nothing_may_go(self, client: Client) -> None:
        await client.create(pod("lonely", {"app": "lonely"}))
        await client.wait_for(Pod, "lonely", lambda one: one.status.phase == "Running", timeout=60)
        await client.create(budget("lonely", most=1))
        await client.wait_for(PodDisruptionBudget, "b", lambda one: (one.status.observed_generation or 0) > 0, timeout=60)
        with pytest.raises(TooManyRequests, match="disruption budget"):
            await client.pods.evict("lonely")

    async def test_an_owner_without_a_scale_is_named_in_the_condition(self, client: Client) -> None:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "kube-root-ca.crt", "uid": "u", "controller": True}
        lonely = pod("owned", {"app": "owned"})
        await client.create(lonely)
        await client.patch(Pod, "owned", {"metadata": {"ownerReferences": [owner]}})
        await client.create(budget("owned", most=1))
        found = await client.wait_for(PodDisruptionBudget, "b", lambda one: bool(one.status.conditions), timeout=60)
        assert state(found) == ("DisruptionAllowed", "False", "SyncFailed")
        assert found.status.conditions[0].message == "configmaps does not implement the scale subresource"
        assert found.status.disruptions_allowed == 0


def _pod(name: str, *, ready: bool = True, going: bool = False) -> Pod:
    conditions = [PodCondition(type="Ready", status="True" if ready else "False")]
    metadata = ObjectMeta(name=name, deletion_timestamp=NOW if going else None)
    return Pod(metadata=metadata, status=PodStatus(conditions=conditions))


class TestCounting:
    @pytest.mark.parametrize(
        ("pods", "disrupted", "healthy", "kept"),
        [
            pytest.param([_pod("a"), _pod("b")], {}, 2, [], id="ready pods are healthy"),
            pytest.param([_pod("a", ready=False)], {}, 0, [], id="others are not"),
            pytest.param([_pod("a", going=True)], {}, 0, [], id="nor those that go"),
            pytest.param([_pod("a")], {"a": NOW - timedelta(seconds=30)}, 0, ["a"], id="nor those that were evicted just now"),
            pytest.param([_pod("a")], {"a": NOW - timedelta(seconds=130)}, 1, [], id="one that did not go counts again after two minutes"),
            pytest.param([_pod("a", going=True)], {"a": NOW}, 0, [], id="one that goes needs no mark any longer"),
            pytest.param([], {"a": NOW}, 0, [], id="nor one that is gone"),
        ],
    )
    def test_healthy(self, pods: list[Pod], disrupted: dict[str, datetime], healthy: int, kept: list[str]) -> None:
        counted = count(PodDisruptionBudgetStatus(disrupted_pods=disrupted), pods, Expected(2, 1), NOW)
        assert (counted.healthy, list(counted.disrupted)) == (healthy, kept)
        assert counted.recheck == (disrupted["a"] + timedelta(minutes=2) if kept else None)

    def test_a_budget_that_expects_no_pods_allows_no_disruption(self) -> None:
        counted = count(PodDisruptionBudgetStatus(), [_pod("a")], Expected(0, 0), NOW)
        assert status_of(budget("web", least=0), counted, NOW).disruptions_allowed == 0

    def test_the_time_of_the_condition_stays_while_its_status_does(self) -> None:
        one = budget("web", least=1)
        counted = count(one.status, [_pod("a"), _pod("b")], Expected(2, 1), NOW)
        one.status = status_of(one, counted, NOW)
        again = status_of(one, counted, NOW + timedelta(hours=1))
        assert again == one.status
