"""Actions in Python: imports the callable of a rule, and calls it with a time limit, in a thread or in the event loop."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kubeloop.merge.go_text import copy_tree, same
from kubeloop.proxy.rules.errors import ActionFailed
from kubeloop.proxy.rules.object_paths import identity_change
from kubeloop.proxy.rules.structure import type_name
from kubeloop.timing import Clock, TimeLimit
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from kubeloop.controller.threads import ThreadExecutor

#: Seconds of a call unless the rule says otherwise.
DEFAULT_SECONDS: Final = 1.0
#: Threads that one callable may occupy. A call that never returns occupies one until the program ends.
MAX_THREADS: Final = 32


class PythonCallable:
    """A function of the user that returns the object to show, or None to hide it.

    A synchronous function runs in a daemon thread. If it does not return in time, the thread is abandoned: the call fails, and the
    program can still end. An asynchronous function runs in the event loop, and is cancelled after the limit.
    """

    hides: ClassVar[bool] = True

    def __init__(self, target: str, function: Callable[..., Any], seconds: float, clock: Clock) -> None:
        """Create the action.

        Args:
            target: ``module:function``, for messages.
            function: The function.
            seconds: The limit of one call; waiting for a thread counts.
            clock: Measures the limit.
        """
        self.target = target
        self._function = function
        self._seconds = seconds
        self._clock = clock
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - objects with an async __call__
        self._free = asyncio.Semaphore(MAX_THREADS)

    @cached_property
    def _threads(self) -> ThreadExecutor:
        # Loads the packages of controllers, which most proxies do without.
        from kubeloop.controller.threads import ThreadExecutor

        return ThreadExecutor(f"rule-{self.target}")

    def may_change(self, path: Sequence[str]) -> bool:
        del path
        return True

    async def apply(self, tree: JSONObject, request: Mapping[str, Any]) -> JSONObject | None:
        """Return the function's result, the same tree if that is equal to it, or None to hide the object.

        Raises:
            ActionFailed: The function raised, took too long, or returned something that is no object.
        """
        result = await self._call(copy_tree(tree), request)
        if result is None:
            return None
        if not isinstance(result, dict):
            if inspect.iscoroutine(result):
                result.close()
            given = type_name(result) if isinstance(result, list | str | int | float) else f"a {type(result).__name__}"
            raise ActionFailed(f"{self.target} returned {given}; expected a dict, or None to hide the object")
        try:
            problem = _not_json(result)
        except RecursionError:
            problem = "an object that nests too deeply, or contains itself"
        if problem:
            raise ActionFailed(f"{self.target} returned {problem}")
        changed = identity_change(tree, result)
        if changed:
            raise ActionFailed(f"{self.target} changed {changed}; clients identify the object by it")
        # The function may keep a reference to its result, and change it later.
        return tree if same(tree, result) else copy_tree(result)

    async def _call(self, tree: JSONObject, request: Mapping[str, Any]) -> Any:
        limit = TimeLimit(self._clock, self._seconds)
        try:
            async with limit:
                return await (self._in_loop(tree, request) if self._is_async else self._in_thread(tree, request))
        except TimeoutError as error:
            if limit.expired:
                raise ActionFailed(f"{self.target} did not return within {self._seconds:g} s") from None
            raise self._raised(error) from error
        except ActionFailed:
            raise
        except Exception as error:
            raise self._raised(error) from error

    async def _in_loop(self, tree: JSONObject, request: Mapping[str, Any]) -> Any:
        task = asyncio.ensure_future(self._awaited(tree, request))
        task.add_done_callback(_retrieve)
        try:
            # Not the task itself: if it ignores its cancellation, this call ends in time nevertheless.
            await asyncio.wait({task})
        finally:
            task.cancel()
        if task.cancelled():
            raise ActionFailed(f"{self.target} cancelled itself")
        return task.result()

    async def _in_thread(self, tree: JSONObject, request: Mapping[str, Any]) -> Any:
        await self._free.acquire()
        try:
            future = self._threads.call(lambda argument: self._called(argument, request), tree)
        except BaseException:
            self._free.release()
            raise
        future.add_done_callback(self._ended)
        # An abandoned future is not cancelled: its end releases the thread.
        await asyncio.wait({future})
        return future.result()

    async def _awaited(self, tree: JSONObject, request: Mapping[str, Any]) -> Any:
        try:
            return await self._function(tree, request)
        except (SystemExit, KeyboardInterrupt) as error:  # would end the event loop
            raise self._raised(error) from error

    def _called(self, tree: JSONObject, request: Mapping[str, Any]) -> Any:
        try:
            return self._function(tree, request)
        except Exception:
            raise
        except BaseException as error:  # would end the proxy, or look like the cancellation of the request
            raise self._raised(error) from error

    def _ended(self, future: asyncio.Future[Any]) -> None:
        self._free.release()
        _retrieve(future)

    def _raised(self, error: BaseException) -> ActionFailed:
        return ActionFailed(f"{self.target} raised {type(error).__name__}: {error}")


def import_callable(target: str) -> Callable[..., Any]:
    """Import a function by ``module:function``, also from the working directory. A module that is loaded already is not loaded again.

    Raises:
        ValueError: The function cannot be imported, is not callable, or does not take two arguments; the text says which.
    """
    module_name, _, attribute = target.partition(":")
    folder = str(os.getcwd())  # noqa: PTH109 - a text is needed
    if folder not in sys.path and "" not in sys.path:
        # Last, so that a file there replaces no installed module.
        sys.path.append(folder)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"there is no module {error.name or module_name}; run the proxy in its folder, or set PYTHONPATH") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - code of the user may raise anything when it is imported
        raise ValueError(f"the module {module_name} raised {type(error).__name__} when it was imported: {error}") from None
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ValueError(f"{module_name} has no {attribute}") from None
    if not callable(found):
        raise ValueError(f"{target} is a {type(found).__name__}; expected a function")  # noqa: TRY004 - the value of a field is wrong
    try:
        inspect.signature(found).bind({}, {})
    except TypeError:
        raise ValueError(f"{target}{inspect.signature(found)} cannot be called with two arguments, the object and the request") from None
    except ValueError:
        pass  # a function in C without a signature
    return found  # type: ignore[no-any-return]  # checked by callable()


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Take notice of the error of a call that may have been abandoned; asyncio would log it."""
    if not future.cancelled():
        future.exception()


def _not_json(value: Any) -> str:
    """Return the first part of a value that JSON does not have, or an empty text."""
    if isinstance(value, dict):
        for key, child in value.items():
            if not isinstance(key, str):
                return f"a key of type {type(key).__name__}; expected text"
            if problem := _not_json(child):
                return problem
    elif isinstance(value, list):
        return next(filter(None, map(_not_json, value)), "")
    elif isinstance(value, float):
        return "" if math.isfinite(value) else f"the number {value}, which JSON does not have"
    elif not isinstance(value, str | int | None):
        return f"a value of type {type(value).__name__}, which JSON does not have"
    return ""
