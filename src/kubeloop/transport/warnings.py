"""Warnings in a server's responses, and their handlers. Source: RFC 9111 (section 5.5), KEP-1693, client-go rest/warnings.go."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from kubeloop.transport.log_context import logger_with_context

_logger = logger_with_context("kubeloop.transport")

#: Maximum number of remembered texts; a server that invents a new one each time must not fill the memory.
REMEMBERED = 1000
# The header is obsolete in HTTP; Kubernetes uses it with code 299. The agent is ``-`` or a name.
_WARNING = re.compile(r'299 (\S+) "((?:[^"\\]|\\.)*)"')


class ServerWarning(msgspec.Struct, frozen=True):
    """One warning of one response. ``request`` describes the request (``create pods "web-0"``)."""

    text: str
    agent: str = "-"
    request: str = ""


class WarningHandler(Protocol):
    """Called once with each warning of each response, before the response is returned; also for streams and errors."""

    def __call__(self, warning: ServerWarning, /) -> None: ...


def warnings_in(values: Iterable[str], request: str) -> tuple[ServerWarning, ...]:
    """Return the warnings of ``Warning`` headers with code 299; others are left out."""
    return tuple(
        ServerWarning(re.sub(r"\\(.)", r"\1", text), agent, request) for value in values for agent, text in _WARNING.findall(value) if text
    )


def ignore_warnings(_: ServerWarning, /) -> None:
    """Ignore all warnings."""


def once_each(handler: Callable[[ServerWarning], None]) -> WarningHandler:
    """Return a handler that passes each text on once; after ``REMEMBERED`` texts no new one."""
    heard: set[str] = set()

    def hear(warning: ServerWarning, /) -> None:
        if warning.text not in heard and len(heard) < REMEMBERED:
            heard.add(warning.text)
            handler(warning)

    return hear


def log_once() -> WarningHandler:
    """Return the default handler: it logs each text once, at level WARNING."""
    return once_each(lambda warning: _logger.warning("the server warns: %s", warning.text))
