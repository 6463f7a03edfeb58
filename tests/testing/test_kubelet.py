"""The scripted kubelet as users have it: their code's exec, logs, attach, port-forward and cp against a LocalCluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import assert_type

import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.coordination.v1 import Lease
from kubeloop.api.core.v1 import Container, Node, Pod, PodSpec
from kubeloop.client import Client
from kubeloop.client.streams import CopyError, ExecResult, ForwardingError
from kubeloop.meta import ConfigError, NotFound, ObjectMeta
from kubeloop.testing import ContainerLog, KubeletRequest, LocalCluster, ScriptedKubelet, Terminal, eventually, one, run_process
from tests.kubectl.runner import kubectl_binary

pytestmark = pytest.mark.embedded


@pytest.fixture
async def client(local_cluster: LocalCluster) -> AsyncIterator[Client]:
    async with Client.from_config(local_cluster.kubeconfig) as made:
        yield made


@pytest.fixture
async def kubelet(client: Client) -> AsyncIterator[ScriptedKubelet]:
    async with ScriptedKubelet(client) as made:
        yield made


@pytest.fixture
async def pod(kubelet: ScriptedKubelet) -> str:
    """A new pod's name."""
    name = f"web-{os.getpid()}-{next(_NUMBERS)}"
    await kubelet.run_pod(name, containers=["main", "sidecar"])
    return name


_NUMBERS = iter(range(1_000_000))


async def test_a_command_prints_what_the_script_says(client: Client, kubelet: ScriptedKubelet, pod: str) -> None:
    kubelet.on_exec(pod, ["ls"], stdout="app.py\n", stderr="slow disk\n", exit_code=3)
    found = assert_type(await client.pods.exec(pod, ["ls"], container="main"), ExecResult)
    assert (found.stdout, found.stderr, found.exit_code) == (b"app.py\n", b"slow disk\n", 3)
    request = assert_type(kubelet.last, KubeletRequest)
    assert (request.target, request.query["command"]) == (("default", pod, "main"), ["ls"])


async def test_the_newest_script_that_fits_counts(client: Client, kubelet: ScriptedKubelet, pod: str) -> None:
    kubelet.on_exec(pod, stdout="anything")
    kubelet.on_exec(pod, ["date"], stdout="monday")
    kubelet.on_exec(pod, ["date"], stdout="tuesday")
    said = [(await client.pods.exec(pod, command, container="main")).stdout for command in (["date"], ["date", "-u"])]
    assert said == [b"tuesday", b"anything"]


async def test_an_unscripted_call_fails_and_says_how_to_script_it(client: Client, kubelet: ScriptedKubelet, pod: str) -> None:
    found = await client.pods.exec(pod, ["psql", "-c", "select 1"], container="main")
    assert found.exit_code == 127
    assert f"kubelet.on_exec('{pod}', ['psql', '-c', 'select 1'], stdout=...)" in found.stderr.decode()


async def test_a_handler_talks_with_its_client(client: Client, kubelet: ScriptedKubelet, pod: str) -> None:
    async def shout(command: list[str], terminal: Terminal) -> int:
        await terminal.print(f"{command[0]}> ")
        while data := await terminal.input():
            await terminal.print(data.upper())
        return 0

    kubelet.on_exec(pod, ["shout"], run=shout)
    kubelet.on_attach(pod, _echo)
    assert (await client.pods.exec(pod, ["shout"], stdin=b"hello", container="main")).stdout == b"shout> HELLO"
    async with client.pods.attach(pod, stdin=True, container="main") as session:
        await session.write(b"ping")
        await session.close_stdin()
        assert b"".join([output.data async for output in session]) == b"ping"


async def _echo(command: list[str], terminal: Terminal) -> int:
    while data := await terminal.input():
        await terminal.print(data)
    return 0


async def test_run_process_runs_the_command_for_real(client: Client, kubelet: ScriptedKubelet, pod: str) -> None:
    kubelet.on_exec(pod, run=run_process)
    assert (await client.pods.exec(pod, ["sh", "-c", "cat; exit 4"], stdin=b"through a pipe", container="main")).exit_code == 4


async def test_a_log_is_read_and_followed_while_it_grows(client: Client, kubelet: ScriptedKubelet, pod: str) -> None:
    log = assert_type(kubelet.on_logs(pod, ["one", "two", "three"], container="main"), ContainerLog)
    kubelet.on_logs(pod, ["beside"], container="sidecar")
    kubelet.on_logs(pod, ["crashed"], container="main", previous=True)
    assert await client.pods.logs(pod, container="main", tail=2) == "two\nthree\n"
    assert await client.pods.logs(pod, container="sidecar") == "beside\n"
    assert await client.pods.logs(pod, container="main", previous=True) == "crashed\n"
    assert await client.pods.logs(pod, container="main", limit_bytes=5) == "one\nt"
    read: list[str] = []
    async with client.pods.logs(pod, container="main", follow=True) as lines:
        async for line in lines:
            read.append(line.rstrip("\n"))
            if len(read) == 3:
                log.write("four")
            if len(read) == 4:
                assert (await kubelet.end_pod(pod, exit_code=1)).status.phase == "Failed"
    assert read == ["one", "two", "three", "four"]


