"""What goes wrong while the load runs: network, server and leases, one thing after the other, by a seed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

from kubeloop.meta import Conflict, InternalError, Status
from kubeloop.serving.request import Request
from kubeloop.testing import TlsTestServer, on
from tests.soak.controllers.history import History
from tests.soak.controllers.load import Load
from tests.soak.controllers.replicas import Replica, Replicas
from tests.soak.controllers.settings import Settings

#: Seconds without a leader that writes after which there is none to come.
_LEADERLESS = 180.0
#: The part of the changes during which replicas go: who leads then does so to the end, and its memory is looked at.
_DEADLY = 0.55
#: Seconds that a server is away.
_AWAY = 0.2
#: Seconds by which answers come late. Much shorter than any lease: what a dead leader has sent must not arrive in another one's term.
_LATE = 0.15


class Storm:
    """``faults`` and ``deaths`` run until they have done their part; ``counts`` says what has happened."""

    def __init__(self, server: TlsTestServer, load: Load, history: History, settings: Settings) -> None:
        self._server = server
        self._load = load
        self._history = history
        self._rng = random.Random(settings.seed)
        #: Of one storm: as many as changes in a second.
        self._refusals = max(5, int(settings.rate * settings.controllers))
        self._kinds: dict[str, Callable[[], Awaitable[None] | None]] = {
            "watches cut": self._cut,
            "watches expired": self._expire,
            "conflicts": self._conflict,
            "late answers": self._late,
            "lost answers": self._lose,
            "failures of the server": self._fail,
            "429 storms": self._storm,
            "server restarts": self._restart,
        }
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []

    async def faults(self, changes: int, *, every: int) -> None:
        """One fault each ``every`` changes; each kind in its turn, in an order of chance."""
        waiting: list[str] = []
        for at in range(every, changes, every):
            await self._load.reached(at)
            if not waiting:
                waiting = sorted(self._kinds)
                self._rng.shuffle(waiting)
            name = waiting.pop()
            doing = self._kinds[name]()
            if doing is not None:
                await doing
            self.counts[name] += 1
            self._server.faults.requests.clear()
            self._server.faults.calls.clear()

    async def deaths(self, replicas: Replicas, settings: Settings, victim: Callable[[Replicas], Awaitable[Replica]]) -> None:
        """Replicas go, by ``kill -9`` and SIGTERM in turns, and others are added."""
        changes, deaths = settings.changes, settings.deaths
        rate = settings.rate * settings.controllers
        # So many changes do the others not hear of: from a second before until the lease of who died has expired.
        before, after = int(rate), int(rate * (settings.times[0] + 1))
        for number in range(deaths):
            await self._load.reached(int(changes * _DEADLY * (number + 0.5) / deaths))
            gone = False
            while not gone:
                try:
                    one = await victim(replicas)
                except TimeoutError:
                    self.violations.append(f"after {self._load.changed} changes: no replica worked for {_LEADERLESS:.0f} s")
                    return
                # The others hear late of what it does last: who takes over must not go by what it has heard.
                hear = self._deafen([other.identity for other in replicas.living if other is not one])
                await self._load.reached(min(self._load.changed + before, changes))
                if one.lives:  # It may have lost its lease meanwhile, and ended by itself.
                    gone = await (replicas.ask(one) if number % 2 else replicas.kill(one))
                    if gone:
                        await replicas.add()
                await self._load.reached(min(self._load.changed + after, changes))
                hear()

    async def leader(self, replicas: Replicas) -> Replica:
        """Return the replica that holds the lease and has written in this term.

        Raises:
            TimeoutError: no replica does, for long.
        """
        async with asyncio.timeout(_LEADERLESS):
            while True:
                found = replicas.named(self._history.holder)
                if found is not None and self._history.writes[found.identity]:
                    return found
                await asyncio.sleep(0.05)

    async def sharer(self, replicas: Replicas) -> Replica:
        """Another one than the oldest, whose memory is looked at, that has written.

        Raises:
            TimeoutError: no replica does, for long.
        """
        async with asyncio.timeout(_LEADERLESS):
            while True:
                found = [one for one in replicas.living[1:] if self._history.writes[one.identity]]
                if found:
                    return self._rng.choice(found)
                await asyncio.sleep(0.05)

    def _deafen(self, identities: list[str]) -> Callable[[], None]:
        """End the watches of these replicas, and refuse others, until the returned function is called."""
        faults, watches = self._server.faults, on("watch")
        refused = InternalError(Status(code=500, reason="InternalError", message="refused by a test"))
        stop = faults.react(lambda _: refused, matching=lambda request: request.header("User-Agent") in identities and watches(request))
        faults.cut_streams()
        self.counts["replicas that hear late"] += len(identities)
        return stop

    def _cut(self) -> None:
        self._server.faults.cut_streams()
        self._server.faults.cut_stream(after=self._rng.randint(0, 3))

    def _expire(self) -> None:
        self._server.faults.expire_streams()

    def _conflict(self) -> None:
        self._server.faults.refuse(Conflict, times=10, matching=_written)

    def _late(self) -> None:
        self._server.faults.delay(_LATE, times=50)

    def _lose(self) -> None:
        self._server.faults.lose_answers(times=5, matching=on("create", "configmaps"))
        self._server.faults.lose_answers(times=5, matching=_written)

    def _fail(self) -> None:
        self._server.faults.refuse(InternalError, times=10, matching=_written)

    def _storm(self) -> None:
        # As flow control has it: elections are not held up by everybody else.
        leases = on("*", "leases")
        self._server.faults.refuse_too_many(1, times=self._refusals, matching=lambda request: not leases(request))

    async def _restart(self) -> None:
        await self._server.crash()
        await asyncio.sleep(_AWAY)
        await self._server.come_back()


def _written(request: Request) -> bool:
    """What controllers write: children, and the status of things."""
    return request.method in ("POST", "PUT", "PATCH") and ("/configmaps" in request.path or request.path.endswith("/status"))
