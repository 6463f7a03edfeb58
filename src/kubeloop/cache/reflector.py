"""Reflector: decides what to ask a server next so that a store stays equal to it. Pure: no I/O, no clock, no logging.

The shell that acts on its steps is ``listwatch.py``. Rules and numbers: client-go's reflector (behaviours A1-A13, B14-B29) and
Kubernetes API concepts, "Efficient detection of changes".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, assert_never

#: Objects per page, unless the caller chose another number.
PAGE: Final = 500
#: A watch that ends sooner than this, in seconds, and brought nothing new, is no watch that ran out.
VERY_SHORT: Final = 1.0


class Trouble(Enum):
    """Why a request failed, as far as it decides what comes next."""

    EXPIRED = "the server no longer has this resourceVersion or continue token (410)"
    TOO_LARGE = "the server has not seen this resourceVersion yet"
    REFUSED = "nothing listens there"
    BUSY = "the server has too many requests (429)"
    OTHER = "anything else"


# ------------------------------------------------------------------------------------------------ steps: what the shell does


@dataclass(frozen=True, slots=True)
class List:
    """Ask for a page. ``version`` "" means the newest, whatever it costs; ``limit`` 0 the whole list.

    ``fresh``: what was collected of a list so far is forgotten. ``pause``: wait for the back-off first.
    """

    version: str
    limit: int
    token: str = ""
    fresh: bool = True
    pause: bool = False


@dataclass(frozen=True, slots=True)
class Install:
    """The list is complete: it takes the place of what the store has. The shell answers with ``Installed``."""

    version: str
    pause: bool = False


@dataclass(frozen=True, slots=True)
class Watch:
    """Watch from ``version`` on."""

    version: str
    pause: bool = False


Step = List | Install | Watch


# ------------------------------------------------------------------------------------------- outcomes: what came of the last step


@dataclass(frozen=True, slots=True)
class Page:
    """A page came. ``token`` says where the next begins, "" that this was the last."""

    version: str
    token: str = ""


@dataclass(frozen=True, slots=True)
class ListFailed:
    trouble: Trouble


@dataclass(frozen=True, slots=True)
class Installed:
    """The store has the list."""


@dataclass(frozen=True, slots=True)
class WatchFailed:
    """The watch could not be opened."""

    trouble: Trouble


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """The stream ended, or was abandoned: ``version`` is the last one seen on it ("" if none), ``events`` how many came, bookmarks too."""

    version: str
    events: int
    lasted: float


@dataclass(frozen=True, slots=True)
class WatchError:
    """The server sent an ERROR event, or a frame that is none; the stream is closed. ``version`` as in ``WatchEnded``."""

    version: str
    trouble: Trouble


Outcome = Page | ListFailed | Installed | WatchFailed | WatchEnded | WatchError


# -------------------------------------------------------------------------------------------------------------------- the core


@dataclass(frozen=True, slots=True)
class State:
    """What the next decision depends on.

    Invariant: ``version`` never goes back to "" or "0" once a list was installed.
    """

    #: Last resourceVersion seen: of the list, an event or a bookmark. "" before the first list.
    version: str = ""
    #: The server said that it cannot list at ``version``; until a list succeeds, only the newest will do.
    unavailable: bool = False
    #: The list at "0" came in pages, so the server has no watch cache: later lists are paged too.
    paged: bool = False
    #: Page size that the caller chose; 0: none.
    page_size: int = 0
    #: The version that the list in progress was asked at.
    asked: str = ""
    #: The list in progress is a whole one because its predecessor expired between two pages.
    whole: bool = False
    #: Version of the first page's answer: the list's own.
    listed: str = ""
    #: The server was down since it last showed anything: it may have come back without its state.
    doubtful: bool = False


def begin(page_size: int = 0, *, watch_list: bool = True, resume_from: str = "") -> tuple[State, Step]:
    """The first step of a reflector. ``resume_from``: the store holds the state at this version already, so it begins with the watch."""
    if resume_from:
        return State(page_size=page_size, version=resume_from), Watch(resume_from)
    return _list(State(page_size=page_size))


def next_step(state: State, outcome: Outcome) -> tuple[State, Step]:
    """What to do after the last step came out as it did."""
    match outcome:
        case Page():
            return _after_page(state, outcome)
        case ListFailed():
            return _after_failed_list(state, outcome.trouble)
        case Installed():
            return state, Watch(state.version)
        case WatchFailed():
            return _after_failed_watch(state, outcome.trouble)
        case WatchEnded():
            return _after_watch(state, outcome)
        case WatchError():
            return _after_error_event(state, outcome)
        case _ as never:
            assert_never(never)


def _list(state: State, *, pause: bool = False) -> tuple[State, Step]:
    # The first list may come from any watch cache ("0"): cheap for the server, and nothing here can go back in time yet.
    # Later lists are at the last version seen, not "0": a server that lags behind would take the store back. Behaviours A1-A3.
    version = "" if state.unavailable else state.version or "0"
    return replace(state, asked=version, whole=False, listed=""), List(version, _limit(state, version), pause=pause)


def _limit(state: State, version: str) -> int:
    if state.page_size:
        return state.page_size
    # A list at an exact version comes whole from the watch cache; with a limit it would go to the storage. Behaviours A6, A7.
    return PAGE if state.paged or version in ("", "0") else 0


def _after_page(state: State, page: Page) -> tuple[State, Step]:
    listed = state.listed or page.version
    if page.token:
        # A continue token carries its version itself; sending both is an error.
        return replace(state, listed=listed), List("", _limit(state, state.asked), token=page.token, fresh=False)
    paged = state.paged or (state.asked == "0" and bool(state.listed))
    return replace(state, version=listed, paged=paged, unavailable=False, whole=False, listed="", doubtful=False), Install(listed)


def _after_failed_list(state: State, trouble: Trouble) -> tuple[State, Step]:
    if trouble is Trouble.EXPIRED and state.listed and not state.whole:
        # The list took longer than the server remembers; once more in one piece, at the version that page one was asked at. Behaviour A4.
        return replace(state, whole=True, listed=""), List(state.asked, 0)
    if trouble in (Trouble.EXPIRED, Trouble.TOO_LARGE) and not state.unavailable:
        # At once, not after a back-off: the server has told what it cannot do, and this is what it can. Behaviours A3, A5.
        return _list(replace(state, unavailable=True))
    return _list(state, pause=True)


def _after_failed_watch(state: State, trouble: Trouble) -> tuple[State, Step]:
    if trouble in (Trouble.REFUSED, Trouble.BUSY):
        # A server that is down or overloaded must not be hit with lists by everyone when it is back. Behaviours B15, B16.
        return replace(state, doubtful=state.doubtful or trouble is Trouble.REFUSED), Watch(state.version, pause=True)
    return _list(state, pause=True)


def _after_watch(state: State, ended: WatchEnded) -> tuple[State, Step]:
    before = state.version
    state = _seen(state, ended.version)
    if ended.events:
        state = replace(state, doubtful=False)
    elif state.doubtful and ended.lasted >= VERY_SHORT:
        # A server whose versions began anew keeps silent about all that happens below the version asked for, for ever and without an
        # error. It refuses to list there.
        return _list(state)
    if ended.lasted < VERY_SHORT:
        if ended.events == 0:
            return _list(state, pause=True)
        if state.version == before:
            # Something closes every stream after its first bookmark; opening it again at once would never end.
            return state, Watch(state.version, pause=True)
    return state, Watch(state.version)


def _after_error_event(state: State, error: WatchError) -> tuple[State, Step]:
    state = _seen(state, error.version)
    if error.trouble is Trouble.BUSY:
        return state, Watch(state.version, pause=True)
    return _list(state, pause=True)


def _seen(state: State, version: str) -> State:
    return replace(state, version=version) if version else state
