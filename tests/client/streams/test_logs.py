"""Logs of containers, by way of either server; kubectl reads the same beside us."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import msgspec
import pytest

from kubeloop.client import Client
from kubeloop.client.streams import LogLine, OutputTooLarge, StreamError
from kubeloop.client.streams import logs as logs_module
from kubeloop.config import ClusterConfig
from kubeloop.meta import ApiError, NotFound, TransportError
from kubeloop.transport import Transport
from tests.client.streams.conftest import Cluster, ScriptedKubelet
from tests.client.streams.kubelet_log import KubeletLog
from tests.client.streams.relay import Relay

pytestmark = pytest.mark.server

MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
async def node(cluster: Cluster, kubelet: ScriptedKubelet) -> str:
    return await cluster.node(kubelet)


@pytest.fixture
def log(kubelet: ScriptedKubelet) -> KubeletLog:
    made = KubeletLog()
    kubelet.read_log = made.serve
    return made


async def ended(cluster: Cluster, pod: str, restarts: int = 0) -> None:
    """The container's end, as its kubelet reports it."""
    state = {"terminated": {"exitCode": 0}} if not restarts else {"running": {}}
    status = {"name": "main", "ready": False, "restartCount": restarts, "image": "none", "imageID": "", "state": state}
    answer = await cluster.request("PATCH", f"{pod}/status", {"status": {"containerStatuses": [status]}}, headers=MERGE)
    assert answer[0] == 200, answer


async def test_a_log_is_the_text_that_kubectl_prints(client: Client, cluster: Cluster, kubelet: ScriptedKubelet, node: str) -> None:
    await cluster.pod("web", node)
    assert await client.pods.logs("web", tail=5) == (await cluster.kubectl("logs", "web", "--tail=5")).out == "one\ntwo\n"
    kubelet.log = [b"one\ntw", b"o\n", "drei \u00fc\n".encode(), b"\xff end"]
    text = await client.pods.logs("web")
    assert text == "one\ntwo\ndrei \u00fc\n\ufffd end"
    async with client.pods.logs("web") as log:
        assert [line async for line in log] == ["one", "two", "drei \u00fc", "\ufffd end"]
    async with client.pods.logs("web") as log:
        assert b"".join([chunk async for chunk in log.chunks()]) == b"".join(kubelet.log)


async def test_what_of_a_log_is_wanted_reaches_the_kubelet(client: Client, cluster: Cluster, kubelet: ScriptedKubelet, node: str) -> None:
    await cluster.pod("web", node)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    async with client.pods.logs("web", tail=5, since=moment, timestamps=True, limit_bytes=1000):
        pass
    assert kubelet.last.path.endswith("/web/main")
    sent_query = {name: values[0] for name, values in kubelet.last.query.items()}
    assert sent_query == {"tailLines": "5", "sinceTime": "2026-01-01T00:00:00Z", "timestamps": "true", "limitBytes": "1000"}
    async with client.pods.logs("web", since=90, previous=True, follow=True):
        pass
    assert {name: values[0] for name, values in kubelet.last.query.items()} == {"sinceSeconds": "90", "previous": "true", "follow": "true"}


async def test_a_followed_log_comes_line_by_line(client: Client, cluster: Cluster, log: KubeletLog, node: str) -> None:
    pod = await cluster.pod("web", node)
    await log.write("one", 0.1)
    async with client.pods.logs("web", follow=True) as lines:
        assert await anext(aiter(lines)) == "one"
        await log.write("two", 0.2)
        assert await anext(lines) == "two"
        await ended(cluster, pod)
        await log.end()
        assert [line async for line in lines] == []


