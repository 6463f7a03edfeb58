"""Reflector: decides what to request next so that a store stays equal to the server. Pure: no I/O, no clock, no logging.

``listwatch.py`` executes its steps, ``steps.py`` defines them, and ``next_step`` shows the state machine.
Rules and numbers: client-go's reflector; Kubernetes API concepts, "Efficient detection of changes".
"""

# Behaviours A1-A13, B14-B29, C30-C43.

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, assert_never

from kubeloop.cache.reflector.steps import (
    ContinueWatch,
    FailureClass,
    InitialStateStreamed,
    ListFailed,
    ListPage,
    OpenWatch,
    Outcome,
    PageListed,
    Reason,
    ReplaceStore,
    Step,
    StoreReplaced,
    StreamEnd,
    StreamEnded,
    StreamFailed,
    WatchError,
    WatchFailed,
    WatchFinished,
    WatchList,
    why,
)

#: Default number of objects per page.
PAGE: Final = 500
#: Seconds: a watch that ends sooner without new events has failed rather than timed out.
VERY_SHORT: Final = 1.0
#: After so many incomplete streams in a row, only lists are used.
MAX_UNFINISHED: Final = 3


@dataclass(frozen=True, slots=True)
class State:
    """The state of a reflector, on which its next step depends.

    Invariant: once ``version`` is a real version it never becomes "" or "0" again.
    """

    #: Last resourceVersion seen: of the list, an event or a bookmark. "" before the first list.
    version: str = ""
    #: Whether the server rejected a list at ``version``; until a list succeeds, the newest state is requested.
    unavailable: bool = False
    #: Whether streamed lists are used, since the server is assumed to support them.
    streams: bool = False
    #: Number of incomplete streams in a row.
    unfinished: int = 0
    #: Whether the state that is being installed came on a stream, which is still open.
    open: bool = False
    #: Whether the list at "0" came in pages: then the server has no watch cache, and later lists are paged too.
    paged: bool = False
    #: Page size that the caller set; 0 for the default.
    page_size: int = 0
    #: The requested version of the list in progress.
    asked: str = ""
    #: Whether the list in progress has one page because its predecessor expired between two pages.
    whole: bool = False
    #: Version of the first page, which is that of the list.
    listed: str = ""
    #: Whether the connection was lost since the last event: the server may have been restored without its state.
    doubtful: bool = False
    #: Seconds during which a watch that ends with internal errors is only reopened, without a list.
    internal_retry: float = 0.0
    #: When the first of the latest watches ended with an internal error; None after a watch that ended without error.
    internal_since: float | None = None


def begin(page_size: int = 0, *, watch_list: bool = True, resume_from: str = "", internal_retry: float = 0.0) -> tuple[State, Step]:
    """Return the initial state and the first step of a reflector.

    Args:
        page_size: Objects per page of a list. 0: the protocol's default.
        watch_list: Begin with a streamed list where the server can.
        resume_from: The store already holds the state at this resourceVersion, so begin with the watch. Empty: begin with a list.
        internal_retry: Seconds during which a watch that ended with an internal error is reopened without a list.
    """
    version = _real(resume_from)
    state = State(page_size=page_size, streams=watch_list, internal_retry=internal_retry, version=version, doubtful=bool(version))
    return _watch(state, Reason.FIRST) if version else _everything(state, Reason.FIRST)


