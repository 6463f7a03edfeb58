"""With the real kube-controller-manager at work, the embedded server answers as the real one did with it."""

from __future__ import annotations

import pytest

from tests.conformance.__main__ import replay

pytestmark = [pytest.mark.embedded, pytest.mark.upstream]

#: Of all steps together. Some show a state that passes, as it was when somebody looked: conditions of a Deployment come in either order.
LEAST_EXACT = 0.95


def test_what_upstreams_controllers_make_is_what_they_make_on_a_real_server() -> None:
    scores, surprises, _ = replay("with-controllers", (), (), upstream=True)
    steps = sum(score.steps for score in scores)
    assert steps > 50
    assert sum(score.right_status for score in scores) == steps, surprises
    differences = [f"{score.scenario} {step}: {found[:3]}" for score in scores for step, found in score.differences.items()]
    assert sum(score.exact for score in scores) >= LEAST_EXACT * steps, "\n".join(differences)
