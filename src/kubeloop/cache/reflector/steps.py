"""The options of list and watch, the reflector's steps with their outcomes, and the reasons that metrics count.

``reflector.py`` decides which step follows which outcome; ``listwatch.py`` acts on the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from kubeloop.timing import Backoff

#: Shortest ``timeoutSeconds`` of a watch: every restart costs the server.
MIN_WATCH_TIMEOUT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPolicy:
    """Options of the list and watch of an informer. Defaults are client-go's.

    Args:
        watch_list: Stream the first state (KEP-3157) where the server can. False: use lists only.
        page_size: Objects per page of every list. 0: the protocol's default. Streams have no pages.
        min_watch_timeout: Watches end after a random time between this and twice this, in seconds; at least 300.
        internal_error_retry: Seconds during which a watch that ended with an internal error of the server is reopened without a list.
            0: list at once.
        backoff: Makes the back-off between failures, one for each informer. None: 0.8 s doubling to 30 s with jitter, reset after 2 min.
        on_error: Called with each failure of a list or watch, in addition to the log. Its own exceptions are logged and ignored.
        check_consistency: Compare each streamed state with a list at its version, and raise on a difference. For tests: it costs as much
            as the stream saves.

    Example:
        >>> policy = WatchPolicy(page_size=500, on_error=lambda error: print(error))
        >>> async with InformerFactory(client, policy=policy) as informers:
        ...     await informers.for_kind(Pod).wait_synced()
    """

    watch_list: bool = True
    page_size: int = 0
    min_watch_timeout: int = MIN_WATCH_TIMEOUT
    internal_error_retry: float = 0.0
    backoff: Callable[[], Backoff] | None = None
    on_error: Callable[[Exception], object] | None = None
    check_consistency: bool = False

    def __post_init__(self) -> None:
        if self.page_size < 0:
            raise ValueError(f"page_size is a number of objects, 0 or more, not {self.page_size}")
        if self.internal_error_retry < 0:
            raise ValueError(f"internal_error_retry is in seconds, 0 or more, not {self.internal_error_retry:g}")

    @property
    def watch_seconds(self) -> tuple[int, int]:
        """The range from which the random ``timeoutSeconds`` of a watch is chosen."""
        # Behaviour B14.
        least = max(self.min_watch_timeout, MIN_WATCH_TIMEOUT)
        return least, 2 * least


class FailureClass(Enum):
    """Class of a failed request. It decides the next step."""

    EXPIRED = "the server no longer has this resourceVersion or continue token (410)"
    TOO_LARGE = "the server has not seen this resourceVersion yet"
    REFUSED = "nothing listens there"
    BUSY = "the server has too many requests (429)"
    INVALID = "the server does not understand the request"
    INTERNAL = "the server had an internal error"
    OTHER = "anything else"


class Reason(StrEnum):
    """The reason of a list or of a reopened watch. A small closed set, used as a label of metrics."""

    FIRST = "first"
    """The first list, or the watch that follows a list."""
    ENDED = "ended"
    """The server closed the watch, as it does after the requested timeout."""
    SHORT = "short"
    """The server closed the watch within a second, with nothing new."""
    BROKEN = "broken"
    """The connection broke."""
    SILENT = "silent"
    """The server sent nothing for too long, so the client ended the watch."""
    REFUSED = "refused"
    BUSY = "busy"
    EXPIRED = "expired"
    TOO_LARGE = "too_large"
    INTERNAL = "internal"
    ERROR = "error"
    """Any other failure."""
    DOUBTFUL = "doubtful"
    """After a lost connection, the server does not know the last seen version: it has lost its state."""
    FALLBACK = "fallback"
    """The state could not be streamed, so it is listed."""


def why(trouble: FailureClass) -> Reason:
    return _WHY.get(trouble, Reason.ERROR)


_WHY = {
    FailureClass.EXPIRED: Reason.EXPIRED,
    FailureClass.TOO_LARGE: Reason.TOO_LARGE,
    FailureClass.REFUSED: Reason.REFUSED,
    FailureClass.BUSY: Reason.BUSY,
    FailureClass.INTERNAL: Reason.INTERNAL,
}


class StreamEnd(Enum):
    """The way in which a stream ended."""

    CLOSED = Reason.ENDED
    BROKEN = Reason.BROKEN
    SILENT = Reason.SILENT


# ------------------------------------------------------------------------------------------------ steps: what the shell does


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pausing:
    """A step that may begin with a delay. ``pause``: wait for the back-off, and at least ``wait`` seconds (Retry-After of the server)."""

    pause: bool = False
    wait: float = 0.0
    why: Reason = field(default=Reason.FIRST, compare=False)


@dataclass(frozen=True, slots=True)
class WatchList(_Pausing):
    """Request all objects as a stream that continues as the watch (KEP-3157), at ``version`` or later, or at the newest if it is ""."""

    version: str


@dataclass(frozen=True, slots=True)
class ListPage(_Pausing):
    """Request a page of a list.

    ``version`` "" requests the newest state, which is the most expensive; ``limit`` 0 requests the whole list. ``fresh``: discard the
    objects of earlier pages.
    """

    version: str
    limit: int
    token: str = ""
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class ReplaceStore(_Pausing):
    """Replace the content of the store with the complete list. The outcome is ``StoreReplaced``."""

    version: str


@dataclass(frozen=True, slots=True)
class ContinueWatch(_Pausing):
    """Continue reading the stream of the initial state as the watch."""

    version: str


@dataclass(frozen=True, slots=True)
class OpenWatch(_Pausing):
    """Watch from ``version`` on. ``check``: verify that the server has reached that version once the watch is open."""

    version: str
    check: bool = False


Step = WatchList | ListPage | ReplaceStore | ContinueWatch | OpenWatch


# ------------------------------------------------------------------------------------------- outcomes: what came of the last step


@dataclass(frozen=True, slots=True)
class PageListed:
    """A page was read. ``token`` is the continue token of the next page; "" after the last."""

    version: str
    token: str = ""


@dataclass(frozen=True, slots=True)
class ListFailed:
    """A list failed. ``wait``: seconds of the server's Retry-After; 0 if it sent none."""

    trouble: FailureClass
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class InitialStateStreamed:
    """The stream has shown all objects up to ``version``, and is still open."""

    version: str


