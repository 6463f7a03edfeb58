"""The overlay by its sentences: own writes against what the watch brings, early, late or never."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from kubeloop.cache.blobs.blob_store import BlobStore
from kubeloop.cache.blobs.head import HeadReader, StringInterner
from kubeloop.cache.lister.mutation_cache import PATIENCE
from tests.cache.own_world import World, document

A1 = document("a", "u1", "11", x="1")
A2 = document("a", "u1", "12", x="2")
A3 = document("a", "u1", "13", x="3")
#: Recreated under the same name.
B4 = document("a", "u2", "14", x="4")
OTHER = document("other", "u9", "15")

Step = Callable[[World], None]


def start(world: World) -> None:
    world.listed([A1], "11")


@pytest.mark.parametrize(
    ("steps", "shown"),
    [
        pytest.param([start, lambda w: w.wrote(A2)], ["a@12"], id="an own write is shown before the watch brings it [G97]"),
        pytest.param(
            [start, lambda w: w.wrote(A2), lambda w: w.changed(A2)], ["a@12"], id="the watch brings it, and the copy is dropped [G97]"
        ),
        pytest.param([start, lambda w: w.wrote(A3), lambda w: w.changed(A2)], ["a@13"], id="an older event does not take it back [G97]"),
        pytest.param(
            [start, lambda w: w.changed(A3), lambda w: w.wrote(A2)], ["a@13"], id="an answer that comes late changes nothing [G97]"
        ),
        pytest.param(
            [start, lambda w: w.wrote(A3), lambda w: w.wrote(A2)], ["a@13"], id="of two answers the newer one counts, not the later [G97]"
        ),
        pytest.param([start, lambda w: w.wrote(A1)], ["a@11"], id="a write that changed nothing changes nothing"),
        pytest.param(
            [start, lambda w: w.removed(A2), lambda w: w.changed(B4), lambda w: w.wrote(A2)],
            ["a@14"],
            id="a stale write never hides a recreated object [G97]",
        ),
        pytest.param(
            [start, lambda w: w.removed(A3), lambda w: w.wrote(A2)], [], id="a stale write does not bring a deleted object back [G97]"
        ),
        pytest.param(
            [start, lambda w: w.wrote(B4, "create")], ["a@14"], id="a recreated object is shown before its predecessor's deletion is"
        ),
        pytest.param(
            [start, lambda w: w.wrote(B4, "create"), lambda w: w.removed(A2)],
            ["a@14"],
            id="the deletion of its predecessor does not remove a recreated object",
        ),
        pytest.param([start, lambda w: w.deleted("a", "u1")], [], id="a deleted object is gone at once"),
        pytest.param([start, lambda w: w.deleted("a")], [], id="a deletion whose answer names no uid means the object that is shown"),
        pytest.param(
            [start, lambda w: w.deleted("a", "u1"), lambda w: w.changed(A2)],
            [],
            id="a late event of a deleted object does not bring it back",
        ),
        pytest.param(
            [start, lambda w: w.deleted("a", "u1"), lambda w: w.changed(B4)],
            ["a@14"],
            id="a tombstone is of one uid: it hides no successor",
        ),
        pytest.param(
            [start, lambda w: w.removed(A2), lambda w: w.deleted("a", "u1")],
            [],
            id="a deletion that the watch was faster with is nothing new",
        ),
        pytest.param(
            [start, lambda w: w.deleted("a", "u1"), lambda w: w.wrote(A2)],
            [],
            id="the answer of an update that comes after the deletion's does not bring the object back [G97]",
        ),
        pytest.param(
            [lambda w: w.listed([], "10"), lambda w: w.wrote(A1, "create"), lambda w: w.deleted("a", "u1"), lambda w: w.changed(A1)],
            [],
            id="an object that was made and deleted stays hidden while the watch still tells of its birth",
        ),
        pytest.param(
            [start, lambda w: w.wrote(A2), lambda w: w.changed(OTHER)], ["a@11", "other@15"], id="any later event confirms a write"
        ),
        pytest.param([start, lambda w: w.wrote(A2), lambda w: w.bookmark("12")], ["a@11"], id="a bookmark confirms it"),
        pytest.param([start, lambda w: w.wrote(A2), lambda w: w.listed([A3], "13")], ["a@13"], id="a list at a later version confirms it"),
        pytest.param([start, lambda w: w.wrote(A3), lambda w: w.listed([A2], "12")], ["a@13"], id="a list at an older version does not"),
        pytest.param(
            [start, lambda w: w.wrote(A3), lambda w: w.listed([], "5")],
            [],
            id="a server that lost its history is believed against own writes",
        ),
        pytest.param(
            [start, lambda w: w.deleted("a", "u1"), lambda w: w.listed([A2], "12")],
            [],
            id="an old list does not bring a deleted object back",
        ),
        pytest.param(
            [start, lambda w: w.deleted("a", "u2"), lambda w: w.wrote(B4, "create")],
            [],
            id="answers that overtook each other: a recreated and deleted object removes its predecessor too",
        ),
        pytest.param(
            [start, lambda w: w.wrote(B4, "create"), lambda w: w.deleted("a", "u2")],
            [],
            id="a recreated and deleted object does not give way to its predecessor",
        ),
        pytest.param([lambda w: w.wrote(A1, "create")], ["a@11"], id="a write before the first list is shown"),
        pytest.param(
            [start, lambda w: w.deleted("a", "u1", "11"), lambda w: w.changed(A2)],
            ["a@12"],
            id="an object that looked ended, and goes on, is shown again with its next state",
        ),
        pytest.param(
            [start, lambda w: w.deleted("a", "u1", "11"), lambda w: w.listed([A2], "12")],
            ["a@12"],
            id="the same when a list shows that state",
        ),
    ],
)
def test_what_readers_see(steps: list[Step], shown: list[str]) -> None:
    world = World()
    for step in steps:
        step(world)
    assert world.names() == shown


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(lambda w: w.changed(A2), id="the watch reached the version"),
        pytest.param(lambda w: w.changed(OTHER), id="the watch is past it"),
        pytest.param(lambda w: w.bookmark("12"), id="a bookmark"),
        pytest.param(lambda w: w.removed(A3), id="the watch saw the object's end"),
        pytest.param(lambda w: w.listed([A2], "12"), id="a list"),
    ],
)
def test_the_copy_is_dropped_and_no_timer_left_when(step: Step) -> None:
    world = World()
    start(world)
    world.wrote(A2)
    assert world.clock.waiting == 1
    step(world)
    assert (world.overlay.written, world.overlay.active, len(world.overlay.shown), world.clock.waiting) == ({}, False, 0, 0)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(lambda w: w.removed(A2), id="the watch saw the deletion"),
        pytest.param(lambda w: w.listed([], "12"), id="a list that is newer than the object lacks it"),
        pytest.param(lambda w: w.listed([], "5"), id="the server lost its history"),
    ],
)
def test_the_tombstone_is_dropped_and_no_timer_left_when(step: Step) -> None:
    world = World()
    start(world)
    world.deleted("a", "u1")
    step(world)
    assert (world.overlay.dead, world.overlay.active, world.clock.waiting) == ({}, False, 0)


# ---------------------------------------------------------------------------------------------------------- a server that restarts

#: Of a server that restarted while the watch was at 40.
NEW = document("new", "v1", "11", x="1")
NEWER = document("new", "v1", "12", x="2")
RECREATED = document("a", "v2", "13")


def at_40(world: World) -> None:
    world.listed([document("a", "u1", "30")], "40")
    world.wrote(document("b", "u2", "41"), "create", sent=1.0)


@pytest.mark.parametrize(
    ("steps", "shown"),
    [
        pytest.param(
            [lambda w: w.wrote(NEW, "create", sent=1.0)],
            ["a@30", "new@11"],
            id="a creation that was sent after the watch had shown more than it is answered with is shown, and ends earlier own writes",
        ),
        pytest.param(
            [lambda w: w.wrote(NEW, "create", sent=1.0), lambda w: w.wrote(NEWER)],
            ["a@30", "new@12"],
            id="so are the writes that follow it",
        ),
        pytest.param(
            [lambda w: w.wrote(NEW, "create", sent=1.0), lambda w: w.deleted("new", "v1")], ["a@30"], id="and deletions that follow it"
        ),
        pytest.param(
            [lambda w: w.wrote(NEW, "create", sent=1.0), lambda w: w.bookmark("40")],
            ["a@30", "new@11"],
            id="earlier events of the watch do not revert it",
        ),
        pytest.param(
            [lambda w: w.wrote(RECREATED, "create", sent=1.0)], ["a@13"], id="it is above an object of the lost history of any version"
        ),
        pytest.param(
            [lambda w: w.wrote(NEW, "create", sent=1.0), lambda w: w.wrote(RECREATED, "create", sent=1.0), lambda w: w.listed([NEW], "12")],
            ["a@13", "new@11"],
            id="a list of the new history confirms what it has reached, and no more",
        ),
        pytest.param(
            [lambda w: w.wrote(NEW, "create", sent=1.0), lambda w: w.listed([], "12")], [], id="what others ended before the list is gone"
        ),
        pytest.param(
            [lambda w: w.listed([], "12"), lambda w: setattr(w.feed, "moved", 2.0), lambda w: w.wrote(NEW, "create", sent=1.0)],
            [],
            id="an answer that the list overtook is not laid over",
        ),
        pytest.param([lambda w: w.wrote(NEW, "create")], ["a@30", "b@41"], id="without its time a creation cannot be placed"),
        pytest.param(
            [lambda w: w.wrote(document("a", "u1", "30"), sent=1.0)], ["a@30", "b@41"], id="an update that changes nothing proves nothing"
        ),
    ],
)
def test_after_the_server_restarted(steps: list[Step], shown: list[str]) -> None:
    world = World()
    for step in (at_40, *steps):
        step(world)
    assert world.names() == shown


@pytest.mark.parametrize("selector", [None, "app=web"])
def test_a_creation_whose_object_s_birth_and_end_the_watch_showed_before_the_answer_does_not_come_back(selector: str | None) -> None:
    world = World(labels=selector)
    world.listed([], "10")
    world.feed.moved = 2.0
    world.changed(WEB1)
    world.removed(document("a", "u1", "12", {"app": "web"}))
    world.wrote(WEB1, "create", sent=1.0)
    assert world.names() == []


# ------------------------------------------------------------------------------------------------------------------ selectors

WEB1 = document("a", "u1", "11", {"app": "web"}, x="1")
WEB2 = document("a", "u1", "12", {"app": "web"}, x="2")
GONE2 = document("a", "u1", "12", {"app": "db"}, x="2")


def test_an_object_that_leaves_the_selector_by_the_write_disappears_and_an_entering_one_appears() -> None:
    world = World(labels="app=web")
    world.listed([WEB1], "11")
    world.wrote(GONE2)
    assert world.names() == []
    world.removed(GONE2)
    assert world.overlay.written == {}
    world.wrote(document("a", "u1", "13", {"app": "web"}))
    assert world.names() == ["a@13"]


def test_an_object_that_never_was_selected_is_not_shown_and_not_even_by_an_event_of_the_time_before() -> None:
    world = World(labels="app=web")
    world.listed([], "10")
    world.wrote(GONE2)
    world.changed(WEB1)
    assert world.names() == []
    world.removed(GONE2)
    assert (world.names(), world.overlay.written) == ([], {})


def test_an_object_that_we_deleted_stays_hidden_when_others_had_taken_it_out_of_the_selection_and_put_it_back() -> None:
    world = World(labels="app=web")
    world.listed([WEB1], "11")
    world.deleted("a", "u1")
    world.removed(GONE2)
    assert (world.overlay.active, world.overlay.unconfirmed(), world.clock.waiting) == (False, [], 0)
    world.changed(document("a", "u1", "13", {"app": "web"}))
    assert world.names() == []
    world.listed([document("a", "u1", "13", {"app": "web"})], "13")
    assert world.names() == []
    world.removed(document("a", "u1", "14", {"app": "web"}))
    world.changed(document("a", "u2", "15", {"app": "web"}))
    assert world.names() == ["a@15"]


async def test_an_object_that_left_the_selection_after_we_deleted_it_is_forgotten_at_last() -> None:
    world = World(labels="app=web")
    world.listed([WEB1], "11")
    world.deleted("a", "u1")
    world.removed(GONE2)
    await world.clock.advance(PATIENCE)
    world.changed(document("other", "u9", "15", {"app": "web"}))
    assert (world.overlay.alert, world.names()) == (False, ["other@15"])


@pytest.mark.parametrize(
    ("selector", "data", "shown"),
    [
        pytest.param("metadata.name=a", "", True, id="a name that fits"),
        pytest.param("metadata.name=b", "", False, id="a name that does not"),
        pytest.param("metadata.name!=b,metadata.namespace=default", "", True, id="several terms must all hold"),
        pytest.param("data.x=1", "1", True, id="a value of the document"),
        pytest.param("data.x=", "", True, id="an absent field is empty"),
        pytest.param("status.podIP=10.0.0.1", "", False, id="a field that only the server can compute: a new object is left to the watch"),
    ],
)
def test_a_created_object_is_shown_if_its_document_fits_the_field_selector(selector: str, data: str, shown: bool) -> None:
    world = World(field_selector=selector)
    world.listed([], "10")
    world.wrote(document("a", "u1", "11", x=data), "create")
    assert world.names() == (["a@11"] if shown else [])


def test_an_object_that_is_shown_stays_shown_where_only_the_server_can_tell_whether_it_is_still_selected() -> None:
    world = World(field_selector="status.podIP=10.0.0.1")
    world.listed([A1], "11")
    world.wrote(A2)
    assert world.names() == ["a@12"]


# ---------------------------------------------------------------------------------------------------------------- the odd ones


def test_versions_that_are_no_numbers_are_laid_over_until_the_objects_next_event() -> None:
    world = World()
    world.listed([document("a", "u1", "r-x")], "r-1")
    world.wrote(document("a", "u1", "r-y"))
    world.changed(document("other", "u9", "r-z"))
    assert world.names() == ["a@r-y", "other@r-z"]
    world.changed(document("a", "u1", "r-y"))
    assert (world.names(), world.overlay.written) == (["a@r-y", "other@r-z"], {})
    world.wrote(document("a", "u1", "r-y"))
    assert world.overlay.written == {}, "equal versions need no order"


async def test_a_write_that_the_watch_never_confirms_is_dropped_after_a_bound_and_said(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.listed([A1, OTHER], "11")
    world.wrote(A2)
    world.deleted("other", "u9")
    await world.clock.advance(PATIENCE - 1)
    assert world.names() == ["a@12"]
    with caplog.at_level(logging.WARNING, "kubeloop.cache"):
        await world.clock.advance(1)
    assert world.names() == ["a@11", "other@15"]
    assert "the watch did not show our own write of default/a (version 12) within 120 s" in caplog.text
    assert "own write of default/other (deletion)" in caplog.text
    assert world.clock.waiting == 0


async def test_a_write_without_a_waiting_reader_is_dropped_silently(caplog: pytest.LogCaptureFixture) -> None:
    world = World(labels="app=web")
    world.listed([], "10")
    world.wrote(GONE2)
    world.deleted("stranger", "u7")
    await world.clock.advance(PATIENCE)
    assert (world.overlay.active, world.clock.waiting, caplog.text) == (False, 0, "")


async def test_a_closed_cache_goes_on_showing_own_writes_and_leaves_no_timer() -> None:
    world = World()
    start(world)
    world.wrote(A2)
    world.readers.close()
    assert (world.names(), world.clock.waiting) == (["a@12"], 0)


def test_heads_that_are_laid_over_carry_paths_that_are_asked_for_later() -> None:
    world = World()
    start(world)
    world.wrote(document("a", "u1", "12", x="2", y="7"))
    world.reader = HeadReader("v1", "ConfigMap", ("data.x", "data.y"), BlobStore(), StringInterner(), world.scope.keep)
    for head in world.store.heads():
        world.store.put(world.reader.again(head))
    world.readers.rebuild_overlay_heads(world.reader)
    assert world.lister.values("data.y") == ["7"]
    assert world.names() == ["a@12"]
