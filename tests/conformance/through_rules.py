"""The steps whose answers differ by design through a proxy with rules that touch no object. docs/proxy.md says the same to its users.

They count with KUBELOOP_TEST_PROXY=rules only, and each must differ in just what its line says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.conformance.compare import Difference

#: Places that differ where the answer is a Status instead of another body.
_OF_STATUS: Final = r"status|body\.(apiVersion|code|kind|message|metadata|reason|status|details(\..+)?|\$select\..+)"


@dataclass(frozen=True)
class ByDesign:
    """How an answer differs, and why.

    Attributes:
        reason: The reason.
        places: A regular expression for each place of the answer that differs.
        says: A text that the answer contains there; empty: the place is missing.
    """

    reason: str
    places: str
    says: str

    def unexpected(self, differences: Sequence[Difference]) -> list[Difference]:
        """Return the differences that have another reason; all of them if the expected one is missing."""
        as_expected = any(self.says in each.actual if self.says else not each.actual for each in differences)
        return [each for each in differences if not as_expected or re.fullmatch(self.places, each.place) is None]


_COUNT = ByDesign("The count of remaining objects includes hidden ones.", r"body\.metadata\.remainingItemCount", "")
_BINDINGS = ByDesign("The body, not the path, names the pod, which a rule may hide.", _OF_STATUS, "the deprecated path /bindings")
_WATCH = ByDesign("The deprecated path has a watch in another form.", _OF_STATUS, "the deprecated path /watch/")
_SLASHES = ByDesign(
    "Two programs could read the path differently, which avoids a rule.", _OF_STATUS, "the server could not find the requested resource"
)

#: By scenario and number of the step.
THROUGH_RULES: Final[dict[str, dict[int, ByDesign]]] = {
    "errors-requests": {25: _SLASHES},
    "list-paging": {1: _COUNT, 2: _COUNT, 13: _COUNT},
    "sub-pods": {6: _BINDINGS},
    "subpods-binding": {16: _BINDINGS, 17: _BINDINGS, 21: _BINDINGS},
    "watch-from-rv": {13: _WATCH},
}


def through_rules(name: str) -> dict[int, ByDesign]:
    """Return the steps of a scenario that differ by design through the proxy of this run."""
    return THROUGH_RULES.get(name, {}) if os.environ.get("KUBELOOP_TEST_PROXY") == "rules" else {}
