"""The log of one container, as text, lines or bytes; following a log survives lost connections.

Source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ (read log); kubectl pkg/cmd/logs.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Generator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from kubeloop.client.streams.errors import OutputTooLarge
from kubeloop.client.streams.log_lines import LineSplitter, ReturnedLines, without_time
from kubeloop.client.streams.targets import ContainerLocation, Target, container_of, find_pod, status_of
from kubeloop.client.verbs.base import described_target, limit
from kubeloop.meta.errors import ApiError, NotFound, TransportError
from kubeloop.meta.time import format_time
from kubeloop.timing import Backoff
from kubeloop.transport import Stream

if TYPE_CHECKING:
    from kubeloop.api.core.v1 import ContainerStatus, Pod
    from kubeloop.client.client import Client

T = TypeVar("T")

_LOG = logging.getLogger("kubeloop.client.streams")

Since: TypeAlias = float | timedelta | datetime
"""The beginning of the requested part of a log: seconds or a duration before now, or a time."""

#: Maximum bytes of a log that is awaited as one text.
MAX_TEXT = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The requested part of a log; see ``PodVerbs.logs``."""

    follow: bool = False
    previous: bool = False
    since: Since | None = None
    tail: int | None = None
    limit_bytes: int | None = None
    timestamps: bool = False
    resume: bool = True

    @property
    def resumable(self) -> bool:
        # A byte limit also counts the times, which only a resumed log needs. A previous instance is never followed.
        return self.follow and self.resume and self.limit_bytes is None and not self.previous

    def query(self, container: str) -> dict[str, str | int | bool | list[str] | None]:
        since = self.since
        seconds = since.total_seconds() if isinstance(since, timedelta) else since
        return {
            "container": container,
            "follow": self.follow or None,
            "previous": self.previous or None,
            # Kubernetes takes whole seconds, one at least.
            "sinceSeconds": None if seconds is None or isinstance(seconds, datetime) else max(1, math.ceil(seconds)),
            "sinceTime": format_time(since) if isinstance(since, datetime) else None,
            "tailLines": self.tail,
            "limitBytes": self.limit_bytes,
            "timestamps": self.timestamps or self.resumable or None,
        }


class _Fate(Enum):
    """The state of a container after its log ended."""

    GOES_ON = "it goes on"
    OVER = "it has ended"
    REPLACED = "it was started again"
    GONE = "its pod is gone"


