"""``kubeloop controlplane``: the built-in controllers beside a server that runs none."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.coordination.v1 import Lease
from kubeloop.cli.controlplane import controlplane
from kubeloop.cli.server import server
from kubeloop.client import Client
from kubeloop.pki import CertificateAuthority
from kubeloop.testing import TlsTestServer
from tests.controlplane.workloads import deployment

pytestmark = pytest.mark.embedded


@asynccontextmanager
async def command(*flags: str, program: str = "controlplane") -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "kubeloop", program, *flags, stdout=PIPE, stderr=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def first_line(process: Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode()


async def test_one_replica_works_and_the_next_takes_over(in_loop_server: TlsTestServer, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(in_loop_server.kubeconfig)
    flags = ("--kubeconfig", str(kubeconfig), "--controllers", "deployment", "--leader-elect-retry-period", "0.2s")
    async with in_loop_server.client() as client, command(*flags) as leader:
        assert await first_line(leader) == f"ready {in_loop_server.url}\n"
        held = (await client.get(Lease, "kube-controller-manager", namespace="kube-system")).spec.holder_identity
        async with command(*flags) as other:
            await client.create(deployment("d", 2))
            await client.wait_for(Deployment, "d", lambda stored: stored.status.observed_generation, timeout=30)
            leader.terminate()
            assert await first_line(other) == f"ready {in_loop_server.url}\n"
            lease = await client.get(Lease, "kube-controller-manager", namespace="kube-system")
            assert lease.spec.holder_identity != held
            assert await leader.wait() == 0


async def holders(client: Client, *, but: str = "") -> list[str]:
    """Return the holders of the Leases of the controllers and the scheduler, once each has one other than ``but``."""
    found = []
    for name in ("kube-controller-manager", "kube-scheduler"):
        lease = await client.wait_for(
            Lease, name, lambda lease: lease.spec.holder_identity not in (None, "", but), namespace="kube-system", timeout=30
        )
        found.append(lease.spec.holder_identity or "")
    return found


async def test_a_control_plane_beside_a_server_waits_until_the_controllers_of_the_server_end(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    flags = ("--kubeconfig", str(kubeconfig), "--data", str(tmp_path / "data"))
    selection = ("--controllers", "deployment,default-scheduler")
    async with AsyncExitStack() as stack:
        async with command(*flags, *selection, program="server") as running:
            url = (await first_line(running)).split()[1]
            client = await stack.enter_async_context(Client.from_config(kubeconfig))
            held = await holders(client)
            assert held[0] == held[1]
            beside = await stack.enter_async_context(
                command("--kubeconfig", str(kubeconfig), *selection, "--leader-elect-retry-period", "0.2s")
            )
            assert beside.stderr is not None
            while b"standing for election: kube-system/kube-controller-manager" not in await beside.stderr.readline():
                pass
            await client.create(deployment("d", 1))
            await client.wait_for(Deployment, "d", lambda stored: stored.status.observed_generation, timeout=30)
            assert await holders(client) == held
        # The same address and objects, without controllers; the server has released its Leases.
        async with command(*flags, "--no-controllers", "--port", url.rpartition(":")[2], program="server") as running:
            assert url in await first_line(running)
            assert await first_line(beside) == f"ready {url}\n"
            assert len(set(await holders(client, but=held[0]))) == 2


async def test_a_server_that_was_killed_takes_its_own_leases_at_once(tmp_path: Path) -> None:
    flags = (
        "--kubeconfig",
        str(tmp_path / "kubeconfig"),
        "--data",
        str(tmp_path / "data"),
        "--controllers",
        "deployment,default-scheduler",
    )
    held: list[str] = []
    for _ in range(2):
        async with command(*flags, program="server") as running, AsyncExitStack() as stack:
            await first_line(running)
            client = await stack.enter_async_context(Client.from_config(tmp_path / "kubeconfig"))
            await client.create(deployment(f"d{len(held)}", 1))
            await client.wait_for(Deployment, f"d{len(held)}", lambda stored: stored.status.observed_generation, timeout=10)
            held += await holders(client)
            running.kill()
            await running.wait()
    assert len(set(held)) == 1


@pytest.mark.parametrize(
    ("flags", "holders"),
    [
        pytest.param(["--leader-elect=false"], [], id="without election there are no Leases"),
        pytest.param(
            ["--controllers", "*,-default-scheduler"], ["kube-controller-manager"], id="without a scheduler its Lease is not taken"
        ),
    ],
)
async def test_leases_of_a_server(flags: list[str], holders: list[str], tmp_path: Path) -> None:
    async with command(*flags, "--kubeconfig", str(tmp_path / "kubeconfig"), program="server") as running:
        await first_line(running)
        async with Client.from_config(tmp_path / "kubeconfig") as client:
            for name in holders:
                await client.wait_for(Lease, name, bool, namespace="kube-system", timeout=30)
            assert [lease.metadata.name async for lease in client.list(Lease, namespace="kube-system")] == holders


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param(["--controllers", "jobs"], '--controllers: "jobs" is not in the list of known controllers; these', id="controller"),
        pytest.param(["--cluster-signing-key-file", "ca.key"], "belong together: name both or none", id="half of an authority"),
        pytest.param(["--service-account-private-key-file", "none.key"], "none.key: No such file or directory", id="missing key file"),
        pytest.param(["--service-account-private-key-file", "ca.crt"], "ca.crt: no RSA or EC private key in it", id="no key in the file"),
        pytest.param(["--leader-elect-renew-deadline", "20s"], "lease_duration", id="times that allow two leaders"),
        pytest.param(["--leader-elect-resource-name", "kube-scheduler"], "is the Lease of the scheduler", id="one Lease for both"),
        pytest.param(["--context", "other"], 'context "other"', id="context"),
    ],
)
def test_a_mistake_is_named_before_anything_runs(flags: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    authority = CertificateAuthority.create("test")
    Path("ca.crt").write_bytes(authority.certificate)
    Path("ca.key").write_bytes(authority.key)
    Path("kubeconfig").write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\n"
    )
    result = CliRunner().invoke(controlplane, ["--kubeconfig", "kubeconfig", *flags])
    assert (result.exit_code, result.exception.__class__) == (1, SystemExit)
    assert message in result.output


def test_the_server_refuses_an_unknown_controller_before_it_starts() -> None:
    result = CliRunner().invoke(server, ["--controllers", "*,-jobs"])
    assert result.exit_code == 1
    assert '--controllers: "jobs" is not in the list of known controllers' in result.output
