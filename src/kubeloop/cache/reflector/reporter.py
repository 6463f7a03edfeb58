"""Reports the progress of a list and watch in log records, metrics and the error handler. It makes no decisions."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kubeloop.cache.reflector.event_decoder import ReflectorStore
from kubeloop.cache.reflector.steps import FailureClass, ListPage, OpenWatch, Reason, Step, WatchList
from kubeloop.meta import KubeloopError, Resource, Unstructured, kind_info
from kubeloop.meta.errors import (
    ApiError,
    BadRequest,
    ConnectionRefused,
    Forbidden,
    Gone,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    Timeout,
    TooManyRequests,
    Unauthorized,
    UnsupportedMediaType,
    UntrustedCertificate,
    refused_access,
)
from kubeloop.transport import logger_with_context

_TOO_LARGE_CAUSE = "ResourceVersionTooLarge"
_TOO_LARGE_TEXT = "Too large resource version"
#: Longest delay in seconds that a server's Retry-After can cause.
LONGEST_WAIT = 300.0

#: Errors that retries do not repair: ``wait_synced`` raises them immediately. (A missing kind may still be installed, so it waits.)
HOPELESS = (Unauthorized, Forbidden, UntrustedCertificate)

_NOT_UNDERSTOOD = (BadRequest, Invalid, MethodNotAllowed, NotAcceptable, UnsupportedMediaType)


def failure_class_of(error: Exception) -> FailureClass:
    """Return the class of a failure."""
    if isinstance(error, Gone):  # Expired is one
        return FailureClass.EXPIRED
    if isinstance(error, ApiError) and is_too_large(error):
        return FailureClass.TOO_LARGE
    if isinstance(error, ConnectionRefused):
        return FailureClass.REFUSED
    if isinstance(error, TooManyRequests):
        return FailureClass.BUSY
    if isinstance(error, InternalError):
        return FailureClass.INTERNAL
    return FailureClass.INVALID if isinstance(error, _NOT_UNDERSTOOD) else FailureClass.OTHER


def retry_after_of(error: Exception) -> float:
    """Return the seconds of the server's Retry-After, at most ``LONGEST_WAIT``; 0 if the error has none."""
    seconds = error.retry_after if isinstance(error, ApiError) else None
    return min(float(max(seconds or 0, 0)), LONGEST_WAIT)


def is_too_large(error: ApiError) -> bool:
    """Return whether the error says that the server has not reached the requested resourceVersion yet.

    Servers since 1.17 send a cause with a reason for it. Older servers send a Timeout with a text in its cause or its message.
    Source: k8s.io/client-go tools/cache reflector.
    """
    # Behaviour A5.
    if error.has_cause(_TOO_LARGE_CAUSE):
        return True
    if not isinstance(error, Timeout):
        return False
    return any(cause.message == _TOO_LARGE_TEXT for cause in error.causes) or _TOO_LARGE_TEXT in error.status.message


def install_advice(kind: type[Resource]) -> str:
    """Return advice with the command that installs the definition of a custom kind; "" if no such command exists for the class."""
    module = kind.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        module = spec.name if spec is not None else Path(getattr(main, "__file__", None) or "").stem
    info = kind_info(kind)
    importable = bool(module) and "<" not in kind.__qualname__
    if not importable or module.partition(".")[0] == "kubeloop" or issubclass(kind, Unstructured) or info.plural is None:
        return ""
    command = f"kubeloop generate crd {module}:{kind.__qualname__} | kubectl apply -f -"
    return f"the server does not serve {info.gvk.kind} ({kind.api_version}); install its definition: {command}"


def diagnosis(error: Exception, verb: str) -> str:
    """Return advice for a failed list or watch; "" if the error contains it already, or there is none."""
    if isinstance(error, Forbidden):
        if refused_access(error) is not None:
            return "informers need list and watch"  # its message has the command that grants the verb
        return f"grant this user the verb {verb} (informers need list and watch)"
    if isinstance(error, NotFound) and "CustomResourceDefinition" not in str(error):
        return "is this kind installed there (its CustomResourceDefinition, its API server), in this version?"
    return ""


