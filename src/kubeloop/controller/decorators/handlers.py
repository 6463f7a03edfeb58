"""The handlers that a class declares, read and checked once. Invalid handlers are rejected when the class is created."""

from __future__ import annotations

import asyncio
import copy
import difflib
import inspect
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kubeloop.codec.paths import EACH, Segment, parse_path, walk
from kubeloop.codec.shape import Shape, ValueForm, fields_of
from kubeloop.controller.builder.declaration import MARK
from kubeloop.controller.decorators.decorators import HandlerOptions, When
from kubeloop.controller.decorators.progress import ObjectProgress
from kubeloop.controller.errors import DeclarationError
from kubeloop.controller.result import TerminalError
from kubeloop.controller.threads import ThreadExecutor
from kubeloop.meta import Conflict, KubeloopError, ObjectKey, Resource, Unstructured
from kubeloop.meta.failure_log import FailureLog, times
from kubeloop.tasks import result_of
from kubeloop.timing import TimeLimit
from kubeloop.transport import logger_with_context

if TYPE_CHECKING:
    from kubeloop.controller.events import EventRecorder
    from kubeloop.timing import Clock

_ARGUMENTS = {"change": ("obj", "old", "new")}
_OF_EACH_WRITE = (("metadata", "resourceVersion"), ("metadata", "managedFields"))
_SPELLINGS = {
    "create": "@on_create",
    "change": '@on_change("spec.replicas")',
    "delete": "@on_delete",
    "resume": "@on_resume",
    "timer": "@every(60)",
}


