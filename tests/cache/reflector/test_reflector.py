"""The reflector's decisions, as tables of an outcome and the next request."""

from __future__ import annotations

import pytest

from kubeloop.cache.reflector.reflector import MAX_UNFINISHED, PAGE, State, begin, next_step
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
)

LONG, SHORT = 400.0, 0.5
INSTALLED = StoreReplaced()


def run(*outcomes: Outcome, page_size: int = 0, watch_list: bool = False, resume_from: str = "") -> list[Step]:
    """The steps, from the first, when each comes out as given."""
    state, step = begin(page_size, watch_list=watch_list, resume_from=resume_from)
    steps = [step]
    for outcome in outcomes:
        state, step = next_step(state, outcome)
        steps.append(step)
    return steps


def listed(version: str) -> tuple[Outcome, Outcome]:
    return PageListed(version), INSTALLED


def streamed(version: str) -> tuple[Outcome, Outcome]:
    return InitialStateStreamed(version), INSTALLED


# --------------------------------------------------------------------------------------------------------------- whole histories


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        pytest.param(
            listed("7"),
            [ListPage("0", 500), ReplaceStore("7"), OpenWatch("7")],
            id="the first list is at version 0 in pages of 500 and the watch follows at the list's version [A1]",
        ),
        pytest.param(
            (*listed("5"), WatchFinished("10", 3, LONG), WatchError("10", FailureClass.OTHER)),
            [ListPage("0", 500), ReplaceStore("5"), OpenWatch("5"), OpenWatch("10"), ListPage("10", 0, pause=True)],
            id="a relist after the first is at the last version seen, never at 0 again [A2]",
        ),
        pytest.param(
            (*listed("10"), WatchError("", FailureClass.EXPIRED), ListFailed(FailureClass.EXPIRED)),
            [ListPage("0", 500), ReplaceStore("10"), OpenWatch("10"), ListPage("10", 0, pause=True), ListPage("", PAGE)],
            id="a relist that gets 410 lists again at once at the newest, with no pause between [A3]",
        ),
        pytest.param(
            (PageListed("12", "more"), ListFailed(FailureClass.EXPIRED), *listed("13")),
            [ListPage("0", 500), ListPage("", PAGE, token="more", fresh=False), ListPage("0", 0), ReplaceStore("13"), OpenWatch("13")],
            id="a page that expires midway restarts as one full list at the version asked for on page one [A4]",
        ),
        pytest.param(
            (*listed("20"), WatchError("", FailureClass.OTHER), ListFailed(FailureClass.TOO_LARGE), *listed("30")),
            [
                ListPage("0", 500),
                ReplaceStore("20"),
                OpenWatch("20"),
                ListPage("20", 0, pause=True),
                ListPage("", PAGE),
                ReplaceStore("30"),
                OpenWatch("30"),
            ],
            id="a version that is too large is answered by a list at the newest [A5]",
        ),
        pytest.param(
            (*listed("5"), WatchFailed(FailureClass.OTHER), *listed("6")),
            [ListPage("0", 500), ReplaceStore("5"), OpenWatch("5"), ListPage("5", 0, pause=True), ReplaceStore("6"), OpenWatch("6")],
            id="a list at an exact version asks for everything in one page [A6]",
        ),
        pytest.param(
            (PageListed("5", "more"), PageListed("5"), INSTALLED, WatchFailed(FailureClass.OTHER)),
            [
                ListPage("0", 500),
                ListPage("", 500, token="more", fresh=False),
                ReplaceStore("5"),
                OpenWatch("5"),
                ListPage("5", PAGE, pause=True),
            ],
            id="lists stay paged when the list at version 0 came in pages [A7]",
        ),
    ],
)
def test_lists(outcomes: tuple[Outcome, ...], expected: list[Step]) -> None:
    assert run(*outcomes) == expected


def test_a_chosen_page_size_is_used_for_every_list_and_they_end_in_one_installation_A8_A9() -> None:
    steps = run(PageListed("5", "a"), PageListed("5", "b"), PageListed("5"), INSTALLED, WatchFailed(FailureClass.OTHER), page_size=4)
    assert steps == [
        ListPage("0", 4),
        ListPage("", 4, token="a", fresh=False),
        ListPage("", 4, token="b", fresh=False),
        ReplaceStore("5"),
        OpenWatch("5"),
        ListPage("5", 4, pause=True),
    ]


