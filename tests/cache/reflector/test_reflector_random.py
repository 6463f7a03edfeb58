"""The reflector against random outcomes: what it never does, whatever servers do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubeloop.cache.reflector.reflector import VERY_SHORT, begin, next_step
from kubeloop.cache.reflector.steps import (
    ContinueWatch,
    FailureClass,
    InitialStateStreamed,
    ListFailed,
    ListPage,
    OpenWatch,
    Outcome,
    PageListed,
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
)

#: Failures in a row that may be answered without a pause: 410 at the version, 410 at the newest, a page that expires, the list whole.
AT_ONCE = 4

TROUBLES = st.sampled_from(FailureClass)
VERSIONS = st.sampled_from(["", "0", "new"])
LASTED = st.sampled_from([0.1, 400.0])
ENDINGS = st.sampled_from(StreamEnd)
EVENTS = st.integers(0, 2)

LISTS = st.one_of(st.builds(PageListed, VERSIONS, st.sampled_from(["", "more"])), st.builds(ListFailed, TROUBLES))
STREAMS = st.one_of(
    st.builds(InitialStateStreamed, VERSIONS), st.builds(StreamFailed, TROUBLES), st.builds(StreamEnded, ENDINGS, EVENTS, LASTED)
)
FOLLOWS = st.one_of(st.builds(WatchFinished, VERSIONS, EVENTS, LASTED, ENDINGS), st.builds(WatchError, VERSIONS, TROUBLES))
WATCHES = st.one_of(FOLLOWS, st.builds(WatchFailed, TROUBLES))


def outcome_of(step: Step, data: st.DataObject, newest: int) -> Outcome:
    """A random outcome that fits. Versions rise with time, as a server's do."""
    match step:
        case ReplaceStore():
            return StoreReplaced()
        case ListPage():
            outcome: Outcome = data.draw(LISTS)
        case WatchList():
            outcome = data.draw(STREAMS)
        case ContinueWatch():
            outcome = data.draw(FOLLOWS)
        case OpenWatch():
            outcome = data.draw(WATCHES)
    version = getattr(outcome, "version", "")
    if version != "new":
        return outcome
    match outcome:
        case PageListed():
            return PageListed(str(newest), outcome.token)
        case InitialStateStreamed():
            return InitialStateStreamed(str(newest))
        case WatchFinished():
            return WatchFinished(str(newest), max(outcome.events, 1), outcome.lasted, outcome.how)
        case WatchError():
            return WatchError(str(newest), outcome.trouble)
        case _:
            return outcome


def is_failure(outcome: Outcome) -> bool:
    """Whether it took no time and brought nothing new."""
    match outcome:
        case ListFailed() | StreamFailed() | WatchFailed():
            return True
        case StreamEnded():
            return outcome.how is not StreamEnd.SILENT
        case WatchError():
            return outcome.version in ("", "0")
        case WatchFinished():
            return outcome.version in ("", "0") and outcome.lasted < VERY_SHORT and outcome.how is not StreamEnd.SILENT
        case _:
            return False


@given(st.data(), st.booleans(), st.sampled_from([0, 4]), st.sampled_from(["", "5"]), st.sampled_from([0.0, 30.0]))
def test_whatever_happens_it_goes_on_never_goes_back_and_never_runs_hot(
    data: st.DataObject, streams: bool, page_size: int, resume_from: str, internal_retry: float
) -> None:
    state, step = begin(page_size, watch_list=streams, resume_from=resume_from, internal_retry=internal_retry)
    known = int(resume_from or 0)
    holds = bool(resume_from)
    at_once = requests = 0
    for number in range(10, 50):
        outcome = outcome_of(step, data, number)
        before = step
        state, step = next_step(state, outcome, now=float(number))
        assert step is not None, "it never stops"
        holds = holds or isinstance(before, ReplaceStore)
        if isinstance(step, OpenWatch | ContinueWatch):
            assert holds, "a watch needs a state to begin from"
            assert int(step.version or 0) >= known, "a watch never begins before what was seen"
            known = int(step.version or 0)
        elif isinstance(step, ReplaceStore):
            # The newest that the server has; only after it refused the version known may that be less.
            assert int(step.version or 0) >= known
        elif known and not (isinstance(step, ListPage) and step.token):
            assert step.version != "0", "what was seen is not forgotten"
            assert not step.version or int(step.version) >= known
            if step.version == "":
                assert state.unavailable, "the newest is requested only when the known version was refused"
        assert isinstance(before, WatchList | ReplaceStore) or not isinstance(step, ContinueWatch), "only a stream can be followed"

        requests = 0 if step.pause else requests + isinstance(step, WatchList | ListPage | OpenWatch)
        at_once = 0 if step.pause or not is_failure(outcome) else at_once + 1
        assert at_once <= AT_ONCE, "a server in trouble is not asked again and again without a pause"


@given(st.lists(st.one_of(LISTS, STREAMS, WATCHES), min_size=1, max_size=8), st.booleans())
def test_failures_alone_always_come_to_a_pause(outcomes: list[Outcome], streams: bool) -> None:
    """The same failures over and over: the number of requests between two pauses is bounded."""
    failures = [outcome for outcome in outcomes if is_failure(outcome)]
    state, step = begin(watch_list=streams, resume_from="5")
    hot = 0
    for number in range(200):
        fitting = [each for each in failures if fits(step, each)]
        if not fitting:
            return
        state, step = next_step(state, fitting[number % len(fitting)], now=float(number))
        hot = 0 if step.pause else hot + 1
        assert hot <= AT_ONCE


def fits(step: Step, outcome: Outcome) -> bool:
    match step:
        case ListPage():
            return isinstance(outcome, ListFailed)
        case WatchList():
            return isinstance(outcome, StreamFailed | StreamEnded)
        case OpenWatch():
            return isinstance(outcome, WatchFailed | WatchError | WatchFinished)
        case ContinueWatch():
            return isinstance(outcome, WatchError | WatchFinished)
        case ReplaceStore():
            return False
