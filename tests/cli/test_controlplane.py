"""``kubeloop controlplane``: the built-in controllers beside a server that runs none."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.coordination.v1 import Lease
from kubeloop.cli.controlplane import controlplane
from kubeloop.cli.server import server
from kubeloop.pki import CertificateAuthority
from kubeloop.testing import TlsTestServer
from tests.controlplane.workloads import deployment

pytestmark = pytest.mark.embedded


@asynccontextmanager
async def command(*flags: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "kubeloop", "controlplane", *flags, stdout=PIPE, stderr=PIPE)
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


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param(["--controllers", "jobs"], '--controllers: "jobs" is not in the list of known controllers; these', id="controller"),
        pytest.param(["--cluster-signing-key-file", "ca.key"], "belong together: name both or none", id="half of an authority"),
        pytest.param(["--service-account-private-key-file", "none.key"], "none.key: No such file or directory", id="missing key file"),
        pytest.param(["--service-account-private-key-file", "ca.crt"], "ca.crt: no RSA or EC private key in it", id="no key in the file"),
        pytest.param(["--leader-elect-renew-deadline", "20s"], "lease_duration", id="times that allow two leaders"),
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