def next_step(state: State, outcome: Outcome, now: float = 0.0) -> tuple[State, Step]:
    """Return the next step after the outcome of the last one. ``now`` is in seconds of any clock that does not go back.

    ::

        begin
          |
          v     no streams
        WatchList ------------> ListPage <--+ next page; again as one page, or at the newest version
          |                        |  +-----+
          | state complete         | last page
          +----> ReplaceStore <----+
                     |   |
            streamed |   | listed                     begin with resume_from
                     v   v                                      |
         ContinueWatch   OpenWatch <----------------------------+
                     |   |  ^ again: closed, broken, silent, refused, 429, internal error
                     |   +--+
                     +---+
                         | any other failure, after a pause
                         v
                   WatchList, or ListPage if streams are not used

    =========== ========================================= ========================================================================
    step        outcome                                   next step
    =========== ========================================= ========================================================================
    WatchList   state complete (``InitialStateStreamed``)             ReplaceStore, then ContinueWatch on the same stream
    WatchList   connection refused, 429                   WatchList, after a pause
    WatchList   410, too large (first time)               WatchList at the newest version, at once
    WatchList   ended early                               WatchList, after a pause; after three in a row: ListPage, always
    WatchList   silent, or closed at once without events  ListPage, at once, for this time
    WatchList   not understood (400, 405, 422 ...)        ListPage, at once and always
    WatchList   any other failure                         ListPage, at once, for this time
    ListPage    page with a token                         ListPage, the next page
    ListPage    last page                                 ReplaceStore, then OpenWatch
    ListPage    410 between two pages (first time)        ListPage without pages, at the requested version, at once
    ListPage    410, too large (first time)               ListPage at the newest version, at once
    ListPage    any other failure                         WatchList or ListPage, after a pause
    OpenWatch * closed, broken or abandoned               OpenWatch, at once (after a pause if nothing new came within 1 s)
    OpenWatch * closed within 1 s without any event       WatchList or ListPage, after a pause
    OpenWatch   the server has not reached the version    WatchList or ListPage at the newest version, at once
    OpenWatch * connection refused, 429 (also as event)   OpenWatch, after a pause
    OpenWatch * internal error, within internal_retry     OpenWatch, after a pause
    OpenWatch * any other failure, including 410          WatchList or ListPage at the last version, after a pause
    =========== ========================================= ========================================================================

    (* The row also applies to ContinueWatch.)
    """
    match outcome:
        case PageListed():
            return _after_page(state, outcome)
        case ListFailed():
            return _after_failed_list(state, outcome)
        case InitialStateStreamed():
            version = _real(outcome.version) or state.version
            return replace(state, version=version, unavailable=False, unfinished=0, doubtful=False, open=True), ReplaceStore(version)
        case StreamFailed():
            return _after_failed_stream(state, outcome)
        case StreamEnded():
            return _after_unfinished_stream(state, outcome)
        case StoreReplaced():
            return replace(state, open=False), ContinueWatch(state.version) if state.open else OpenWatch(state.version)
        case WatchFailed():
            return _after_failed_watch(state, outcome)
        case WatchFinished():
            return _after_watch(replace(state, internal_since=None), outcome)
        case WatchError():
            return _after_error_event(state, outcome, now)
        case _ as never:
            assert_never(never)


def _everything(state: State, reason: Reason, *, pause: bool = False, wait: float = 0.0) -> tuple[State, Step]:
    if not state.streams:
        return _list(state, reason, pause=pause, wait=wait)
    # The newest state first, later at least the last seen version: a lagging API server waits or rejects. Behaviour C31.
    return state, WatchList("" if state.unavailable else state.version, pause=pause, wait=wait, why=reason)


# ------------------------------------------------------------------------------------------------------------------------ stream


def _after_failed_stream(state: State, failed: StreamFailed) -> tuple[State, Step]:
    trouble = failed.trouble
    if trouble in (FailureClass.REFUSED, FailureClass.BUSY):
        # A list would be rejected as well, and costs a busy server more. Behaviour C38.
        return _everything(state, why(trouble), pause=True, wait=failed.wait)
    if trouble in (FailureClass.EXPIRED, FailureClass.TOO_LARGE) and not state.unavailable:
        return _everything(replace(state, unavailable=True), why(trouble))
    if trouble is FailureClass.INVALID:
        state = replace(state, streams=False)
    # Without a pause: a list may succeed where a stream does not. Behaviour C39.
    return _list(state, Reason.FALLBACK)


def _after_unfinished_stream(state: State, ended: StreamEnded) -> tuple[State, Step]:
    state = replace(state, unfinished=state.unfinished + 1)
    if state.unfinished >= MAX_UNFINISHED:
        # An old server ignores the option and never sends the final bookmark; a proxy may cut long responses.
        return _list(replace(state, streams=False, unfinished=0), Reason.FALLBACK)
    if ended.how is StreamEnd.SILENT or (not ended.events and ended.lasted < VERY_SHORT):
        return _list(state, Reason.FALLBACK)
    return _everything(state, ended.how.value, pause=True)


# -------------------------------------------------------------------------------------------------------------------------- list


def _list(state: State, reason: Reason, *, pause: bool = False, wait: float = 0.0) -> tuple[State, Step]:
    # The first list may come from any watch cache ("0"): it is cheap for the server, and there is no older state to return to.
    # Later lists are at the last version seen, not "0": a lagging server would return an older state. Behaviours A1-A3.
    version = "" if state.unavailable else state.version or "0"
    step = ListPage(version, _limit(state, version), pause=pause, wait=wait, why=reason)
    return replace(state, asked=version, whole=False, listed=""), step


