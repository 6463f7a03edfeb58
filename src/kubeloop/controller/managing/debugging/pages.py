"""/debug/: tasks, threads, memory, profile, log levels, informers and queues.

Reads by GET, changes by PUT, which no web page of another site can send here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from kubeloop.controller.managing.clusters import ManagedCluster
from kubeloop.controller.managing.debugging.memory import memory_text, trace
from kubeloop.controller.managing.debugging.profile import LONGEST, ProfileBusyError, Profiler, profile_dump, profile_text
from kubeloop.controller.managing.debugging.tasks import tasks_text, threads_text
from kubeloop.controller.running.runnable import RunnerStats
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request
from kubeloop.timing import Clock

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_Page = Callable[[Request], Awaitable[Answer]]


class Shown(Protocol):
    @property
    def clusters(self) -> Mapping[str, ManagedCluster]: ...
    @property
    def stats(self) -> Iterable[RunnerStats]: ...


class DebugPages:
    """The pages of one manager. No object's contents and no secrets: names of objects, stacks, numbers."""

    def __init__(self, subject: Shown, clock: Clock) -> None:
        self._subject = subject
        self._profiler = Profiler(clock)
        self._pages: dict[str, tuple[str, _Page, _Page | None]] = {
            "tasks": ("all tasks of the event loop and what they wait for", self._tasks, None),
            "threads": ("all threads with their stacks", self._threads, None),
            "memory": ("what memory is used for; PUT ?trace=on|off", self._memory, self._trace),
            "profile": ("CPU time of the event loop: ?seconds=5, &format=pstats for tools", self._profile, None),
            "loglevel": ("levels of loggers; PUT ?logger=kubeloop&level=DEBUG", self._levels, self._set_level),
            "informers": ("numbers of all informers", self._informers, None),
            "queues": ("controllers, their queues, what they did last", self._queues, None),
        }

    async def answer(self, request: Request) -> Answer | None:
        """None where the path is not below /debug."""
        path = request.path.rstrip("/")
        if path == "/debug":
            lines = [f"/debug/{name:<10} {text}" for name, (text, _, _) in self._pages.items()]
            return _text("\n".join(lines) + "\n")
        name = path.removeprefix("/debug/")
        if name == path or name not in self._pages:
            return None
        _, read, change = self._pages[name]
        if request.method in ("GET", "HEAD"):
            return await read(request)
        if request.method == "PUT" and change is not None:
            return await change(request)
        allowed = "GET, HEAD" + (", PUT" if change is not None else "")
        return _text(f"405 method not allowed: use {allowed}\n", 405, [("Allow", allowed)])

    async def _tasks(self, _: Request) -> Answer:
        return _text(tasks_text())

    async def _threads(self, _: Request) -> Answer:
        return _text(threads_text())

    async def _memory(self, _: Request) -> Answer:
        return _text(memory_text())

    async def _trace(self, request: Request) -> Answer:
        done = trace(request.parameter("trace"))
        return _text(done) if done is not None else _text("trace must be on or off: PUT /debug/memory?trace=on\n", 400)

    async def _profile(self, request: Request) -> Answer:
        text = request.parameter("seconds") or "5"
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds <= LONGEST:
            return _text(f"seconds must be a number above 0, {LONGEST:g} at most, not {text!r}\n", 400)
        try:
            profile = await self._profiler.take(seconds)
        except ProfileBusyError:
            return _text("a profiler runs already; try again when it has ended\n", 409)
        if request.parameter("format") == "pstats":
            named = [("Content-Disposition", 'attachment; filename="profile.pstats"')]
            return Answer(200, body=profile_dump(profile), content_type="application/octet-stream", headers=named, verbatim=True)
        return _text(profile_text(profile))

    async def _levels(self, _: Request) -> Answer:
        names = [name for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger) and one.level]
        lines = [f"{logging.getLevelName(logging.getLogger(name).level):<8} {name}" for name in sorted(names)]
        return _text("\n".join([f"{logging.getLevelName(logging.root.level):<8} (root)", *lines]) + "\n")

    async def _set_level(self, request: Request) -> Answer:
        name, level = request.parameter("logger") or "kubeloop", request.parameter("level").upper()
        if level not in _LEVELS:
            return _text(f"level must be one of {', '.join(_LEVELS)}: PUT /debug/loglevel?logger={name}&level=DEBUG\n", 400)
        logging.getLogger(name).setLevel(level)
        return _text(f"{name} logs from {level} on\n")

    async def _informers(self, _: Request) -> Answer:
        return _json({name: cluster.informers.dump() for name, cluster in self._subject.clusters.items()})

    async def _queues(self, _: Request) -> Answer:
        stats = self._subject.stats
        return _json({"controllers": [{**_plain(one), "queue": one.queue._asdict(), "counts": asdict(one.counts)} for one in stats]})


def _plain(stats: RunnerStats) -> dict[str, Any]:
    return {name: getattr(stats, name) for name in stats.__slots__ if isinstance(getattr(stats, name), str | int | float)}


def _json(tree: dict[str, Any]) -> Answer:
    body = json.dumps(tree, indent=2, default=str) + "\n"
    return Answer(200, body=body.encode(), content_type="application/json", verbatim=True)


def _text(body: str, status: int = 200, headers: list[tuple[str, str]] | None = None) -> Answer:
    nosniff = ("X-Content-Type-Options", "nosniff")
    return Answer(status, body=body.encode(), content_type="text/plain; charset=utf-8", headers=[nosniff, *(headers or [])])
