"""The meaning of what passes: pages, events with the states before them, ends; and the memory that all of it may take."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from kubeloop.tap.conversation import Conversation
from kubeloop.tap.object_states import ObjectStates, SeenKey, SeenObject, SeenObjectReader
from kubeloop.tap.observed_request import ObservedFrame, ObservedRequest, short_user_agent
from kubeloop.tap.traffic import (
    ConnectionClosed,
    ConnectionFailed,
    ConnectionOpened,
    DataSkipped,
    RequestEnded,
    RequestStarted,
    ResponseData,
    ResponseStarted,
    TapMessage,
    TrafficFact,
    TrafficQueue,
)
from kubeloop.tasks import Supervisor
from kubeloop.timing import SystemClock
from tests.tap.recordings import pod

JSON = (("Content-Type", "application/json"),)


class Listener:
    """Notes what a conversation says."""

    def __init__(self) -> None:
        self.frames: list[ObservedFrame] = []
        self.ended: list[ObservedRequest] = []

    def on_connection(self, fact: ConnectionOpened | ConnectionFailed | ConnectionClosed) -> None: ...

    def on_started(self, request: ObservedRequest) -> None: ...

    def on_answered(self, request: ObservedRequest) -> None: ...

    def on_waiting(self, request: ObservedRequest, seconds: float) -> None: ...

    def on_frame(self, request: ObservedRequest, frame: ObservedFrame) -> None:
        self.frames.append(frame)

    def on_ended(self, request: ObservedRequest) -> None:
        self.ended.append(request)

    def on_message(self, fact: TapMessage) -> None: ...


class Traffic:
    """Speaks for a client and a server."""

    def __init__(self) -> None:
        self.listener = Listener()
        self.conversation = Conversation([self.listener])
        self._number = 0

    def start(self, target: str, method: str = "GET", status: int = 200) -> int:
        self._number += 1
        path, _, query = target.partition("?")
        self.conversation(RequestStarted(0.0, self._number, 1, method, f"https://c{path}", path, query, ()))
        self.conversation(ResponseStarted(0.1, self._number, status, JSON))
        return self._number

    def data(self, number: int, tree: Any, end: bytes = b"") -> None:
        self.conversation(ResponseData(0.2, number, json.dumps(tree).encode() + end))

    def event(self, number: int, kind: str, tree: Any) -> ObservedFrame:
        self.data(number, {"type": kind, "object": tree}, b"\n")
        return self.listener.frames[-1]

    def request(self, target: str, tree: Any, method: str = "GET", status: int = 200) -> ObservedRequest:
        number = self.start(target, method, status)
        self.data(number, tree)
        self.conversation(RequestEnded(0.3, number))
        return self.listener.ended[-1]


PODS = "/api/v1/namespaces/shop/pods"


def listed(*items: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9", **metadata}, "items": list(items)}


def test_an_event_has_the_state_of_the_list_before_it() -> None:
    traffic = Traffic()
    bare = {key: value for key, value in pod("web-0", 5).items() if key not in ("kind", "apiVersion")}
    traffic.request(f"{PODS}?limit=500", listed(bare))
    watch = traffic.start(f"{PODS}?watch=true&resourceVersion=9")
    frame = traffic.event(watch, "MODIFIED", pod("web-0", 10, "Running"))
    assert frame.seen is not None
    assert (frame.seen.key.shown, frame.seen.resource_version) == ("shop/web-0", "10")
    assert frame.before is not None
    assert (frame.before["status"]["phase"], frame.before["kind"]) == ("Pending", "Pod")


def test_a_deleted_object_has_no_state_when_it_comes_again() -> None:
    traffic = Traffic()
    watch = traffic.start(f"{PODS}?watch=true")
    traffic.event(watch, "ADDED", pod("web-0", 5))
    assert traffic.event(watch, "DELETED", pod("web-0", 6)).before is not None
    assert traffic.event(watch, "ADDED", pod("web-0", 7)).before is None


def test_objects_of_other_kinds_and_forms_are_not_compared() -> None:
    traffic = Traffic()
    traffic.request(f"{PODS}/web-0", pod("web-0", 5))
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "web-0", "namespace": "shop"}}
    assert traffic.request(f"{PODS}/web-0", partial).changed is not None
    assert traffic.listener.ended[-1].changed == (
        SeenObject(SeenKey("https://c /pods", "PartialObjectMetadata", "shop", "web-0"), "", partial),
        None,
    )
    other = traffic.request("/api/v1/namespaces/shop/services/web-0", {**pod("web-0", 6), "kind": "Service"})
    assert other.changed is not None
    assert other.changed[1] is None


def test_a_write_has_the_state_before_it() -> None:
    traffic = Traffic()
    traffic.request(f"{PODS}/web-0", pod("web-0", 5))
    changed = traffic.request(f"{PODS}/web-0", pod("web-0", 6, "Running"), "PATCH").changed
    assert changed is not None
    assert changed[1] is not None
    assert (changed[1]["status"]["phase"], changed[0].tree["status"]["phase"]) == ("Pending", "Running")


def test_the_event_of_a_write_shows_the_same_change_as_its_response() -> None:
    traffic = Traffic()
    watches = [traffic.start(f"{PODS}?watch=true") for _ in range(2)]
    traffic.event(watches[0], "ADDED", pod("web-0", 5))
    traffic.request(f"{PODS}/web-0", pod("web-0", 6, "Running"), "PATCH")
    for watch in watches:
        before = traffic.event(watch, "MODIFIED", pod("web-0", 6, "Running")).before
        assert before is not None
        assert before["status"]["phase"] == "Pending"
    changed = traffic.request(f"{PODS}/web-0", pod("web-0", 6, "Running"), "PATCH").changed
    assert changed is not None
    assert changed[1] == pod("web-0", 6, "Running")


def test_late_events_of_writes_show_the_change_of_each() -> None:
    traffic = Traffic()
    watch = traffic.start(f"{PODS}?watch=true")
    traffic.event(watch, "ADDED", pod("web-0", 5, step="5"))
    for version in (6, 7, 8):
        traffic.request(f"{PODS}/web-0", pod("web-0", version, step=str(version)), "PUT")
    steps = [traffic.event(watch, "MODIFIED", pod("web-0", version, step=str(version))).before for version in (6, 7, 8)]
    assert [before and before["metadata"]["annotations"]["step"] for before in steps] == ["5", "6", "7"]


def test_an_error_changes_no_state() -> None:
    traffic = Traffic()
    status = {"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict"}
    request = traffic.request(f"{PODS}/web-0", status, "PUT", 409)
    assert (request.changed, request.result) == (None, status)


def test_the_pages_of_a_list_are_counted() -> None:
    traffic = Traffic()
    pages = [
        traffic.request(f"{PODS}?limit=1", listed(pod("a", 1), **{"continue": "t1"})).page,
        traffic.request(f"{PODS}?limit=1&continue=t1", listed(pod("b", 1), **{"continue": "t2"})).page,
        traffic.request(f"{PODS}?limit=1&continue=t2", listed(pod("c", 1))).page,
        traffic.request(f"{PODS}?limit=1&continue=unknown", listed()).page,
    ]
    assert pages == [1, 2, 3, 1]


def test_a_bookmark_at_the_end_of_the_initial_events_is_recognized() -> None:
    traffic = Traffic()
    watch = traffic.start(f"{PODS}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true")
    traffic.event(watch, "ADDED", pod("web-0", 5))
    metadata = {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}
    assert traffic.event(watch, "BOOKMARK", {"kind": "Pod", "metadata": metadata}).is_initial_end
    assert not traffic.event(watch, "BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "10"}}).is_initial_end


def test_nothing_is_decoded_after_a_gap() -> None:
    traffic = Traffic()
    watch = traffic.start(f"{PODS}?watch=true")
    traffic.event(watch, "ADDED", pod("web-0", 5))
    traffic.conversation(DataSkipped(0.3, watch, 1000, True))
    traffic.conversation(ResponseData(0.4, watch, b'"}\n{"type":"ADDED","object":{}}\n'))
    traffic.conversation(RequestEnded(0.5, watch))
    assert len(traffic.listener.frames) == 1
    assert traffic.listener.ended[0].response_body.size > 1000


def test_cells_of_a_table_are_compared_by_column() -> None:
    reader = SeenObjectReader("pods")
    row = {"cells": ["web-0", "Pending", "3s"], "object": {"metadata": {"name": "web-0", "namespace": "shop", "resourceVersion": "5"}}}
    columns = [{"name": "Name"}, {"name": "Status"}, {"name": "Age"}]
    first = next(reader.objects({"kind": "Table", "columnDefinitions": columns, "rows": [row]}))
    second = next(reader.objects({"kind": "Table", "rows": [{**row, "cells": ["web-0", "Running", "4s"]}]}))
    assert (first.tree, second.tree) == ({"Status": "Pending"}, {"Status": "Running"})


def test_states_above_the_limit_are_forgotten_the_oldest_first() -> None:
    states = ObjectStates(limit=2000)
    for number in range(100):
        states.replace(SeenObject(SeenKey("pods", "", "", f"web-{number}"), "1", {"filler": "x" * 180}))
    assert states.replace(SeenObject(SeenKey("pods", "", "", "web-99"), "2", {})) == {"filler": "x" * 180}
    assert states.replace(SeenObject(SeenKey("pods", "", "", "web-50"), "2", {})) is None


@pytest.mark.parametrize(
    ("method", "target", "verb", "subject"),
    [
        ("GET", "/api/v1/pods?limit=500", "LIST", "pods -A"),
        ("GET", "/api/v1/namespaces/shop/pods?watch=1", "WATCH", "pods -n shop"),
        ("GET", "/apis/apps/v1/namespaces/shop/deployments/web", "GET", "deployments.apps web -n shop"),
        ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/web/status", "PATCH", "deployments.apps/status web -n shop"),
        ("DELETE", "/api/v1/namespaces/shop/pods", "DELETECOLLECTION", "pods -n shop"),
        ("GET", "/api/v1/namespaces/shop", "GET", "namespaces shop"),
        ("GET", "/api/v1/nodes", "LIST", "nodes -A"),
        ("GET", "/openapi/v3", "GET", "/openapi/v3"),
        ("POST", "/api/v1/namespaces/shop/pods/web-0/exec?command=ls", "CREATE", "pods/exec web-0 -n shop"),
    ],
)
def test_a_request_in_words(method: str, target: str, verb: str, subject: str) -> None:
    path, _, query = target.partition("?")
    request = ObservedRequest.from_start(RequestStarted(0, 1, 1, method, f"https://c{path}", path, query, ()))
    assert (request.verb, request.subject) == (verb, subject)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kubectl/v1.36.3 (linux/amd64) kubernetes/abc1234", "kubectl/v1.36.3"),
        ("manager/v0.0.0 (linux/amd64) kubernetes/$Format/leader-election", "manager/v0.0.0 leader-election"),
        ("kubeloop/0.1", "kubeloop/0.1"),
        ("", ""),
    ],
)
def test_a_user_agent_is_shortened(text: str, expected: str) -> None:
    assert short_user_agent(text) == expected


async def test_the_queue_counts_what_it_cannot_hold_and_keeps_the_order() -> None:
    seen: list[TrafficFact] = []
    async with Supervisor(SystemClock(), logging.getLogger("tests.tap")) as supervisor:
        queue = TrafficQueue(seen.append, supervisor, limit=10)
        for fact in (ResponseData(0, 1, b"123456"), ResponseData(1, 1, b"7890ab"), TapMessage(2, "x"), ResponseData(3, 1, b"cdef")):
            queue.put(fact)
        await queue.close()
    assert seen == [ResponseData(0, 1, b"123456"), DataSkipped(1, 1, 6, True), TapMessage(2, "x"), ResponseData(3, 1, b"cdef")]


async def test_a_defect_of_an_observer_is_logged_once_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[TrafficFact] = []

    def handle(fact: TrafficFact) -> None:
        if fact.at < 2:
            raise RuntimeError("defect")
        seen.append(fact)

    async with Supervisor(SystemClock(), logging.getLogger("tests.tap")) as supervisor:
        queue = TrafficQueue(handle, supervisor)
        for at in range(4):
            queue.put(TapMessage(at, ""))
        async with asyncio.timeout(10):
            await queue.close()
    assert [fact.at for fact in seen] == [2, 3]
    assert len([record for record in caplog.records if "cannot be shown or recorded" in record.message]) == 1
