"""Clients of one user who ask without a pause, in a separate process; prints how they were answered.

python -m tests.soak.server.greedy JSON, where JSON is {"port", "authority", "seconds", "token", "namespace", "clients"}
"""

from __future__ import annotations

import asyncio
import collections
import json
import sys
from typing import Any

from tests.soak.server.wire import Target, Wire


async def _ask(wire: Wire, path: str, statuses: collections.Counter[str]) -> None:
    while True:
        try:
            status, _ = await wire.ask("GET", path)
            statuses[str(status)] += 1
        except (ConnectionError, TimeoutError) as error:
            statuses[type(error).__name__] += 1
            wire.close()
            await asyncio.sleep(0.1)


async def run(options: dict[str, Any]) -> dict[str, int]:
    target = Target(options["port"], options["authority"])
    tls = target.tls()
    statuses: collections.Counter[str] = collections.Counter()
    path = f"/api/v1/namespaces/{options['namespace']}/configmaps"
    tasks = [asyncio.create_task(_ask(Wire(target, tls, options["token"]), path, statuses)) for _ in range(options["clients"])]
    await asyncio.wait(tasks, timeout=options["seconds"])
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return dict(statuses)


def main() -> None:
    print(json.dumps(asyncio.run(run(json.loads(sys.argv[1])))))


if __name__ == "__main__":
    main()
