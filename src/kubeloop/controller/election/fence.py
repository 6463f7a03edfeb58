"""Fence: checks leadership immediately before a leader's write is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar

from kubeloop.client import Client
from kubeloop.transport import Hook, SentRequest

_check: ContextVar[Callable[[], None] | None] = ContextVar("kubeloop_leadership", default=None)

_READS = frozenset(("get", "list", "watch", "GET", "HEAD", "OPTIONS"))


class _Fence(Hook):
    """Hook of a client that calls the check of the sending task, if it has one."""

    def sending(self, request: SentRequest) -> None:
        check = _check.get()
        if check is not None and request.verb not in _READS:
            check()


def guard(client: Client) -> Callable[[], None]:
    """Guard ``client``: call the check that ``checked`` sets before each write. Return a function that removes the guard."""
    return client.transport.add_hook(_Fence())


@contextmanager
def checked(check: Callable[[], None]) -> Iterator[None]:
    """Call ``check`` before each write through a guarded client within the block, and in tasks started there. If it raises, do not send."""
    token = _check.set(check)
    try:
        yield
    finally:
        # An unfinished coroutine is closed in any context that the garbage collector runs in: nothing to reset there.
        with suppress(ValueError):
            _check.reset(token)


@contextmanager
def fenced(check: Callable[[], None], clients: Iterable[Client]) -> Iterator[None]:
    """Guard ``clients`` and apply ``check`` to their writes within the block."""
    with ExitStack() as stack:
        for client in clients:
            stack.callback(guard(client))
        stack.enter_context(checked(check))
        yield
