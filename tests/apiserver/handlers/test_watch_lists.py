"""WatchList (KEP-3157) over the wire: which combinations of parameters stream the state, which are refused, in what form it comes.

Every row is what a kube-apiserver 1.36 answered to the same request.
"""

from __future__ import annotations

import asyncio
import itertools

import pytest

from kubeloop.timing import FakeClock
from tests.apiserver.conftest import CONFIGMAPS, PARTIAL, TABLE, Api, running_api

NEEDS_MATCH = "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
NEEDS_SEND = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
NO_CONTINUE = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"
STREAM = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


def unsupported(match: str) -> str:
    return f'resourceVersionMatch: Unsupported value: "{match}": supported values: "NotOlderThan"'


def message_of(*errors: str) -> str:
    joined = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
    return f'ListOptions.meta.k8s.io "" is invalid: {joined}'


def query_of(send: str, match: str, version: str | None) -> str:
    parts = {"sendInitialEvents": send, "resourceVersionMatch": match, "resourceVersion": version}
    return "&".join(["watch=1", "allowWatchBookmarks=true", *(f"{name}={value}" for name, value in parts.items() if value)])


@pytest.mark.parametrize(
    ("send", "match", "errors"),
    [
        pytest.param("true", "", (NEEDS_MATCH,), id="initial events without a match"),
        pytest.param("false", "", (NEEDS_MATCH,), id="no initial events without a match"),
        pytest.param("true", "Exact", (NEEDS_MATCH, unsupported("Exact")), id="initial events at exactly a version"),
        pytest.param("false", "Exact", (NEEDS_MATCH, unsupported("Exact")), id="no initial events at exactly a version"),
        pytest.param("true", "Bogus", (NEEDS_MATCH, unsupported("Bogus")), id="initial events with a match that does not exist"),
        pytest.param("", "NotOlderThan", (NEEDS_SEND,), id="a match without a word on initial events"),
        pytest.param("", "Exact", (NEEDS_SEND, unsupported("Exact")), id="an exact match without a word on initial events"),
    ],
)
async def test_a_watch_is_refused_whatever_its_version_that_asks_for(api: Api, send: str, match: str, errors: tuple[str, ...]) -> None:
    for version in (None, "0", "1", "abc"):
        answer = await api("GET", f"{CONFIGMAPS}?{query_of(send, match, version)}")
        assert (answer.status, answer.body["reason"], answer.message) == (422, "Invalid", message_of(*errors))
        assert [cause["field"] for cause in answer.body["details"]["causes"]] == ["resourceVersionMatch"] * len(errors)


@pytest.mark.parametrize(
    ("query", "refused"),
    [
        pytest.param("continue=x", True, id="without a version: refused, since it stands for a stream of the state"),
        pytest.param("continue=x&resourceVersion=0", True, id="from version 0: refused for the same reason"),
        pytest.param(f"continue=x&{STREAM}", True, id="with initial events: refused"),
        pytest.param("continue=x&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", True, id="without initial events: refused"),
        pytest.param("continue=x&resourceVersion={version}", False, id="from a version: ignored"),
    ],
)
async def test_a_watch_with_a_continue_token(api: Api, query: str, refused: bool) -> None:
    version = (await api.create("a")).version
    path = f"{CONFIGMAPS}?watch=1&{query.format(version=version)}"
    if refused:
        answer = await api("GET", path)
        assert (answer.status, answer.message) == (422, message_of(NO_CONTINUE))
    else:
        async with api.watch(path):
            pass


async def test_initial_events_are_no_matter_of_lists(api: Api) -> None:
    answer = await api("GET", f"{CONFIGMAPS}?sendInitialEvents=true")
    expected = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"
    assert (answer.status, answer.message) == (422, message_of(expected))


