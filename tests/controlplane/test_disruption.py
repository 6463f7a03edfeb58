"""Disruption budgets: what their status says of the pods that they guard, and that evictions live within it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import ConfigMap, Event, Pod, PodCondition, PodStatus
from kubeloop.api.policy.v1 import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from kubeloop.client import Client
from kubeloop.controlplane.policy.disruption import (
    DisruptionController,
    Expected,
    StaleDisruptionController,
    count,
    go_selector,
    stale_at,
    status_of,
)
from kubeloop.meta import IntOrString, LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference, TooManyRequests
from tests.controlplane.simulated import simulation
from tests.controlplane.workloads import deployment, is_rolled_out, pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def budget(
    app: str, *, min_available: IntOrString | None = None, max_unavailable: IntOrString | None = None, name: str = "b"
) -> PodDisruptionBudget:
    spec = PodDisruptionBudgetSpec(
        min_available=min_available, max_unavailable=max_unavailable, selector=LabelSelector(match_labels={"app": app})
    )
    return PodDisruptionBudget(metadata=ObjectMeta(name=name), spec=spec)


def numbers(disruption_budget: PodDisruptionBudget) -> tuple[int, int, int, int]:
    status = disruption_budget.status
    return status.expected_pods, status.desired_healthy, status.current_healthy, status.disruptions_allowed


def _reads(expected: tuple[int, int, int, int]) -> Callable[[PodDisruptionBudget], bool]:
    return lambda disruption_budget: numbers(disruption_budget) == expected


def state(disruption_budget: PodDisruptionBudget) -> tuple[str, str, str]:
    [condition] = disruption_budget.status.conditions
    return condition.type, condition.status, condition.reason


def _has_reason(reason: str) -> Callable[[PodDisruptionBudget], bool]:
    return lambda disruption_budget: any(condition.reason == reason for condition in disruption_budget.status.conditions)


@pytest.mark.server
class TestOnAServer:
    async def test_healthy_pods_are_counted_against_the_desired_number(self, client: Client) -> None:
        await client.create(deployment("web", 3))
        await client.wait_for(Deployment, "web", is_rolled_out, timeout=60)
        for name, least, most, expected in (
            ("number", 1, None, (3, 1, 3, 2)),
            ("part-rounded-up", "50%", None, (3, 2, 3, 1)),
            ("part-that-may-miss-rounded-up", None, "34%", (3, 1, 3, 2)),
            ("number-that-may-miss", None, 1, (3, 2, 3, 1)),
            ("more-than-there-are", 5, None, (3, 5, 3, 0)),
        ):
            made = budget("web", min_available=least, max_unavailable=most, name=name)
            await client.create(made)
            found = await client.wait_for(PodDisruptionBudget, name, _reads(expected), timeout=60)
            allowed = ("True", "SufficientPods") if expected[3] else ("False", "InsufficientPods")
            assert state(found) == ("DisruptionAllowed", *allowed)
            assert found.status.observed_generation == found.metadata.generation

    async def test_an_eviction_takes_from_the_budget_until_another_pod_is_ready(self, client: Client) -> None:
        await client.create(deployment("web", 2))
        await client.wait_for(Deployment, "web", is_rolled_out, timeout=60)
        await client.create(budget("web", max_unavailable=1))
        await client.wait_for(PodDisruptionBudget, "b", _reads((2, 1, 2, 1)), timeout=60)
        first = (await client.list(Pod, label_selector="app=web", namespace=client.namespace))[0]
        await client.pods.evict(first.metadata.name)
        await client.wait_gone(Pod, first.metadata.name, timeout=60)
        found = await client.wait_for(PodDisruptionBudget, "b", _reads((2, 1, 2, 1)), timeout=60)
        assert found.status.disrupted_pods == {}

    async def test_without_a_controller_that_says_how_many_nothing_may_go(self, client: Client) -> None:
        await client.create(pod("lonely", {"app": "lonely"}))
        await client.wait_for(Pod, "lonely", lambda pod: pod.status.phase == "Running", timeout=60)
        await client.create(budget("lonely", max_unavailable=1))
        await client.wait_for(
            PodDisruptionBudget, "b", lambda disruption_budget: (disruption_budget.status.observed_generation or 0) > 0, timeout=60
        )
        with pytest.raises(TooManyRequests, match="disruption budget"):
            await client.pods.evict("lonely")

    async def test_an_owner_without_a_scale_is_named_in_the_condition(self, client: Client) -> None:
        # The uid is real: the garbage collector deletes a pod whose owner does not exist, and the budget has no pods then.
        made = await client.create(ConfigMap(metadata=ObjectMeta(name="owner")))
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": made.metadata.uid, "controller": True}
        lonely = pod("owned", {"app": "owned"})
        await client.create(lonely)
        await client.patch(Pod, "owned", {"metadata": {"ownerReferences": [owner]}})
        await client.create(budget("owned", max_unavailable=1))
        # A controller whose cache has not seen the patch yet sets InsufficientPods first.
        found = await client.wait_for(PodDisruptionBudget, "b", _has_reason("SyncFailed"), timeout=60)
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
            pytest.param([_pod("a", going=True)], {}, 0, [], id="nor terminating pods"),
            pytest.param([_pod("a")], {"a": NOW - timedelta(seconds=30)}, 0, ["a"], id="nor pods that were evicted just now"),
            pytest.param(
                [_pod("a")], {"a": NOW - timedelta(seconds=130)}, 1, [], id="an evicted pod that did not go counts again after two minutes"
            ),
            pytest.param([_pod("a", going=True)], {"a": NOW}, 0, [], id="a pod that goes needs no mark any longer"),
            pytest.param([], {"a": NOW}, 0, [], id="nor does a pod that is gone"),
        ],
    )
    def test_healthy(self, pods: list[Pod], disrupted: dict[str, datetime], healthy: int, kept: list[str]) -> None:
        counted = count(PodDisruptionBudgetStatus(disrupted_pods=disrupted), pods, Expected(2, 1), NOW)
        assert (counted.healthy, list(counted.disrupted)) == (healthy, kept)
        assert counted.recheck == (disrupted["a"] + timedelta(minutes=2) if kept else None)

    def test_a_budget_that_expects_no_pods_allows_no_disruption(self) -> None:
        counted = count(PodDisruptionBudgetStatus(), [_pod("a")], Expected(0, 0), NOW)
        assert status_of(budget("web", min_available=0), counted, NOW).disruptions_allowed == 0

    def test_the_time_of_the_condition_stays_while_its_status_does(self) -> None:
        one = budget("web", min_available=1)
        counted = count(one.status, [_pod("a"), _pod("b")], Expected(2, 1), NOW)
        one.status = status_of(one, counted, NOW)
        again = status_of(one, counted, NOW + timedelta(hours=1))
        assert again == one.status


def evicted(reason: str = "EvictionByEvictionAPI", *, status: str = "True", phase: Any = "Running", terminating: bool = False) -> Pod:
    """Return a pod that was evicted at ``NOW``."""
    made = pod("p")
    made.metadata.deletion_timestamp = NOW if terminating else None
    condition = PodCondition(type="DisruptionTarget", status=status, reason=reason, message="evicted", last_transition_time=NOW)
    made.status = PodStatus(phase=phase, conditions=[condition])
    return made


@pytest.mark.parametrize(
    ("evicted_pod", "expected"),
    [
        pytest.param(evicted(), NOW + timedelta(minutes=2), id="two minutes after the eviction"),
        pytest.param(evicted(terminating=True), None, id="never while the pod is being deleted"),
        pytest.param(evicted(status="False"), None, id="not a condition that is False already"),
        pytest.param(evicted("TerminationByKubelet"), None, id="not that of a kubelet, which may take long"),
        pytest.param(evicted(phase="Failed"), None, id="not that of a pod that has ended"),
        pytest.param(pod("p"), None, id="not a pod without the condition"),
    ],
)
def test_when_the_condition_of_an_evicted_pod_is_stale(evicted_pod: Pod, expected: datetime | None) -> None:
    assert stale_at(evicted_pod) == expected


async def test_the_condition_of_a_pod_that_was_evicted_and_not_deleted_is_false_after_two_minutes() -> None:
    async with simulation(StaleDisruptionController()) as cluster:
        made = await cluster.client.create(pod("p"))
        made.status = evicted().status
        made.status.conditions[0].last_transition_time = cluster.clock.wall()
        await cluster.client.update_status(made)
        await cluster.pass_time(119)
        [condition] = (await cluster.client.get(Pod, "p")).status.conditions
        assert (condition.status, condition.reason) == ("True", "EvictionByEvictionAPI")
        await cluster.pass_time(2)
        [condition] = (await cluster.client.get(Pod, "p")).status.conditions
        assert (condition.status, condition.reason, condition.message) == ("False", None, None)
        assert condition.last_transition_time == NOW + timedelta(minutes=2)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param(None, "nil", id="no selector"),
        pytest.param(
            LabelSelector(match_labels={"b": "2", "a": "1"}),
            "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:[]LabelSelectorRequirement{},}",
            id="labels by name",
        ),
        pytest.param(
            LabelSelector(match_expressions=[LabelSelectorRequirement(key="a", operator="In", values=["b", "c"])]),
            "&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{"
            "LabelSelectorRequirement{Key:a,Operator:In,Values:[b c],},},}",
            id="requirements",
        ),
    ],
)
def test_a_selector_has_the_text_that_go_prints(selector: LabelSelector | None, expected: str) -> None:
    assert go_selector(selector) == expected


async def test_the_status_says_that_the_kind_of_a_controller_is_not_served() -> None:
    async with simulation(DisruptionController()) as cluster:
        owned = pod("p", {"app": "web"})
        owned.metadata.owner_references = [OwnerReference(api_version="example.com/v1", kind="Widget", name="w", uid="u", controller=True)]
        await cluster.client.create(owned)
        await cluster.client.create(budget("web", min_available="50%"))
        await cluster.pass_time(5)
        [condition] = (await cluster.client.get(PodDisruptionBudget, "b")).status.conditions
        reason = 'no matches for kind "Widget" in version "example.com/v1"'
        assert (condition.status, condition.reason, condition.message) == ("False", "SyncFailed", reason)
        [event] = [one for one in await cluster.client.list(Event) if one.reason == "CalculateExpectedPodCountFailed"]
        assert event.message == f"Failed to calculate the number of expected pods: {reason}"
        assert event.source is not None
        assert event.source.component == "controllermanager"
