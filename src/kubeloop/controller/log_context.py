"""Which cluster, controller and key the running code works for, carried by contextvars into standard ``logging`` records.

Nothing here touches a logger: attach ``ContextFilter`` to a handler of your own, or read ``current()``.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class LogContext:
    """Empty strings where nothing is known. ``key`` is ``namespace/name``."""

    cluster: str = ""
    controller: str = ""
    key: str = ""

    def __str__(self) -> str:
        shown = (("cluster", self.cluster), ("controller", self.controller), ("key", self.key))
        return " ".join(f"{name}={value}" for name, value in shown if value)


_NOTHING = LogContext()
_CONTEXT: ContextVar[LogContext] = ContextVar("kubeloop_log_context", default=_NOTHING)


def current() -> LogContext:
    """What the running task or thread works for."""
    return _CONTEXT.get()


@contextlib.contextmanager
def working_for(*, cluster: str | None = None, controller: str | None = None, key: str | None = None) -> Iterator[LogContext]:
    """Within the block, and in tasks and reconciler threads started from it, log records carry these; what is None stays as it is."""
    context = current()
    if cluster is not None:
        context = replace(context, cluster=cluster)
    if controller is not None:
        context = replace(context, controller=controller)
    if key is not None:
        context = replace(context, key=key)
    token = _CONTEXT.set(context)
    try:
        yield context
    finally:
        _CONTEXT.reset(token)


class ContextFilter(logging.Filter):
    """Gives each record ``cluster``, ``controller``, ``key`` and ``context`` (all of them in one string), empty where unknown.

    ::

        handler.addFilter(ContextFilter())
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s %(context)s"))

    Lets every record through. Attributes that the caller set itself (``extra={"key": ...}``) stay.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        context = current()
        for name, value in (
            ("cluster", context.cluster),
            ("controller", context.controller),
            ("key", context.key),
            ("context", str(context)),
        ):
            if not hasattr(record, name):
                setattr(record, name, value)
        return True
