"""A difference by design is one thing: nothing else may differ in the same step."""

from __future__ import annotations

import pytest

from tests.conformance.compare import Difference
from tests.conformance.through_rules import THROUGH_RULES

COUNT = Difference("body.metadata.remainingItemCount", "3", "")
REFUSED = Difference("status", "200", "404")
MESSAGE = Difference("body.message", "", '"the server could not find the requested resource"')
OTHER = Difference("body.items.0.metadata.name", '"a"', '"b"')


@pytest.mark.parametrize(
    ("scenario", "step", "differences", "unexpected"),
    [
        pytest.param("list-paging", 1, [COUNT], [], id="the count is missing"),
        pytest.param("list-paging", 1, [COUNT, OTHER], [OTHER], id="the count is missing and another field differs"),
        pytest.param("list-paging", 1, [COUNT._replace(actual="2")], [COUNT._replace(actual="2")], id="the count is another one"),
        pytest.param("errors-requests", 25, [REFUSED, MESSAGE], [], id="the path is refused"),
        pytest.param("errors-requests", 25, [REFUSED], [REFUSED], id="the path is refused for another reason"),
        pytest.param("errors-requests", 25, [REFUSED, MESSAGE, OTHER], [OTHER], id="the path is refused and an object is shown"),
    ],
)
def test_what_differs_by_design(scenario: str, step: int, differences: list[Difference], unexpected: list[Difference]) -> None:
    assert THROUGH_RULES[scenario][step].unexpected(differences) == unexpected
