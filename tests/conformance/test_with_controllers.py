"""With the real kube-controller-manager at work, or with our controllers, the embedded server answers as the real one did."""

from __future__ import annotations

import pytest

from tests.conformance.__main__ import HERE, replay
from tests.conformance.scenario import scenarios
from tests.effort import LONG

pytestmark = pytest.mark.embedded

#: Of all steps together. Some show a state that passes, as it was when somebody looked: conditions of a Deployment come in either order.
LEAST_EXACT = 0.95


def chosen_scenarios() -> tuple[str, ...]:
    """Return all scenarios in the long form, else every tenth: they wait for controllers for most of their time.

    Scenarios of autoscalers share a namespace and follow each other, so that the short form leaves them out.
    """
    names = [name for name, _ in scenarios(HERE / "scenarios" / "with-controllers")]
    return tuple(names if LONG else [name for name in names if not name.startswith("c-hpa")][::10])


def check(only: tuple[str, ...], *, upstream: bool) -> None:
    scores, surprises, _ = replay("with-controllers", only, (), upstream=upstream)
    steps = sum(score.steps for score in scores)
    assert steps > 30
    assert sum(score.right_status for score in scores) == steps, surprises
    differences = [f"{score.scenario} {step}: {found[:3]}" for score in scores for step, found in score.differences.items()]
    assert sum(score.exact for score in scores) >= LEAST_EXACT * steps, "\n".join(differences)


@pytest.mark.upstream
def test_upstreams_controllers_work_on_the_embedded_server_as_on_a_real_one() -> None:
    check(chosen_scenarios(), upstream=True)


@pytest.mark.timeout(3600 if LONG else 600)
def test_our_controllers_work_as_upstreams() -> None:
    check(chosen_scenarios(), upstream=False)
