"""With the real kube-controller-manager and kube-scheduler at work, or with ours, the embedded server answers as the real one did."""

from __future__ import annotations

import pytest

from tests.conformance.__main__ import HERE, replay
from tests.conformance.scenario import scenarios
from tests.effort import LONG

pytestmark = pytest.mark.embedded

#: Of all steps together. Some show a state that passes, as it was when somebody looked: conditions of a Deployment come in either order.
LEAST_EXACT = 0.95
#: The short form runs one of so many scenarios of a set: they wait for controllers for most of their time.
_ONE_OF = {"with-controllers": 10, "with-scheduler": 4}


def chosen_scenarios(which: str) -> tuple[str, ...]:
    """Return all scenarios of a set in the long form, else some.

    Scenarios of autoscalers share a namespace and follow each other, so that the short form leaves them out.
    """
    names = [name for name, _ in scenarios(HERE / "scenarios" / which)]
    return tuple(names if LONG else [name for name in names if not name.startswith("c-hpa")][:: _ONE_OF[which]])


def check(which: str, *, upstream: bool) -> None:
    scores, surprises, _ = replay(which, chosen_scenarios(which), (), upstream=upstream)
    steps = sum(score.steps for score in scores)
    assert steps > 30
    assert sum(score.right_status for score in scores) == steps, surprises
    differences = [f"{score.scenario} {step}: {found[:3]}" for score in scores for step, found in score.differences.items()]
    assert sum(score.exact for score in scores) >= LEAST_EXACT * steps, "\n".join(differences)


@pytest.mark.upstream
@pytest.mark.parametrize("which", list(_ONE_OF))
def test_upstreams_programs_work_on_the_embedded_server_as_on_a_real_one(which: str) -> None:
    check(which, upstream=True)


@pytest.mark.timeout(3600 if LONG else 600)
@pytest.mark.parametrize("which", list(_ONE_OF))
def test_ours_work_as_upstreams(which: str) -> None:
    check(which, upstream=False)
