"""The server and kubelets know each other: --kubelet-client-certificate, --kubelet-client-key, --kubelet-certificate-authority."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from kubeloop.apiserver.handlers.kubelet.credentials import KubeletCredentials
from kubeloop.apiserver.server import ApiServer, ServerOptions
from kubeloop.config.kubeconfig.generated import kubeconfig_text
from kubeloop.meta import ConfigError
from kubeloop.pki import CertificateAuthority
from kubeloop.testing.servers import WITHOUT_ACCOUNTS
from tests.apiserver.kubelet.conftest import Cluster, tls_of
from tests.apiserver.kubelet.scripted import ScriptedKubelet
from tests.servers import ServerUnderTest


@asynccontextmanager
async def cluster_with(credentials: KubeletCredentials, folder: Path) -> AsyncIterator[Cluster]:
    """Start a separate server, in this loop."""
    api = ApiServer(ServerOptions(kubelets=credentials, admission=WITHOUT_ACCOUNTS))
    await api.start()
    try:
        path = folder / "kubeconfig"
        path.write_bytes(kubeconfig_text(api.url, api.authority, api.administrator()))
        under_test = ServerUnderTest(path)
        connector = aiohttp.TCPConnector(ssl=await tls_of(under_test.config))
        async with aiohttp.ClientSession(api.url, connector=connector) as session:
            yield Cluster(under_test, session, "default", folder)
    finally:
        await api.stop()


@pytest.fixture
def credentials(tmp_path: Path) -> tuple[CertificateAuthority, Path, Path]:
    """An authority of clients, and the server's certificate and key as files."""
    authority = CertificateAuthority.create("clients")
    issued = authority.issue("the-api-server", client=True)
    certificate, key = tmp_path / "client.crt", tmp_path / "client.key"
    certificate.write_bytes(issued.certificate)
    key.touch(mode=0o600)
    key.write_bytes(issued.key)
    return authority, certificate, key


async def test_the_server_shows_its_certificate_and_checks_the_kubelets(
    credentials: tuple[CertificateAuthority, Path, Path], tmp_path: Path
) -> None:
    authority, certificate, key = credentials
    async with ScriptedKubelet(client_authority=authority.certificate) as kubelet:
        trusted = tmp_path / "kubelets.crt"
        trusted.write_bytes(kubelet.authority)
        async with cluster_with(KubeletCredentials(certificate, key, trusted), tmp_path) as cluster:
            pod = await cluster.pod("web", await cluster.node(kubelet))
            async with cluster.session.get(f"{pod}/log") as answer:
                assert (answer.status, await answer.text()) == (200, "one\ntwo\n")
        assert kubelet.last.certificate == "the-api-server"


async def test_a_kubelet_of_another_authority_is_refused_but_where_a_log_says_to_skip_that(tmp_path: Path) -> None:
    trusted = tmp_path / "kubelets.crt"
    trusted.write_bytes(CertificateAuthority.create("others").certificate)
    async with ScriptedKubelet() as kubelet, cluster_with(KubeletCredentials(authority=trusted), tmp_path) as cluster:
        pod = await cluster.pod("web", await cluster.node(kubelet))
        status, answer = await cluster.request("GET", f"{pod}/log")
        assert status == 500
        assert answer["message"].endswith(": tls: failed to verify certificate: x509: certificate signed by unknown authority")
        async with cluster.session.get(f"{pod}/log?insecureSkipTLSVerifyBackend=true") as log:
            assert await log.text() == "one\ntwo\n"


async def test_without_flags_no_kubelet_is_checked_and_no_certificate_shown(tmp_path: Path) -> None:
    async with ScriptedKubelet() as kubelet, cluster_with(KubeletCredentials(), tmp_path) as cluster:
        pod = await cluster.pod("web", await cluster.node(kubelet))
        async with cluster.session.get(f"{pod}/log") as answer:
            assert answer.status == 200
        assert kubelet.last.certificate == ""


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(("client.crt", None, None), "--kubelet-client-certificate and --kubelet-client-key need each other", id="no key"),
        pytest.param(("none.crt", "client.key", None), r"--kubelet-client-certificate .*none\.crt.*: No such file", id="no certificate"),
        pytest.param(("client.key", "client.crt", None), r"--kubelet-client-certificate .*client\.key", id="mixed up"),
        pytest.param((None, None, "none.crt"), r"--kubelet-certificate-authority .*none\.crt: No such file", id="no authority"),
        pytest.param((None, None, "client.key"), r"--kubelet-certificate-authority .*client\.key: ", id="an authority that is none"),
    ],
)
async def test_files_that_cannot_be_used_are_named_at_the_start(
    credentials: tuple[CertificateAuthority, Path, Path], tmp_path: Path, names: tuple[str | None, str | None, str | None], expected: str
) -> None:
    files = [tmp_path / name if name is not None else None for name in names]
    api = ApiServer(ServerOptions(kubelets=KubeletCredentials(*files)))
    try:
        with pytest.raises(ConfigError, match=expected):
            await api.start()
    finally:
        await api.stop()
