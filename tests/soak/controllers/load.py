"""The load: objects that are created, and changed at a rate by a client that does not give up."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable

from kubeloop.client import Client
from kubeloop.meta import AlreadyExists, KubeloopError, ObjectMeta
from tests.soak.controllers.kinds import KINDS, NAMESPACES, ThingSpec

#: Requests at a time.
_AT_ONCE = 32
#: Seconds before another try.
_PAUSE = 0.1


class Load:
    """``wanted``: the value last written of each object, as the server has acknowledged it."""

    def __init__(self, client: Client, seed: int, objects: int, controllers: int) -> None:
        self._client = client
        self._rng = random.Random(seed)
        kinds = KINDS[:controllers]
        self._things = [(kind, NAMESPACES[number % len(NAMESPACES)], f"thing-{number}") for kind in kinds for number in range(objects)]
        self._busy: set[int] = set()
        # Fewer than there are objects, or there would be none to change.
        self._room = asyncio.Semaphore(min(_AT_ONCE, (len(self._things) + 1) // 2))
        self._value = 0
        self._more = asyncio.Condition()
        self.wanted: dict[str, int] = {}
        self.made = self.changed = self.again = 0
        #: Seconds that the changes took.
        self.seconds = 0.0

    async def make(self) -> None:
        """All objects."""
        async with asyncio.TaskGroup() as tasks:
            for place in range(len(self._things)):
                await self._room.acquire()
                tasks.create_task(self._made(place))

    async def change(self, changes: int, rate: float) -> None:
        """So many changes of random objects, at most ``rate`` a second."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for number in range(changes):
                await asyncio.sleep(max(began + number / rate - time.monotonic(), 0))
                await self._room.acquire()
                place = self._rng.randrange(len(self._things))
                while place in self._busy:  # A change of it is under way, and must not be overtaken.
                    place = (place + 1) % len(self._things)
                self._busy.add(place)
                tasks.create_task(self._changed(place))
        self.seconds = time.monotonic() - began

    async def reached(self, changes: int) -> None:
        """Return when so many changes have been made."""
        async with self._more:
            await self._more.wait_for(lambda: self.changed >= changes)

    async def _made(self, place: int) -> None:
        kind, namespace, name = self._things[place]
        value = self._next()

        async def create() -> None:
            with contextlib.suppress(AlreadyExists):  # The answer to an earlier try was lost.
                await self._client.create(kind(metadata=ObjectMeta(name=name, namespace=namespace), spec=ThingSpec(value=value)))

        try:
            await self._until_done(create)
            self.wanted[f"{kind.__name__}/{namespace}/{name}"] = value
            self.made += 1
        finally:
            self._room.release()

    async def _changed(self, place: int) -> None:
        kind, namespace, name = self._things[place]
        value = self._next()
        try:
            await self._until_done(
                lambda: self._client.patch(kind, name, {"spec": {"value": value}}, type="merge", namespace=namespace),
            )
            self.wanted[f"{kind.__name__}/{namespace}/{name}"] = value
        finally:
            self._busy.discard(place)
            self._room.release()
        self.changed += 1
        async with self._more:
            self._more.notify_all()

    def _next(self) -> int:
        self._value += 1
        return self._value

    async def _until_done(self, write: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await write()
            except KubeloopError:
                self.again += 1
                await asyncio.sleep(_PAUSE)
            else:
                return