def test_after_a_410_only_the_newest_will_do_until_a_list_succeeds() -> None:
    steps = run(
        *listed("10"), WatchError("", FailureClass.OTHER), ListFailed(FailureClass.EXPIRED), ListFailed(FailureClass.OTHER), *listed("20")
    )
    assert steps[-3] == ListPage("", PAGE, pause=True)
    assert next_step(State(version="20"), WatchFailed(FailureClass.OTHER))[1] == ListPage("20", 0, pause=True)


def test_a_full_list_that_expires_too_lists_at_the_newest() -> None:
    expired = ListFailed(FailureClass.EXPIRED)
    steps = run(*listed("10"), WatchFailed(FailureClass.OTHER), PageListed("12", "more"), expired, expired, page_size=4)
    assert steps[-2:] == [ListPage("10", 0), ListPage("", 4)]


@pytest.mark.parametrize("streams", [True, False])
def test_a_resumed_reflector_begins_with_the_watch_and_a_410_leads_to_everything(streams: bool) -> None:
    steps = run(WatchError("", FailureClass.EXPIRED), watch_list=streams, resume_from="70")
    everything: Step = WatchList("70", pause=True) if streams else ListPage("70", 0, pause=True)
    assert steps == [OpenWatch("70", check=True), everything]
    assert run(WatchFailed(FailureClass.EXPIRED), watch_list=streams, resume_from="70") == steps, "a 410 as the answer is the same"
    assert run(watch_list=streams, resume_from="0") == [WatchList("") if streams else ListPage("0", PAGE)], "0 is no version to resume from"


# ------------------------------------------------------------------------------------------------------------------------- watch

WATCHING = State(version="3")


@pytest.mark.parametrize(
    ("outcome", "expected", "reason"),
    [
        pytest.param(
            WatchFailed(FailureClass.REFUSED),
            OpenWatch("3", check=True, pause=True),
            Reason.REFUSED,
            id="a refused connection watches again at the same version after a pause, no list [B15]",
        ),
        pytest.param(
            WatchFailed(FailureClass.BUSY, wait=7.0),
            OpenWatch("3", pause=True, wait=7.0),
            Reason.BUSY,
            id="429 when opening the watch watches again after a pause, and not sooner than the server asked [B16]",
        ),
        pytest.param(
            WatchFailed(FailureClass.OTHER),
            ListPage("3", 0, pause=True),
            Reason.ERROR,
            id="any other error when opening the watch lists at the last version after a pause [B17]",
        ),
        pytest.param(
            WatchFailed(FailureClass.EXPIRED),
            ListPage("3", 0, pause=True),
            Reason.EXPIRED,
            id="410 when opening the watch ends the round; the next lists at the last version [B18]",
        ),
        pytest.param(
            WatchError("", FailureClass.EXPIRED),
            ListPage("3", 0, pause=True),
            Reason.EXPIRED,
            id="410 as an event lists at the last version [B18]",
        ),
        pytest.param(
            WatchError("5", FailureClass.INTERNAL),
            ListPage("5", 0, pause=True),
            Reason.INTERNAL,
            id="an internal error event lists, unless retries were asked for [B19]",
        ),
        pytest.param(
            WatchError("5", FailureClass.OTHER),
            ListPage("5", 0, pause=True),
            Reason.ERROR,
            id="an error event of another kind lists at the last version seen on the stream [B20]",
        ),
        pytest.param(
            WatchError("5", FailureClass.BUSY, wait=2.0),
            OpenWatch("5", pause=True, wait=2.0),
            Reason.BUSY,
            id="429 as an event watches again",
        ),
        pytest.param(
            WatchFinished("", 0, SHORT),
            ListPage("3", 0, pause=True),
            Reason.SHORT,
            id="a watch that ends within a second without an event is an error [B22]",
        ),
        pytest.param(
            WatchFinished("4", 1, SHORT),
            OpenWatch("4"),
            Reason.ENDED,
            id="a watch that brought events and closes is opened again at once from the last version, no list [B23]",
        ),
        pytest.param(
            WatchFinished("3", 2, SHORT),
            OpenWatch("3", pause=True),
            Reason.SHORT,
            id="a watch closed within a second with nothing new is opened again after a pause",
        ),
        pytest.param(
            WatchFinished("", 0, LONG),
            OpenWatch("3", check=True),
            Reason.ENDED,
            id="a silent watch that ran out is opened again at once from where it began [B23]",
        ),
        pytest.param(
            WatchFinished("4", 1, LONG, StreamEnd.BROKEN),
            OpenWatch("4", check=True),
            Reason.BROKEN,
            id="a connection that breaks is resumed at once from the last event",
        ),
        pytest.param(
            WatchFinished("", 0, LONG, StreamEnd.SILENT),
            OpenWatch("3", check=True),
            Reason.SILENT,
            id="an abandoned watch is opened again at once [T239]",
        ),
        pytest.param(WatchFinished("0", 1, LONG), OpenWatch("3"), Reason.ENDED, id="a version 0 on a stream is not taken for one"),
    ],
)
def test_a_watch(outcome: Outcome, expected: Step, reason: Reason) -> None:
    _, step = next_step(WATCHING, outcome)
    assert step == expected
    assert step.why is reason


