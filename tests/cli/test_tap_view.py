"""The lines of ``kubeloop tap``: their words and their layout in narrow and wide terminals."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from kubeloop.cli.tap_view.live import LiveView, duration, size
from kubeloop.cli.tap_view.terminal import LineWriter, wrapped
from kubeloop.tap.conversation import Conversation
from kubeloop.tap.traffic import (
    ConnectionFailed,
    ConnectionOpened,
    RequestData,
    RequestEnded,
    RequestStarted,
    ResponseData,
    ResponseStarted,
    StillWaiting,
    TapMessage,
    TrafficFact,
)

AGENT = "manager/v0.0.0 (linux/amd64) kubernetes/$Format/leader-election"
PODS = "/api/v1/namespaces/shop/pods"
JSON = (("Content-Type", "application/json"),)


def pod(name: str, version: int, phase: str = "Pending") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "resourceVersion": str(version)},
        "status": {"phase": phase},
    }


def start(number: int, target: str, at: float = 0.0, method: str = "GET", accept: str = "application/json") -> RequestStarted:
    path, _, query = target.partition("?")
    return RequestStarted(at, number, 1, method, f"https://c{path}", path, query, (("User-Agent", AGENT), ("Accept", accept)))


def event(number: int, at: float, kind: str, tree: dict[str, Any]) -> ResponseData:
    return ResponseData(at, number, json.dumps({"type": kind, "object": tree}).encode() + b"\n")


def whole(
    number: int, target: str, tree: Any, *, at: float = 0.0, status: int = 200, method: str = "GET", outcome: str = ""
) -> list[TrafficFact]:
    data = json.dumps(tree).encode()
    return [
        start(number, target, at, method),
        ResponseStarted(at + 0.005, number, status, JSON),
        ResponseData(at + 0.006, number, data),
        RequestEnded(at + 0.008, number, outcome),
    ]


def shown(*facts: TrafficFact, width: int = 160, show_secrets: bool = False, only_warnings: bool = False) -> list[str]:
    stream = io.StringIO()
    conversation = Conversation([LiveView(LineWriter(stream, width), show_secrets=show_secrets, only_warnings=only_warnings)])
    for fact in facts:
        conversation(fact)
    return stream.getvalue().splitlines()


LIST = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": [pod("web-0", 5), pod("web-1", 6)]}
WATCH: list[TrafficFact] = [
    *whole(1, f"{PODS}?limit=500&resourceVersion=0", LIST),
    start(2, f"{PODS}?allowWatchBookmarks=true&resourceVersion=9&timeoutSeconds=432&watch=true", 0.1),
    ResponseStarted(0.105, 2, 200, JSON),
    event(2, 0.2, "ADDED", pod("web-2", 10)),
    event(2, 0.3, "MODIFIED", pod("web-0", 11, "Running")),
    event(2, 0.4, "BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "12"}}),
    event(2, 0.5, "DELETED", pod("web-1", 13)),
    event(2, 0.6, "ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 9 (13)"}),
    RequestEnded(0.7, 2),
]


def test_a_list_and_a_watch_in_160_columns() -> None:
    lines = shown(*WATCH)
    assert [line[:100].rstrip() for line in lines] == [
        "    0.000   #1 → LIST pods -n shop  limit=500 resourceVersion=0",
        "    0.008   #1 ← 200 LIST pods -n shop  2 items, rv 9",
        "    0.100   #1 → WATCH pods -n shop  allowWatchBookmarks=true resourceVersion=9 timeoutSeconds=432",
        "    0.105   #1 ← 200 WATCH pods -n shop  streaming, headers after 5 ms",
        "    0.200   #1   ADDED    shop/web-2  rv 10",
        "    0.300   #1   MODIFIED shop/web-0  rv 11",
        "                          status.phase: Pending -> Running",
        "    0.400   #1   BOOKMARK rv 12",
        "    0.500   #1   DELETED  shop/web-1  rv 13",
        "    0.600   #1   ERROR    410 Expired: too old resource version: 9 (13)",
        "    0.700   #1 ← 200 WATCH pods -n shop  1 ADDED, 1 MODIFIED, 1 BOOKMARK, 1 DELETED, 1 ERROR; ended",
    ]
    assert lines[0].endswith("manager/v0.0.0 leader-election")
    assert lines[1].endswith("8 ms  ↓ 378 B")
    assert {len(line) for line in (lines[0], lines[1], lines[2])} == {160}


def test_the_same_fits_into_80_columns() -> None:
    lines = shown(*WATCH, width=80)
    assert max(map(len, lines)) <= 80
    assert lines[0] == "    0.000   #1 → LIST pods -n shop  limit=500                   manager/v0.0.0 …"
    assert lines[1] == "                 resourceVersion=0"
    assert [line for line in lines if line.startswith(" " * 17) and "->" in line] == [
        "                          status.phase: Pending -> Running"
    ]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(whole(1, f"{PODS}/web-0", pod("web-0", 5)), "← 200 GET pods web-0 -n shop  rv 5", id="a get shows the version"),
        pytest.param(
            whole(
                1, f"{PODS}/x", {"kind": "Status", "status": "Failure", "reason": "NotFound", "message": 'pods "x" not found'}, status=404
            ),
            '← 404 GET pods x -n shop  NotFound: pods "x" not found',
            id="an error shows its reason",
        ),
        pytest.param(
            whole(
                1,
                f"{PODS}/x/log?follow=true",
                {"kind": "Status", "status": "Failure", "reason": "NotFound", "message": 'pods "x" not found'},
                status=404,
            ),
            '← 404 GET pods/log x -n shop  NotFound: pods "x" not found',
            id="an error of a followed log shows its reason",
        ),
        pytest.param(
            whole(1, f"{PODS}?limit=2", {**LIST, "metadata": {"resourceVersion": "9", "continue": "t", "remainingItemCount": 7}}),
            "← 200 LIST pods -n shop  page 1, 2 items, rv 9, more follow (7 left)",
            id="a page says that more follow",
        ),
        pytest.param(
            whole(1, PODS, {}, status=502, outcome="kubeloop tap: no response from c: EOF"),
            "← 502 LIST pods -n shop  kubeloop tap: no response from c: EOF",
            id="a request without a response shows the cause",
        ),
        pytest.param(
            whole(1, PODS, LIST, outcome="the server's connection broke: EOF"),
            "← 200 LIST pods -n shop  the server's connection broke: EOF",
            id="a response that broke off",
        ),
        pytest.param(
            [start(1, PODS), StillWaiting(5.0, 1, 5.0)],
            "· LIST pods -n shop: still waiting for the response, 5 s",
            id="a response that does not come",
        ),
        pytest.param(
            [start(1, PODS, accept="application/json;as=Table;v=v1;g=meta.k8s.io,application/json")],
            "→ LIST pods -n shop (Table)",
            id="the form that the client asks for",
        ),
        pytest.param(
            [start(1, "/apis/apps/v1/deployments?labelSelector=app%3Dweb")],
            "→ LIST deployments.apps -A  labelSelector=app=web",
            id="a selector",
        ),
        pytest.param(
            [
                ConnectionOpened(0, 1, "c", "TLSv1.3"),
                ConnectionFailed(0.1, 1, "c:6443", "the client does not trust the certificate of the tap"),
            ],
            "! connection to c:6443 failed: the client does not trust the certificate of the tap",
            id="a connection that fails",
        ),
        pytest.param([TapMessage(0, "warning: x")], "kubeloop tap: warning: x", id="a message of the tap"),
        pytest.param([start(1, "/api/v1/pods/\x1b[31m")], "→ GET pods \\x1b[31m", id="control characters are escaped"),
        pytest.param(
            [start(1, f"{PODS}?continue={'x' * 200}")], f"→ LIST pods -n shop  continue={'x' * 44}…", id="a long parameter is cut"
        ),
    ],
)
def test_a_line(facts: list[TrafficFact], expected: str) -> None:
    line = shown(*facts)[-1]
    text = line[15:] if line.startswith(" ") else line
    assert text.startswith(expected)


def test_a_slow_response_shows_where_the_time_went() -> None:
    body = json.dumps(LIST).encode()
    lines = shown(
        start(1, PODS), ResponseStarted(4.2, 1, 200, JSON), ResponseData(6.4, 1, body), ResponseData(30.1, 1, b" "), RequestEnded(30.3, 1)
    )
    assert lines[-1].strip() == "headers after 4.2 s, first byte after 6.4 s, all after 30.3 s"


def test_a_slow_response_in_one_piece_needs_no_steps() -> None:
    lines = shown(start(1, PODS), ResponseStarted(9, 1, 200, JSON), ResponseData(9.1, 1, b"{}"), RequestEnded(9.2, 1))
    assert len(lines) == 2
    assert "9.2 s" in lines[1]


def test_headers_that_come_with_the_first_event_only_are_visible() -> None:
    lines = shown(
        start(1, f"{PODS}?watch=true"), StillWaiting(5, 1, 5), ResponseStarted(8.5, 1, 200, JSON), event(1, 8.5, "ADDED", pod("web-0", 5))
    )
    assert "still waiting for the response, 5 s" in lines[1]
    assert lines[2].endswith("streaming, headers after 8.5 s")


def test_a_write_shows_what_it_changed() -> None:
    facts = [*whole(1, f"{PODS}/web-0", pod("web-0", 5)), *whole(2, f"{PODS}/web-0", pod("web-0", 6, "Running"), method="PATCH")]
    assert shown(*facts)[-1].strip() == "status.phase: Pending -> Running"


def test_many_differences_are_counted() -> None:
    before, after = pod("web-0", 5), pod("web-0", 6)
    before["spec"], after["spec"] = ({f"field{number}": word for number in range(20)} for word in ("old", "new"))
    lines = shown(*whole(1, f"{PODS}/web-0", before), *whole(2, f"{PODS}/web-0", after, method="PUT"))
    assert lines[-1].strip() == "… 12 more differences"


def test_many_initial_objects_are_counted() -> None:
    end = {"kind": "Pod", "metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}
    facts = [event(1, 1, "ADDED", pod(f"web-{number}", number)) for number in range(1, 501)]
    lines = shown(
        start(1, f"{PODS}?watch=true&sendInitialEvents=true"),
        ResponseStarted(1, 1, 200, JSON),
        *facts,
        event(1, 2, "BOOKMARK", end),
        event(1, 3, "ADDED", pod("new", 501)),
    )
    assert len(lines) == 2 + 20 + 1 + 1
    assert lines[-2].endswith("BOOKMARK rv 9  end of the initial events: 500 objects")
    assert lines[-1].endswith("ADDED    shop/new  rv 501")


@pytest.mark.parametrize("show_secrets", [False, True])
def test_the_values_of_secrets_are_shown_only_on_demand(show_secrets: bool) -> None:
    def secret(value: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x", "namespace": "shop"}, "data": {"a": value}}

    target = "/api/v1/namespaces/shop/secrets/x"
    text = "\n".join(shown(*whole(1, target, secret("b2xk")), *whole(2, target, secret("bmV3"), method="PUT"), show_secrets=show_secrets))
    assert ("b2xk" in text and "bmV3" in text) is show_secrets
    assert ("*** changed" in text) is not show_secrets


def test_quiet_shows_only_the_messages_of_the_tap() -> None:
    assert shown(*WATCH, TapMessage(1, "warning: x"), only_warnings=True) == ["kubeloop tap: warning: x"]


def test_a_request_body_counts_as_sent() -> None:
    facts = [start(1, PODS, method="POST"), RequestData(0.1, 1, b"x" * 1500), ResponseStarted(0.2, 1, 201, JSON), RequestEnded(0.3, 1)]
    assert shown(*facts)[-1].endswith("300 ms  ↑ 1.5 kB ↓ 0 B")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0004, "0 ms"), (0.0081, "8 ms"), (0.9996, "1.0 s"), (59.94, "59.9 s"), (123.4, "2 min 3 s")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (23_400, "23 kB"), (999_600, "1.0 MB"), (5_000_000_000, "5.0 GB")]
)
def test_size(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize("width", [40, 80, 160])
def test_words_stay_whole(width: int) -> None:
    words = [f"word{number}" for number in range(60)]
    lines = ["".join(text for text, _ in line) for line in wrapped([(" ".join(words), "")], width, width, 6)]
    assert " ".join(lines).split() == words
    assert max(map(len, lines)) <= width


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
    ids=["a terminal", "NO_COLOR", "a dumb terminal"],
)
def test_colours(variables: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stream = Terminal()
    LineWriter(stream, 80).write([("ADDED", "ADDED")])
    assert stream.getvalue() == ("\x1b[32mADDED\x1b[0m\n" if coloured else "ADDED\n")


def test_arrows_become_ascii_where_the_terminal_has_no_others() -> None:
    binary = io.BytesIO()
    stream = io.TextIOWrapper(binary, encoding="latin-1")
    LineWriter(stream, 80).write([("→ ← ↑ ↓ … ·", "")])
    assert binary.getvalue() == b"> < ^ v ~ -\n"


def test_a_closed_stream_ends_the_output_only() -> None:
    stream = io.StringIO()
    writer = LineWriter(stream, 80)
    stream.close()
    writer.write([("a", "")])
    writer.write([("b", "")])
