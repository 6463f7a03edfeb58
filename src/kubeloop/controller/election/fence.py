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
    """Check the writes through ``client`` from now on. Return a function that stops the checks."""
    return client.transport.add_hook(_Fence())


@contextmanager
def checked(check: Callable[[], None]) -> Iterator[None]:
    """Within the block, and in tasks begun there, writes through guarded clients are sent only if ``check`` does not raise."""
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