class Log:
    """An open log: lines as text (``async for line in log``), or bytes (``log.chunks()``). Use only one of the two ways.

    >>> from kubeloop.testing import ScriptedKubelet
    >>> async with ScriptedKubelet(client, namespace=client.namespace) as kubelet:
    ...     pod = await kubelet.run_pod("web-0")
    ...     script = kubelet.on_logs("web-0", ["starting", "ready"])
    ...     async with client.pods.logs("web-0") as log:
    ...         print([line async for line in log])
    ['starting', 'ready']

    Guarantees
        With ``follow``: if the connection is lost, or ends while the container still runs, the log continues where it stopped. Each line
        comes once, and no line that the node still has is missing. The log ends when the container ends.

    Not guaranteed
        Lines that the node deleted by log rotation before they were requested again are missing. Lines without a time, which kubelets do
        not send, are not tracked.
    """

    def __init__(self, client: Client, pod: Pod, container: str, options: LogOptions) -> None:
        """Create an instance. Programs call ``client.pods.logs`` instead.

        Args:
            client: The client to read with.
            pod: The pod, as it was read.
            container: The container's name.
            options: The requested part of the log.
        """
        self.pod = pod
        self.container = container
        self._client = client
        self._options = options
        self._place = ContainerLocation(pod.metadata.namespace, pod.metadata.name, container)
        self._handed_out = ReturnedLines(from_start=options.tail is None and options.since is None)
        self._stack = AsyncExitStack()
        self._stream: Stream | None = None
        self._lines: AsyncGenerator[bytes, None] | None = None
        self._opened = client.clock.now()

    def __aiter__(self) -> AsyncIterator[str]:
        self._each()
        return self

    async def __anext__(self) -> str:
        """Return the next line without its end; bytes that are not UTF-8 are replaced.

        Raises:
            StreamError: A line is longer than 16 MiB. TransportError: the connection was lost, and the log is not resumed.
        """
        if self._lines is None:
            raise RuntimeError(f"log of {self._place}: async for line in log")
        return (await anext(self._lines)).decode("utf-8", "replace")

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield bytes as they arrive; a log that can be resumed yields one line at a time."""
        if self._options.resumable:
            async for line in self._each():
                yield line + b"\n"
        else:
            assert self._stream is not None
            async for chunk in self._stream.chunks():
                yield chunk

    async def open(self) -> None:
        """Request the log. Raises the errors of ``PodVerbs``."""
        self._stream = await self._ask(self._options, retry=True)

    async def close(self) -> None:
        if self._lines is not None:
            await self._lines.aclose()
        await self._stack.aclose()

    def _each(self) -> AsyncGenerator[bytes, None]:
        if self._lines is None:
            self._lines = self._follow() if self._options.resumable else self._once()
        return self._lines

    async def _once(self) -> AsyncGenerator[bytes, None]:
        assert self._stream is not None
        cutter = LineSplitter(str(self._place))
        async for chunk in self._stream.chunks():
            for line in cutter.feed(chunk):
                yield line
        if rest := cutter.rest():
            yield rest

    async def _follow(self) -> AsyncGenerator[bytes, None]:
        backoff = Backoff(clock=self._client.clock)
        tries = 0
        cut: TransportError | None = None  # the lost connection; None once the log was read to its end after it
        last = False  # the container has ended: no more lines follow
        while True:
            cutter = LineSplitter(str(self._place))
            refused: ApiError | None = None
            try:
                if self._stream is None:
                    self._stream = await self._ask(self._next_options(previous=last), retry=False)
                async for chunk in self._stream.chunks():
                    for line in cutter.feed(chunk):
                        if self._handed_out.is_new(line):
                            tries = 0
                            yield self._shown(line)
                cut = None
            except TransportError as error:
                if self._client.transport.closed:
                    raise
                cut = error
                cutter.rest()  # an incomplete line: it is requested again
            except ApiError as error:
                refused = error
            self._stream = None
            await self._stack.aclose()
            fate = _Fate.OVER if last and cut is None else await self._fate(wants_more=cut is not None)
            if self._is_end(fate, cut, refused):
                # The last line may lack a newline.
                if (rest := cutter.rest()) and self._handed_out.is_new(rest):
                    yield self._shown(rest)
                return
            last = fate is _Fate.REPLACED
            if not tries:
                backoff.reset()
            delay = backoff.next() if tries else 0.0
            tries += 1
            _LOG.debug("requesting the log of %s again in %.1f s: %s", self._place, delay, cut or refused or fate.value)
            await self._client.clock.sleep(delay)

    def _is_end(self, fate: _Fate, cut: TransportError | None, refused: ApiError | None) -> bool:
        """Return whether the log is complete. Raises the error that prevents the rest from arriving, if any."""
        if refused is not None and not _may_pass(refused):
            raise refused
        if fate is _Fate.GOES_ON or (fate is _Fate.REPLACED and refused is None):
            return False
        if cut is not None and (refused is not None or fate is _Fate.GONE):
            raise cut
        return cut is None

    def _shown(self, line: bytes) -> bytes:
        return line if self._options.timestamps else without_time(line)

    def _next_options(self, *, previous: bool) -> LogOptions:
        options = self._options
        since = self._handed_out.begin_resume()
        elapsed = self._client.clock.now() - self._opened
        if since is not None:
            options = replace(options, since=since, tail=None)
        elif options.tail == 0:
            # No line that existed when the log was opened is wanted, but every later line.
            options = replace(options, since=elapsed, tail=None)
        elif isinstance(options.since, timedelta):
            options = replace(options, since=options.since + timedelta(seconds=elapsed))
        elif options.since is not None and not isinstance(options.since, datetime):
            options = replace(options, since=options.since + elapsed)
        # A previous instance writes no more lines, so it is not followed; times are still needed.
        return replace(options, previous=True, follow=False, timestamps=True) if previous else options

    async def _fate(self, *, wants_more: bool) -> _Fate:
        from kubeloop.api.core.v1 import Pod

        try:
            now = await self._client.get(Pod, self.pod.metadata.name, namespace=self.pod.metadata.namespace)
        except NotFound:
            return _Fate.GONE
        except TransportError:
            return _Fate.GOES_ON
        except ApiError as error:
            # The user may read logs but not pods: then a regular end is final, and a lost connection leads to another request.
            return _Fate.GOES_ON if wants_more or _may_pass(error) else _Fate.OVER
        if now.metadata.uid != self.pod.metadata.uid:
            return _Fate.GONE
        before, after = status_of(self.pod, self.container), status_of(now, self.container)
        if before is not None and after is not None and after.restart_count > before.restart_count:
            return _Fate.REPLACED if after.restart_count == before.restart_count + 1 else _Fate.OVER
        ended = now.status.phase in ("Succeeded", "Failed") or (after is not None and _has_ended(after))
        return _Fate.OVER if ended else _Fate.GOES_ON

    async def _ask(self, options: LogOptions, *, retry: bool) -> Stream:
        stream = self._client.transport.stream(
            "GET", self._place.path("log"), query=options.query(self.container), accept="*/*", retry=retry
        )
        try:
            return await self._stack.enter_async_context(stream)
        except ApiError as error:
            raise ApiError.from_status(error.status, f"log of {self._place}") from error


def _may_pass(error: ApiError) -> bool:
    """Return whether an error may be temporary, as while a server, node or container starts."""
    return error.status.code >= 500 or error.status.code in (400, 404, 429)


def _has_ended(status: ContainerStatus) -> bool:
    if status.state.terminated is not None:
        return True
    # The container waits for a restart after a crash: its log is still that of the ended instance.
    ended = status.last_state.terminated
    return status.state.running is None and ended is not None and ended.container_id == status.container_id


class LogCall:
    """A log that is not requested yet: ``await`` it for the whole text, or use it with ``async with``.

    >>> from kubeloop.testing import ScriptedKubelet
    >>> async with ScriptedKubelet(client, namespace=client.namespace) as kubelet:
    ...     pod = await kubelet.run_pod("web-0")
    ...     script = kubelet.on_logs("web-0", ["starting", "ready"])
    ...     (await client.pods.logs("web-0", tail=1)).strip()
    'ready'

    ``await``
        Returns the whole log as one text.
    ``async with``
        Opens a ``Log`` of lines or bytes. Leaving the block closes the connection at once.
    """

    def __init__(
        self,
        client: Client,
        target: Target,
        namespace: str | None,
        container: str | None,
        options: LogOptions,
        *,
        timeout: float | None = None,
    ) -> None:
        """Create an instance. Programs call ``client.pods.logs`` instead.

        Args:
            client: The client to read with.
            target: A pod, or an object with pods.
            namespace: None: the client's.
            container: None: the default container.
            options: The requested part of the log.
            timeout: Seconds for an awaited log, or until the log of a block is open. None: no limit.
        """
        self._client = client
        self._target = target
        self._namespace = namespace
        self._container = container
        self._options = options
        self._timeout = timeout
        self._log: Log | None = None

    def __await__(self) -> Generator[Any, None, str]:
        return self._limited(self._whole()).__await__()

    async def __aenter__(self) -> Log:
        return await self._limited(self._open())

    async def _limited(self, work: Awaitable[T]) -> T:
        return await limit(work, self._timeout, self._client.clock, f"logs {described_target(self._target)}")

    async def _open(self) -> Log:
        pod = (await find_pod(self._client, self._target, self._namespace)).pod
        self._log = Log(self._client, pod, container_of(pod, self._container).name, self._options)
        await self._log.open()
        return self._log

    async def __aexit__(self, *_: object) -> None:
        if self._log is not None:
            await self._log.close()
            self._log = None

    async def _whole(self) -> str:
        parts: list[bytes] = []
        size = 0
        try:
            log = await self._open()
            async with aclosing(log.chunks()) as chunks:
                async for chunk in chunks:
                    parts.append(chunk)
                    size += len(chunk)
                    if size > MAX_TEXT:
                        raise OutputTooLarge(
                            f'log of pod "{log.pod.metadata.name}" is larger than {MAX_TEXT} bytes; give tail=, since= or limit_bytes=, '
                            "or read it line by line: async with client.pods.logs(...) as log"
                        )
        finally:
            await self.__aexit__()
        return b"".join(parts).decode("utf-8", "replace")
