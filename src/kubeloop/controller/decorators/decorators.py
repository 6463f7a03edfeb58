"""The decorators that say when a method is called: ``on_create``, ``on_change``, ``on_delete``, ``on_resume`` and ``every``."""

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
    """The old value was too large to be kept: only that it is another now is known."""

    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown.UNKNOWN


@dataclass(frozen=True, slots=True)
class Terms:
    """How a handler is called. See the decorators."""

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
    """Call ``method(self, obj)`` once for each object that this controller has never seen, also for older objects.

    ``id``: what the handler is called in the object's record; the method's name unless given. Keep it when you rename the method, or the
    handler is taken for a new one. ``retries``: after so many failed calls it is given up, as by ``TerminalError``; None never.
    ``backoff``: seconds before the first retry, doubling up to 300. ``timeout``: seconds for a call (``async`` handlers only).
    """
    return _marked(method, Terms("create", id, retries=retries, backoff=backoff, timeout=timeout))


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
    """Call ``method(self, obj)`` once for each object in each run of the program, before its other handlers. Options as ``on_create``."""
    return _marked(method, Terms("resume", id, retries=retries, backoff=backoff, timeout=timeout))


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
    """Call ``method(self, obj)`` once when ``obj`` is to be deleted; it is gone when all such handlers have succeeded or been given up.

    A finalizer (``kubeloop.dev/NAME``) holds it until then; it is added before any other handler is called. Options as ``on_create``.
    """
    return _marked(method, Terms("delete", id, retries=retries, backoff=backoff, timeout=timeout))


def on_change(
    path: str,
    *,
    id: str = "",  # noqa: A002 - kopf's own word
    retries: int | None = None,
    backoff: float = 1.0,
    timeout: float | None = None,
) -> Callable[[C], C]:
    """Call ``method(self, obj, old, new)`` when what stands at ``path`` (``spec.replicas``, wire names) is another than was last handled.

    ``old`` and ``new`` are as JSON has them, None where nothing is there; ``old`` is ``UNKNOWN`` if it took more than 1 KiB. Not called for
    the first value of an object: that is ``on_create``'s. Options as ``on_create``.
    """

    _check_called("on_change", path, '@on_change("spec.replicas")')

    def mark(method: C) -> C:
        return _mark(method, Terms("change", id, path, retries=retries, backoff=backoff, timeout=timeout))

    return mark


def every(
    seconds: float,
    *,
    initial_delay: float = 0.0,
    id: str = "",  # noqa: A002 - kopf's own word
    backoff: float = 1.0,
    timeout: float | None = None,
) -> Callable[[M], M]:
    """Call ``method(self, obj)`` every so many seconds for each object, from start to start, while it is there and not being deleted.

    The first call is ``initial_delay`` seconds after the program has first seen the object, in each run. Calls that would overlap are
    left out. After an error the next call comes after the back-off, if that is sooner.
    """

    _check_called("every", seconds, "@every(60)")

    def mark(method: M) -> M:
        return _mark(method, Terms("timer", id, every=seconds, initial_delay=initial_delay, backoff=backoff, timeout=timeout))

    return mark


def _marked(method: M | None, terms: Terms) -> M | Callable[[M], M]:
    if method is not None:
        return _mark(method, terms)

    def mark(decorated: M) -> M:
        return _mark(decorated, terms)

    return mark


def _check_called(decorator: str, argument: object, hint: str) -> None:
    """Raises DeclarationError: it stands bare above a method, which would vanish without a word."""
    if callable(argument):
        raise DeclarationError(f"{getattr(argument, '__qualname__', argument)}: @{decorator} wants to know what for; write {hint}")


_Any = TypeVar("_Any", bound=Callable[..., Any])


def _mark(method: _Any, terms: Terms) -> _Any:
    # A method may have several decorators; each is a separate handler.
    setattr(method, MARK, (*getattr(method, MARK, ()), terms))
    return method