_LOG = logger_with_context("kubeloop.cache")
#: Regular actions of servers, which are logged as INFO only. Behaviour B29.
_USUAL = (FailureClass.EXPIRED, FailureClass.TOO_LARGE, FailureClass.INVALID)
#: Number of remembered messages: a server may put a time or a number into each.
_REASONS = 16


class ReflectorReporter:
    """Logs each failure with the next step, and calls ``on_error`` once for each.

    A repeated failure for the same reason, with no success in between, is logged briefly.
    """

    def __init__(self, description: str, on_error: Callable[[Exception], object] | None, kind: type[Resource] | None = None) -> None:
        self._description = description
        self._on_error = on_error
        #: Advice for a kind that is not served; "" if there is none.
        self._install = install_advice(kind) if kind is not None else ""
        #: Attempts since the last success for which the kind was not served.
        self._missing = 0
        #: Whether to omit the last failure from the log: the list that follows immediately fails for the same reason, or succeeds.
        self._silent = False
        #: Why the last step failed, and the log level.
        self._failure: tuple[int, str] | None = None
        #: The reasons that were logged in full since the last success.
        self._reported: set[str] = set()
        #: Number of lists, and of watches opened again without a list, by reason (``Reason``).
        self.lists: Counter[str] = Counter()
        self.restarts: Counter[str] = Counter()

    def failed(self, error: KubeloopError, description: str, store: ReflectorStore | None = None, verb: str = "watch") -> None:
        """Log and count a failed request.

        Args:
            error: The failure.
            description: The action that failed, such as ``cannot list``.
            store: The store to notify of the failure. None: the failure does not concern the cache yet.
            verb: ``list`` or ``watch``.
        """
        if store is not None:
            store.failed(error)
        level = logging.INFO if failure_class_of(error) in _USUAL else logging.WARNING
        # Without the request: a list that fails for the same reason as the previous watch is not logged again.
        reason = f"{type(error).__name__}: {error.status.message if isinstance(error, ApiError) else error}"
        if isinstance(error, NotFound) and store is None:
            self._silent = True
        elif isinstance(error, NotFound) and self._install:
            self._missing += 1
            self._failure = (level, self._install if self._missing == 1 else f"still not served (try {self._missing})")
        elif reason in self._reported:
            self._failure = (level, f"{description}, still {type(error).__name__}")
        else:
            advice = diagnosis(error, verb)
            self._failure = (level, f"{description}: {error}{f' ({advice})' if advice else ''}")
            if len(self._reported) >= _REASONS:
                self._reported.clear()
            self._reported.add(reason)
        if self._on_error is not None:
            try:
                self._on_error(error)
            except Exception:  # noqa: BLE001 - the caller's own code may raise anything
                _LOG.exception("%s: on_error raised; it was called with: %s", self._description, error)

    def note(self, text: str, level: int = logging.WARNING) -> None:
        """Record a text that is logged together with the next step. As after a success, the next failure is logged in full."""
        self.worked()
        self._failure = (level, text)

    def worked(self) -> None:
        """Record a success: the next failure is logged in full."""
        self._reported.clear()
        if self._missing:
            self._missing = 0
            _LOG.info("%s: served now", self._description)

    def next(self, step: Step, delay: float) -> None:
        """Count the next step, and log it together with the last failure, if any. The step follows after ``delay`` seconds."""
        match step:
            case WatchList():
                then = "requesting all objects again"
                self.lists[step.why] += 1
            case ListPage():
                then = "listing" if step.why is Reason.FALLBACK else "listing again"
                if step.fresh:
                    self.lists[step.why] += 1
            case OpenWatch():
                then = "watching again"
                if step.why is not Reason.FIRST:
                    self.restarts[step.why] += 1
            case _:
                then = "going on"
        if self._silent:
            self._silent = False
        elif self._failure is None:
            self.worked()
        else:
            level, text = self._failure
            self._failure = None
            _LOG.log(level, "%s: %s; %s %s", self._description, text, then, f"in {delay:.1f} s" if step.pause else "at once")
