"""Commands in containers, by way of either server, to kubelets of both generations; kubectl does the same beside us."""

from __future__ import annotations

import asyncio
import json

import pytest

from kubeloop.client import Client
from kubeloop.client.streams import CommandFailed, OutputTooLarge, StreamError
from kubeloop.meta import ApiError, BadRequest, DeadlineError, InternalError, NotFound
from kubeloop.serving.answer import Answer
from tests.apiserver.kubelet.scripted import WEBSOCKETS, Terminal
from tests.client.streams.conftest import Cluster, ScriptedKubelet

pytestmark = pytest.mark.server


async def test_a_command_gives_output_errors_and_exit_code_apart(client: Client, cluster: Cluster, node: str) -> None:
    await cluster.pod("web", node)
    command = ["sh", "-c", "echo out; echo err >&2; exit 3"]
    result = await client.pods.exec("web", command)
    assert (result.exit_code, result.stdout, result.stderr, result.ok) == (3, b"out\n", b"err\n", False)
    beside = await cluster.kubectl("exec", "web", "--", *command)
    assert (beside.code, beside.out) == (result.exit_code, result.text)
    with pytest.raises(CommandFailed, match=r'container "main" of pod "web" in namespace .* exit code 3: err'):
        result.check()
    assert (await client.pods.exec("web", ["true"])).check().ok


async def test_input_is_fed_to_its_end_while_output_comes(client: Client, cluster: Cluster, node: str) -> None:
    await cluster.pod("web", node)
    text = b"line\n" * 500_000
    result = await client.pods.exec("web", ["cat"], stdin=text)
    assert (result.exit_code, result.stdout == text) == (0, True)


async def test_a_command_that_does_not_read_its_input_ends_all_the_same(client: Client, cluster: Cluster, one_node: str) -> None:
    await cluster.pod("web", one_node)
    assert (await client.pods.exec("web", ["true"], stdin=b"x" * 4_000_000)).exit_code == 0


async def test_an_interactive_session_answers_to_its_input(client: Client, cluster: Cluster, node: str) -> None:
    await cluster.pod("web", node)
    async with client.pods.exec_stream("web", ["sh"], stdin=True) as session:
        await session.write(b"echo one\n")
        assert (await anext(session)).data == b"one\n"
        await session.write(b"echo two >&2\n")
        output = await anext(session)
        assert (output.name, output.data) == ("stderr", b"two\n")
        await session.write(b"exit 7\n")
        assert await session.wait() == 7


async def test_input_that_ends_lets_output_go_on(client: Client, cluster: Cluster, node: str) -> None:
    await cluster.pod("web", node)
    async with client.pods.exec_stream("web", ["sh", "-c", "cat; echo after"], stdin=True) as session:
        await session.write(b"before ")
        await session.close_stdin()
        assert b"".join([output.data async for output in session]) == b"before after\n"
        assert session.exit_code == 0
        with pytest.raises(StreamError, match=r"the input has ended already"):
            await session.write(b"more")


async def test_a_terminal_has_one_output_and_gets_its_size(client: Client, cluster: Cluster, kubelet: ScriptedKubelet, node: str) -> None:
    async def command(words: list[str], terminal: Terminal) -> int:
        await terminal.write("stdout", await terminal.sizes.get())
        return 0

    await cluster.pod("web", node)
    kubelet.command = command
    async with client.pods.exec_stream("web", ["x"], stdin=True, tty=True) as session:
        await session.resize(80, 24)
        assert json.loads(b"".join([output.data async for output in session])) == {"Width": 80, "Height": 24}
    assert set(kubelet.last.query) >= {"input", "output", "tty"}
    assert "error" not in kubelet.last.query


async def test_leaving_the_block_ends_the_command_at_the_other_end(
    client: Client, cluster: Cluster, kubelet: ScriptedKubelet, node: str
) -> None:
    ended = asyncio.Event()

    async def command(words: list[str], terminal: Terminal) -> int:
        try:
            await terminal.write("stdout", b"begun")
            while await terminal.input():
                pass
        finally:
            ended.set()
        return 0

    await cluster.pod("web", node)
    kubelet.command = command
    async with client.pods.exec_stream("web", ["x"], stdin=True) as session:
        assert (await anext(session)).data == b"begun"
    async with asyncio.timeout(20):
        await ended.wait()


async def test_a_cancelled_exec_ends_at_the_other_end(client: Client, cluster: Cluster, kubelet: ScriptedKubelet, one_node: str) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def command(words: list[str], terminal: Terminal) -> int:
        try:
            begun.set()
            while await terminal.input():
                pass
        finally:
            ended.set()
        return 0

    await cluster.pod("web", one_node)
    kubelet.command = command
    running = asyncio.ensure_future(client.pods.exec("web", ["x"], stdin=b""))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with client.pods.exec_stream("web", ["x"], stdin=True) as session:
        waiting = asyncio.ensure_future(session.wait())
        async with asyncio.timeout(20):
            await begun.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with asyncio.timeout(20):
        await ended.wait()


async def test_a_deadline_ends_the_waiting_and_says_so(client: Client, cluster: Cluster, kubelet: ScriptedKubelet, one_node: str) -> None:
    async def command(words: list[str], terminal: Terminal) -> int:
        await asyncio.Event().wait()
        return 0

    await cluster.pod("web", one_node)
    kubelet.command = command
    with pytest.raises(DeadlineError, match=r"exec of 'sleep' in web: not ended within 0.2 s; it may still be running"):
        await client.pods.exec("web", ["sleep", "60"], timeout=0.2)