@pytest.mark.parametrize("send", ["", "true"], ids=["a watch that does not say", "a watch that asks for initial events"])
@pytest.mark.parametrize("version", [None, "0", "first", "last"])
async def test_the_state_is_streamed_and_its_end_marked_for(api: Api, send: str, version: str | None) -> None:
    first, last = (await api.create("a")).version, (await api.create("b")).version
    since = {"first": first, "last": last}.get(version or "", version)
    streams = send == "true" or version in (None, "0")
    path = f"{CONFIGMAPS}?{query_of(send, 'NotOlderThan' if send else '', since)}"
    async with api.watch(path) as events:
        later = asyncio.create_task(api.create("c"))
        found = [await anext(events) for _ in range(4 if streams else 2 if version == "first" else 1)]
        made = (await later).version
    shown = [(one["type"], one["object"]["metadata"].get("name")) for one in found]
    if streams:
        # The change that comes meanwhile is part of the state, or comes after its end; never both, never neither.
        assert sorted(shown, key=str) == sorted([("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c"), ("BOOKMARK", None)], key=str)
        mark = next(one["object"]["metadata"] for one in found if one["type"] == "BOOKMARK")
        assert mark["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert mark["resourceVersion"] == (made if shown[-1][0] == "BOOKMARK" else last)
    else:
        assert shown == [("ADDED", "b"), ("ADDED", "c")][-len(shown) :]


@pytest.mark.parametrize("version", [None, "0", "last"])
async def test_a_watch_without_initial_events_gets_only_changes(api: Api, version: str | None) -> None:
    last = (await api.create("a")).version
    path = f"{CONFIGMAPS}?{query_of('false', 'NotOlderThan', last if version == 'last' else version)}"
    async with api.watch(path) as events:
        await api.create("b")
        assert (await anext(events))["object"]["metadata"]["name"] == "b"


async def test_a_watch_without_bookmarks_gets_the_state_without_a_mark(api: Api) -> None:
    await api.create("a")
    async with api.watch(f"{CONFIGMAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan") as events:
        assert (await anext(events))["object"]["metadata"]["name"] == "a"
        await api.create("b")
        assert (await anext(events))["object"]["metadata"]["name"] == "b"


@pytest.mark.parametrize(
    ("path", "selector", "names"),
    [
        pytest.param(CONFIGMAPS, "labelSelector=app=b", ["b"], id="a label"),
        pytest.param(CONFIGMAPS, "fieldSelector=metadata.name=a", ["a"], id="a name"),
        pytest.param(CONFIGMAPS, "labelSelector=app=none", [], id="nothing that is there"),
        pytest.param("/api/v1/configmaps", "fieldSelector=metadata.namespace=default", ["a", "b"], id="all namespaces"),
        pytest.param("/api/v1/namespaces", "fieldSelector=metadata.name=default", ["default"], id="a kind without namespaces"),
    ],
)
@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        pytest.param("", "", id="as it is"),
        pytest.param(PARTIAL, "PartialObjectMetadata", id="as metadata"),
        pytest.param(TABLE, "Table", id="as a table"),
    ],
)
async def test_the_stream_holds_the_selected_objects_and_then_the_mark(
    api: Api, path: str, selector: str, names: list[str], accept: str, kind: str
) -> None:
    for name in "ab":
        newest = (await api.create(name, metadata={"labels": {"app": name}})).version
    async with api.watch(f"{path}?watch=1&{STREAM}&{selector}", accept=accept) as events:
        found = [await anext(events) for _ in range(len(names) + 1)]
    assert [one["type"] for one in found] == ["ADDED"] * len(names) + ["BOOKMARK"]
    objects = [one["object"] for one in found]
    if kind:
        assert {obj["kind"] for obj in objects} == {kind}
    mark = objects[-1]
    if kind == "Table":
        assert [bool(obj.get("columnDefinitions")) for obj in objects] == [True, *itertools.repeat(False, len(names))]
        assert mark["metadata"]["resourceVersion"] == newest
        objects = [row["object"] for obj in objects for row in obj["rows"]]
        mark = objects[-1]
    assert [obj["metadata"]["name"] for obj in objects[:-1]] == names
    assert mark["metadata"] == {"resourceVersion": newest, "annotations": {"k8s.io/initial-events-end": "true"}} | (
        {"creationTimestamp": None} if "creationTimestamp" in mark["metadata"] else {}
    )


async def test_a_state_at_a_version_that_does_not_come_ends_the_stream_with_an_error_that_says_when_to_try_again() -> None:
    clock = FakeClock()
    async with running_api(clock) as api:
        newest = int((await api.create("a")).version)
        async with api.watch(f"{CONFIGMAPS}?watch=1&{STREAM}&resourceVersion={newest + 1000}") as events:
            following = asyncio.ensure_future(anext(events))
            while not following.done():
                await asyncio.sleep(0.005)
                await clock.advance(1)
            event = await following
            rest = [one async for one in events]
    status = event["object"]
    assert (event["type"], status["code"], status["reason"], rest) == ("ERROR", 504, "Timeout", [])
    assert status["message"] == f"Timeout: Too large resource version: {newest + 1000}, current: {newest}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    assert status["details"] == {"causes": causes, "retryAfterSeconds": 1}


@pytest.mark.parametrize("query", ["", "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"])
async def test_changes_after_a_version_that_has_not_come_are_waited_for_in_silence(api: Api, query: str) -> None:
    newest = int((await api.create("a")).version)
    async with api.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={newest + 1}{query}") as events:
        await api.create("b")
        await api.create("c")
        assert (await anext(events))["object"]["metadata"]["name"] == "c"


async def test_a_compacted_version_is_no_hindrance_for_a_request_of_the_state_at_least_as_new(api: Api) -> None:
    first = (await api.create("a")).version
    newest = (await api.create("b")).version
    await api("POST", "/debug/compact")
    events = await api.events(f"{CONFIGMAPS}?watch=1&{STREAM}&resourceVersion={first}", 3)
    assert [one["type"] for one in events] == ["ADDED", "ADDED", "BOOKMARK"]
    assert events[2]["object"]["metadata"]["resourceVersion"] == newest


@pytest.mark.parametrize("query", ["", "&allowWatchBookmarks=true", "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"])
async def test_changes_after_a_compacted_version_are_answered_with_200_and_an_error_in_the_stream(api: Api, query: str) -> None:
    first = (await api.create("a")).version
    newest = (await api.create("b")).version
    await api("POST", "/debug/compact")
    async with api.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={first}{query}") as events:
        found = [one async for one in events]
    assert [one["type"] for one in found] == ["ERROR"]
    status = found[0]["object"]
    assert (status["code"], status["reason"], status["message"]) == (410, "Expired", f"too old resource version: {first} ({newest})")