@pytest.mark.parametrize("timestamps", [False, True])
async def test_a_followed_log_that_is_cut_goes_on_without_loss_or_doubles(
    client: Client, cluster: Cluster, log: KubeletLog, node: str, timestamps: bool
) -> None:
    pod = await cluster.pod("web", node)
    for number in range(5):
        await log.write(f"line {number}", number / 10)
    async with (
        Relay(client.transport.config.server) as relay,
        Client(Transport(_at(client, relay)), namespace=cluster.namespace) as through,
        through.pods.logs("web", follow=True, tail=4, timestamps=timestamps) as lines,
    ):
        got = [await anext(aiter(lines)) for _ in range(4)]
        relay.cut()
        # Equal lines of one moment, and a line that is older than the last one.
        for at, text in ((0.41, "same"), (0.41, "same"), (0.405, "late"), (5.0, "much later")):
            await log.write(text, at)
        got += [await anext(lines) for _ in range(2)]
        relay.cut()
        got += [await anext(lines) for _ in range(2)]
        await ended(cluster, pod)
        await log.end()
        got += [line async for line in lines]
    assert [line.split(" ", 1)[1] if timestamps else line for line in got] == [
        "line 1",
        "line 2",
        "line 3",
        "line 4",
        "same",
        "same",
        "late",
        "much later",
    ]
    assert all(line.startswith("2026-01-01T12:00:0") for line in got) is timestamps
    assert len(log.asked) >= 3
    assert "sinceTime" in log.asked[1]
    assert "tailLines" not in log.asked[1]


async def test_a_log_that_ends_while_its_container_runs_is_requested_again(
    client: Client, cluster: Cluster, kubelet: ScriptedKubelet, log: KubeletLog, node: str
) -> None:
    pod = await cluster.pod("web", node)
    await log.write("one", 0)
    begun = asyncio.Event()

    async def once(query: dict[str, list[str]]) -> AsyncIterator[bytes]:
        if not begun.is_set():
            begun.set()
            async for line in log.serve({name: values for name, values in query.items() if name != "follow"}):
                yield line
            yield b"2026-01-01T12:00:00.500000000Z half a li"
            return
        async for line in log.serve(query):
            yield line

    kubelet.read_log = once
    async with client.pods.logs("web", follow=True) as lines:
        assert await anext(aiter(lines)) == "one"
        await log.write("half a line", 0.5)
        assert await anext(lines) == "half a line"
        await ended(cluster, pod)
        await log.end()
        assert [line async for line in lines] == []


async def test_the_rest_of_a_container_that_was_started_again_comes_from_its_previous_log(
    client: Client, cluster: Cluster, log: KubeletLog, node: str
) -> None:
    pod = await cluster.pod("web", node)
    await log.write("one", 0)
    async with (
        Relay(client.transport.config.server) as relay,
        Client(Transport(_at(client, relay)), namespace=cluster.namespace) as through,
        through.pods.logs("web", follow=True) as lines,
    ):
        assert await anext(aiter(lines)) == "one"
        await ended(cluster, pod, restarts=1)
        await log.write("last words", 0.5)
        await log.end()
        relay.cut()
        assert [line async for line in lines] == ["last words"]
    assert "previous" in log.asked[-1]


async def test_without_resume_a_cut_is_an_error(client: Client, cluster: Cluster, log: KubeletLog, node: str) -> None:
    await cluster.pod("web", node)
    await log.write("one", 0)
    async with (
        Relay(client.transport.config.server) as relay,
        Client(Transport(_at(client, relay)), namespace=cluster.namespace) as through,
        through.pods.logs("web", follow=True, resume=False) as lines,
    ):
        assert await anext(aiter(lines)) == "one"
        relay.cut()
        with pytest.raises(TransportError):
            await anext(lines)


async def test_leaving_a_followed_log_frees_its_socket(client: Client, cluster: Cluster, kubelet: ScriptedKubelet, node: str) -> None:
    left = asyncio.Event()

    async def serve(query: dict[str, list[str]]) -> AsyncIterator[bytes]:
        try:
            yield b"one\n"
            await asyncio.Event().wait()
        finally:
            left.set()

    kubelet.read_log = serve
    await cluster.pod("web", node)
    async with client.pods.logs("web", follow=True) as lines:
        assert await anext(aiter(lines)) == "one"
    async with asyncio.timeout(20):
        await left.wait()


async def test_a_line_of_a_megabyte_is_one_line(client: Client, cluster: Cluster, kubelet: ScriptedKubelet, node: str) -> None:
    kubelet.log = [b"x" * (1 << 20), b"y\n", b"short\n"]
    await cluster.pod("web", node)
    async with client.pods.logs("web") as lines:
        assert [len(line) async for line in lines] == [(1 << 20) + 1, 5]


