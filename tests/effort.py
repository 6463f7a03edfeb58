"""How much the tests that draw histories at random try: a short form in each run, the long form with ``make soak-tests``."""

from __future__ import annotations

import os

#: The long form is for a night, or for a change of what the test covers.
LONG = os.environ.get("KUBELOOP_TEST_LONG", "") == "1"


def effort(short: int, long: int) -> int:
    """The number of examples, rounds or requests that a test tries."""
    return long if LONG else short
