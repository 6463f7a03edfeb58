"""How a list and watch goes about it: everything that its callers may choose, in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kubeloop.timing import Backoff

#: No watch is asked to end sooner than this, in seconds: every restart costs the server.
MIN_WATCH_TIMEOUT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPolicy:
    """Defaults are client-go's.

    ``watch_list``: the first state comes as a stream (KEP-3157) where the server can; False asks for lists only.
    ``page_size``: objects per page of every list; 0 leaves it to the protocol. Streams have no pages.
    ``min_watch_timeout``: watches are asked to end after a random time between this and twice this, in seconds; less is raised to 300.
    ``internal_error_retry``: for so many seconds a watch that the server's internal errors end is only opened again; 0: a list at once.
    ``backoff``: makes the delays between failures, one for each informer; None: 0.8 s doubling to 30 s with jitter, forgotten after 2 min.
    ``on_error``: called with each failure of a list or watch, beside the log. An exception that it raises is logged and changes nothing.
    ``check_consistency``: each streamed state is compared with a list at exactly its version; a difference is an error. For tests: it costs
    what the stream has saved.
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
        """The range that a watch's ``timeoutSeconds`` is drawn from. Behaviour B14."""
        least = max(self.min_watch_timeout, MIN_WATCH_TIMEOUT)
        return least, 2 * least
