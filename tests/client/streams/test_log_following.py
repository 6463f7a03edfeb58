"""When a followed log goes on and when it ends, with a server that the test plays."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from kubeloop.api.core.v1 import Container, ContainerState, ContainerStateRunning, ContainerStatus, Pod, PodSpec, PodStatus
from kubeloop.meta import Forbidden, ObjectMeta, TransportError
from kubeloop.timing import FakeClock
from tests.client.streams.peer import Peer, UpgradeRequest

POD = Pod(
    metadata=ObjectMeta(name="web", namespace="shop", uid="1"),
    spec=PodSpec(containers=[Container(name="main")]),
    status=PodStatus(
        phase="Running",
        container_statuses=[ContainerStatus(name="main", container_id="a", state=ContainerState(running=ContainerStateRunning()))],
    ),
)
ONE = b"2026-01-01T12:00:00.000000000Z one\n"
TWO = b"2026-01-01T12:00:03.000000000Z two\n"
CUT = "cut"

RUNNING: dict[str, Any] = {"state": {"running": {}}, "containerID": "a"}
ENDED: dict[str, Any] = {"state": {"terminated": {"exitCode": 0}}, "containerID": "a"}
CRASHED: dict[str, Any] = {"state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 1, "containerID": "a"}}, "containerID": "a"}
AGAIN: dict[str, Any] = {"state": {"running": {}}, "containerID": "b", "restartCount": 1}
OFTEN: dict[str, Any] = {"state": {"running": {}}, "containerID": "c", "restartCount": 5}


def _pod(container: dict[str, Any], uid: str = "1", phase: str = "Running") -> bytes:
    status = {"phase": phase, "containerStatuses": [{"name": "main", "image": "x", "imageID": "", **container}]}
    metadata = {"name": "web", "namespace": "shop", "uid": uid}
    return json.dumps({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "status": status}).encode()


class Script:
    """Answers to requests for the log, in order: bytes, bytes and a cut, or a refusal; and what there is to say of the pod each time."""

    def __init__(self, logs: list[bytes | tuple[bytes, str] | str], pods: list[bytes | str]) -> None:
        self.logs, self.pods = list(logs), list(pods)
        self.asked: list[dict[str, str]] = []

    async def __call__(self, call: UpgradeRequest) -> None:
        url = urlsplit(call.target)
        if url.path.endswith("/log"):
            self.asked.append(dict(parse_qsl(url.query)))
            self._answer(call, self.logs.pop(0))
        else:
            self._answer(call, self.pods.pop(0))

    @staticmethod
    def _answer(call: UpgradeRequest, answer: bytes | tuple[bytes, str] | str) -> None:
        if isinstance(answer, tuple):
            call.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + answer[0])
        elif isinstance(answer, str):
            call.say(answer)
        else:
            call.say("200 OK", answer, Content_Type="application/json")


async def _follow(script: Script, **options: Any) -> list[str]:
    """All lines; the clock stands still but for what the log waits for."""
    clock = FakeClock()
    async with asyncio.timeout(30), Peer(script, clock) as peer:
        moving = asyncio.ensure_future(_move(clock))
        try:
            async with peer.client.pods.logs(POD, follow=True, **options) as log:
                return [line async for line in log]
        finally:
            moving.cancel()
            await asyncio.gather(moving, return_exceptions=True)


async def _move(clock: FakeClock) -> None:
    while True:
        if clock.waiting:
            await clock.advance(60)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("logs", "pods", "lines"),
    [
        pytest.param([ONE], [_pod(ENDED)], ["one"], id="a container that has ended"),
        pytest.param([ONE], [_pod(CRASHED)], ["one"], id="a container that waits to be started again after a crash"),
        pytest.param([ONE], [_pod({}, phase="Succeeded")], ["one"], id="a pod that has completed"),
        pytest.param([ONE], ["404 Not Found"], ["one"], id="a pod that is gone"),
        pytest.param([ONE], [_pod(RUNNING, uid="2")], ["one"], id="another pod of the same name"),
        pytest.param([ONE], ["403 Forbidden"], ["one"], id="a pod that may not be read"),
        pytest.param([ONE, ONE + TWO], [_pod(RUNNING), _pod(ENDED)], ["one", "two"], id="a container that goes on at first"),
        pytest.param([(ONE, CUT), ONE + TWO], [_pod(ENDED), _pod(ENDED)], ["one", "two"], id="one whose last words were cut off"),
        pytest.param([(ONE, CUT), ONE + TWO], ["403 Forbidden", "403 Forbidden"], ["one", "two"], id="a cut of what may not be read"),
        pytest.param([(ONE, CUT), ONE + TWO], [_pod(AGAIN)], ["one", "two"], id="a container that was started again"),
        pytest.param([ONE], [_pod(OFTEN)], ["one"], id="a container that was started again an unknown number of times"),
        pytest.param([ONE, "400 Bad Request"], [_pod(AGAIN)], ["one"], id="one whose previous log is gone"),
        pytest.param([ONE, "404 Not Found"], [_pod(RUNNING), "404 Not Found"], ["one"], id="a pod that goes after its log"),
        pytest.param(
            [ONE, "500 Internal Server Error", "503 Service Unavailable", ONE + TWO],
            [_pod(RUNNING), _pod(RUNNING), "503 Service Unavailable", _pod(ENDED)],
            ["one", "two"],
            id="a node that starts",
        ),
        pytest.param([ONE, ONE + TWO[:-1]], [_pod(RUNNING), _pod(ENDED)], ["one", "two"], id="a last line without an end"),
    ],
)
async def test_a_followed_log_ends_with(logs: list[Any], pods: list[bytes | str], lines: list[str]) -> None:
    script = Script(logs, pods)
    assert await _follow(script) == lines
    assert not script.logs
    assert not script.pods


@pytest.mark.parametrize(
    ("logs", "pods", "error"),
    [
        pytest.param([(ONE, CUT)], ["404 Not Found"], TransportError, id="a cut, and its pod is gone"),
        pytest.param([(ONE, CUT), "400 Bad Request"], [_pod(ENDED), _pod(ENDED)], TransportError, id="a cut, and its log is gone"),
        pytest.param([(ONE, CUT), "403 Forbidden"], [_pod(RUNNING), _pod(RUNNING)], Forbidden, id="a permission that was taken away"),
    ],
)
async def test_a_followed_log_that_cannot_be_completed_is_an_error(
    logs: list[Any], pods: list[bytes | str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await _follow(Script(logs, pods))


@pytest.mark.parametrize(
    ("options", "since"),
    [
        pytest.param({"tail": 0}, {"sinceSeconds": "1"}, id="none of the lines before"),
        pytest.param({"since": 60}, {"sinceSeconds": "60"}, id="seconds"),
        pytest.param({"since": timedelta(minutes=1)}, {"sinceSeconds": "60"}, id="a duration"),
        pytest.param({"tail": 5}, {"tailLines": "5"}, id="some lines"),
    ],
)
async def test_a_log_that_is_cut_before_its_first_line_is_requested_from_that_time_on(
    options: dict[str, Any], since: dict[str, str]
) -> None:
    script = Script([(b"", CUT), ONE], [_pod(RUNNING), _pod(ENDED)])
    assert await _follow(script, **options) == ["one"]
    query = {"container": "main", "follow": "true", "timestamps": "true"}
    assert script.asked[1] == {**query, **since}


async def test_after_a_cut_a_log_is_requested_from_a_second_before_its_last_line() -> None:
    script = Script([(ONE + TWO, CUT), TWO], [_pod(RUNNING), _pod(ENDED)])
    assert await _follow(script, tail=2) == ["one", "two"]
    assert script.asked[1]["sinceTime"] == "2026-01-01T12:00:02Z"
