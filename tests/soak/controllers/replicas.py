"""The replicas, as a cluster keeps them: processes that are killed, asked to go, and replaced."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.soak.controllers.notes import Account, read
from tests.soak.controllers.replica import LOST
from tests.soak.controllers.settings import Settings

#: Seconds for a replica that was asked to go; then it is killed, which is a finding.
_GRACE = 90.0
#: Seconds before a crashed replica is replaced.
_CRASHED = 1.0
_ROOT = Path(__file__).parents[3]


@dataclass(slots=True)
class Replica:
    identity: str
    process: asyncio.subprocess.Process
    notes: Path
    output: Path
    began: float
    died: float = 0.0
    leaving: bool = False
    watching: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def lives(self) -> bool:
        return not self.died


class Replicas:
    """``async with``. A replica that ends by itself is replaced, as by a Deployment; ``ended`` counts the reasons."""

    def __init__(self, folder: Path, kubeconfig: Path, settings: Settings) -> None:
        self._folder = folder
        self._options = ["--kubeconfig", str(kubeconfig), "--controllers", str(settings.controllers)]
        self._options += ["--times", *map(str, settings.times), "--longest-pause", str(settings.longest_pause)]
        self._options += ["--sharded"] if settings.sharded else []
        self._closing = False
        self.all: list[Replica] = []
        self.ended: Counter[str] = Counter()
        self.violations: list[str] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        while waiting := [one.watching for one in self.all if one.watching is not None and not one.watching.done()]:
            for one in self.living:
                self._signalled(one, signal.SIGKILL)
            await asyncio.wait(waiting)

    @property
    def living(self) -> list[Replica]:
        return [one for one in self.all if one.lives]

    def named(self, identity: str) -> Replica | None:
        return next((one for one in self.living if one.identity == identity), None)

    async def add(self) -> Replica:
        identity = f"replica-{len(self.all) + 1}"
        notes, output = self._folder / f"{identity}.notes", self._folder / f"{identity}.log"
        with output.open("wb") as sink:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.soak.controllers.replica",
                *self._options, "--identity", identity, "--notes", str(notes),
                cwd=_ROOT, env=os.environ | {"PYTHONPATH": str(_ROOT)}, stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink,
            )  # fmt: skip
        replica = Replica(identity, process, notes, output, time.monotonic())
        replica.watching = asyncio.create_task(self._watch(replica))
        self.all.append(replica)
        return replica

    async def kill(self, replica: Replica) -> bool:
        """``kill -9``: it can neither end a reconcile nor give its lease back. Returns when the process is gone; False: it was before."""
        if not self._signalled(replica, signal.SIGKILL):
            return False
        await self._gone(replica)
        self.ended["killed"] += 1
        return True

    async def ask(self, replica: Replica) -> bool:
        """SIGTERM: it ends what it has begun, and gives its lease back. As ``kill``."""
        if not self._signalled(replica, signal.SIGTERM):
            return False
        try:
            async with asyncio.timeout(_GRACE):
                await self._gone(replica)
        except TimeoutError:
            self.violations.append(f"{replica.identity} was asked to end and did not within {_GRACE:.0f} s")
            return await self.kill(replica)
        code = replica.process.returncode
        if code == LOST:
            self.ended["lease lost"] += 1
            return True
        # A replica that had not started yet has nothing to end, and goes at once.
        if code and not (code == -signal.SIGTERM and not read(replica.notes, replica.identity, 0.0).intervals):
            self.violations.append(f"{replica.identity} was asked to end and failed with status {code}: {self._last_words(replica)}")
        self.ended["asked to go"] += 1
        return True

    @staticmethod
    def _signalled(replica: Replica, which: signal.Signals) -> bool:
        if replica.process.returncode is not None:
            return False
        replica.leaving = True
        try:
            replica.process.send_signal(which)
        except ProcessLookupError:
            return False
        return True

    def account(self) -> dict[str, Account]:
        now = time.monotonic()
        return {one.identity: read(one.notes, one.identity, one.died or now) for one in self.all}

    def words(self) -> str:
        """What they have logged, for people."""
        return "\n".join(f"--- {one.identity}\n{one.output.read_text()[-4000:]}" for one in self.all)

    async def _gone(self, replica: Replica) -> None:
        assert replica.watching is not None
        await asyncio.shield(replica.watching)

    async def _watch(self, replica: Replica) -> None:
        code = await replica.process.wait()
        replica.died = time.monotonic()
        if replica.leaving or self._closing:
            return
        if code == LOST:  # What a leader must do that cannot renew: nothing is wrong with it.
            self.ended["lease lost"] += 1
        else:
            self.ended[f"failed with status {code}"] += 1
            self.violations.append(f"{replica.identity} ended by itself with status {code}: {self._last_words(replica)}")
            await asyncio.sleep(_CRASHED)
        if not self._closing:
            await self.add()

    @staticmethod
    def _last_words(replica: Replica) -> str:
        lines = replica.output.read_text().splitlines()
        return lines[-1] if lines else "(it said nothing)"