async def test_a_log_that_is_too_large_for_one_text_says_the_way_out(
    client: Client, cluster: Cluster, kubelet: ScriptedKubelet, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs_module, "MAX_TEXT", 100)
    kubelet.log = [b"x" * 60, b"y" * 60]
    await cluster.pod("web", node)
    with pytest.raises(OutputTooLarge, match='log of pod "web" is larger than 100 bytes; give tail='):
        await client.pods.logs("web")


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        pytest.param({"target": "none"}, NotFound, 'pods "none" not found', id="a pod that is not there"),
        pytest.param({"target": "web", "container": "side"}, StreamError, 'no container "side"; it has: main', id="no such container"),
        pytest.param({"target": "web", "tail": -1}, ApiError, "must be greater than or equal to 0.*log of container", id="a wrong number"),
    ],
)
async def test_what_cannot_be_read_is_named(
    client: Client, cluster: Cluster, node: str, options: dict[str, object], error: type[Exception], says: str
) -> None:
    await cluster.pod("web", node)
    with pytest.raises(error, match=says):
        await client.pods.logs(**options)  # type: ignore[arg-type]  # a table of several types


async def test_logs_of_several_pods_come_with_their_names(client: Client, cluster: Cluster, kubelet: ScriptedKubelet, node: str) -> None:
    containers = [{"name": "main", "image": "none"}, {"name": "side", "image": "none"}]
    for name in ("a", "b"):
        path = await cluster.pod(name, node, containers=containers)
        await cluster.request("PATCH", path, {"metadata": {"labels": {"app": "web"}}}, headers=MERGE)
    async with client.pods.merged_logs(label_selector="app=web") as lines:
        one_each = [line async for line in lines]
    assert one_each == [LogLine(pod, "main", text) for pod in ("a", "b") for text in ("one", "two")]
    async with client.pods.merged_logs(label_selector={"app": "web"}, all_containers=True) as lines:
        sent_query = [str(line) async for line in lines]
    beside = await cluster.kubectl("logs", "-l", "app=web", "--prefix", "--all-containers")
    assert sorted(sent_query) == sorted(beside.out.splitlines())


async def test_several_logs_are_followed_at_once_but_not_too_many(
    client: Client, cluster: Cluster, kubelet: ScriptedKubelet, log: KubeletLog, node: str
) -> None:
    pods = [await cluster.pod(name, node) for name in ("a", "b", "c")]
    await log.write("same", 0)
    with pytest.raises(StreamError, match="3 logs were to be followed at once, where 2 are allowed; raise max_sources="):
        async with client.pods.merged_logs("a", "b", "c", follow=True, max_sources=2):
            pass
    beside = await cluster.kubectl("logs", "-f", "-l", "", "--max-log-requests=2")
    async with client.pods.merged_logs("a", "b", "c", follow=True) as lines:
        got = {(await anext(lines)).pod for _ in range(3)}
        assert got == {"a", "b", "c"}
        for pod in pods:
            await ended(cluster, pod)
        await log.end()
        assert [line async for line in lines] == []
    assert beside.code != 0


async def test_a_source_that_fails_ends_all_unless_it_is_to_be_ignored(client: Client, cluster: Cluster, node: str) -> None:
    await cluster.pod("a", await cluster.node(1))
    await cluster.pod("b", node)
    for follow in (False, True):
        async with client.pods.merged_logs("a", "b", follow=follow) as lines:
            with pytest.raises(ApiError, match='log of container "main" of pod "a"'):
                await _read_all(lines)
    async with client.pods.merged_logs("a", "b", ignore_errors=True) as lines:
        assert [line.pod async for line in lines] == ["b", "b"]


async def test_no_pods_have_no_logs(client: Client) -> None:
    with pytest.raises(StreamError, match="no pods are selected by label_selector='app=none'"):
        async with client.pods.merged_logs(label_selector="app=none"):
            pass
    with pytest.raises(ValueError, match="give targets, or label_selector"):
        async with client.pods.merged_logs():
            pass


def _at(client: Client, relay: Relay) -> ClusterConfig:
    return msgspec.structs.replace(client.transport.config, server=relay.url)


async def _read_all(lines: AsyncIterator[LogLine]) -> None:
    async for _ in lines:
        pass
