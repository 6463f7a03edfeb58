"""Serves a recording as an API server: the same responses, in the recorded order, at the recorded times or at once."""

from __future__ import annotations

import asyncio
import base64
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from kubeloop.endpoints import api_errors
from kubeloop.endpoints.responses import finish, status_answer
from kubeloop.meta.errors import ApiError
from kubeloop.reverseproxy.http import HOP_BY_HOP
from kubeloop.serving.answer import Aborted, Answer, Reply, StreamingResponse
from kubeloop.serving.request import Request
from kubeloop.tap.recording import HarEntry, HarFrame, Recording, decoded
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

#: Parameters that clients choose at random, or that do not change what a response means.
_IGNORED: Final = frozenset(("timeoutSeconds", "timeout", "limit"))
#: The recorded body is not compressed, and its length may have changed.
_REPLACED: Final = HOP_BY_HOP | {"content-length", "content-encoding", "date", "content-type"}
_BY_CLIENT: Final = "the client"


class RequestKey(NamedTuple):
    """What a request must have in common with a recorded one."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...]

    def without_ignored(self) -> RequestKey:
        """Return the key without the parameters that may differ."""
        return self._replace(query=tuple(pair for pair in self.query if pair[0] not in _IGNORED))


def request_key(method: str, path: str, query: Iterable[tuple[str, str]]) -> RequestKey:
    """Return the key of a request: the order of its parameters does not matter."""
    return RequestKey(method, path, tuple(sorted(query)))


class ReplayServer:
    """Answers requests from a recording. ``handle`` is the handler of a ``serving.Listener``.

    Guarantees:
        A request gets the response to the first recorded request with the same method, path and query that was not replayed yet; one with
        the same Accept header is preferred. If there is none, ``limit`` and the timeouts may differ.
        After the last one, it is repeated; a watch stays open without events instead, since its events would come twice.

    Not guaranteed:
        Writes change nothing: they get their recorded responses.
    """

    def __init__(self, recording: Recording, clock: Clock, *, fast: bool = False) -> None:
        """Create the server.

        Args:
            recording: The responses.
            clock: Measures the recorded times.
            fast: Respond at once.
        """
        self._recording = recording
        self._clock = clock
        self._fast = fast
        self._exact: dict[RequestKey, list[HarEntry]] = defaultdict(list)
        self._loose: dict[RequestKey, list[HarEntry]] = defaultdict(list)
        self._used: set[int] = set()
        for entry in recording.entries:
            url = urlsplit(entry.request.url)
            path = unquote(url.path).removeprefix(recording.base)
            key = request_key(entry.request.method, path, parse_qsl(url.query, keep_blank_values=True))
            self._exact[key].append(entry)
            self._loose[key.without_ignored()].append(entry)

    async def handle(self, request: Request) -> Reply:
        """Return the recorded response, or a Status."""
        try:
            entry, repeated = self._match(request)
            return await self._reply(request, entry, repeated=repeated)
        except ApiError as error:
            answer = status_answer(error.status)
            finish(request, answer)
            return answer

    def _match(self, request: Request) -> tuple[HarEntry, bool]:
        """Return an entry, and whether it was replayed before."""
        pairs = [(name, value) for name, values in request.query.items() for value in values]
        key = request_key(request.method, request.path, pairs)
        candidates = self._exact.get(key) or self._loose.get(key.without_ignored())
        if not candidates:
            query = f"?{request.query_string}" if request.query_string else ""
            raise api_errors.refusal(
                404, "NotFound", f"the recording {self._recording.path.name} has no response to {request.method} {request.path}{query}"
            )
        accept = request.header("Accept")
        same = [entry for entry in candidates if _header(entry, "accept") == accept] or candidates
        for entry in same:
            if id(entry) not in self._used:
                self._used.add(id(entry))
                return entry, False
        return same[-1], True

    async def _reply(self, request: Request, entry: HarEntry, *, repeated: bool) -> Reply:
        if entry.response.status == 101:
            raise api_errors.refusal(501, "NotImplemented", "an upgraded connection cannot be replayed: its bytes are not recorded")
        await self._sleep(entry.waited)
        if entry.response.status == 0:
            raise api_errors.refusal(502, "BadGateway", f"the recorded request got no response: {entry.outcome}")
        headers = [(one.name, one.value) for one in entry.response.headers if one.name.lower() not in _REPLACED]
        kind = entry.response.content.mime_type
        if entry.frames is not None:
            return StreamingResponse(self._frames(request, entry, repeated=repeated), kind, headers, entry.response.status)
        if entry.response.content.omitted:
            raise api_errors.refusal(501, "NotImplemented", f"the recording has no body: {entry.response.content.omitted}")
        try:
            body = entry.response.content.data
        except ValueError as error:
            raise api_errors.internal(f"{self._recording.path}: the body of {entry.request.url} is {error}") from None
        if entry.outcome and not entry.outcome.startswith(_BY_CLIENT):
            return StreamingResponse(_broken(body, entry.outcome), kind, headers, entry.response.status)
        return Answer(entry.response.status, body=body, content_type=kind, headers=headers, verbatim=True)

    async def _frames(self, request: Request, entry: HarEntry, *, repeated: bool) -> AsyncIterator[bytes]:
        begin = self._clock.now() - entry.waited
        if not repeated:
            for frame in entry.frames or ():
                if frame.omitted:
                    continue
                await self._sleep(frame.time / 1000 - (self._clock.now() - begin))
                yield _framed(frame, entry)
        if repeated or entry.outcome.startswith(_BY_CLIENT) or not self._recording.complete:
            seconds = request.parameter("timeoutSeconds")
            if seconds.isascii() and seconds.isdigit():
                await self._clock.sleep(int(seconds))
            else:
                await asyncio.Event().wait()  # until the client leaves
            return
        await self._sleep(entry.time / 1000 - (self._clock.now() - begin))
        if entry.outcome:
            raise Aborted(entry.outcome)

    async def _sleep(self, seconds: float) -> None:
        if not self._fast and seconds > 0:
            await self._clock.sleep(seconds)


async def _broken(body: bytes, outcome: str) -> AsyncIterator[bytes]:
    """Yield the part of a body that was received before the connection broke."""
    yield body
    raise Aborted(outcome)


def _framed(frame: HarFrame, entry: HarEntry) -> bytes:
    data = decoded(frame.data, frame.encoding)
    if entry.verb != "WATCH":
        return data
    if "protobuf" in entry.response.content.mime_type:
        return len(data).to_bytes(4, "big") + data
    return data + b"\n"


def _header(entry: HarEntry, name: str) -> str:
    return next((one.value for one in entry.request.headers if one.name.lower() == name), "")


def replay_kubeconfig(port: int, authority: bytes) -> JSONObject:
    """Return a kubeconfig for a replay.

    Its user has a token, which is not checked, because kubectl asks at the terminal for the name of a user without credentials.
    """
    data = base64.b64encode(authority).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "replay", "cluster": {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": data}}],
        "users": [{"name": "replay", "user": {"token": "replay"}}],
        "contexts": [{"name": "replay", "context": {"cluster": "replay", "user": "replay"}}],
        "current-context": "replay",
    }
