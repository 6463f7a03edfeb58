"""A long run: ``python -m tests.fuzz [--requests 100000]``. Prints each fault as it is found; exit status 1 if there is one."""

from __future__ import annotations

import argparse
import sys

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.requests import Sent, requests
from tests.fuzz.server import ALLOWED, Fuzzed

#: Requests of one example, and examples between two lines of progress.
_EACH = 25
_ROUND = 200


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="random requests to the embedded API server")
    parser.add_argument("--requests", type=int, default=100_000, help="so many in all (default: 100,000, about six minutes)")
    options = parser.parse_args()
    with Fuzzed() as server:
        for done in range(0, options.requests, _EACH * _ROUND):
            _round(server)
            print(
                f"{done + _EACH * _ROUND:,} requests, {len(server.wrong)} findings, {server.grown >> 20} MiB more at the peak", flush=True
            )
        for finding in dict.fromkeys(server.wrong):
            print(finding)
        traceback = "Traceback" in server.log
        if traceback:
            print(server.log[-4000:])
        bad = bool(server.wrong) or traceback or server.grown > ALLOWED
    print("verdict:", "see above" if bad else "each was answered, in time, within the memory, and others were served")
    return int(bad)


def _round(server: Fuzzed) -> None:
    @settings(max_examples=_ROUND, suppress_health_check=list(HealthCheck), deadline=None, phases=[Phase.generate], database=None)
    @given(st.lists(requests(), min_size=_EACH, max_size=_EACH))
    def send(sent: list[Sent]) -> None:
        for each in sent:
            server.send(each)

    send()


if __name__ == "__main__":
    sys.exit(main())