async def test_output_is_bounded_and_the_error_says_the_way_out(client: Client, cluster: Cluster, one_node: str) -> None:
    await cluster.pod("web", one_node)
    with pytest.raises(OutputTooLarge, match=r'pod "web".* more than 1000 bytes to stdout; raise max_output='):
        await client.pods.exec("web", ["sh", "-c", "while :; do echo yes; done"], max_output=1000)


async def test_a_kubelets_refusal_names_pod_and_container(
    client: Client, cluster: Cluster, kubelet: ScriptedKubelet, one_node: str
) -> None:
    await cluster.pod("web", one_node)
    kubelet.refusal = Answer(500, body=b"container not running")
    with pytest.raises(ApiError, match=r'container not running.*exec in container "main" of pod "web"'):
        await client.pods.exec("web", ["true"])


@pytest.mark.parametrize(
    ("pod", "container", "error", "says"),
    [
        pytest.param("none", None, NotFound, 'pods "none" not found', id="a pod that is not there"),
        pytest.param("waits", None, BadRequest, "pod waits does not have a host assigned", id="a pod without a node"),
        pytest.param("two", "third", StreamError, 'has no container "third"; it has: main, side', id="a container that it has not"),
    ],
)
async def test_what_cannot_be_reached_is_named(
    client: Client, cluster: Cluster, kubelet: ScriptedKubelet, pod: str, container: str | None, error: type[Exception], says: str
) -> None:
    await cluster.pod("waits", schedulingGates=[{"name": "example.com/wait"}])
    await cluster.pod("two", containers=[{"name": "main", "image": "none"}, {"name": "side", "image": "none"}])
    with pytest.raises(error, match=says):
        await client.pods.exec(pod, ["true"], container=container)


async def test_the_default_container_is_that_of_the_annotation_else_the_first(
    client: Client, cluster: Cluster, kubelet: ScriptedKubelet, one_node: str
) -> None:
    containers = [{"name": "main", "image": "none"}, {"name": "side", "image": "none"}]
    path = await cluster.pod("two", one_node, containers=containers)
    await client.pods.exec("two", ["true"])
    assert kubelet.last.path.endswith("/main")
    note = {"metadata": {"annotations": {"kubectl.kubernetes.io/default-container": "side"}}}
    await cluster.request("PATCH", path, note, headers={"Content-Type": "application/merge-patch+json"})
    await client.pods.exec("two", ["true"])
    assert kubelet.last.path.endswith("/side")
    await client.pods.exec("two", ["true"], container="main")
    assert kubelet.last.path.endswith("/main")


async def test_a_completed_pod_is_refused_before_anything_is_asked(client: Client, cluster: Cluster, one_node: str) -> None:
    path = await cluster.pod("done", one_node)
    await cluster.request(
        "PATCH", f"{path}/status", {"status": {"phase": "Succeeded"}}, headers={"Content-Type": "application/merge-patch+json"}
    )
    with pytest.raises(StreamError, match=r"exec is not possible in Pod .done.* it has completed"):
        await client.pods.exec("done", ["true"])


async def test_attach_shares_the_streams_of_a_container(client: Client, cluster: Cluster, node: str) -> None:
    await cluster.pod("web", node, containers=[{"name": "main", "image": "none", "stdin": True}])
    async with client.pods.attach("web", stdin=True) as session:
        assert (await anext(session)).data == b"attached\n"
        await session.write(b"hello\n")
        assert (await anext(session)).data == b"HELLO\n"
        await session.close_stdin()
        assert await session.wait() == 0
    beside = await cluster.kubectl("attach", "-i", "web", stdin=b"hello\n")
    assert (beside.code, beside.out) == (0, "attached\nHELLO\n")


async def test_attach_asks_for_no_input_where_the_container_takes_none(client: Client, cluster: Cluster, one_node: str) -> None:
    await cluster.pod("web", one_node)
    with pytest.raises(StreamError, match=r"created without stdin: true"):
        async with client.pods.attach("web", stdin=True):
            pass


async def test_a_command_given_as_one_string_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match=r"give a list of words"):
        await client.pods.exec("web", "ls -l")


async def test_an_internal_error_on_the_error_channel_is_an_api_error(client: Client, cluster: Cluster) -> None:
    await cluster.pod("web", await cluster.node(1))
    with pytest.raises(InternalError, match=r'connection refused.*exec in container "main" of pod "web"'):
        await client.pods.exec("web", ["true"])


async def test_q201_where_websockets_are_refused_spdy_does_all_of_it(client: Client, cluster: Cluster, kubelet: ScriptedKubelet) -> None:
    await cluster.pod("web", await cluster.node(kubelet, features=[WEBSOCKETS]))
    kubelet.refuses_websockets = True
    text = b"line\n" * 100_000
    result = await client.pods.exec("web", ["sh", "-c", "cat; echo err >&2; exit 3"], stdin=text)
    assert (result.exit_code, result.stdout == text, result.stderr) == (3, True, b"err\n")
    assert {one.headers["upgrade"].lower() for one in kubelet.requests} == {"websocket", "spdy/3.1"}

    async def command(words: list[str], terminal: Terminal) -> int:
        await terminal.write("stdout", await terminal.sizes.get())
        return 0

    kubelet.command = command
    async with client.pods.exec_stream("web", ["x"], stdin=True, tty=True) as session:
        await session.resize(80, 24)
        assert json.loads(b"".join([output.data async for output in session])) == {"Width": 80, "Height": 24}
