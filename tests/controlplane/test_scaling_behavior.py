"""Stabilization, policies and bounds of scaling. The cases follow upstream's tables."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.api.autoscaling.v2 import HorizontalPodAutoscalerBehavior
from kubeloop.controlplane.autoscaling.behavior import PastAmount, ScalingBounds, ScalingHistory, decide_scaling
from tests.controlplane.workloads import read

NOW = 10_000.0
BOUNDS = ScalingBounds(10, 1, 1000)


def rules(*policies: tuple[str, int, int], window: int = 0, select: str = "Max") -> dict[str, Any]:
    listed = [{"type": kind, "value": value, "periodSeconds": period} for kind, value, period in policies]
    return {"policies": listed, "selectPolicy": select, "stabilizationWindowSeconds": window}


def behavior(up: dict[str, Any] | None = None, down: dict[str, Any] | None = None) -> HorizontalPodAutoscalerBehavior:
    from kubeloop.api.autoscaling.v2 import HorizontalPodAutoscaler

    default = rules(("Percent", 100, 15))
    tree = {"metadata": {"name": "a"}, "spec": {"behavior": {"scaleUp": up or default, "scaleDown": down or default}}}
    found = read(HorizontalPodAutoscaler, tree).spec.behavior
    assert found is not None
    return found


def ago(*amounts: tuple[float, int]) -> list[PastAmount]:
    return [PastAmount(NOW - seconds, amount) for seconds, amount in amounts]


def history(
    recommended: list[PastAmount] | None = None, up: list[PastAmount] | None = None, down: list[PastAmount] | None = None
) -> ScalingHistory:
    return ScalingHistory(recommended or [], up or [], down or [])


PLAIN = [
    pytest.param(BOUNDS, 12, [], 12, "ReadyForNewScale", (False, "DesiredWithinRange"), id="a size within the bounds is taken"),
    pytest.param(BOUNDS, 50, [], 20, "ReadyForNewScale", (True, "ScaleUpLimit"), id="a workload at most doubles"),
    pytest.param(ScalingBounds(1, 1, 9), 8, [], 4, "ReadyForNewScale", (True, "ScaleUpLimit"), id="a small workload gets four at once"),
    pytest.param(ScalingBounds(10, 1, 12), 15, [], 12, "ReadyForNewScale", (True, "TooManyReplicas"), id="the maximum limits growth"),
    pytest.param(ScalingBounds(10, 5, 12), 2, [], 5, "ReadyForNewScale", (True, "TooFewReplicas"), id="the minimum limits shrinking"),
    pytest.param(BOUNDS, 2, [(299, 7)], 7, "ScaleDownStabilized", (False, "DesiredWithinRange"), id="the highest of five minutes counts"),
    pytest.param(BOUNDS, 2, [(301, 7)], 2, "ReadyForNewScale", (False, "DesiredWithinRange"), id="an older one does not"),
    pytest.param(BOUNDS, 12, [(10, 7)], 12, "ReadyForNewScale", (False, "DesiredWithinRange"), id="growth is not stabilized"),
]


@pytest.mark.parametrize(("bounds", "desired", "recommended", "replicas", "able", "limit"), PLAIN)
def test_scaling_without_a_behavior(
    bounds: ScalingBounds, desired: int, recommended: list[tuple[float, int]], replicas: int, able: str, limit: tuple[bool, str]
) -> None:
    past = history(ago(*recommended))
    decision = decide_scaling(past, bounds, desired, None, NOW)
    assert (decision.replicas, decision.able[0], (decision.limited, decision.limit[0])) == (replicas, able, limit)
    assert past.recommendations[-1] == PastAmount(NOW, desired)


RULES = [
    pytest.param(behavior(rules(("Pods", 4, 60))), 50, history(), 14, "ScaleUpLimit", id="four pods are added"),
    pytest.param(behavior(rules(("Pods", 4, 60))), 50, history(up=ago((30, 3))), 11, "ScaleUpLimit", id="pods of the period count"),
    pytest.param(behavior(rules(("Pods", 4, 60))), 50, history(up=ago((61, 3))), 14, "ScaleUpLimit", id="older ones do not"),
    pytest.param(
        behavior(rules(("Pods", 4, 60))), 50, history(down=ago((30, 3))), 17, "ScaleUpLimit", id="pods that went in the period may return"
    ),
    pytest.param(behavior(rules(("Percent", 15, 60))), 50, history(), 12, "ScaleUpLimit", id="a percentage is rounded up"),
    pytest.param(
        behavior(rules(("Percent", 15, 60), ("Pods", 4, 60))), 50, history(), 14, "ScaleUpLimit", id="the largest change is the default"
    ),
    pytest.param(
        behavior(rules(("Percent", 15, 60), ("Pods", 4, 60), select="Min")),
        50,
        history(),
        12,
        "ScaleUpLimit",
        id="Min takes the smallest",
    ),
    pytest.param(behavior(rules(("Pods", 4, 60), select="Disabled")), 50, history(), 10, "ScaleUpLimit", id="growth may be disabled"),
    pytest.param(
        behavior(rules(("Pods", 4, 60))), 50, history(up=ago((30, 9))), 10, "ScaleUpLimit", id="an exhausted policy does not shrink"
    ),
    pytest.param(behavior(down=rules(("Pods", 4, 60))), 1, history(), 6, "ScaleDownLimit", id="four pods are removed"),
    pytest.param(behavior(down=rules(("Percent", 25, 60))), 1, history(), 7, "ScaleDownLimit", id="what stays is rounded down"),
    pytest.param(
        behavior(down=rules(("Percent", 25, 60), ("Pods", 4, 60), select="Min")), 1, history(), 7, "ScaleDownLimit", id="Min removes fewest"
    ),
    pytest.param(behavior(down=rules(("Pods", 4, 60), select="Disabled")), 1, history(), 10, "ScaleDownLimit", id="it may be disabled"),
    pytest.param(
        behavior(down=rules(("Pods", 4, 60))), 1, history(down=ago((30, 3))), 9, "ScaleDownLimit", id="pods that went in the period count"
    ),
    pytest.param(behavior(down=rules(("Percent", 100, 60))), 0, history(), 1, "TooFewReplicas", id="the minimum limits all policies"),
    pytest.param(behavior(rules(("Percent", 10_000, 60))), 5000, history(), 1000, "TooManyReplicas", id="so does the maximum"),
    pytest.param(behavior(), 12, history(), 12, "DesiredWithinRange", id="a change within the limits is made"),
]


@pytest.mark.parametrize(("chosen", "desired", "past", "replicas", "reason"), RULES)
def test_policies_limit_a_change(
    chosen: HorizontalPodAutoscalerBehavior, desired: int, past: ScalingHistory, replicas: int, reason: str
) -> None:
    decision = decide_scaling(past, BOUNDS, desired, chosen, NOW)
    assert (decision.replicas, decision.limit[0], decision.limited) == (replicas, reason, reason != "DesiredWithinRange")


WINDOWS = [
    pytest.param(60, 0, 20, [(30, 12)], 12, "ScaleUpStabilized", id="the lowest recommendation of the window limits growth"),
    pytest.param(60, 0, 20, [(61, 12)], 20, "ReadyForNewScale", id="an older one does not"),
    pytest.param(0, 60, 5, [(30, 8)], 8, "ScaleDownStabilized", id="the highest recommendation of the window limits shrinking"),
    pytest.param(0, 60, 5, [(61, 8)], 5, "ReadyForNewScale", id="again, an older one does not"),
    pytest.param(60, 60, 20, [(30, 5)], 10, "ScaleUpStabilized", id="growth after a lower recommendation waits at the present size"),
    pytest.param(60, 60, 5, [(30, 20)], 10, "ScaleDownStabilized", id="shrinking after a higher recommendation waits at the present size"),
]


@pytest.mark.parametrize(("up", "down", "desired", "recommended", "replicas", "able"), WINDOWS)
def test_windows_of_a_behavior(up: int, down: int, desired: int, recommended: list[tuple[float, int]], replicas: int, able: str) -> None:
    chosen = behavior(rules(("Percent", 1000, 15), window=up), rules(("Percent", 100, 15), window=down))
    decision = decide_scaling(history(ago(*recommended)), BOUNDS, desired, chosen, NOW)
    assert (decision.replicas, decision.able[0]) == (replicas, able)


def test_a_window_that_is_not_set_is_five_minutes_for_shrinking() -> None:
    chosen = behavior()
    assert chosen.scale_down is not None
    chosen.scale_down.stabilization_window_seconds = None
    assert decide_scaling(history(ago((299, 8))), BOUNDS, 5, chosen, NOW).replicas == 8


def test_the_history_forgets_what_no_window_and_no_policy_needs() -> None:
    past = history(ago((10_000, 3)), up=ago((500, 3), (30, 2)))
    past.record_rescale(behavior(rules(("Pods", 4, 60))), 10, 14, NOW)
    assert past.increases == ago((30, 2), (0, 4))
    past.record_rescale(None, 10, 14, NOW)
    assert past.increases == ago((30, 2), (0, 4))
    past.record_rescale(behavior(), 14, 10, NOW)
    assert past.decreases == ago((0, 4))
    decide_scaling(past, BOUNDS, 10, None, NOW)
    assert past.recommendations == ago((0, 10))


def test_an_autoscaler_starts_with_the_present_size() -> None:
    past = history()
    past.record_initial(7, NOW)
    past.record_initial(3, NOW)
    assert past.recommendations == ago((0, 7))
