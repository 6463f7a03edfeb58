"""Faults that a test injects into a server in its event loop, each in one line, and a record of the server's requests.

The faults are the same for ``TlsTestServer`` (over TLS) and ``HandlerServer`` (without a socket).
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from kubeloop.codec import to_dict
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.encoding import encode
from kubeloop.endpoints.responses import status_answer
from kubeloop.meta.errors import ApiError
from kubeloop.meta.resource import Resource
from kubeloop.meta.status import Status, StatusDetails
from kubeloop.serving.answer import Aborted, Answer, Reply, StreamingResponse
from kubeloop.serving.connection import Handler
from kubeloop.serving.request import Request
from kubeloop.testing.calls import Matches, RecordedCall, body_tree, call_of, every
from kubeloop.testing.stream_faults import FaultInjectedStream, Hidden
from kubeloop.timing import Clock, SystemClock

if TYPE_CHECKING:
    from kubeloop.apiserver.server import ApiServer

#: Maximum bytes of a body for a reactor.
_BODY = 8 << 20

Reaction: TypeAlias = Resource | dict[str, Any] | ApiError | Reply | None
"""The result of a reactor: an object or its tree, sent with 200; an error; any response; or None, to leave the call to the next reactor or
the server."""

Reactor: TypeAlias = Callable[[RecordedCall], Reaction | Awaitable[Reaction]]


class Faults:
    """Injects faults between a server and its clients. No fault lasts longer than declared.

    Guarantees
        ``requests`` and ``calls`` record all requests, refused or not, in the order of arrival.
        Faults apply in this order: held, delayed, refused, reactors; reactors in the order of their addition, and the first
        with a result decides: neither later ones nor the server see that request.

    Example:
        >>> from kubeloop.meta import ServiceUnavailable
        >>> from kubeloop.testing import HandlerServer
        >>> async with HandlerServer() as server, server.client("default") as client:
        ...     server.faults.refuse(ServiceUnavailable)
        ...     await client.list(ConfigMap)
        Traceback (most recent call last):
        ServiceUnavailable: ...
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._streams: set[FaultInjectedStream] = set()
        self._refusals: list[tuple[Matches, ApiError, int]] = []
        self._holds: list[tuple[Matches, asyncio.Event]] = []
        self._delays: list[tuple[Matches, float, int]] = []
        self._losses: list[tuple[Matches, bool, int]] = []
        self._cuts: list[tuple[Matches, int]] = []
        self._reactors: list[tuple[Matches, Reactor]] = []
        self._hidden: list[_Hiding] = []
        self._listeners: list[Callable[[RecordedCall], None]] = []
        #: Requests so far, as ``METHOD path?query``.
        self.requests: list[str] = []
        #: Requests for resources so far; a test may clear it.
        self.calls: list[RecordedCall] = []
        #: Whether every bookmark is sent twice.
        self.repeat_bookmarks = False
        self._api: ApiServer | None = None

    @property
    def writes(self) -> list[RecordedCall]:
        """Return the writes among ``calls``."""
        return [call for call in self.calls if call.writes]

    def cut_streams(self) -> int:
        """Break every open stream off in the middle; return their number."""
        streams = list(self._streams)
        for one in streams:
            one.cut()
        return len(streams)

    def cut_stream(self, *, after: int, matching: Matches = every) -> None:
        """Break the next matching stream off after ``after`` events (or lines of a log)."""
        self._cuts.append((matching, after))

    def expire_streams(self) -> int:
        """Send 410 in every open watch and end it; return their number."""
        streams = list(self._streams)
        for one in streams:
            one.expire()
        return len(streams)

    def refuse(self, error: ApiError | type[ApiError], *, times: int = 1, matching: Matches = every) -> None:
        """Refuse the next ``times`` matching requests with ``error``; a class is enough (``refuse(Conflict)``)."""
        if isinstance(error, type):
            error = error(Status(code=error.code, reason=error.reason, message="refused by a test"))
        self._refusals.append((matching, error, times))

    def refuse_too_many(self, retry_after: int = 1, *, times: int = 1, matching: Matches = every) -> None:
        """Refuse the next ``times`` matching requests with 429; ``retry_after`` is the value of ``Retry-After`` in seconds."""
        details = StatusDetails(retry_after_seconds=retry_after)
        message = "the server has received too many requests and has asked us to try again later"
        self.refuse(api_errors.refusal(429, "TooManyRequests", message, details), times=times, matching=matching)

    def expire_next(self, *, times: int = 1, matching: Matches = every) -> None:
        """Refuse the next ``times`` matching requests with 410 Expired."""
        self.refuse(api_errors.gone("The resourceVersion for the provided list is too old."), times=times, matching=matching)

    def break_answers(self, *, matching: Matches = every) -> Callable[[], None]:
        """Abort the responses to matching requests in the middle, until the returned function is called.

        The requests are not executed, but clients cannot know that.
        """
        return self.react(lambda _: StreamingResponse(_broken()), matching=matching)

    def lose_answers(self, *, times: int = 1, matching: Matches = every) -> None:
        """Execute the next ``times`` matching requests, but abort the responses; clients cannot distinguish this from ``break_answers``."""
        self._losses.append((matching, True, times))

    def delay(self, seconds: float, *, times: int = 1, matching: Matches = every) -> None:
        """Delay the next ``times`` matching requests by ``seconds`` of the server's clock."""
        self._delays.append((matching, seconds, times))

    def hold(self, *, matching: Matches = every) -> Callable[[], None]:
        """Hold matching requests until the returned function is called."""
        release = asyncio.Event()
        entry = (matching, release)
        self._holds.append(entry)

        def let_go() -> None:
            release.set()
            if entry in self._holds:
                self._holds.remove(entry)

        return let_go

    def react(self, reactor: Reactor, *, matching: Matches = every, first: bool = False) -> Callable[[], None]:
        """Let ``reactor`` respond to matching requests for resources, until the returned function is called.

        ``reactor`` is called with the call, including its body, and may be async. ``first``: it precedes reactors that were added earlier.
        """
        entry = (matching, reactor)
        self._reactors.insert(0 if first else len(self._reactors), entry)
        return lambda: self._reactors.remove(entry) if entry in self._reactors else None

    @asynccontextmanager
    async def hidden_changes(self, *, matching: Matches = every) -> AsyncIterator[None]:
        """Hide changes within the block from matching watches, as if the server lost the events. Clients see the changes when they list."""
        entry = _Hiding(matching, await self._revision())
        self._hidden.append(entry)
        try:
            yield
        finally:
            entry.last = await self._revision()

    def attach(self, api: ApiServer) -> None:
        """Use the kinds and versions of ``api``, which is served through ``wrap``."""
        self._api = api

    def wrap(self, handler: Handler) -> Handler:
        """Return a handler that injects the faults in front of ``handler`` (``ServerOptions.wrap``)."""

        async def handle(request: Request) -> Reply:
            query = f"?{request.query_string}" if request.query_string else ""
            self.requests.append(f"{request.method} {request.path}{query}")
            call = call_of(request, self._api.registry if self._api is not None else None)
            if call is not None:
                self.calls.append(call)
                request = _recorded(request, call)
            for matching, release in list(self._holds):
                if matching(request):
                    await release.wait()
            if (seconds := _next(self._delays, request)) is not None:
                await self._clock.sleep(seconds)
            answered = await self._answered(request, call, handler)
            if call is not None:
                # A write with a stream as its response is a write whose response breaks off.
                if isinstance(answered, Answer) or (isinstance(answered, StreamingResponse) and not call.writes):
                    call.code = answered.status
                self._tell(call)
            return answered

        return handle

    def on_answer(self, listener: Callable[[RecordedCall], None]) -> Callable[[], None]:
        """Call ``listener`` with each completed call, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def _tell(self, call: RecordedCall) -> None:
        for listener in list(self._listeners):
            listener(call)

    async def _answered(self, request: Request, call: RecordedCall | None, handler: Handler) -> Reply:
        refused = _next(self._refusals, request)
        if refused is not None:
            await request.read_body(_BODY)  # for the record
            return _finished(refused)
        if call is not None and (reply := await self._reply(request, call)) is not None:
            return reply
        answered = await handler(request)
        if isinstance(answered, StreamingResponse):
            answered.chunks = self._stream(request, answered.chunks)
        elif isinstance(answered, Answer) and _next(self._losses, request):
            return StreamingResponse(_broken())
        return answered

    async def _reply(self, request: Request, call: RecordedCall) -> Reply | None:
        for matching, reactor in list(self._reactors):
            if not matching(request):
                continue
            await request.read_body(_BODY)
            reaction = reactor(call)
            if inspect.isawaitable(reaction):
                reaction = await reaction
            if isinstance(reaction, Resource):
                reaction = to_dict(reaction)
            if isinstance(reaction, dict):
                return Answer(body=encode(reaction), content_type="application/json")
            if isinstance(reaction, ApiError):
                return _finished(reaction)
            if reaction is not None:
                return reaction
        return None

    def _hidden_from(self, request: Request) -> Hidden | None:
        hiding = [one for one in self._hidden if one.matching(request)]
        return (lambda version: any(one.first < version <= one.last for one in hiding)) if hiding else None

    async def _revision(self) -> int:
        return await self._api.storage.revision() if self._api is not None else 0

    async def _stream(self, request: Request, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        after = next((entry for entry in self._cuts if entry[0](request)), None)
        if after is not None:
            self._cuts.remove(after)
        stream = FaultInjectedStream(
            lambda: self.repeat_bookmarks,
            lambda: self._hidden_from(request),
            after[1] if after is not None else None,
        )
        self._streams.add(stream)
        commanded = stream.of(chunks)
        try:
            async for chunk in commanded:
                yield chunk
        finally:
            self._streams.discard(stream)
            await commanded.aclose()


@dataclass(slots=True)
class _Hiding:
    """Hides changes after ``first``, up to ``last``."""

    matching: Matches
    first: int
    last: float = math.inf


def _next(entries: list[tuple[Matches, Any, int]], request: Request) -> Any:
    """Return the value of the first matching entry, and count one use of the entry; None if no entry matches."""
    for index, (matching, what, times) in enumerate(entries):
        if matching(request):
            if times > 1:
                entries[index] = (matching, what, times - 1)
            else:
                del entries[index]
            return what
    return None


def _recorded(request: Request, call: RecordedCall) -> Request:
    """Return a request that stores its body in ``call`` when it is read, and can be read again."""
    whole: list[bytes] = []

    async def read(limit: int) -> bytes:
        if not whole:
            whole.append(await request.read_body(limit))
            call.body = body_tree(whole[0])
        return whole[0]

    return replace(request, read_body=read)


def _finished(refused: ApiError) -> Answer:
    answer = status_answer(refused.status)
    answer.body, answer.content_type = encode(answer.object), "application/json"
    return answer


async def _broken() -> AsyncIterator[bytes]:
    yield b"{"
    raise Aborted("broken off by a test")
