"""``lister.changed_since``: the objects that are new, changed or gone since a version, and when the answer is unknown."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.cache.lister.changes import MAX_DELETIONS, ChangesForgotten, Deletions
from tests.cache.own_world import World, document


def changes(world: World, version: str) -> tuple[list[str], list[str], str]:
    found = world.lister.changed_since(version)
    heads = sorted(f"{head.name}@{head.resource_version}" for head in found.heads)
    return heads, [f"{each.name}@{each.resource_version}" for each in found.deleted], found.version


def listed() -> World:
    world = World()
    world.listed([document("a", "u1", "8"), document("b", "u2", "9")], "10")
    return world


def test_since_the_first_list_nothing_has_changed_until_something_does() -> None:
    world = listed()
    assert changes(world, "10") == ([], [], "10")
    world.changed(document("a", "u1", "11"))
    world.changed(document("c", "u3", "12"))
    world.removed(document("b", "u2", "13"))
    assert changes(world, "10") == (["a@11", "c@12"], ["b@13"], "13")
    assert changes(world, "11") == (["c@12"], ["b@13"], "13")
    assert changes(world, "13") == ([], [], "13")


def test_versions_of_different_length_compare_as_numbers() -> None:
    world = World()
    world.listed([document("a", "u1", "99"), document("b", "u2", "100")], "100")
    world.changed(document("c", "u3", "101"))
    world.changed(document("d", "u4", "1000"))
    assert changes(world, "100") == (["c@101", "d@1000"], [], "1000")
    assert changes(world, "0100") == (["c@101", "d@1000"], [], "1000")


def test_what_vanished_while_the_watch_was_down_is_gone_at_the_lists_version() -> None:
    world = listed()
    world.listed([document("a", "u1", "8")], "20")
    assert changes(world, "10") == ([], ["b@20"], "20")


def test_a_recreated_object_is_both_gone_and_there_and_its_uid_differs() -> None:
    world = listed()
    world.removed(document("a", "u1", "11"))
    world.changed(document("a", "u9", "12"))
    found = world.lister.changed_since("10")
    assert ([each.uid for each in found.deleted], [head.uid for head in found.heads]) == (["u1"], ["u9"])


def test_an_object_that_left_the_selector_and_came_back_is_not_gone() -> None:
    world = World(labels="app=web")
    world.listed([document("a", "u1", "9", {"app": "web"})], "10")
    world.removed(document("a", "u1", "11", {"app": "db"}))
    assert changes(world, "10") == ([], ["a@11"], "11")
    world.changed(document("a", "u1", "12", {"app": "web"}))
    assert changes(world, "10") == (["a@12"], [], "12")


def test_own_writes_are_reported_before_the_watch_and_once_more_after_it() -> None:
    world = listed()
    world.wrote(document("a", "u1", "11"))
    assert changes(world, "10") == (["a@11"], [], "10")
    world.changed(document("a", "u1", "11"))
    assert changes(world, "10") == (["a@11"], [], "11")


@pytest.mark.parametrize(
    ("prepare", "version", "error", "text"),
    [
        pytest.param(lambda w: None, "10", ChangesForgotten, "nothing has been listed yet", id="before the first list"),
        pytest.param(lambda w: w.listed([], "10"), "9", ChangesForgotten, "only those since 10", id="of a time before the first list"),
        pytest.param(
            lambda w: (w.listed([], "1000"), w.listed([], "5")),
            "990",
            ChangesForgotten,
            "version 990 is ahead of the cache, which is at 5: .* before the server lost its history: list everything",
            id="the server restarted",
        ),
        pytest.param(
            lambda w: w.listed([], "10"),
            "11",
            ChangesForgotten,
            "version 11 is ahead of the cache, which is at 10",
            id="a version in the future",
        ),
        pytest.param(lambda w: w.listed([], "10"), "abc", ValueError, '"abc" is not a number', id="a version without order"),
        pytest.param(lambda w: w.listed([], "r-1"), "10", ValueError, '"r-1" is not a number', id="a server without order"),
    ],
)
def test_it_is_refused(prepare: object, version: str, error: type[Exception], text: str) -> None:
    world = World()
    assert callable(prepare)
    prepare(world)
    with pytest.raises(error, match=text):
        world.lister.changed_since(version)


def test_more_deletions_than_are_remembered_are_forgotten_the_oldest_first() -> None:
    world = World()
    world.listed([], "10")
    deletions = Deletions(limit=3)
    deletions.listed("", "10")
    for version in range(11, 16):
        deletions.add(world.head(document(f"o{version}", f"u{version}", str(version))), str(version))
    assert [each.name for each in deletions.since("12", "15")] == ["o13", "o14", "o15"]
    assert (deletions.knows("u12"), deletions.knows("u13"), len(deletions)) == (False, True, 3)
    with pytest.raises(ChangesForgotten, match="changes since version 11 are no longer known, only those since 12"):
        deletions.since("11", "15")
    assert MAX_DELETIONS == 10_000


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["put", "delete", "list"]), st.sampled_from("abcd")), max_size=40), st.data())
def test_a_periodic_reader_ends_with_the_content_of_the_cache(history: list[tuple[str, str]], data: st.DataObject) -> None:
    world = World()
    world.listed([], "10")
    version, token = 10, "10"
    server: dict[str, dict[str, object]] = {}
    mirror: dict[str, tuple[str, str]] = {}

    def ask() -> None:
        nonlocal token
        found = world.lister.changed_since(token)
        for gone in found.deleted:
            if mirror.get(gone.name, ("",))[0] == gone.uid:
                del mirror[gone.name]
        mirror.update({head.name: (head.uid, head.resource_version) for head in found.heads})
        token = found.version

    for action, name in history:
        version += 1
        if action == "put":
            uid = str(server[name]["uid"]) if name in server else f"u{version}"
            server[name] = {"uid": uid, "document": document(name, uid, str(version))}
            world.changed(document(name, uid, str(version)))
        elif action == "delete" and name in server:
            world.removed(document(name, str(server.pop(name)["uid"]), str(version)))
        elif action == "list":
            server.pop(name, None)
            world.listed([each["document"] for each in server.values()], str(version))  # type: ignore[misc]  # they are documents
        if data.draw(st.booleans()):
            ask()
    ask()
    assert mirror == world.shown()
