"""Discovery as one client keeps it: asked once, asked again where something is missing, seldom enough to be kind to the server.

Source: client-go discovery/cached/memory, discovery/cached/disk, restmapper/discovery.go (DeferredDiscoveryRESTMapper).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kubeloop.client.discovery.discovery_client import discover, discover_version
from kubeloop.client.discovery.files import DiscoveryFile
from kubeloop.client.discovery.resources import Discovered
from kubeloop.meta.kinds import GroupVersion
from kubeloop.timing import Clock, TokenBucket
from kubeloop.transport import Transport

#: How often everything may be asked again in vain: ten times at once, then every ten seconds. A program that asks for a kind
#: that does not exist in a loop must not cost its server a discovery each time.
_RATE = 0.1
_BURST = 10


class KeptDiscovery:
    """What a server serves, as last learnt. Whoever waits for an answer shares it with all who wait.

    Guarantees
        What was learnt from a file, or before something was missed, is asked again once; a group version that failed with an error that
        may pass (429, 5xx, no answer) is asked again by each use that needs it, alone. Other failures are kept until ``forget``.
    """

    def __init__(self, transport: Transport, clock: Clock, file: DiscoveryFile | None = None) -> None:
        self._transport = transport
        self._clock = clock
        self.file = file
        self._known: Discovered | None = None
        self._lock = asyncio.Lock()
        self._limit = TokenBucket(_RATE, _BURST, clock)
        self._begun = 0
        self._answered = 0
        self._read_files = True

    @property
    def fresh(self) -> bool:
        """True when what is known was asked by this client, not read from a file."""
        return self._answered > 0 and self._known is not None

    @property
    def begun(self) -> int:
        """How often everything was asked so far, whether the answer has come or not."""
        return self._begun

    @property
    def answered(self) -> int:
        """Which of these what is known answers; 0: none, it is from a file."""
        return self._answered

    @property
    def known(self) -> Discovered | None:
        return self._known

    async def current(self) -> Discovered:
        """From memory, else from the file, else from the server.

        Raises:
            ApiError, TransportError, DecodeError: as ``discover``.
        """
        if self._known is not None:
            return self._known
        async with self._lock:
            if self._known is None:
                self._known = await self._from_file() or await self._ask()
            return self._known

    async def renewed(self, missed: Discovered, found: Callable[[Discovered], object], version: GroupVersion | None = None) -> Discovered:
        """What is known after ``found`` was None of ``missed``; that itself if there is nothing to be learnt now.

        It may answer what somebody else had asked before. ``version``: that of what was missed, if it is known.
        """
        async with self._lock:
            if self._known is not None and self._known is not missed:
                return self._known  # whoever waited here takes what the first one got
            failure = missed.failure(version) if version is not None else None
            if version is not None and failure is not None and failure.again:
                self._known = missed.with_version(version, await discover_version(self._transport, version))
            elif self._limit.try_take():
                self._known = await self._ask()
                if found(self._known) is not None:
                    self._limit.give_back()  # it was not in vain
            else:
                self._known = missed
            return self._known

    def forget(self) -> None:
        """Ask the server anew next time, also where a file knows an answer."""
        self._known = None
        self._read_files = False

    async def _from_file(self) -> Discovered | None:
        if self.file is None or not self._read_files:
            return None
        return await asyncio.to_thread(self.file.read, self._clock.wall().timestamp())

    async def _ask(self) -> Discovered:
        self._begun += 1
        found = await discover(self._transport)
        if self.file is not None:
            await asyncio.to_thread(self.file.write, found)
        self._answered = self._begun
        return found
