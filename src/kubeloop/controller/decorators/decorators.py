"""The decorators that trigger a method: ``on_create``, ``on_change``, ``on_delete``, ``on_resume`` and ``every``."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar, overload

from kubeloop.controller.builder.declaration import MARK
from kubeloop.controller.errors import DeclarationError

When: TypeAlias = Literal["create", "change", "delete", "resume", "timer"]

Outcome: TypeAlias = "Awaitable[None] | None"
M = TypeVar("M", bound=Callable[[Any, Any], "Awaitable[None] | None"])
C = TypeVar("C", bound=Callable[[Any, Any, Any, Any], "Awaitable[None] | None"])


class Unknown(enum.Enum):
    """Type of ``UNKNOWN``: the old value of a change if it was too large to store."""

    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown.UNKNOWN


@dataclass(frozen=True, slots=True)
class HandlerOptions:
    """The trigger and options of a handler, as given to a decorator."""

    when: When
    id: str = ""
    path: str = ""
    every: float = 0.0
    initial_delay: float = 0.0
    retries: int | None = None
    backoff: float = 1.0
    timeout: float | None = None


@overload
def on_create(method: M) -> M: ...


@overload
def on_create(*, id: str = ..., retries: int | None = ..., backoff: float = ..., timeout: float | None = ...) -> Callable[[M], M]: ...


def on_create(
    method: M | None = None,
    *,
    id: str = "",  # noqa: A002 - kopf's own word
    retries: int | None = None,
    backoff: float = 1.0,
    timeout: float | None = None,
) -> M | Callable[[M], M]:
    """Call ``method(self, obj)`` once for each object that this controller has not handled yet, including objects older than the program.

    Args:
        method: The method; None when the decorator has arguments.
        id: Name of the handler in the object's record. Empty: the method's name. Keep it when you rename the method, or the handler counts
            as a new one.
        retries: Number of failed calls after which the handler is abandoned, as by ``TerminalError``. None: never.
        backoff: Seconds before the first retry, doubling up to 300.
        timeout: Seconds for a call (``async`` methods only). None: no limit.

    Returns:
        The method, or a decorator for it.
    """
    return _marked(method, HandlerOptions("create", id, retries=retries, backoff=backoff, timeout=timeout))


@overload
def on_resume(method: M) -> M: ...


@overload
def on_resume(*, id: str = ..., retries: int | None = ..., backoff: float = ..., timeout: float | None = ...) -> Callable[[M], M]: ...


def on_resume(
    method: M | None = None,
    *,
    id: str = "",  # noqa: A002 - kopf's own word
    retries: int | None = None,
    backoff: float = 1.0,
    timeout: float | None = None,
) -> M | Callable[[M], M]:
    """Call ``method(self, obj)`` once for each object in each run of the program, before its other handlers.

    Args:
        method: See ``on_create``.
        id: See ``on_create``.
        retries: See ``on_create``.
        backoff: See ``on_create``.
        timeout: See ``on_create``.

    Returns:
        The method, or a decorator for it.
    """
    return _marked(method, HandlerOptions("resume", id, retries=retries, backoff=backoff, timeout=timeout))


@overload
def on_delete(method: M) -> M: ...


@overload
def on_delete(*, id: str = ..., retries: int | None = ..., backoff: float = ..., timeout: float | None = ...) -> Callable[[M], M]: ...


def on_delete(
    method: M | None = None,
    *,
    id: str = "",  # noqa: A002 - kopf's own word
    retries: int | None = None,
    backoff: float = 1.0,
    timeout: float | None = None,
) -> M | Callable[[M], M]:
    """Call ``method(self, obj)`` once when ``obj`` is being deleted.

    The object exists until all such handlers have succeeded or been abandoned: a finalizer (``kubeloop.dev/NAME``) delays the deletion. It
    is added before any other handler is called.

    Args:
        method: See ``on_create``.
        id: See ``on_create``.
        retries: See ``on_create``.
        backoff: See ``on_create``.
        timeout: See ``on_create``.

    Returns:
        The method, or a decorator for it.
    """
    return _marked(method, HandlerOptions("delete", id, retries=retries, backoff=backoff, timeout=timeout))


def on_change(
    path: str,
    *,
    id: str = "",  # noqa: A002 - kopf's own word
    retries: int | None = None,
    backoff: float = 1.0,
    timeout: float | None = None,
) -> Callable[[C], C]:
    """Call ``method(self, obj, old, new)`` when the value at ``path`` differs from the last value that was handled.

    ``old`` and ``new`` are JSON values, or None if there is no value; ``old`` is ``UNKNOWN`` if it was too large to store (1 KiB, less for
    many handlers). The method is not called for the first value of an object: ``on_create`` handles that.

    Args:
        path: The path, with wire names: ``spec.replicas``.
        id: See ``on_create``.
        retries: See ``on_create``.
        backoff: See ``on_create``.
        timeout: See ``on_create``.

    Returns:
        A decorator for the method.
    """

    _check_called("on_change", path, '@on_change("spec.replicas")')

    def mark(method: C) -> C:
        return _mark(method, HandlerOptions("change", id, path, retries=retries, backoff=backoff, timeout=timeout))

    return mark


def every(
    seconds: float,
    *,
    initial_delay: float = 0.0,
    id: str = "",  # noqa: A002 - kopf's own word
    backoff: float = 1.0,
    timeout: float | None = None,
) -> Callable[[M], M]:
    """Call ``method(self, obj)`` periodically for each object that exists and is not being deleted.

    The period is measured from start to start. Calls that would overlap are skipped. After an error the next call follows after the
    back-off, if that is sooner.

    Args:
        seconds: The period.
        initial_delay: Seconds from the first time that this run of the program sees the object to the first call.
        id: See ``on_create``.
        backoff: See ``on_create``.
        timeout: See ``on_create``.

    Returns:
        A decorator for the method.
    """

    _check_called("every", seconds, "@every(60)")

    def mark(method: M) -> M:
        return _mark(method, HandlerOptions("timer", id, every=seconds, initial_delay=initial_delay, backoff=backoff, timeout=timeout))

    return mark


def _marked(method: M | None, terms: HandlerOptions) -> M | Callable[[M], M]:
    if method is not None:
        return _mark(method, terms)

    def mark(decorated: M) -> M:
        return _mark(decorated, terms)

    return mark


def _check_called(decorator: str, argument: object, hint: str) -> None:
    """Raise DeclarationError if a decorator that needs an argument is used without one, since the method would never be called."""
    if callable(argument):
        raise DeclarationError(f"{getattr(argument, '__qualname__', argument)}: @{decorator} needs an argument; write {hint}")


_Any = TypeVar("_Any", bound=Callable[..., Any])


def _mark(method: _Any, terms: HandlerOptions) -> _Any:
    # A method may have several decorators; each is a separate handler.
    setattr(method, MARK, (*getattr(method, MARK, ()), terms))
    return method
