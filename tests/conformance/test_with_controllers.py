"""With the real kube-controller-manager and kube-scheduler at work, or with ours, the embedded server answers as the real one did."""

from __future__ import annotations

from pathlib import Path

import pytest

import kubeloop.controlplane
from tests.conformance import recordings
from tests.conformance.__main__ import HERE, replay
from tests.conformance.compare import Score
from tests.conformance.counted import LEAST_OF_FAMILY, LEAST_SCENARIOS, counted_by_family, families, known_controller_differences, set_of
from tests.conformance.scenario import scenario_names
from tests.effort import LONG

#: Of all steps together. Some show a state that passes, as it was at the time of the read: conditions of a Deployment come in either order.
LEAST_EXACT = 0.95
#: The short form runs one of so many scenarios of a family: they wait for controllers for most of their time.
_ONE_OF = {"with-controllers": 20, "with-scheduler": 4}
#: The packages of kubeloop.controlplane that hold no controllers of upstream's kube-controller-manager or kube-scheduler.
_NO_FAMILIES = {"metrics", "simulation"}


def chosen_scenarios(which: str) -> list[str]:
    """Return all scenarios of a set in the long form, else some of each family, in their order.

    Scenarios of autoscalers share a namespace and follow each other, so that the short form takes the first two.
    """
    chosen: set[str] = set()
    for family, names in families().items():
        if set_of(family) == which:
            chosen.update(names if LONG else names[:2] if family == "autoscaling" else names[:: _ONE_OF[which]])
    return [name for name in scenario_names(HERE / "scenarios" / which) if name in chosen]


def check(which: str, *, upstream: bool) -> None:
    scores, surprises, _ = replay(which, tuple(chosen_scenarios(which)), (), upstream=upstream, exactly=True)
    assert len(scores) == len(chosen_scenarios(which))
    steps = sum(score.steps for score in scores)
    assert steps > 30
    assert sum(score.right_status for score in scores) == steps, surprises
    differences = [f"{score.scenario} {step}: {found[:3]}" for score in scores for step, found in score.differences.items()]
    assert sum(score.exact for score in scores) >= LEAST_EXACT * steps, "\n".join(differences)
    if LONG and not upstream:
        assert too_different(scores) == {}, "\n".join(differences)


def too_different(scores: list[Score]) -> dict[str, str]:
    """Return the families of which too few steps are equal."""
    found = {}
    by_name = {score.scenario: score for score in scores}
    for family, names in families().items():
        of_family = [by_name[name] for name in names if name in by_name]
        steps, exact = sum(score.steps for score in of_family), sum(score.exact for score in of_family)
        if exact < LEAST_OF_FAMILY * steps:
            found[family] = f"{exact} of {steps}"
    return found


@pytest.mark.embedded
@pytest.mark.upstream
@pytest.mark.timeout(3600 if LONG else 600)
@pytest.mark.parametrize("which", list(_ONE_OF))
def test_upstreams_programs_work_on_the_embedded_server_as_on_a_real_one(which: str) -> None:
    check(which, upstream=True)


@pytest.mark.embedded
@pytest.mark.timeout(3600 if LONG else 600)
@pytest.mark.parametrize("which", list(_ONE_OF))
def test_ours_work_as_upstreams(which: str) -> None:
    check(which, upstream=False)


def test_each_family_of_controllers_has_enough_recorded_scenarios() -> None:
    packages = {path.parent.name for path in Path(kubeloop.controlplane.__file__).parent.glob("*/__init__.py")}
    assert set(families()) == packages - _NO_FAMILIES
    assert {family: len(names) for family, names in families().items() if len(names) < LEAST_SCENARIOS} == {}


@pytest.mark.parametrize("which", list(_ONE_OF))
def test_each_scenario_with_controllers_is_of_one_family_and_recorded(which: str) -> None:
    listed = [name for family, names in families().items() if set_of(family) == which for name in names]
    assert sorted(listed) == sorted(scenario_names(HERE / "scenarios" / which))
    assert sorted(listed) == sorted(recordings.name_of(file) for file in recordings.files(which))


def test_each_listed_difference_is_of_a_step_and_each_family_is_equal_enough() -> None:
    rows = {row.name: row for found in counted_by_family().values() for row in found}
    steps = {name: row.requests for name, row in rows.items()}
    assert [
        (name, step) for name, known in known_controller_differences().items() for step in known if step not in steps.get(name, {})
    ] == []
    for family, found in counted_by_family().items():
        assert sum(row.exact for row in found) >= LEAST_OF_FAMILY * sum(row.steps for row in found), family
