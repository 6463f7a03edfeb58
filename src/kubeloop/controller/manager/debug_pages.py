"""The /debug/ pages: tasks, threads, memory, profile, log levels, informers and queues.

GET reads and PUT changes. Browsers do not let web pages of other origins send PUT requests.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import io
import json
import logging
import marshal
import pstats
import sys
import threading
import time
import traceback
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from kubeloop.controller.manager.clusters import ManagedCluster
from kubeloop.controller.runner.runnable import RunnerStats
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request
from kubeloop.timing import Clock

# Memory: figures of the system and the garbage collector and, while tracing is on, the lines that allocated most.


#: Number of lines and of types that are shown.
_TOP = 30


def memory_text() -> str:
    lines = [f"resident: {_resident()}", f"collected objects: {len(gc.get_objects())} tracked, generations {gc.get_count()}", ""]
    kinds = Counter(type(one).__qualname__ for one in gc.get_objects())
    lines += [f"{number:>10} {kind}" for kind, number in kinds.most_common(_TOP)]
    if not tracemalloc.is_tracing():
        lines += ["", "allocations are not traced; PUT /debug/memory?trace=on traces them from then on (slower), trace=off ends that"]
        return "\n".join(lines) + "\n"
    current, peak = tracemalloc.get_traced_memory()
    lines += ["", f"traced: {current} bytes now, {peak} at most; the tracing itself takes {tracemalloc.get_tracemalloc_memory()}"]
    lines += [
        f"{one.size:>12} bytes in {one.count} blocks at {one.traceback}" for one in tracemalloc.take_snapshot().statistics("lineno")[:_TOP]
    ]
    return "\n".join(lines) + "\n"


def trace(argument: str) -> str | None:
    """Start (``on``) or stop (``off``) tracing of memory. Return a message; None for another argument."""
    if argument == "on":
        tracemalloc.start()
        return "allocations are traced\n"
    if argument == "off":
        tracemalloc.stop()
        return "allocations are no longer traced\n"
    return None


def _resident() -> str:
    try:
        line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmRSS:"))
    except (OSError, StopIteration):
        return "not known on this system"
    return line.removeprefix("VmRSS:").strip()


def tasks_text() -> str:
    """Return a text with each task of this loop: its name, its state and the chain of coroutines that it awaits, outermost first."""
    found = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    parts = [f"{len(found)} tasks\n"]
    for task in found:
        state = "cancelling" if task.cancelling() else "waiting" if task is not asyncio.current_task() else "running"
        parts.append(f'\ntask "{task.get_name()}" ({state})\n' + "".join(f"  {line}\n" for line in _stack(task.get_coro())))
    return "".join(parts)


def threads_text() -> str:
    """Return a text with each thread of the process and its stack."""
    names = {one.ident: one.name for one in threading.enumerate()}
    parts = [f"{len(names)} threads\n"]
    for ident, frame in sys._current_frames().items():
        parts.append(f'\nthread "{names.get(ident, ident)}"\n' + "".join(traceback.format_stack(frame)))
    return "".join(parts)


def _stack(awaited: Any) -> Iterator[str]:
    """Yield the frames of a suspended task down to the innermost one. asyncio itself shows only the outermost frame."""
    while awaited is not None:
        frame: FrameType | None = _first(awaited, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None:
            code = frame.f_code
            yield f"{code.co_filename}:{frame.f_lineno} in {getattr(code, 'co_qualname', code.co_name)}"
            awaited = _first(awaited, "cr_await", "gi_yieldfrom", "ag_await")
        else:
            yield f"waits for {_short(awaited)}"
            return


def _first(awaited: Any, *names: str) -> Any:
    """Return the first attribute that is not None. Coroutines, generators and async generators name the same attribute differently."""
    return next((found for name in names if (found := getattr(awaited, name, None)) is not None), None)


def _short(awaited: object) -> str:
    """Return the name of an object's type, or for a task its name. ``repr`` is not used, since it may show contents of the object."""
    if isinstance(awaited, asyncio.Task):
        return f'task "{awaited.get_name()}"'
    return type(awaited).__name__


#: Maximum seconds of a profile.
LONGEST = 300.0
_MOST_FUNCTIONS = 60


class ProfileBusyError(Exception):
    """Another profile is running; only one can run at a time."""


class Profiler:
    """Profiles the processor time of the event loop's thread, including everything that runs on the loop meanwhile."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._busy = False

    async def take(self, seconds: float) -> cProfile.Profile:
        """Profile for ``seconds``, and return the profile.

        Raises:
            ProfileBusyError: a profiler runs already, this one or the profiler of a debugger.
        """
        if self._busy:
            raise ProfileBusyError
        self._busy = True
        profile = cProfile.Profile(time.thread_time)
        try:
            try:
                profile.enable()
            except ValueError as error:
                raise ProfileBusyError from error
            try:
                await self._clock.sleep(seconds)
            finally:
                profile.disable()
        finally:
            self._busy = False
        return profile


def profile_text(profile: cProfile.Profile) -> str:
    """Return a profile as text: the functions that take most time, including the functions that they call, first."""
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("cumulative").print_stats(_MOST_FUNCTIONS)
    return text.getvalue()


def profile_dump(profile: cProfile.Profile) -> bytes:
    """Return a profile in the format of ``Profile.dump_stats``, for ``pstats`` and snakeviz."""
    profile.create_stats()
    return marshal.dumps(profile.stats)


_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_Page = Callable[[Request], Awaitable[Answer]]


class Shown(Protocol):
    @property
    def clusters(self) -> Mapping[str, ManagedCluster]: ...
    @property
    def stats(self) -> Iterable[RunnerStats]: ...


class DebugPages:
    """The debug pages of one manager. They show names of objects, stacks and numbers, but no contents of objects and no secrets."""

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
        """Return the response, or None if the path is not that of a debug page."""
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