def test_internal_errors_are_retried_by_watching_only_within_the_window_that_was_asked_for_B19() -> None:
    def retries(window: float, success_at: int | None = None) -> int:
        """How often in a row, with an error each second, the watch is only opened again."""
        state, step = begin(resume_from="3", internal_retry=window)
        for second in range(200):
            if second == success_at:
                state, step = next_step(state, WatchFinished("4", 1, LONG), now=float(second))
                continue
            state, step = next_step(state, WatchError("", FailureClass.INTERNAL, wait=2.0), now=float(second))
            if not isinstance(step, OpenWatch):
                return second - (success_at is not None)
            assert (step.pause, step.wait) == (True, 2.0)
        raise AssertionError("it never gave up")

    assert retries(0) == 0, "off unless asked for"
    assert retries(30) == 31
    assert retries(30, success_at=9) == 40, "one success arms the window again"


def test_a_server_that_was_out_of_sight_is_asked_whether_it_knows_the_version_and_if_not_for_everything() -> None:
    """A server that lost its state sends nothing about changes below the requested version, without an end and without an error."""
    steps = run(*listed("9"), WatchFailed(FailureClass.REFUSED), WatchFailed(FailureClass.TOO_LARGE))
    assert steps[-2:] == [OpenWatch("9", check=True, pause=True), ListPage("", PAGE)]
    assert steps[-1].why is Reason.DOUBTFUL
    steps = run(*listed("9"), WatchFinished("", 1, LONG, StreamEnd.BROKEN), WatchFinished("12", 1, LONG))
    assert steps[-2:] == [OpenWatch("9", check=True), OpenWatch("12")], "a stream that was closed in order raises no doubt"


def test_a_server_without_versions_is_listed_again_after_each_watch() -> None:
    steps = run(PageListed(""), INSTALLED, WatchFinished("", 4, LONG), PageListed("0"), INSTALLED, WatchFailed(FailureClass.BUSY))
    assert steps == [
        ListPage("0", 500),
        ReplaceStore(""),
        OpenWatch(""),
        ListPage("0", 500, pause=True),
        ReplaceStore(""),
        OpenWatch(""),
        ListPage("0", 500, pause=True),
    ]


