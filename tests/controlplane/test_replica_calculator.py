"""How many replicas a metric asks for: ratios, tolerance, pods that are unready, missing or gone. The cases follow upstream's tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.api.autoscaling.v2 import HorizontalPodAutoscalerBehavior, HPAScalingRules
from kubeloop.api.core.v1 import Pod
from kubeloop.controlplane.autoscaling.replica_calculator import (
    MetricError,
    PodMetric,
    PodSample,
    Proposal,
    Tolerances,
    propose_by_average,
    propose_by_share,
    propose_by_utilization,
    propose_by_value,
)
from kubeloop.meta import Quantity, format_time
from tests.controlplane.workloads import read

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class PodCase:
    """One pod of a case: usage and request in thousandths (None: none), state, and ages in seconds."""

    usage: int | None = 0
    request: int | None = 1000
    phase: str = "Running"
    ready: bool = True
    started: float = 3600
    changed: float = 3000
    deleted: bool = False
    measured: float = 0
    containers: dict[str, Any] = field(default_factory=dict)


def pod(name: str, case: PodCase) -> Pod:
    requests = {} if case.request is None else {"cpu": f"{case.request}m"}
    containers = case.containers or {"c": requests}
    metadata: dict[str, Any] = {"name": name}
    if case.deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    condition = {"type": "Ready", "status": "True" if case.ready else "False", "lastTransitionTime": _before(case.changed)}
    status = {"phase": case.phase, "startTime": _before(case.started), "conditions": [condition]}
    spec = {"containers": [{"name": one, "image": "x", "resources": {"requests": found}} for one, found in containers.items()]}
    return read(Pod, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status})


def _before(seconds: float) -> str:
    return format_time(NOW - timedelta(seconds=seconds))


def sample(*cases: PodCase, current: int | None = None, tolerances: Tolerances | None = None, **extra: int) -> PodSample:
    pods = [pod(f"p{number}", case) for number, case in enumerate(cases)]
    metrics = {
        f"p{number}": PodMetric(case.usage, NOW - timedelta(seconds=case.measured), 60.0)
        for number, case in enumerate(cases)
        if case.usage is not None
    }
    metrics.update({name: PodMetric(value, NOW, 60.0) for name, value in extra.items()})
    return PodSample(pods, metrics, len(cases) if current is None else current, tolerances or Tolerances(), NOW)


HOT = PodCase(usage=1000, ready=True, started=60, changed=30)
UNREADY = PodCase(usage=700, ready=False, started=60, changed=50)

UTILIZATION = [
    pytest.param(sample(PodCase(300), PodCase(500), PodCase(700)), 30, Proposal(5, 500, 50), id="a workload above its target grows"),
    pytest.param(sample(*map(PodCase, (100, 300, 500, 250, 250))), 50, Proposal(3, 280, 28), id="a workload below its target shrinks"),
    pytest.param(
        sample(*(PodCase(one, 900) for one in (1010, 1030, 1020))),
        100,
        Proposal(4, 1020, 113),
        id="a usage of 113 % is outside the tolerance",
    ),
    pytest.param(
        sample(*(PodCase(one, 900) for one in (900, 1000, 1020))), 100, Proposal(3, 973, 108), id="a usage of 108 % changes nothing"
    ),
    pytest.param(
        sample(PodCase(1080), tolerances=Tolerances(up=0.05)), 100, Proposal(2, 1080, 108), id="a smaller tolerance changes something"
    ),
    pytest.param(
        sample(PodCase(300, ready=False, started=60, changed=50), PodCase(500), PodCase(700)),
        30,
        Proposal(4, 600, 60),
        id="a pod that is not ready yet counts as idle when the workload grows",
    ),
    pytest.param(sample(PodCase(400), UNREADY, UNREADY), 30, Proposal(3, 400, 40), id="a growth that is due to pods that start is none"),
    pytest.param(sample(PodCase(400), HOT, HOT), 30, Proposal(3, 400, 40), id="the CPU usage of a pod that just started does not count"),
    pytest.param(
        sample(PodCase(500), PodCase(500, ready=False, started=3600, changed=3590)),
        100,
        Proposal(1, 500, 50),
        id="a pod that was never ready does not count",
    ),
    pytest.param(
        sample(PodCase(500), PodCase(500, ready=False, started=3600, changed=60)),
        100,
        Proposal(1, 500, 50),
        id="a pod that stopped being ready counts",
    ),
    pytest.param(sample(PodCase(500), PodCase(700), PodCase(900, phase="Failed")), 30, Proposal(4, 600, 60), id="failed pods are ignored"),
    pytest.param(sample(PodCase(500), PodCase(700), PodCase(900, deleted=True)), 30, Proposal(4, 600, 60), id="pods that go are ignored"),
    pytest.param(
        sample(PodCase(300), PodCase(500), PodCase(700, phase="Pending"), PodCase(700, phase="Pending")),
        30,
        Proposal(4, 400, 40),
        id="pending pods damp the growth",
    ),
    pytest.param(
        sample(PodCase(400), PodCase(None), PodCase(None), PodCase(400), current=4),
        100,
        Proposal(3, 400, 40),
        id="pods without a metric count as busy when the workload shrinks",
    ),
    pytest.param(
        sample(PodCase(1500), PodCase(None), PodCase(1500)),
        100,
        Proposal(3, 1500, 150),
        id="pods without a metric count as idle when the workload grows",
    ),
    pytest.param(
        sample(PodCase(300), PodCase(None), current=2),
        200,
        Proposal(2, 300, 30),
        id="pods without a metric count as at the target if that is above the request",
    ),
    pytest.param(sample(PodCase(500), p9=900_000), 100, Proposal(1, 500, 50), id="metrics of unknown pods do not count"),
]


@pytest.mark.parametrize(("case", "target", "expected"), UTILIZATION)
def test_replicas_for_a_percentage_of_the_requests(case: PodSample, target: int, expected: Proposal) -> None:
    assert propose_by_utilization(case, "cpu", target) == expected


CONTAINERS = {"app": {"cpu": "500m"}, "log": {}}

FAILURES = [
    pytest.param(sample(current=1), "", "no pods returned by selector while calculating replica count", id="no pods"),
    pytest.param(
        sample(PodCase(None)), "", "did not receive metrics for targeted pods (pods might be unready)", id="no pod with a metric counts"
    ),
    pytest.param(sample(PodCase(1, request=None)), "", "missing request for cpu in container c of Pod p0", id="a pod without a request"),
    pytest.param(
        sample(PodCase(1, containers=CONTAINERS)), "", "missing request for cpu in container log of Pod p0", id="one container without it"
    ),
    pytest.param(sample(PodCase(1, containers=CONTAINERS)), "db", "container db not found in Pod p0", id="an unknown container"),
    pytest.param(sample(PodCase(1, request=0)), "", "no metrics returned matched known pods", id="requests of nothing"),
]


@pytest.mark.parametrize(("case", "container", "message"), FAILURES)
def test_a_percentage_that_cannot_be_computed(case: PodSample, container: str, message: str) -> None:
    with pytest.raises(MetricError) as caught:
        propose_by_utilization(case, "cpu", 50, container)
    assert str(caught.value) == message


def test_one_container_counts_where_the_autoscaler_names_it() -> None:
    assert propose_by_utilization(sample(PodCase(400, containers=CONTAINERS)), "cpu", 50, "app") == Proposal(2, 400, 80)


def test_requests_of_the_pod_replace_those_of_its_containers() -> None:
    case = sample(PodCase(400, request=None))
    whole = read(Pod, {"spec": {"resources": {"requests": {"cpu": "1"}}}})
    case.pods[0].spec.resources = whole.spec.resources
    assert propose_by_utilization(case, "cpu", 40) == Proposal(1, 400, 40)
    with pytest.raises(MetricError, match="missing pod-level request for memory in Pod p0"):
        propose_by_utilization(case, "memory", 40)


AVERAGES = [
    pytest.param(sample(*map(PodCase, (20_000, 10_000, 30_000))), Proposal(4, 20_000), id="a workload above its target grows"),
    pytest.param(sample(*map(PodCase, (12_000,) * 5)), Proposal(4, 12_000), id="a workload below its target shrinks"),
    pytest.param(sample(*map(PodCase, (15_100, 14_900))), Proposal(2, 15_000), id="a usage near the target changes nothing"),
    pytest.param(
        sample(PodCase(50_000), PodCase(10_000, phase="Pending"), UNREADY), Proposal(4, 25_350), id="only pending pods are unready"
    ),
    pytest.param(
        sample(PodCase(5_000), PodCase(None), PodCase(None)), Proposal(3, 5_000), id="pods without a metric count as at the target"
    ),
]


@pytest.mark.parametrize(("case", "expected"), AVERAGES)
def test_replicas_for_an_amount_for_each_pod(case: PodSample, expected: Proposal) -> None:
    assert propose_by_average(case, 15_000) == expected


@pytest.mark.parametrize(
    ("usage", "current", "expected"),
    [
        pytest.param(20_000, 3, 4, id="the amount grows by a third and so does the workload"),
        pytest.param(16_000, 3, 3, id="an amount near the target changes nothing"),
        pytest.param(8_000, 3, 2, id="half the amount needs half the replicas, rounded up"),
        pytest.param(40_000, 0, 3, id="a workload without replicas gets as many as the amount has targets"),
        pytest.param(2**63 - 1, 3, 2**31 - 1, id="an absurd amount stays within 32 bits"),
    ],
)
def test_replicas_for_one_amount_of_the_workload(usage: int, current: int, expected: int) -> None:
    pods = list(sample(PodCase(), PodCase(), PodCase()).pods)
    assert propose_by_value(pods, usage, 15_000, current, Tolerances()) == Proposal(expected, usage)


def test_only_ready_pods_scale_one_amount_of_the_workload() -> None:
    pods = list(sample(PodCase(), PodCase(phase="Pending"), PodCase(ready=False)).pods)
    assert propose_by_value(pods, 30_000, 15_000, 3, Tolerances()).replicas == 2
    with pytest.raises(MetricError, match="unable to calculate ready pods: no pods returned by selector"):
        propose_by_value([], 30_000, 15_000, 3, Tolerances())


@pytest.mark.parametrize(
    ("usage", "existing", "expected"),
    [
        pytest.param(8_600, 3, Proposal(5, 2_867), id="each replica gets its share, rounded up"),
        pytest.param(6_100, 3, Proposal(3, 2_034), id="a share near the target changes nothing"),
        pytest.param(2_000, 0, Proposal(1, 2_000), id="without replicas the whole amount is shown"),
        pytest.param(2**63 - 1, 3, Proposal(2**31 - 1, 2**63 - 1), id="an absurd amount stays within its bits"),
    ],
)
def test_replicas_that_share_one_amount(usage: int, existing: int, expected: Proposal) -> None:
    assert propose_by_share(usage, 2_000, existing, Tolerances()) == expected


def test_tolerances_of_an_autoscaler() -> None:
    rules = HPAScalingRules(tolerance=Quantity("50m"))
    assert Tolerances.from_behavior(None) == Tolerances(0.1, 0.1)
    assert Tolerances.from_behavior(HorizontalPodAutoscalerBehavior(scale_up=rules)) == Tolerances(0.1, 0.05)
    assert Tolerances.from_behavior(HorizontalPodAutoscalerBehavior(scale_down=rules)) == Tolerances(0.05, 0.1)
