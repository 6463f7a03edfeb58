"""Reads a controller's own sources, and puts what they give into its queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from kubeloop.controller.handler.source import Channel, SourceError
from kubeloop.meta import ObjectKey
from kubeloop.meta.failure_log import FailureLog
from kubeloop.tasks import end_tasks
from kubeloop.timing import Backoff, Clock
from kubeloop.transport import log_context, logger_with_context

log = logger_with_context("kubeloop.controller.runner")


class Sources:
    """One task for each channel, from ``start`` to ``close``. See ``Channel`` for what happens to one that breaks."""

    def __init__(
        self, owner: str, channels: Sequence[Channel[Any]], enqueue: Callable[[ObjectKey, float, int], None], clock: Clock
    ) -> None:
        self._owner = owner
        self._channels = channels
        self._enqueue = enqueue
        self._clock = clock
        self._failures: FailureLog[str] = FailureLog(log)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for channel in self._channels:
            self._tasks.append(asyncio.create_task(self._read(channel), name=f"kubeloop source {channel.name} of {self._owner}"))

    async def close(self) -> None:
        await end_tasks(*self._tasks, expected=(SourceError,), logger=log)  # ``beside`` raises a SourceError

    async def beside(self, work: Coroutine[object, object, None], stop: Callable[[], None]) -> None:
        """Do ``work``; a source that breaks for good stops it.

        Raises:
            SourceError: one did.
        """
        for task in self._tasks:
            task.add_done_callback(lambda _: stop() if self._broken() else None)
        if self._broken():
            stop()
        await work
        broken = self._broken()
        if broken is not None:
            raise broken

    def _broken(self) -> BaseException | None:
        ended = [task for task in self._tasks if task.done() and not task.cancelled()]
        return next((error for task in ended if (error := task.exception()) is not None), None)

    async def _read(self, channel: Channel[Any]) -> None:
        backoff = Backoff(clock=self._clock)
        with log_context(controller=self._owner, source=channel.name):
            while True:
                try:
                    async for item in channel.items():
                        self._take(channel, item)
                except (Exception, asyncio.CancelledError, SystemExit) as error:
                    task = asyncio.current_task()
                    if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                        raise  # This is to end. Else something that the source waited for was cancelled.
                    if not channel.reopens:
                        raise SourceError(
                            f"source {channel.name} of {self._owner} broke: {type(error).__name__}: {error}; what it had to tell is lost. "
                            "Give Channel a function that opens it, and it is opened again"
                        ) from error
                    delay = backoff.next()
                    shown, said = self._failures.failed(channel.name, error), f"{type(error).__name__}: {error}"
                    about = (channel.name, self._owner, said, delay)
                    log.log(logging.ERROR, "source %s of %s broke: %s; it is opened again in %.1f s", *about, exc_info=shown)
                    await self._clock.sleep(delay)
                else:
                    log.info("source %s of %s has ended", channel.name, self._owner)
                    return

    def _take(self, channel: Channel[Any], item: Any) -> None:
        try:
            keys = channel.keys(item)
        except Exception as error:
            # Bad items are one thing, a bad source another: the next one may be good.
            shown, said = self._failures.failed(f"{channel.name}/item", error), f"{type(error).__name__}: {error}"
            about = (channel.name, self._owner, said)
            log.log(logging.ERROR, "source %s of %s: an item that cannot be mapped is left out: %s", *about, exc_info=shown)
            return
        for key in keys:
            self._enqueue(key, 0.0, channel.priority)