# ------------------------------------------------------------------------------------------------------------------------ stream


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        pytest.param(
            streamed("7"),
            [WatchList(""), ReplaceStore("7"), ContinueWatch("7")],
            id="the first state is streamed at the newest version, and the same stream goes on as the watch [C31, C35]",
        ),
        pytest.param(
            (*streamed("7"), WatchFinished("9", 2, LONG), WatchError("", FailureClass.OTHER)),
            [WatchList(""), ReplaceStore("7"), ContinueWatch("7"), OpenWatch("9"), WatchList("9", pause=True)],
            id="closed later, an ordinary watch follows; a later state is streamed at the last version seen [C37, C31]",
        ),
        pytest.param(
            (StreamEnded(StreamEnd.CLOSED, 5, LONG), *streamed("8")),
            [WatchList(""), WatchList("", pause=True), ReplaceStore("8"), ContinueWatch("8")],
            id="closed early, everything is requested from scratch [C36]",
        ),
        pytest.param(
            (StreamFailed(FailureClass.BUSY, wait=3.0), StreamFailed(FailureClass.BUSY), *streamed("8")),
            [WatchList(""), WatchList("", pause=True, wait=3.0), WatchList("", pause=True), ReplaceStore("8"), ContinueWatch("8")],
            id="429 is retried as a stream [C38]",
        ),
        pytest.param(
            (StreamFailed(FailureClass.REFUSED),),
            [WatchList(""), WatchList("", pause=True)],
            id="where nothing listens, a list would not be heard either",
        ),
        pytest.param(
            (StreamFailed(FailureClass.INVALID), *listed("7"), WatchError("", FailureClass.OTHER)),
            [WatchList(""), ListPage("0", 500), ReplaceStore("7"), OpenWatch("7"), ListPage("7", 0, pause=True)],
            id="what the server does not understand is listed in the same round, and never streamed again [C39]",
        ),
        pytest.param(
            (StreamFailed(FailureClass.OTHER), *listed("7"), WatchError("", FailureClass.OTHER)),
            [WatchList(""), ListPage("0", 500), ReplaceStore("7"), OpenWatch("7"), WatchList("7", pause=True)],
            id="any other error falls back to a list in the same round [C39]",
        ),
        pytest.param(
            (StreamFailed(FailureClass.OTHER), ListFailed(FailureClass.OTHER)),
            [WatchList(""), ListPage("0", 500), WatchList("", pause=True)],
            id="when the list fails too, the next round begins with a stream again",
        ),
        pytest.param(
            (*streamed("7"), WatchFailed(FailureClass.OTHER), StreamFailed(FailureClass.EXPIRED), *streamed("9")),
            [
                WatchList(""),
                ReplaceStore("7"),
                ContinueWatch("7"),
                WatchList("7", pause=True),
                WatchList(""),
                ReplaceStore("9"),
                ContinueWatch("9"),
            ],
            id="a stream that gets 410 is requested at once at the newest",
        ),
        pytest.param(
            (*streamed("7"), WatchFailed(FailureClass.OTHER), StreamFailed(FailureClass.TOO_LARGE), StreamFailed(FailureClass.TOO_LARGE)),
            [WatchList(""), ReplaceStore("7"), ContinueWatch("7"), WatchList("7", pause=True), WatchList(""), ListPage("", PAGE)],
            id="a version too large twice is listed",
        ),
        pytest.param(
            (StreamEnded(StreamEnd.SILENT, 0, 60.0), *listed("7")),
            [WatchList(""), ListPage("0", 500), ReplaceStore("7"), OpenWatch("7")],
            id="a stream that falls silent before its end is listed in the same round",
        ),
        pytest.param(
            (StreamEnded(StreamEnd.CLOSED, 0, SHORT), *listed("7")),
            [WatchList(""), ListPage("0", 500), ReplaceStore("7"), OpenWatch("7")],
            id="a stream that is closed at once without an event is listed in the same round [B22]",
        ),
    ],
)
def test_streams(outcomes: tuple[Outcome, ...], expected: list[Step]) -> None:
    assert run(*outcomes, watch_list=True) == expected


def test_a_server_whose_streams_never_end_is_remembered() -> None:
    endings = [StreamEnded(StreamEnd.BROKEN, 3, 9.0)] * MAX_UNFINISHED
    steps = run(*endings, *listed("7"), WatchError("", FailureClass.OTHER), watch_list=True)
    assert steps == [
        WatchList(""),
        *[WatchList("", pause=True)] * 2,
        ListPage("0", 500),
        ReplaceStore("7"),
        OpenWatch("7"),
        ListPage("7", 0, pause=True),
    ]
    finished = run(*endings[1:], *streamed("7"), WatchFailed(FailureClass.OTHER), *endings[1:], watch_list=True)
    assert finished[-1] == WatchList("7", pause=True), "a watch that ends in between restarts the count"


def test_streams_can_be_switched_off_C30() -> None:
    assert run(watch_list=False) == [ListPage("0", 500)]


def test_each_request_for_everything_says_why() -> None:
    state, step = begin()
    reasons = [step.why]
    for outcome in (
        StreamFailed(FailureClass.OTHER),
        *listed("7"),
        WatchFailed(FailureClass.EXPIRED),
        StreamFailed(FailureClass.TOO_LARGE),
    ):
        state, step = next_step(state, outcome)
        if isinstance(step, WatchList | ListPage):
            reasons.append(step.why)
    assert reasons == [Reason.FIRST, Reason.FALLBACK, Reason.EXPIRED, Reason.TOO_LARGE]