async def test_a_port_leads_to_a_handler(client: Client, kubelet: ScriptedKubelet, pod: str) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello " + await reader.readline())
        writer.close()

    await kubelet.on_port_forward(pod, 8080, greet)
    async with client.pods.port_forward(pod, 8080, 9090) as forward:
        reader, writer = await forward.connect(8080)
        writer.write(b"world\n")
        assert await reader.read() == b"hello world\n"
        writer.close()
        reader, writer = await forward.connect(9090)
        with pytest.raises(ForwardingError, match=r"nothing is scripted for port 9090 of pod .*: kubelet\.on_port_forward"):
            await reader.read()
        writer.close()


async def test_cp_works_on_real_files(client: Client, kubelet: ScriptedKubelet, pod: str, tmp_path: Path) -> None:
    root = kubelet.files(pod)
    (root / "var" / "lib").mkdir(parents=True)
    (root / "var" / "lib" / "data.bin").write_bytes(bytes(range(256)) * 1000)
    await client.pods.copy_from(pod, "/var/lib/data.bin", tmp_path / "data.bin", container="main")
    assert (tmp_path / "data.bin").read_bytes() == bytes(range(256)) * 1000
    (tmp_path / "new.txt").write_text("from here")
    await client.pods.copy_to(pod, tmp_path / "new.txt", "/var/lib/new.txt", container="main")
    assert (root / "var" / "lib" / "new.txt").read_text() == "from here"
    await client.pods.copy_to(pod, tmp_path / "new.txt", "/var/lib", container="main")
    assert (root / "var" / "lib" / "new.txt").exists(), "a folder takes the file in"
    with pytest.raises(CopyError):
        await client.pods.copy_from(pod, "/../../etc/passwd", tmp_path / "passwd", container="main")


async def test_kubectl_uses_it_too(local_cluster: LocalCluster, kubelet: ScriptedKubelet, pod: str, tmp_path: Path) -> None:
    kubelet.on_exec(pod, ["ls", "/"], stdout="bin\n")
    kubelet.on_logs(pod, ["a line"])
    (kubelet.files(pod) / "notes").write_text("copied")

    async def kubectl(*args: str) -> str:
        env = {**os.environ, "KUBECONFIG": str(local_cluster.kubeconfig), "HOME": str(tmp_path)}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(kubectl_binary(), *args, stdout=pipe, stderr=pipe, env=env, cwd=tmp_path)
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode()

    assert await kubectl("exec", pod, "-c", "main", "--", "ls", "/") == "bin\n"
    assert await kubectl("logs", pod, "-c", "sidecar") == "a line\n"
    await kubectl("cp", f"{pod}:/notes", "notes", "-c", "main")
    assert (tmp_path / "notes").read_text() == "copied"


async def test_what_it_made_is_gone_afterwards(client: Client) -> None:
    async with ScriptedKubelet(client) as kubelet:
        made = await kubelet.run_pod("gone-afterwards")
        assert made.status.phase == "Running"
        assert made.spec.node_name == kubelet.node_name
    with pytest.raises(NotFound):
        await client.get(Node, kubelet.node_name)
    await eventually(one(client, Pod, "gone-afterwards", namespace="default"), None)


async def test_its_node_has_a_lease_so_that_it_is_not_lost(client: Client, kubelet: ScriptedKubelet) -> None:
    lease = await eventually(one(client, Lease, kubelet.node_name, namespace="kube-node-lease"), lambda obj: bool(obj.spec.renew_time))
    assert (lease.spec.holder_identity, lease.metadata.owner_references[0].name) == (kubelet.node_name, kubelet.node_name)


async def test_a_pod_of_the_user_s_own_runs_there(client: Client, kubelet: ScriptedKubelet) -> None:
    own = Pod(metadata=ObjectMeta(name="own", namespace="default"), spec=PodSpec(containers=[Container(name="app", image="x")]))
    made = await kubelet.run_pod(own)
    assert [status.name for status in made.status.container_statuses] == ["app"]


async def test_a_simulated_node_s_pods_are_served_and_the_node_is_as_before_afterwards() -> None:
    async with LocalCluster() as cluster:
        client = cluster.client
        await eventually(one(client, Node, "kubeloop-node"), lambda node: bool(node.status.addresses), within=50)
        before = (await client.get(Node, "kubeloop-node")).status
        async with ScriptedKubelet(client, node="kubeloop-node") as kubelet:
            labels, containers = {"app": "web"}, [{"name": "main", "image": "x"}]
            template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
            spec = {"selector": {"matchLabels": labels}, "template": template}
            await client.create(Deployment.from_dict({"metadata": {"name": "web", "namespace": "default"}, "spec": spec}))
            await eventually(one(client, Deployment, "web", namespace="default"), lambda obj: obj.status.ready_replicas == 1, within=50)
            (pod,) = [item async for item in client.list(Pod, namespace="default", label_selector="app=web")]
            kubelet.on_exec(pod.metadata.name, ["hostname"], stdout=pod.metadata.name)
            assert (await client.pods.exec(pod.metadata.name, ["hostname"])).stdout.decode() == pod.metadata.name
        after = (await client.get(Node, "kubeloop-node")).status
        assert (after.addresses, after.daemon_endpoints) == (before.addresses, before.daemon_endpoints)


async def test_a_kubelet_that_does_not_run_says_so(client: Client) -> None:
    with pytest.raises(ConfigError, match="enter it first"):
        await ScriptedKubelet(client).run_pod("web-0")
