"""Runs what a program gave us so that nothing it does ends the server: errors, exits and calls that never return become a refusal."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from kubeloop.controller.webhooks.request import Denied
from kubeloop.meta import ApiError, DecodeError
from kubeloop.meta.failure_log import user_traceback
from kubeloop.meta.status import Status
from kubeloop.transport import log_context, logger_with_context

log = logger_with_context("kubeloop.controller.webhooks")


class Failed(Exception):
    """A hook failed; ``status`` is the answer to the writer. ``panic``: it raised an unexpected error."""

    def __init__(self, status: Status, *, panic: bool = False) -> None:
        super().__init__(status.message)
        self.status = status
        self.panic = panic


class Inside(Exception):
    """What a part of the work raised; ``part`` names that part in place of the whole, if it is not empty."""

    def __init__(self, part: str, error: BaseException) -> None:
        super().__init__(part)
        self.part = part
        self.error = error


async def contained(name: str, work: Callable[[], Awaitable[Any]], seconds: float, **about: str) -> Any:
    """What ``work`` returns.

    Guarantees
        ``Denied`` and ``ApiError`` come through. Every other error is logged with its traceback and a trace id, and told as a 500 that
        names hook, class and trace id; its own text may hold what the writer must not see. Only the caller's own cancellation ends it.

    Raises:
        Failed: it raised, or took longer than ``seconds`` (504). Denied, ApiError: as raised.
    """
    trace = secrets.token_hex(8)
    with log_context(webhook=name, trace=trace, **about):
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                return await work()
        except (Denied, ApiError):
            raise
        except DecodeError as error:
            log.log(logging.WARNING, "webhook %s: %s (trace %s)", name, error, trace)
            raise Failed(Status(message=f'webhook "{name}": {error}', reason="BadRequest", code=400)) from None
        except TimeoutError as error:
            if not deadline.expired():
                raise _panicked(name, error, trace) from None
            log.log(logging.ERROR, "webhook %s did not answer within %g s (trace %s)", name, seconds, trace)
            message = f'webhook "{name}" did not answer within {seconds:g} s (trace {trace})'
            raise Failed(Status(message=message, reason="Timeout", code=504)) from None
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise _panicked(name, error, trace) from None
        except Inside as inside:
            raise _panicked(f"{name}: {inside.part}" if inside.part else name, inside.error, trace) from None
        except (KeyboardInterrupt, GeneratorExit):  # a person's, and the loop's: neither is the program's answer
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a program raises: without an answer, failurePolicy Ignore lets the write through
            raise _panicked(name, error, trace) from None


def _panicked(name: str, error: BaseException, trace: str) -> Failed:
    shown = user_traceback(log, error)
    log.log(logging.ERROR, "webhook %s raised %s (trace %s)", name, type(error).__name__, trace, exc_info=shown)
    message = f'webhook "{name}" failed: {type(error).__name__} (trace {trace})'
    return Failed(Status(message=message, reason="InternalError", code=500), panic=True)
