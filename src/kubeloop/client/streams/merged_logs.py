"""Logs of several containers as one: each line with the pod and container that wrote it.

Source: kubectl pkg/cmd/logs (--selector, --all-containers, --prefix, --max-log-requests, --ignore-errors).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubeloop.client.selector_text import label_text
from kubeloop.client.streams.errors import StreamError
from kubeloop.client.streams.logs import LogCall, LogOptions
from kubeloop.client.streams.targets import Target, all_containers, container_of, find_pods
from kubeloop.meta.errors import KubeloopError
from kubeloop.tasks import end_tasks

if TYPE_CHECKING:
    from kubeloop.api.core.v1 import Pod
    from kubeloop.client.client import Client
    from kubeloop.client.selector_text import Labels

_logger = logging.getLogger("kubeloop.client.streams")

#: Lines of all sources that wait for the reader before the sources are held back.
_WAITING = 100


@dataclass(frozen=True, slots=True)
class LogLine:
    """``str`` of it is as kubectl prints it with ``--prefix``."""

    pod: str
    container: str
    text: str

    def __str__(self) -> str:
        return f"[pod/{self.pod}/{self.container}] {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Which logs are meant; see ``PodStreams.merged_logs``."""

    targets: tuple[Target, ...] = ()
    label_selector: Labels | None = None
    namespace: str | None = None
    container: str | None = None
    all_containers: bool = False
    max_sources: int = 5
    ignore_errors: bool = False


class MergedLogs:
    """Made by ``client.merged_logs``; used as ``async with ... as lines``, then ``async for line in lines``.

    Guarantees
        The lines of one container are in order, as of ``Log``. Not followed, one container's come after another's, in the order of the
        pods; followed, as they are written. A reader that is slow holds all of them back.

    Not guaranteed
        Pods that come into being later: they are not followed.
    """

    def __init__(self, client: Client, sources: Sources, options: LogOptions) -> None:
        self._client = client
        self._sources = sources
        self._options = options
        self._calls: list[tuple[str, str, LogCall]] = []
        self._lines: AsyncGenerator[LogLine, None] | None = None

    async def __aenter__(self) -> AsyncIterator[LogLine]:
        """Find the sources.

        Raises:
            NotFound: an object that is named is not there. StreamError: there are no pods, or more sources than ``max_sources``.
        """
        pods = await find_pods(self._client, self._sources.targets, self._sources.label_selector, self._sources.namespace)
        if not pods:
            raise StreamError(
                f"no pods are selected by label_selector={label_text(self._sources.label_selector)!r} there, so there are no logs"
            )
        self._calls = [self._call(pod, container) for pod in pods for container in self._containers(pod)]
        if self._options.follow and len(self._calls) > self._sources.max_sources:
            raise StreamError(
                f"{len(self._calls)} logs were to be followed at once, where {self._sources.max_sources} are allowed; raise max_sources="
            )
        self._lines = self._together() if self._options.follow else self._in_turn()
        return self._lines

    async def __aexit__(self, *_: object) -> None:
        if self._lines is not None:
            await self._lines.aclose()

    def _containers(self, pod: Pod) -> Iterable[str]:
        if self._sources.all_containers:
            return [one.name for one in all_containers(pod)]
        return [container_of(pod, self._sources.container).name]

    def _call(self, pod: Pod, container: str) -> tuple[str, str, LogCall]:
        return pod.metadata.name, container, LogCall(self._client, pod, None, container, self._options)

    async def _in_turn(self) -> AsyncGenerator[LogLine, None]:
        for pod, container, call in self._calls:
            try:
                async with call as log:
                    async for text in log:
                        yield LogLine(pod, container, text)
            except KubeloopError as error:
                self._ignore(error)

    async def _together(self) -> AsyncGenerator[LogLine, None]:
        come: asyncio.Queue[LogLine | Exception | None] = asyncio.Queue(_WAITING)

        async def read(pod: str, container: str, call: LogCall) -> None:
            try:
                async with call as log:
                    async for text in log:
                        await come.put(LogLine(pod, container, text))
            except Exception as error:  # noqa: BLE001 - raised where the lines are read
                await come.put(error)
            else:
                await come.put(None)

        running = [asyncio.ensure_future(read(*source)) for source in self._calls]
        try:
            left = len(running)
            while left:
                item = await come.get()
                if isinstance(item, LogLine):
                    yield item
                    continue
                left -= 1
                if isinstance(item, KubeloopError):
                    self._ignore(item)
                elif item is not None:
                    raise item
        finally:
            await end_tasks(*running, logger=_logger)

    def _ignore(self, error: KubeloopError) -> None:
        """Raises the error itself, unless such are to be passed over."""
        if not self._sources.ignore_errors:
            raise error
        _logger.warning("one of several logs ends: %s", error)
