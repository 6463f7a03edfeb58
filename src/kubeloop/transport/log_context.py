"""What a log record is about (cluster, request, controller, key ...), carried by a context variable into standard logging.

Tasks inherit it. Nothing global is changed: kubeloop's own loggers carry it by themselves, others by a filter on a handler.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import MappingProxyType
from typing import Protocol

_current: ContextVar[Mapping[str, str]] = ContextVar("kubeloop_log_context", default=MappingProxyType({}))


@contextmanager
def log_context(**fields: str) -> Iterator[None]:
    """Add fields for the time of the block, over those from outside."""
    token = _current.set({**_current.get(), **fields})
    try:
        yield
    finally:
        # A coroutine that nobody finished is closed by the garbage collector, in whatever context that runs: nothing to reset there.
        with suppress(ValueError):
            _current.reset(token)


def log_field(name: str) -> Callable[[str], None]:
    """Sets one field, over those in force now, each time it is called; for a loop in a task of its own. Takes 0.4 us."""
    base = _current.get()

    def put(value: str) -> None:
        _current.set({**base, name: value})

    return put


class FieldSetter(Protocol):
    """Sets fields, over those that were in force when it was made."""

    def __call__(self, **fields: str) -> None: ...


def log_fields() -> FieldSetter:
    """As ``log_field``, for several fields at once."""
    base = _current.get()

    def put(**fields: str) -> None:
        _current.set({**base, **fields})

    return put


class LogContext(logging.Filter):
    """Lets every record through and gives it ``record.kubeloop``, a mapping of the fields in force.

    ``handler.addFilter(LogContext())`` gives it to the records of every logger; a formatter can then use ``%(kubeloop)s``.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        record.kubeloop = dict(_current.get())
        return True


def logger_with_context(name: str) -> logging.Logger:
    """The standard logger of that name; its records carry the context."""
    logger = logging.getLogger(name)
    if not any(isinstance(one, LogContext) for one in logger.filters):
        logger.addFilter(LogContext())
    return logger
