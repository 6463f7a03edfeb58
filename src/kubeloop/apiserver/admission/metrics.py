"""What is counted of admission."""

from __future__ import annotations

from bisect import bisect_left

from kubeloop.apiserver.request.metrics_text import Histogram

_SECONDS = (0.005, 0.025, 0.1, 0.5, 1, 2.5)


class AdmissionMetrics:
    """How long admission took, by operation, whether it refused, and step (``admit``, ``validate``)."""

    def __init__(self) -> None:
        self.steps: dict[tuple[str, str, str], Histogram] = {}

    def step(self, operation: str, step: str, seconds: float, *, rejected: bool) -> None:
        key = (operation, "true" if rejected else "false", step)
        found = self.steps.get(key)
        if found is None:
            found = self.steps[key] = Histogram(_SECONDS)
        found.counts[bisect_left(_SECONDS, seconds)] += 1
        found.sum += seconds
