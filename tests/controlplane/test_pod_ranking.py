"""Which pods go first when a ReplicaSet has too many."""

from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest

from kubeloop.api.core.v1 import ContainerStatus, Pod, PodCondition, PodSpec, PodStatus
from kubeloop.controlplane.controller_utils import DELETION_COST, deletion_order, is_active, is_available
from kubeloop.meta import ObjectMeta

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def pod(
    name: str,
    *,
    node: str = "n",
    phase: Literal["Failed", "Pending", "Running", "Succeeded"] = "Running",
    ready: float | None = 3600,
    restarts: int = 0,
    cost: str = "",
    age: float = 7200,
) -> Pod:
    conditions = []
    if ready is not None:
        conditions = [PodCondition(type="Ready", status="True", last_transition_time=NOW - timedelta(seconds=ready))]
    return Pod(
        metadata=ObjectMeta(
            name=name,
            uid=name,
            creation_timestamp=NOW - timedelta(seconds=age),
            annotations={DELETION_COST: cost} if cost else {},
        ),
        spec=PodSpec(node_name=node or None),
        status=PodStatus(phase=phase, conditions=conditions, container_statuses=[ContainerStatus(name="c", restart_count=restarts)]),
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(pod("b", node=""), pod("a"), id="a pod without a node goes before one on a node"),
        pytest.param(pod("b", phase="Pending"), pod("a"), id="a pending pod goes before a running one"),
        pytest.param(pod("b", ready=None), pod("a"), id="a pod that is not ready goes before a ready one"),
        pytest.param(pod("b", cost="-5"), pod("a"), id="a pod of lower deletion cost goes first"),
        pytest.param(pod("b", node="crowded"), pod("a", node="lonely"), id="a pod on a node with more pods of its kind goes first"),
        pytest.param(pod("b", ready=10), pod("a", ready=3600), id="a pod that became ready lately goes first"),
        pytest.param(pod("b", restarts=3), pod("a"), id="a pod that restarted more often goes first"),
        pytest.param(pod("b", age=60), pod("a"), id="a younger pod goes first"),
        pytest.param(pod("b", cost="-1", ready=3600), pod("a", cost="many", ready=3600), id="a cost that is no number counts as zero"),
    ],
)
def test_order(first: Pod, second: Pod) -> None:
    neighbours = {"crowded": 3, "lonely": 1, "n": 2}
    assert deletion_order([second, first], neighbours, NOW) == [first, second]
    assert deletion_order([first, second], neighbours, NOW) == [first, second]


@pytest.mark.parametrize(
    ("ready", "needed", "expected"),
    [
        pytest.param(5, 0, True, id="ready is available at once without a minimum"),
        pytest.param(5, 10, False, id="not before the minimum has passed"),
        pytest.param(10, 10, True, id="when it has passed"),
        pytest.param(None, 0, False, id="not ready is not available"),
    ],
)
def test_available(ready: float | None, needed: int, expected: bool) -> None:
    assert is_available(pod("a", ready=ready), needed, NOW) is expected


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(pod("a"), True, id="a running pod is active"),
        pytest.param(pod("a", phase="Succeeded"), False, id="a finished pod is not"),
        pytest.param(pod("a", phase="Failed"), False, id="nor is a failed one"),
    ],
)
def test_active(pod: Pod, expected: bool) -> None:
    assert is_active(pod) is expected
    pod.metadata.deletion_timestamp = NOW
    assert not is_active(pod)
