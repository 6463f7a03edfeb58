"""Controllers for a long time, with progress, an account, and exit status 1 if anything was wrong.

python -m tests.soak.controllers [--variant election|shards|both] [--objects 10000] [--rate 50] [--minutes 10] [--controllers 2] [--seed 1]
"""

from __future__ import annotations

import asyncio
import logging
import sys

from tests.soak.controllers.progress import Progress, report
from tests.soak.controllers.settings import arguments
from tests.soak.controllers.soak_run import run


def main() -> int:
    logging.disable(logging.CRITICAL)  # thousands of faults are reported, as they must be; here they are counted
    failed = 0
    for settings in arguments():
        outcome = asyncio.run(run(settings, Progress(settings)))
        if outcome.wrong:
            print(outcome.words)
        print(report(outcome))
        for line in outcome.wrong[:50]:
            print(f"VIOLATION {line}")
        failed += bool(outcome.wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
