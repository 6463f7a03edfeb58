"""A client that behaves well, in its own process: a request each tenth of a second, and how long each took.

python -m tests.soak.server.bystander JSON, where JSON is {"port", "authority", "seconds", "token", "namespace"}; prints JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from tests.soak.server.wire import Target, Wire

_EACH = 0.05


async def run(options: dict[str, Any]) -> dict[str, Any]:
    target = Target(options["port"], options["authority"])
    wire = Wire(target, target.tls(), options["token"])
    path = f"/api/v1/namespaces/{options['namespace']}/configmaps/of-bystander"
    took: list[float] = []
    wrong: list[str] = []
    began = time.monotonic()
    while time.monotonic() - began < options["seconds"]:
        sent = time.monotonic()
        number = len(took)
        body = {"data": {"number": str(number)}} if number % 2 else None
        try:
            status, data = await wire.ask("PATCH" if body else "GET", path, body, "application/merge-patch+json")
        except (ConnectionError, TimeoutError) as error:
            wrong.append(repr(error))
            wire.close()
            continue
        took.append(time.monotonic() - sent)
        if status != 200:
            wrong.append(f"{status}: {data[:200]!r}")
        await asyncio.sleep(max(0.0, _EACH - (time.monotonic() - sent)))
    return {"took": sorted(took), "wrong": wrong[:20]}


def main() -> None:
    print(json.dumps(asyncio.run(run(json.loads(sys.argv[1])))))


if __name__ == "__main__":
    main()