@dataclass(frozen=True, slots=True)
class DeclaredHandler:
    """One handler: its method and when it is called. ``id`` is unique in its class; ``plain`` marks a synchronous method."""

    id: str
    method: str
    terms: HandlerOptions
    plain: bool
    segments: tuple[Segment, ...] = ()

    def value(self, tree: dict[str, Any]) -> Any:
        """Return the value at the handler's path, or None if it is missing; a list for a path with ``[*]``."""
        found = list(walk(tree, self.segments))
        return found if EACH in self.segments else (found[0] if found else None)


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers of one class, each kind in the order of their definition."""

    all: tuple[DeclaredHandler, ...]

    def of(self, when: When) -> list[DeclaredHandler]:
        return [one for one in self.all if one.terms.when == when]


def handlers_of(cls: type[Any], kind: type[Resource] | None) -> Handlers:
    """Return the handlers of a class, those of its base classes first.

    Raises:
        DeclarationError: a handler is not a method with the right arguments, its path is not in the kind, its times are invalid, or two
            handlers have the same id.
    """
    found: dict[str, list[DeclaredHandler]] = {}
    for base in reversed(cls.__mro__):
        for name, member in vars(base).items():
            marks: tuple[HandlerOptions, ...] = getattr(member, MARK, ())
            if name in found and not marks:
                del found[name]  # overridden by a member that is not a handler
            if marks:
                found[name] = [_handler(cls, name, member, terms, kind) for terms in marks]
    handlers = [one for several in found.values() for one in several]
    for twice, count in Counter(one.id for one in handlers).items():
        if count > 1:
            raise DeclarationError(f'{cls.__name__}: {count} handlers have the id "{twice}"; give each its own id, id="..."')
    return Handlers(tuple(handlers))


def _handler(cls: type[Any], name: str, member: Any, terms: HandlerOptions, kind: type[Resource] | None) -> DeclaredHandler:
    owner = f"{cls.__name__}.{name}"
    _check_arguments(owner, member, terms)
    plain = not inspect.iscoroutinefunction(member)
    _check_times(owner, terms, plain)
    segments: tuple[Segment, ...] = ()
    if terms.when == "change":
        try:
            segments = parse_path(terms.path)
        except ValueError as error:
            raise DeclarationError(f"{owner}: {error}") from None
        if segments == ("metadata",) or segments[:2] in _OF_EACH_WRITE:
            raise DeclarationError(
                f'{owner}: path "{terms.path}" changes with each write, also with that of handled changes: it would be called '
                'endlessly; name what matters: @on_change("spec"), @on_change("metadata.labels"), @on_change("metadata.annotations")'
            )
        if kind is not None:
            _check_path(owner, kind, terms.path, segments)
    marks = len(getattr(member, MARK, ()))
    # Several decorators on one method: each needs its own id.
    default = name if marks < 2 else f"{name}/{terms.when}" + (f"/{terms.path}" if terms.path else "")
    return DeclaredHandler(terms.id or default, name, terms, plain, segments)


def _check_arguments(owner: str, member: Any, terms: HandlerOptions) -> None:
    expected = ("self", *_ARGUMENTS.get(terms.when, ("obj",)))
    hint = f"write {_SPELLINGS[terms.when]} above `async def {owner.rpartition('.')[2]}({', '.join(expected)}) -> None`, or a plain def"
    if isinstance(member, staticmethod | classmethod) or not callable(member):
        raise DeclarationError(f"{owner} is not a method; {hint}")
    if inspect.isasyncgenfunction(member) or inspect.isgeneratorfunction(member):
        raise DeclarationError(f"{owner} yields, so that calling it does nothing; {hint}")
    parameters = inspect.signature(member).parameters.values()
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needed = [one for one in positional if one.default is one.empty]
    required_names = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    takes_any = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    if required_names or len(needed) > len(expected) or (len(positional) < len(expected) and not takes_any):
        raise DeclarationError(f"{owner} takes ({', '.join(map(str, parameters))}); {hint}")


def _check_times(owner: str, terms: HandlerOptions, plain: bool) -> None:
    if terms.when == "timer" and not (_is_time(terms.every) and terms.every > 0):
        raise DeclarationError(f"{owner}: every({terms.every!r}) must be a number of seconds above 0")
    for name, value in (("initial_delay", terms.initial_delay), ("backoff", terms.backoff)):
        if not _is_time(value) or value < 0:
            raise DeclarationError(f"{owner}: {name}={value!r} must be a number of seconds, 0 or more")
    retries: object = terms.retries
    if retries is not None and (not isinstance(retries, int) or retries < 1):
        raise DeclarationError(f"{owner}: retries={terms.retries!r} must be a number of calls, 1 or more, or None for no limit")
    if terms.timeout is not None:
        if not _is_time(terms.timeout) or terms.timeout <= 0:
            raise DeclarationError(f"{owner}: timeout={terms.timeout!r} must be a number of seconds above 0")
        if plain:
            raise DeclarationError(f"{owner}: timeout= is for async handlers; a thread cannot be stopped. Write async def, or leave it out")


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_path(owner: str, kind: type[Resource], path: str, segments: tuple[Segment, ...]) -> None:
    if issubclass(kind, Unstructured):
        return
    shape = Shape(ValueForm.STRUCT, kind)
    done = ""
    for segment in segments:
        if shape.form is ValueForm.ANY:
            return
        if segment is EACH or not isinstance(segment, str):
            if shape.form is not ValueForm.LIST or shape.item is None:
                raise DeclarationError(f'{owner}: path "{path}": {kind.__name__} has no list at "{done}"')
            shape, done = shape.item, f"{done}[*]"
            continue
        here = f"{done}.{segment}".lstrip(".")
        if shape.form is ValueForm.STRUCT:
            fields = fields_of(shape.type).by_wire
            if segment not in fields:
                # The most likely mistake is the Python name of a field instead of its wire name.
                alike = [wire for wire, field in fields.items() if field.name == segment]
                alike += difflib.get_close_matches(segment, fields, 1)
                hint = f'; did you mean "{f"{done}.{alike[0]}".lstrip(".")}"?' if alike else f"; there are {', '.join(fields)}"
                raise DeclarationError(f'{owner}: path "{path}": {kind.__name__} has no field "{here}"{hint}')
            shape = fields[segment].shape
        elif shape.form is ValueForm.MAP and shape.item is not None:
            shape = shape.item
        else:
            raise DeclarationError(f'{owner}: path "{path}": "{done}" of {kind.__name__} holds nothing that could have a field "{segment}"')
        done = here


_LOG = logger_with_context("kubeloop.controller.decorators")

#: Number of conflicts in a row that are not logged.
_USUAL_CONFLICTS: Final = 3
#: Seconds between checks of a thread that still runs although its reconcile was cancelled.
_LOOK_AGAIN: Final = 1.0


class _StillRunning(Exception):
    """The thread of an earlier call has not ended."""


class HandlerInvoker:
    """Calls the handlers of one controller. ``errors`` counts failed calls, including abandoned handlers.

    Args:
        controller: The controller whose methods are called.
        name: Name of the controller, for logs.
        clock: Clock of time limits and back-off.
        events: Records abandoned handlers.
    """

    def __init__(self, controller: object, name: str, clock: Clock, events: EventRecorder) -> None:
        self.errors = 0
        self.last_error = ""
        self._controller = controller
        self._clock = clock
        self._events = events
        self._threads = ThreadExecutor(f"{name}-handler")
        self._failures: FailureLog[tuple[str, ObjectKey]] = FailureLog(_LOG)

    def forget(self, handlers: Iterable[DeclaredHandler], key: ObjectKey) -> None:
        """Drop the recorded failures of a deleted object."""
        for handler in handlers:
            self._failures.succeeded((handler.id, key))

    def close(self) -> None:
        """Stop the threads, each after its current call."""
        self._threads.close()

    async def call(self, handler: DeclaredHandler, memory: ObjectProgress, obj: Resource, *values: Any) -> float | None:
        """Call the handler, unless it waits for a retry. It gets a copy of ``obj``, which it may change.

        Returns:
            The seconds until the retry; None if the handler succeeded or was abandoned.
        """
        wait = memory.wait(handler.id, self._clock.now())
        if wait > 0:
            return wait
        try:
            await self._run(handler, memory, obj, values)
        except _StillRunning:
            return _LOOK_AGAIN
        except TerminalError as error:
            self._give_up(handler, memory, obj, error)
            return None
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return self._failed(handler, memory, obj, error, "something that it waited for was cancelled")
        except KubeloopError as error:
            return self._failed(handler, memory, obj, error, self._failures.text(error))
        except TimeoutError as error:
            after = handler.terms.timeout
            return self._failed(handler, memory, obj, error, f"timed out after {after:g} s" if after is not None else "timed out")
        except Exception as error:  # noqa: BLE001  # any error delays this handler only
            return self._failed(handler, memory, obj, error, f"{type(error).__name__}: {self._failures.text(error)}", traceback=True)
        memory.succeeded(handler.id)
        self._failures.succeeded((handler.id, obj.object_key()))
        return None

    async def _run(self, handler: DeclaredHandler, memory: ObjectProgress, obj: Resource, values: tuple[Any, ...]) -> None:
        method = getattr(self._controller, handler.method)
        twin = copy.deepcopy(obj)
        if not handler.plain:
            async with TimeLimit(self._clock, handler.terms.timeout):
                await method(twin, *values)
            return
        # A thread cannot be stopped. If this call is cancelled, a later reconcile waits for the thread before it calls the handler again.
        earlier = memory.running.get(handler.id)
        if earlier is not None and not earlier.done():
            raise _StillRunning
        work = memory.running[handler.id] = self._threads.call(lambda arguments: method(*arguments), (twin, *values))
        answer = await result_of(work)
        del memory.running[handler.id]
        if isinstance(answer, Awaitable):
            await answer

    def _failed(
        self, handler: DeclaredHandler, memory: ObjectProgress, obj: Resource, error: BaseException, text: str, *, traceback: bool = False
    ) -> float | None:
        memory.running.pop(handler.id, None)
        retry = memory.failed(handler.id, self._clock.now(), handler.terms.backoff)
        limit = handler.terms.retries
        if limit is not None and retry.tries >= limit:
            self._give_up(handler, memory, obj, error, f"failed {retry.tries} times, the last time: {text}")
            return None
        self._count(handler, memory, error, text)
        wait = memory.wait(handler.id, self._clock.now())
        usual = isinstance(error, Conflict) and retry.tries <= _USUAL_CONFLICTS
        shown = self._failures.failed((handler.id, obj.object_key()), error) if traceback else None
        level = logging.DEBUG if usual else logging.ERROR
        failures = times(retry.tries)
        _LOG.log(level, "handler %s of %s: %s%s; next try in %.3f s", handler.id, obj.object_key(), text, failures, wait, exc_info=shown)
        return max(wait, 0.001)

    def _give_up(self, handler: DeclaredHandler, memory: ObjectProgress, obj: Resource, error: BaseException, text: str = "") -> None:
        memory.running.pop(handler.id, None)
        memory.succeeded(handler.id)
        self._failures.succeeded((handler.id, obj.object_key()))
        text = text or str(error)
        self._count(handler, memory, error, text)
        _LOG.log(logging.ERROR, "handler %s of %s: %s (not retried)", handler.id, obj.object_key(), text)
        self._events.warning(obj, "HandlerFailed", f"{handler.id}: {text}")

    def _count(self, handler: DeclaredHandler, memory: ObjectProgress, error: BaseException, text: str) -> None:
        memory.failure = error, f"handler {handler.id}: {text}"
        self.errors += 1
        self.last_error = text