@dataclass(frozen=True, slots=True)
class StreamFailed:
    """The stream could not be opened, or failed before the initial state was complete. It is closed. ``wait``: see ``ListFailed``."""

    trouble: FailureClass
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The stream ended before the initial state was complete, after ``events`` events and ``lasted`` seconds."""

    how: StreamEnd
    events: int
    lasted: float


@dataclass(frozen=True, slots=True)
class StoreReplaced:
    """The store has the complete list."""


@dataclass(frozen=True, slots=True)
class WatchFailed:
    """The watch could not be opened, or the server has not reached the version to check. ``wait``: see ``ListFailed``."""

    trouble: FailureClass
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class WatchFinished:
    """The watch ended after ``lasted`` seconds.

    ``version`` is the last version seen on the watch ("" if none), ``events`` the number of events including bookmarks.
    """

    version: str
    events: int
    lasted: float
    how: StreamEnd = StreamEnd.CLOSED


@dataclass(frozen=True, slots=True)
class WatchError:
    """The watch failed: the server sent an ERROR event, or a frame that is not a watch event. The stream is closed.

    ``version``: see ``WatchFinished``. ``wait``: see ``ListFailed``.
    """

    version: str
    trouble: FailureClass
    wait: float = 0.0


Outcome = (
    PageListed | ListFailed | InitialStateStreamed | StreamFailed | StreamEnded | StoreReplaced | WatchFailed | WatchFinished | WatchError
)