def _limit(state: State, version: str) -> int:
    if state.page_size:
        return state.page_size
    # Without a limit, a list at an exact version comes from the watch cache; with one, from etcd. Behaviours A6, A7.
    return PAGE if state.paged or version in ("", "0") else 0


def _after_page(state: State, page: PageListed) -> tuple[State, Step]:
    listed = state.listed or page.version
    if page.token:
        # A continue token carries its version itself; sending both is an error.
        return replace(state, listed=listed), ListPage("", _limit(state, state.asked), token=page.token, fresh=False)
    paged = state.paged or (state.asked == "0" and bool(state.listed))
    version = _real(listed) or state.version
    done = replace(state, version=version, paged=paged, unavailable=False, whole=False, listed="", doubtful=False)
    return done, ReplaceStore(version)


def _after_failed_list(state: State, failed: ListFailed) -> tuple[State, Step]:
    trouble = failed.trouble
    if trouble is FailureClass.EXPIRED and state.listed and not state.whole:
        # The list took longer than the server's history: list again without pages, at the requested version of page one. Behaviour A4.
        return replace(state, whole=True, listed=""), ListPage(state.asked, 0, why=Reason.EXPIRED)
    if trouble in (FailureClass.EXPIRED, FailureClass.TOO_LARGE) and not state.unavailable:
        # Immediately, without back-off: the server rejected the version, but can serve the newest state. Behaviours A3, A5.
        return _list(replace(state, unavailable=True), why(trouble))
    return _everything(state, why(trouble), pause=True, wait=failed.wait)


# ------------------------------------------------------------------------------------------------------------------------- watch


def _watch(state: State, reason: Reason, *, pause: bool = False, wait: float = 0.0) -> tuple[State, Step]:
    if not state.version:
        # A server without versions (some aggregated ones): changes in between may be missed.
        return _everything(state, reason, pause=pause, wait=wait)
    # A server that was restored from a backup, or lost its history, has lower versions. It accepts a watch from a higher version, sends
    # nothing of what happens below it, neither an error nor a bookmark, and then goes on as if nothing had been missed. A list shows the
    # loss. Behaviour A5.
    return state, OpenWatch(state.version, check=state.doubtful, pause=pause, wait=wait, why=reason)


def _after_failed_watch(state: State, failed: WatchFailed) -> tuple[State, Step]:
    trouble = failed.trouble
    if trouble is FailureClass.TOO_LARGE:
        return _everything(replace(state, unavailable=True), Reason.DOUBTFUL)
    if trouble in (FailureClass.REFUSED, FailureClass.BUSY):
        # A server that was down or overloaded must not get lists from all clients when it is back. Behaviours B15, B16.
        state = replace(state, doubtful=state.doubtful or trouble is FailureClass.REFUSED)
        return _watch(state, why(trouble), pause=True, wait=failed.wait)
    return _everything(state, why(trouble), pause=True, wait=failed.wait)


def _after_watch(state: State, ended: WatchFinished) -> tuple[State, Step]:
    before = state.version
    # A server with lower versions sends nothing for a whole watch, too.
    state = replace(_seen(state, ended.version), doubtful=ended.how is not StreamEnd.CLOSED or not ended.events)
    if ended.lasted < VERY_SHORT and ended.how is not StreamEnd.SILENT:
        if ended.events == 0:
            return _everything(state, Reason.SHORT, pause=True)
        if state.version == before:
            # A proxy may close every stream after its first bookmark; reopening immediately would never end.
            return _watch(state, Reason.SHORT, pause=True)
    return _watch(state, ended.how.value, pause=not state.version)


def _after_error_event(state: State, error: WatchError, now: float) -> tuple[State, Step]:
    state = _seen(state, error.version)
    if error.trouble is FailureClass.BUSY:
        return _watch(state, Reason.BUSY, pause=True, wait=error.wait)
    if error.trouble is FailureClass.INTERNAL and state.internal_retry:
        since = now if state.internal_since is None else state.internal_since
        if now - since <= state.internal_retry:
            return _watch(replace(state, internal_since=since), Reason.INTERNAL, pause=True, wait=error.wait)
    return _everything(replace(state, internal_since=None), why(error.trouble), pause=True, wait=error.wait)


def _seen(state: State, version: str) -> State:
    return replace(state, version=_real(version) or state.version)


def _real(version: str) -> str:
    """Return the version, or "" for "0", which is not a version of a state but requests any."""
    return "" if version == "0" else version
