"""Logs of several containers as one stream: each line with its pod and container.

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
from kubeloop.client.verbs.base import limit
from kubeloop.meta.errors import KubeloopError
from kubeloop.tasks import end_tasks

if TYPE_CHECKING:
    from kubeloop.api.core.v1 import Pod
    from kubeloop.client.client import Client
    from kubeloop.client.selector_text import Labels

_LOG = logging.getLogger("kubeloop.client.streams")

#: Maximum number of lines of all sources that wait for the reader; above it, no more lines are read from the sources.
_WAITING = 100


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log with its pod and container. ``str`` formats it as ``kubectl logs --prefix`` does.

    >>> str(LogLine(pod="web-0", container="web", text="ready"))
    '[pod/web-0/web] ready'
    """

    pod: str
    container: str
    text: str

    def __str__(self) -> str:
        return f"[pod/{self.pod}/{self.container}] {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSources:
    """The logs to merge; see ``PodVerbs.merged_logs``."""

    targets: tuple[Target, ...] = ()
    label_selector: Labels | None = None
    namespace: str | None = None
    container: str | None = None
    all_containers: bool = False
    max_sources: int = 5
    ignore_errors: bool = False


class MergedLogs:
    """The merged lines of several logs: ``async with client.pods.merged_logs(...) as lines``, then ``async for line in lines``.

    >>> from kubeloop.testing import ScriptedKubelet
    >>> async with ScriptedKubelet(client, namespace=client.namespace) as kubelet:
    ...     for name in ("web-0", "web-1"):
    ...         pod = await kubelet.run_pod(name)
    ...         script = kubelet.on_logs(name, ["ready"])
    ...     async with client.pods.merged_logs("web-0", "web-1") as lines:
    ...         print([f"{line.pod}: {line.text}" async for line in lines])
    ['web-0: ready', 'web-1: ready']

    Guarantees
        The lines of one container are in order, as in ``Log``. Without ``follow`` the containers come one after the other, in the order of
        the pods; with ``follow`` lines come as they are written. A slow reader delays all containers.

    Not guaranteed
        Logs of pods that are created later are not included.
    """

    def __init__(self, client: Client, sources: LogSources, options: LogOptions, *, timeout: float | None = None) -> None:
        """Prepare to read the logs; no request is sent before ``async with``.

        Args:
            client: Sends the requests.
            sources: The pods and containers.
            options: Options of each log.
            timeout: Seconds of the client's clock until the pods are found. None: no limit but that of each request.
        """
        self._client = client
        self._timeout = timeout
        self._sources = sources
        self._options = options
        self._calls: list[tuple[str, str, LogCall]] = []
        self._lines: AsyncGenerator[LogLine, None] | None = None

    async def __aenter__(self) -> AsyncIterator[LogLine]:
        """Find the pods and their containers. Their logs are requested when the lines are read.

        Raises:
            NotFound: A named object does not exist. StreamError: there are no pods, or more containers than ``max_sources``.
            DeadlineError: The pods were not found in time.
        """
        finding = find_pods(self._client, self._sources.targets, self._sources.label_selector, self._sources.namespace)
        pods = await limit(finding, self._timeout, self._client.clock, "merged_logs")
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
            await end_tasks(*running, logger=_LOG)

    def _ignore(self, error: KubeloopError) -> None:
        """Log the error, or raise it if errors are not ignored."""
        if not self._sources.ignore_errors:
            raise error
        _LOG.warning("one of several logs ends: %s", error)
