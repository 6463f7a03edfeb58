"""``kill -9`` amid concurrent writes, again and again: what was acknowledged stays, no revision is given twice, and watches go on.

The answers to the workers, the events of a watch and the state of the server afterwards must be one history.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kubeloop.testing import LocalCluster
from tests.effort import effort

pytestmark = pytest.mark.embedded

#: Kills. Each start of a server takes most of a second.
ROUNDS = effort(short=12, long=50)
WORKERS = 8
PATH = "/api/v1/namespaces/default/configmaps"
#: Only what the workers write: the server and its kind's other objects have other histories.
OURS = "labelSelector=test%3Dkill"
Content = str | None


@dataclass
class Histories:
    """The history as seen by clients. ``doubtful``: writes that were sent and not answered, which may or may not have happened."""

    known: dict[str, Content] = field(default_factory=dict)
    doubtful: dict[str, Content] = field(default_factory=dict)
    acknowledged: dict[int, tuple[str, Content]] = field(default_factory=dict)
    shown: list[tuple[int, str, Content]] = field(default_factory=list)
    highest: int = 0

    def settle(self, stored: dict[str, Content], version: int) -> None:
        """After a restart: each object is as it was acknowledged last, or as a write made it that got no answer."""
        assert version >= self.highest
        for name in {*self.known, *self.doubtful, *stored}:
            allowed = {self.known.get(name), self.doubtful.get(name, self.known.get(name))}
            assert stored.get(name) in allowed, f"{name}: {stored.get(name)} is none of {allowed}"
        self.known, self.doubtful = dict(stored), {}

    def check_shown(self) -> None:
        """The watch showed every acknowledged write once, in order, and ended in the stored state."""
        versions = [version for version, _, _ in self.shown]
        assert versions == sorted(set(versions))
        by_version = {version: (name, content) for version, name, content in self.shown}
        assert {version: by_version.get(version) for version in self.acknowledged} == self.acknowledged
        state = {name: content for _, name, content in self.shown}
        assert {name: content for name, content in state.items() if content is not None} == self.known


class Lab:
    """One server process after the other, on one folder."""

    def __init__(self, cluster: LocalCluster, session: aiohttp.ClientSession) -> None:
        self.cluster = cluster
        self.session = session
        self.seen = Histories()
        self.numbers = iter(range(10**9))
        self.start_version = ""

    async def worker(self, number: int, rng: random.Random, enough: asyncio.Event, acks: asyncio.Semaphore) -> None:
        """Creates, changes and deletes its objects until the server is gone."""
        names = [f"w{number}-{one}" for one in range(4)]
        with contextlib.suppress(aiohttp.ClientError, asyncio.IncompleteReadError, ConnectionError):
            while not enough.is_set():
                name = rng.choice(names)
                await self.write(name, delete=self.seen.known.get(name) is not None and rng.random() < 0.3)
                acks.release()

    async def write(self, name: str, *, delete: bool) -> None:
        seen = self.seen
        content = None if delete else str(next(self.numbers))
        before, seen.doubtful[name] = seen.known.get(name), content
        if delete:
            method, path, body = "DELETE", f"{PATH}/{name}", None
        else:
            method, path = ("POST", PATH) if before is None else ("PUT", f"{PATH}/{name}")
            body = json.dumps({"metadata": {"name": name, "labels": {"test": "kill"}}, "data": {"content": content}})
        async with self.session.request(method, path, data=body, headers={"Content-Type": "application/json"}) as answer:
            text = await answer.text()
            assert answer.status in (200, 201), text
        if not delete:
            version = int(json.loads(text)["metadata"]["resourceVersion"])
            assert version not in seen.acknowledged
            seen.acknowledged[version] = (name, content)
            seen.highest = max(seen.highest, version)
        seen.known[name] = content
        del seen.doubtful[name]

    async def listed(self) -> tuple[dict[str, Content], int]:
        async with self.session.get(f"{PATH}?{OURS}") as answer:
            found = await answer.json()
        return {one["metadata"]["name"]: one["data"]["content"] for one in found["items"]}, int(found["metadata"]["resourceVersion"])

    async def events(self, version: str) -> AsyncIterator[tuple[int, str, Content]]:
        async with self.session.get(f"{PATH}?watch=1&{OURS}&resourceVersion={version}") as answer:
            assert answer.status == 200
            async for line in answer.content:
                event: dict[str, Any] = json.loads(line)
                obj = event["object"]
                assert event["type"] in ("ADDED", "MODIFIED", "DELETED"), event
                content = None if event["type"] == "DELETED" else obj["data"]["content"]
                yield int(obj["metadata"]["resourceVersion"]), obj["metadata"]["name"], content

    async def watcher(self) -> None:
        """Goes on where it was, as long as the server lives."""
        shown = self.seen.shown
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            async for event in self.events(str(shown[-1][0]) if shown else self.start_version):
                shown.append(event)
                self.seen.highest = max(self.seen.highest, event[0])

    async def round(self, rng: random.Random) -> None:
        enough, acks = asyncio.Event(), asyncio.Semaphore(0)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.watcher())
            for number in range(WORKERS):
                group.create_task(self.worker(number, random.Random(rng.random()), enough, acks))
            for _ in range(rng.randrange(1, 100)):
                await acks.acquire()
            self.cluster.kill()
            enough.set()
        await asyncio.to_thread(self.cluster.restart)
        self.seen.settle(*await self.listed())

    async def catch_up(self) -> None:
        """Let the watch show the rest: up to a last write of ours."""
        await self.write("last", delete=False)
        version = max(self.seen.acknowledged)
        async for event in self.events(str(self.seen.shown[-1][0])):
            self.seen.shown.append(event)
            if event[0] >= version:
                return


def trusting(cluster: LocalCluster) -> ssl.SSLContext:
    credentials = cluster.config.credentials
    assert credentials.client_certificate is not None
    assert credentials.client_key is not None
    return cluster.config.ssl_context((credentials.client_certificate.read(), credentials.client_key.read()))


@pytest.mark.timeout(590)
async def test_nothing_acknowledged_is_lost_no_revision_is_reused_and_watches_go_on(tmp_path: Path) -> None:
    rng = random.Random(7)
    async with LocalCluster(controllers=False, data=tmp_path / "data").closing() as cluster:
        await cluster.start()
        connector = aiohttp.TCPConnector(ssl=trusting(cluster), limit=0)
        async with aiohttp.ClientSession(cluster.url, connector=connector) as session:
            lab = Lab(cluster, session)
            _, version = await lab.listed()
            lab.start_version = str(version)
            for _ in range(ROUNDS):
                await lab.round(rng)
            await lab.catch_up()
            lab.seen.check_shown()
            again = []
            async for event in lab.events(lab.start_version):
                again.append(event)
                if event[0] >= lab.seen.highest:
                    break
            assert again == lab.seen.shown
            assert len(lab.seen.acknowledged) > 10 * ROUNDS
