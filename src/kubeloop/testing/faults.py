"""Faults that a test commands of a server in its own event loop: streams cut, versions expired, answers delayed or refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from kubeloop.apiserver import refusals
from kubeloop.apiserver.answers import Frames, Reply, status_answer
from kubeloop.apiserver.encoding import encode, event_frame
from kubeloop.meta.errors import ApiError
from kubeloop.serving.listener import Handler
from kubeloop.serving.request import Request

#: Which requests a fault is for.
Matches = Callable[[Request], bool]


_BOOKMARK = b'{"type":"BOOKMARK",'


class Faults:
    """Stands between listener and server (``ServerOptions.wrap``). Each fault is one line of a test; none lasts longer than it says."""

    def __init__(self) -> None:
        self._streams: set[_Cut] = set()
        self._refusals: list[tuple[Matches, ApiError, int]] = []
        self._delays: list[tuple[Matches, asyncio.Event]] = []
        #: Requests so far, as ``METHOD path?query``.
        self.requests: list[str] = []
        #: Every bookmark comes twice.
        self.repeat_bookmarks = False

    def cut_streams(self) -> int:
        """Break every open stream off in the middle, without an end; returns how many there were."""
        streams = list(self._streams)
        for one in streams:
            one.cut()
        return len(streams)

    def expire_streams(self) -> int:
        """Tell every open watch in its stream that its version is too old (410), and end it; returns how many there were."""
        streams = list(self._streams)
        for one in streams:
            one.expire()
        return len(streams)

    def refuse(self, error: ApiError, *, times: int = 1, matching: Matches = lambda _: True) -> None:
        """Answer the next ``times`` requests that match with ``error``."""
        self._refusals.append((matching, error, times))

    def expire_next(self, *, times: int = 1, matching: Matches = lambda _: True) -> None:
        """Answer with 410 Expired."""
        self.refuse(refusals.gone("The resourceVersion for the provided list is too old."), times=times, matching=matching)

    def hold(self, *, matching: Matches = lambda _: True) -> Callable[[], None]:
        """Keep requests that match waiting until the function returned is called."""
        release = asyncio.Event()
        entry = (matching, release)
        self._delays.append(entry)

        def let_go() -> None:
            release.set()
            if entry in self._delays:
                self._delays.remove(entry)

        return let_go

    def wrap(self, handler: Handler) -> Handler:
        async def handle(request: Request) -> Reply:
            query = f"?{request.query_string}" if request.query_string else ""
            self.requests.append(f"{request.method} {request.path}{query}")
            for matching, release in list(self._delays):
                if matching(request):
                    await release.wait()
            refused = self._refused(request)
            if refused is not None:
                answer = status_answer(refused.status)
                answer.body, answer.content_type = encode(answer.object), "application/json"
                return answer
            answered = await handler(request)
            if isinstance(answered, Frames):
                answered.chunks = self._stream(answered.chunks)
            return answered

        return handle

    def _refused(self, request: Request) -> ApiError | None:
        for index, (matching, error, times) in enumerate(self._refusals):
            if matching(request):
                if times > 1:
                    self._refusals[index] = (matching, error, times - 1)
                else:
                    del self._refusals[index]
                return error
        return None

    async def _stream(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        cut = _Cut()
        self._streams.add(cut)
        source = aiter(chunks)
        try:
            while True:
                following = asyncio.ensure_future(anext(source, None))
                breaking = asyncio.ensure_future(cut.happened.wait())
                try:
                    await asyncio.wait((following, breaking), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    breaking.cancel()
                    if not following.done():
                        following.cancel()
                        await asyncio.gather(following, return_exceptions=True)
                if cut.happened.is_set():
                    if cut.last is None:
                        raise ConnectionResetError("cut by a test")
                    yield cut.last
                    return
                chunk = following.result()
                if chunk is None:
                    return
                yield chunk
                if self.repeat_bookmarks and chunk.startswith(_BOOKMARK):
                    yield chunk
        finally:
            self._streams.discard(cut)
            close = getattr(source, "aclose", None)
            if close is not None:
                await close()


class _Cut:
    def __init__(self) -> None:
        self.happened = asyncio.Event()
        self.last: bytes | None = None

    def cut(self) -> None:
        self.happened.set()

    def expire(self) -> None:
        expired = status_answer(refusals.gone("too old resource version: 1 (2)").status)
        self.last = event_frame("ERROR", encode(expired.object))
        self.happened.set()
