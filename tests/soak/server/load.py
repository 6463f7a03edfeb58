"""The steady load, in its own process: clients that write and read, and watchers that see it. Prints an account as JSON at the end.

python -m tests.soak.server.load JSON, where JSON is {"port", "authority", "settings", "seconds"}
"""

from __future__ import annotations

import asyncio
import collections
import json
import random
import re
import sys
from dataclasses import dataclass, field
from typing import Any

from tests.soak.server.settings import Settings
from tests.soak.server.wire import Target, Wire

_VERSION = re.compile(rb'"type":"(\w+)".*?"resourceVersion":"(\d+)"')


@dataclass
class Account:
    """What was done and seen. ``wrong``: what must not be."""

    statuses: collections.Counter[str] = field(default_factory=collections.Counter)
    events: int = 0
    watches: int = 0
    wrong: list[str] = field(default_factory=list)

    def report(self) -> dict[str, Any]:
        return {"statuses": dict(self.statuses), "events": self.events, "watches": self.watches, "wrong": self.wrong[:50]}


async def client(number: int, settings: Settings, wire: Wire, account: Account) -> None:
    """Its own objects, one at a time: created, read, listed, changed, deleted. Every answer is the expected one."""
    rng = random.Random(f"{settings.seed} {number}")
    pause = settings.clients / settings.rate
    maps = f"/api/v1/namespaces/soak-{number % settings.namespaces}/configmaps"
    await asyncio.sleep(rng.random() * pause)
    for life in range(1 << 60):
        name = f"c{number}-{life}"
        made = {"metadata": {"name": name, "labels": {"owner": f"c{number}"}}, "data": {"text": "x" * rng.randrange(2000)}}
        steps: list[tuple[str, str, Any, str, int]] = [
            ("POST", maps, made, "application/json", 201),
            ("GET", f"{maps}/{name}", None, "", 200),
            ("PATCH", f"{maps}/{name}", {"data": {"more": str(life)}}, "application/merge-patch+json", 200),
            ("GET", f"{maps}?labelSelector=owner%3Dc{number}&limit=50", None, "", 200),
            ("GET", f"/api/v1/namespaces/soak-{number % settings.namespaces}/secrets", None, "", 403),
            ("DELETE", f"{maps}/{name}", None, "", 200),
        ]
        for method, path, body, content, wanted in steps:
            try:
                status, data = await wire.ask(method, path, body, content)
            except (ConnectionError, TimeoutError) as error:
                account.wrong.append(f"{method} {path}: {error!r}")
                wire.close()
                continue
            account.statuses[f"{method} {status}"] += 1
            if status != wanted:
                account.wrong.append(f"{method} {path}: {status}, not {wanted}: {data[:200]!r}")
            await asyncio.sleep(pause * (0.5 + rng.random()))


async def watcher(number: int, settings: Settings, wire: Wire, account: Account) -> None:
    """A watch that continues where the previous one ended; its events are new each time."""
    rng = random.Random(f"{settings.seed} watcher {number}")
    maps = f"/api/v1/namespaces/soak-{number % settings.namespaces}/configmaps"
    await asyncio.sleep(rng.random() * 5)
    version = 0
    while True:
        if not version:
            status, data = await wire.ask("GET", f"{maps}?limit=1")
            if status != 200:
                account.wrong.append(f"watcher {number}: list: {status}: {data[:200]!r}")
                await asyncio.sleep(1)
                continue
            version = int(json.loads(data)["metadata"]["resourceVersion"])
        seconds = rng.randrange(60, 180)
        account.watches += 1
        try:
            async for chunk in wire.stream(f"{maps}?watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}"):
                for line in chunk.split(b"\n"):
                    if not line:
                        continue
                    found = _VERSION.search(line)
                    if found is None or found[1] == b"ERROR":
                        account.wrong.append(f"watcher {number}: {line[:300]!r}")
                        version = 0
                        continue
                    new = int(found[2])
                    if new < version or (new == version and found[1] != b"BOOKMARK"):
                        account.wrong.append(f"watcher {number}: version {new} after {version}")
                    version = new
                    account.events += 1
        except (ConnectionError, TimeoutError) as error:
            account.wrong.append(f"watcher {number}: {error!r}")
            version = 0
            wire.close()
            await asyncio.sleep(1)


async def run(settings: Settings, target: Target, seconds: float) -> Account:
    tls, account = target.tls(), Account()
    tasks = [
        asyncio.create_task(work(number, settings, Wire(target, tls, f"token-{number % settings.clients}"), account))
        for work, count in ((client, settings.clients), (watcher, settings.watchers))
        for number in range(count)
    ]
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    account.wrong += [f"a client failed: {task.exception()!r}" for task in done]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return account


def main() -> None:
    report = json.loads(sys.argv[1])
    account = asyncio.run(run(Settings(**report["settings"]), Target(report["port"], report["authority"]), report["seconds"]))
    print(json.dumps(account.report()))


if __name__ == "__main__":
    main()
