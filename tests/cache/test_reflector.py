"""The reflector's decisions, as a table of outcomes and steps, and against random outcomes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.cache.reflector import PAGE, State, begin, next_step
from kubeloop.cache.steps import (
    Install,
    Installed,
    List,
    ListFailed,
    Outcome,
    Page,
    Step,
    Trouble,
    Watch,
    WatchEnded,
    WatchError,
    WatchFailed,
)


def run(*outcomes: Outcome, page_size: int = 0) -> list[Step]:
    """The steps, from the first, when each comes out as given."""
    state, step = begin(page_size, watch_list=False)
    steps = [step]
    for outcome in outcomes:
        state, step = next_step(state, outcome)
        steps.append(step)
    return steps


def listed(version: str) -> tuple[Outcome, Outcome]:
    return Page(version), Installed()


LONG = 400.0


def test_the_first_list_is_at_version_0_in_pages_of_500_and_the_watch_follows_at_the_lists_version() -> None:
    assert run(*listed("7")) == [List("0", 500), Install("7"), Watch("7")]


def test_a_relist_after_the_first_is_at_the_last_version_seen() -> None:
    steps = run(*listed("0"), WatchEnded("10", 3, LONG), WatchError("10", Trouble.OTHER))
    assert steps[-1] == List("10", 0, pause=True)


def test_a_relist_that_is_told_410_lists_again_at_once_at_the_newest() -> None:
    steps = run(*listed("10"), WatchError("", Trouble.EXPIRED), ListFailed(Trouble.EXPIRED))
    assert steps[-2:] == [List("10", 0, pause=True), List("", PAGE)]


def test_after_a_410_only_the_newest_will_do_until_a_list_succeeds() -> None:
    steps = run(*listed("10"), WatchError("", Trouble.OTHER), ListFailed(Trouble.EXPIRED), ListFailed(Trouble.OTHER), *listed("20"))
    assert steps[-3] == List("", PAGE, pause=True)
    assert next_step(State(version="20"), WatchFailed(Trouble.OTHER))[1] == List("20", 0, pause=True)


def test_a_page_that_expires_midway_restarts_as_one_full_list_at_the_version_of_page_one() -> None:
    relist = run(*listed("10"), WatchFailed(Trouble.OTHER), Page("12", "more"), ListFailed(Trouble.EXPIRED), page_size=4)
    assert relist[3:] == [List("10", 4, pause=True), List("", 4, token="more", fresh=False), List("10", 0)]
    first = run(Page("12", "more"), ListFailed(Trouble.EXPIRED))
    assert first[1:] == [List("", PAGE, token="more", fresh=False), List("0", 0)]


def test_a_full_list_that_expires_too_lists_at_the_newest() -> None:
    steps = run(
        *listed("10"), WatchFailed(Trouble.OTHER), Page("12", "more"), ListFailed(Trouble.EXPIRED), ListFailed(Trouble.EXPIRED), page_size=4
    )
    assert steps[-1] == List("", 4)


def test_a_version_that_is_too_large_is_answered_by_a_list_at_the_newest() -> None:
    steps = run(*listed("20"), WatchError("", Trouble.OTHER), ListFailed(Trouble.TOO_LARGE), *listed("30"))
    assert steps[3:5] == [List("20", 0, pause=True), List("", PAGE)]


def test_lists_stay_paged_when_the_list_at_version_0_came_in_pages() -> None:
    steps = run(Page("5", "more"), Page("5"), Installed(), WatchFailed(Trouble.OTHER))
    assert steps[-1] == List("5", PAGE, pause=True)


def test_a_chosen_page_size_is_used_for_every_list() -> None:
    steps = run(Page("5", "a"), Page("5", "b"), Page("5"), Installed(), WatchFailed(Trouble.OTHER), page_size=4)
    assert [step.limit for step in steps if isinstance(step, List)] == [4, 4, 4, 4]
    assert steps[1:3] == [List("", 4, token="a", fresh=False), List("", 4, token="b", fresh=False)]


WATCHING = State(version="3")


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        pytest.param(
            WatchFailed(Trouble.REFUSED), Watch("3", pause=True), id="a refused connection watches again at the same version, no list"
        ),
        pytest.param(
            WatchFailed(Trouble.BUSY), Watch("3", pause=True), id="429 when opening the watch watches again at the same version, no list"
        ),
        pytest.param(
            WatchFailed(Trouble.OTHER), List("3", 0, pause=True), id="any other error when opening the watch lists at the last version"
        ),
        pytest.param(
            WatchFailed(Trouble.EXPIRED),
            List("3", 0, pause=True),
            id="410 when opening the watch ends the round; the next lists at the last version",
        ),
        pytest.param(WatchError("", Trouble.EXPIRED), List("3", 0, pause=True), id="410 as an event lists at the last version"),
        pytest.param(
            WatchError("5", Trouble.OTHER), List("5", 0, pause=True), id="an error event lists at the last version seen on the stream"
        ),
        pytest.param(WatchError("5", Trouble.BUSY), Watch("5", pause=True), id="429 as an event watches again"),
        pytest.param(WatchEnded("4", 1, 0.1), Watch("4"), id="a watch closed by the server is opened again at once from the last version"),
        pytest.param(
            WatchEnded("3", 2, 0.1),
            Watch("3", pause=True),
            id="a watch closed at once with nothing new is opened again after a pause",
        ),
        pytest.param(WatchEnded("", 0, 400.0), Watch("3"), id="a silent watch that ran out is opened again at once from where it began"),
        pytest.param(WatchEnded("", 0, 0.5), List("3", 0, pause=True), id="a watch that ends within a second without an event is an error"),
        pytest.param(ListFailed(Trouble.OTHER), List("3", 0, pause=True), id="a failed list is tried again after a pause"),
    ],
)
def test_after(outcome: Outcome, expected: Step) -> None:
    assert next_step(WATCHING, outcome)[1] == expected


def test_a_silent_watch_of_a_server_that_was_down_is_followed_by_a_list_which_tells_whether_it_lost_its_state() -> None:
    state, step = next_step(WATCHING, WatchFailed(Trouble.REFUSED))
    assert next_step(state, WatchEnded("4", 1, 400.0))[1] == Watch("4"), "it shows something"
    state, step = next_step(state, WatchEnded("", 0, 400.0))
    assert step == List("3", 0)
    assert next_step(state, ListFailed(Trouble.TOO_LARGE))[1] == List("", PAGE)
    state, step = next_step(state, Page("3"))
    state, step = next_step(state, Installed())
    assert next_step(state, WatchEnded("", 0, 400.0))[1] == Watch("3"), "once is enough"


OUTCOMES = st.one_of(
    st.builds(Page, st.just("v"), st.sampled_from(["", "", "token"])),
    st.builds(ListFailed, st.sampled_from(Trouble)),
    st.builds(WatchFailed, st.sampled_from(Trouble)),
    st.builds(WatchEnded, st.sampled_from(["", "v"]), st.integers(0, 2), st.sampled_from([0.1, 400.0])),
    st.builds(WatchError, st.sampled_from(["", "v"]), st.sampled_from(Trouble)),
)


def fits(step: Step, outcome: Outcome) -> bool:
    match step:
        case List():
            return isinstance(outcome, Page | ListFailed)
        case Install():
            return isinstance(outcome, Installed)
        case Watch():
            return isinstance(outcome, WatchFailed | WatchEnded | WatchError)


@given(st.lists(OUTCOMES, max_size=60))
def test_whatever_happens_versions_never_go_back_and_trouble_is_met_with_a_pause(outcomes: list[Outcome]) -> None:
    state, step = begin(watch_list=False)
    newest, at_once, installed = 0, 0, False
    for number, outcome in enumerate(outcomes, start=1):
        if isinstance(step, Install):
            outcome = Installed()
        elif not fits(step, outcome):
            continue
        # Versions rise with time, as a server's do.
        if isinstance(outcome, Page):
            outcome = Page(str(number), outcome.token)
        elif isinstance(outcome, WatchEnded) and outcome.version:
            outcome = WatchEnded(str(number), outcome.events, outcome.lasted)
        elif isinstance(outcome, WatchError) and outcome.version:
            outcome = WatchError(str(number), outcome.trouble)
        state, step = next_step(state, outcome)
        if isinstance(step, Watch):
            assert installed, "a watch needs a list to begin from"
            assert int(step.version) >= newest
            newest = int(step.version)
        elif isinstance(step, Install):
            installed = True
        elif installed:
            assert step.version != "0", "the newest state known is not forgotten"
            assert not step.version or int(step.version) >= newest
        trouble = isinstance(outcome, ListFailed | WatchFailed | WatchError)
        at_once = at_once + 1 if trouble and not step.pause else 0
        assert at_once <= 2, "a server in trouble is not asked again and again without a pause"
