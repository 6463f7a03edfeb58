"""What no server should send: each has a defined outcome that is logged, and the other objects go on."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeloop.cache import WatchPolicy
from kubeloop.client import Client
from kubeloop.meta import DecodeError, NestedTooDeeply
from kubeloop.timing import FakeClock
from tests.cache.informing import Seen, informed, informing, paused
from tests.cache.source import Source, until

LISTS = WatchPolicy(watch_list=False)

DEEP = b'{"a":' * 200_000 + b"1" + b"}" * 200_000
#: From Python 3.14 on, msgspec passes over a value that nothing reads however deep it is; before, the recursion limit ends it.
READS_ANY_DEPTH = sys.version_info >= (3, 14)

#: How objects come first: listed, or streamed.
WAYS = pytest.mark.parametrize("way", ["list", "stream"])


def policy(source: Source, way: str) -> WatchPolicy:
    source.streams = way == "stream"
    return WatchPolicy(watch_list=way == "stream")


def event(obj: dict[str, Any], kind: str = "ADDED") -> dict[str, Any]:
    return {"type": kind, "object": obj}


@asynccontextmanager
async def informed_later(source: Source, api: Client, clock: FakeClock) -> AsyncIterator[Seen]:
    """Of one object, after a first list that failed, and a pause."""
    source.put("a")
    async with informing(api, clock, LISTS) as (maps, seen):
        await until(lambda: clock.waiting == 1 and maps.failure is not None)
        await clock.advance(2)
        await until(lambda: seen.events)
        yield seen


def config_map(name: str = "", version: str = "99", **more: Any) -> dict[str, Any]:
    metadata = {"namespace": "default", "resourceVersion": version} | ({"name": name} if name else {})
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, **more}


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        pytest.param(
            {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "t", "resourceVersion": "99"}, "rows": []},
            "skipped an object of meta.k8s.io/v1, Kind=Table (t)",
            id="a Table is refused, not stored [A11]",
        ),
        pytest.param(
            {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s", "resourceVersion": "99"}},
            "skipped an object of v1, Kind=Secret (s)",
            id="another kind is skipped and does not move the version [B25]",
        ),
        pytest.param(
            {"metadata": {"name": "x", "resourceVersion": "99"}}, "no apiVersion, Kind=none (x)", id="an object that says no kind"
        ),
        pytest.param(config_map(), "Kind=ConfigMap (without a name)", id="an object without a name"),
        pytest.param({}, "Kind=none (without a name)", id="an empty object"),
        pytest.param({"kind": 7, "metadata": []}, "Kind=none (without a name)", id="fields of other types"),
    ],
)
async def test_of_an_event(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture, obj: dict[str, Any], message: str
) -> None:
    async with informed(api, clock, LISTS) as (maps, seen):
        await until(lambda: source.watches == 1)
        for kind in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
            if kind != "BOOKMARK" or obj.get("kind") != "ConfigMap":
                source.send(event(obj, kind))
        await until(lambda: message in caplog.text)
        assert maps.resource_version == "10"
        source.put("good")
        await until(lambda: seen.events)
        assert seen.lines == ["ADDED good"]
        assert len(source.asked("watch", "limit")) == 1, "the stream goes on"
        assert all(record.levelname == "ERROR" for record in caplog.records if "skipped" in record.getMessage())


@WAYS
@pytest.mark.parametrize(
    ("obj", "message"),
    [
        pytest.param(
            {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "t", "namespace": "default"}},
            "skipped an object of meta.k8s.io/v1, Kind=Table (t)",
            id="a Table [A11]",
        ),
        pytest.param(config_map(), "(without a name)", id="an object without a name"),
    ],
)
async def test_of_an_object_of_the_first_state(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture, way: str, obj: dict[str, Any], message: str
) -> None:
    source.put("a")
    source.put("c")
    source.objects["b"] = obj
    source.whole = True
    async with informed(api, clock, policy(source, way)) as (_, seen):
        assert seen.lines == ["ADDED a", "ADDED c"]
        assert message in caplog.text


async def test_a_table_in_place_of_a_list_is_refused_A11(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    source.list_faults = [{"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "5"}, "rows": [], "code": 200}]
    async with informed_later(source, api, clock) as seen:
        assert "requested a list, but the server answered with a Table" in caplog.text
        assert seen.lines == ["ADDED a"]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"<html>it works</html>", id="no JSON"),
        pytest.param(b'{"kind":"ConfigMapList","metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"a"}},', id="cut off"),
        pytest.param(b'{"kind":"ConfigMapList","metadata":{"resourceVersion":5},"items":{}}', id="fields of other types"),
        pytest.param(b'{"kind":"ConfigMapList","metadata":{"continue":"\xff"},"items":[]}', id="invalid UTF-8 in the list's own metadata"),
        *(
            pytest.param(b'{"kind":"ConfigMapList","items":[' + DEEP + b"]}", id="an item nested too deeply")
            for _ in range(not READS_ANY_DEPTH)
        ),
        pytest.param(b"[]", id="an array"),
        pytest.param(b"", id="nothing"),
    ],
)
async def test_a_list_answer_that_is_no_list_is_a_failure_and_asked_for_again(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    source.list_faults = [body]
    async with informed_later(source, api, clock) as seen:
        assert "cannot list: " in caplog.text
        assert seen.lines == ["ADDED a"]


@WAYS
async def test_invalid_utf8_is_replaced_wherever_it_stands(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    places = {
        "label": config_map("label", labels=None) | {"metadata": {"name": "label", "namespace": "default", "labels": {"a": "BAD"}}},
        "uid": config_map("uid") | {"metadata": {"name": "uid", "namespace": "default", "uid": "BAD"}},
        "data": config_map("data", data={"k": "BAD"}),
        "other": config_map("other", binaryData={"k": "BAD"}),
    }
    source.objects = dict(places)
    source.whole = True
    source.replace = (b"BAD", b"\xff\xfe")
    async with informed(api, clock, policy(source, way), paths=["data.k"]) as (maps, seen):
        await until(lambda: source.watches == 1)
        assert {head.name: (dict(head.labels), head.uid, head.value("data.k")) for head in maps.lister.heads()} == {
            "label": ({"a": "\ufffd\ufffd"}, "", None),
            "uid": ({}, "\ufffd\ufffd", None),
            "data": ({}, "", "\ufffd\ufffd"),
            "other": ({}, "", None),
        }
        source.send(event(config_map("later", version="50", data={"k": "BAD"})))
        await until(lambda: len(seen.events) == 5)
        assert seen.events[-1].head.value("data.k") == "\ufffd\ufffd"
        assert maps.resource_version == "50"
        assert "invalid UTF-8, replaced by U+FFFD" in caplog.text
        assert "ConfigMap" not in caplog.text, "the log shows no part of the object: it may be secret"
        assert len(source.asked("watch", "limit")) == (way == "list"), "the stream goes on"


async def test_an_event_nested_too_deeply_is_skipped_or_its_object_is_refused_when_it_is_read(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    source.streams = True
    deep = (
        b'{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"%s","resourceVersion":"9"},"data":'
        + DEEP
        + b"}}\n"
    )
    source.stream_frames = [deep % b"c", event(source.put("a")), source.end()]
    async with informed(api, clock) as (maps, seen):
        source.send(deep % b"d")
        source.put("b")
        await until(lambda: "ADDED b" in seen.lines)
        if not READS_ANY_DEPTH:
            assert seen.lines == ["ADDED a", "ADDED b"]
            assert caplog.text.count("skipped an event whose object is nested too deeply") == 2
            return
        assert sorted(seen.lines) == ["ADDED a", "ADDED b", "ADDED c", "ADDED d"]
        with pytest.raises(NestedTooDeeply, match="the document is nested too deeply for Python to read it"):
            maps.lister.get("c", namespace="")


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"<html>\n", id="no JSON"),
        pytest.param(b'{"type":"ADDED","object":{"kind":"Conf\n', id="half a frame"),
        pytest.param(b'{"type":"ADDED"}\n', id="no object"),
        pytest.param(b'{"type":"ADDED","object":[1]}\n', id="an object that is an array"),
        pytest.param(b'{"type":7,"object":{}}\n', id="a type that is a number"),
        pytest.param(b"null\n", id="null"),
        pytest.param(b"\xff\xfe\n", id="no text"),
        pytest.param(
            b'{"type":"RENAMED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}}\n', id="an unknown type of event"
        ),
        pytest.param(b'{"type":"ERROR","object":"no"}\n', id="an error that is no Status"),
    ],
)
@WAYS
async def test_a_garbage_frame_ends_that_stream_and_not_the_informer(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture, frame: bytes, way: str
) -> None:
    source.put("a")
    async with informed(api, clock, policy(source, way)) as (maps, seen):
        await until(lambda: source.watches == 1)
        source.send(frame)
        await paused(source, clock)
        assert isinstance(maps.failure, DecodeError)
        assert "the watch cannot be read: " in caplog.text
        source.put("b")
        await clock.advance(2)
        await until(lambda: len(seen.events) == 2)
        assert source.asked(way, "resourceVersion") == ["0" if way == "list" else "", "11"]
        assert maps.failure is None


async def test_a_garbage_frame_before_the_end_of_the_initial_events_is_followed_by_a_list_C39(
    source: Source, api: Client, clock: FakeClock
) -> None:
    source.streams = True
    source.stream_frames = [event(source.put("a")), b"<html>\n"]
    async with informed(api, clock) as (_, seen):
        assert [kind for kind, _ in source.requests][:2] == ["stream", "list"]
        assert seen.lines == ["ADDED a"]


@WAYS
async def test_objects_of_one_and_a_half_megabytes_are_as_good_as_any(source: Source, api: Client, clock: FakeClock, way: str) -> None:
    text = "".join(f"{number:07d}," for number in range(190_000))
    source.put("a", k=text)
    source.put("small")
    async with informed(api, clock, policy(source, way)) as (maps, seen):
        await until(lambda: source.watches == 1)
        source.put("b", k=text)
        await until(lambda: len(seen.events) == 3)
        for name in ("a", "b"):
            found = maps.lister.get(name, "default")
            assert found is not None
            assert found.data["k"] == text


async def test_a_frame_without_end_ends_the_stream(
    source: Source, api: Client, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kubeloop.codec.frames.MAX_FRAME", 100_000)
    async with informed(api, clock, LISTS) as (_, _):
        await until(lambda: source.watches == 1)
        source.send(b"x" * 200_000)
        await paused(source, clock)
        assert "the watch cannot be read: a watch frame of more than" in caplog.text
