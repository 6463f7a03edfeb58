"""A front proxy: it names users to the API server by X-Remote-*, with a certificate that the API server must believe."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubeloop.apiserver.server.api_server import ApiServer
from kubeloop.config import load_config
from kubeloop.endpoints.access import MASTERS, User
from kubeloop.endpoints.request_header import RequestHeaders
from kubeloop.meta.errors import ConfigError
from kubeloop.pki import CertificateAuthority
from kubeloop.proxy.server import ProxyOptions, ProxyServer
from kubeloop.proxy.upstream import FrontProxyCertificate
from kubeloop.testing import TlsTestServer
from kubeloop.types import JSONObject
from tests.proxy.conftest import ADMIN, DORA, TOKENS, Proxied, pod_of
from tests.proxy.rules.rule_texts import rule, text_of
from tests.proxy.test_identity import HIDE_NONE, who
from tests.realserver.building import binaries
from tests.realserver.serving import real_server

PODS = "/api/v1/namespaces/default/pods"
FRONT_PROXIES = CertificateAuthority.create("front-proxies")
OTHERS = CertificateAuthority.create("others")


class FrontProxyServer(TlsTestServer):
    """A server that believes the certificates of the authority in ``authority``. Other header names are those of RequestHeaders."""

    def __init__(self, folder: Path, **headers: Any) -> None:
        super().__init__(tokens=TOKENS)
        self.authority = folder / "front-proxy-ca.crt"
        self.authority.write_bytes(FRONT_PROXIES.certificate)
        settings = {"names": ("X-Remote-User",), "groups": ("X-Remote-Group",), "uids": ("X-Remote-Uid",)} | headers
        proxies = RequestHeaders(**settings, extra_prefixes=("X-Remote-Extra-",))
        authentication = replace(self._options.authentication, proxy_ca=self.authority, proxies=proxies)
        self._options = replace(self._options, authentication=authentication)
        self.api = ApiServer(self._options)


def certificate_of(
    authority: CertificateAuthority, folder: Path, name: str = "front", groups: tuple[str, ...] = ()
) -> FrontProxyCertificate:
    issued = authority.issue(name, groups, client=True)
    files = FrontProxyCertificate(folder / f"{name}.crt", folder / f"{name}.key")
    files.certificate.write_bytes(issued.certificate)
    files.key.write_bytes(issued.key)
    return files


@asynccontextmanager
async def front_proxy(server: TlsTestServer, folder: Path, *rules: JSONObject, **options: Any) -> AsyncIterator[Proxied]:
    file = folder / "rules.yaml"
    file.write_text(text_of(*rules or (HIDE_NONE,)))
    async with AsyncExitStack() as opened:
        settings = ProxyOptions(rules=file, front_proxy=certificate_of(FRONT_PROXIES, folder), **options)
        proxy = await opened.enter_async_context(ProxyServer(server.config, settings))
        yield Proxied(server, proxy, folder, file, opened)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[FrontProxyServer]:
    async with FrontProxyServer(tmp_path) as started:
        yield started


async def test_the_api_server_sees_the_client(server: TlsTestServer, tmp_path: Path) -> None:
    async with front_proxy(server, tmp_path) as proxied:
        groups = ("devs", "system:authenticated")
        assert await who(await proxied.client(DORA)) == (201, "dora", groups)
        assert await who(await proxied.client(token="dora-token")) == (201, "dora", groups)
        assert await who(await proxied.client(DORA, token="otto-token")) == (201, "dora", groups)
        assert await who(await proxied.client(proxied.proxy.user)) == (201, "kubeloop-admin", ("system:authenticated", MASTERS))
        assert (await who(await proxied.client()))[0] == 403
        assert (await who(await proxied.client(token="wrong")))[0] == 401


async def test_a_user_gets_the_rights_of_the_user_and_not_those_of_the_proxy(server: TlsTestServer, tmp_path: Path) -> None:
    async with front_proxy(server, tmp_path) as proxied:
        reply = await (await proxied.client(DORA))("GET", PODS)
        assert (reply.status, reply.tree["message"].partition(":")[2].partition(" in ")[0]) == (
            403,
            ' User "dora" cannot list resource "pods"',
        )


@pytest.mark.parametrize("credentials", ["a certificate", "a token", "nothing"])
async def test_headers_of_the_client_have_no_effect(server: TlsTestServer, tmp_path: Path, credentials: str) -> None:
    forged = {"X-Remote-User": "root", "X-Remote-Group": MASTERS, "X-Remote-Uid": "0", "x-remote-extra-a": "b"}
    async with front_proxy(server, tmp_path) as proxied:
        client = {
            "a certificate": await proxied.client(DORA),
            "a token": await proxied.client(token="dora-token"),
            "nothing": await proxied.client(),
        }[credentials]
        assert await who(client, **forged) == await who(client)
        body: JSONObject = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        reply = await client("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body, **forged)
        assert b"root" not in reply.body
        assert '"a":["b"]' not in reply.body.decode().replace(" ", "")


async def test_impersonation_is_checked_by_the_rights_of_the_client(server: TlsTestServer, tmp_path: Path) -> None:
    as_otto = {"Impersonate-User": "otto", "Impersonate-Group": "ops", "Impersonate-Uid": "u-1", "Impersonate-Extra-Team": "red"}
    async with front_proxy(server, tmp_path) as proxied:
        admin, dora = await proxied.client(ADMIN), await proxied.client(DORA)
        body: JSONObject = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        reply = await admin("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body, **as_otto)
        assert reply.tree["status"]["userInfo"] == {
            "username": "otto",
            "uid": "u-1",
            "groups": ["ops", "system:authenticated"],
            "extra": {"team": ["red"]},
        }
        reply = await dora("GET", PODS, None, **as_otto)
        assert reply.tree["message"].startswith('users "otto" is forbidden: User "dora" cannot impersonate resource "users"')
        reply = await admin("GET", PODS, None, **{"Impersonate-User": "system:anonymous"})
        assert 'User "system:anonymous" cannot list' in reply.tree["message"]


@pytest.mark.parametrize("name", ["a\nb", " kubeloop-admin", "kubeloop-admin "])
async def test_a_name_that_a_header_would_change_is_refused(server: TlsTestServer, tmp_path: Path, name: str) -> None:
    async with front_proxy(server, tmp_path) as proxied:
        for user in (User(name), User("dora", (name,))):
            assert (await (await proxied.client(user))("GET", PODS)).status == 401


@pytest.mark.parametrize("cache", [False, True], ids=["without a cache", "with a cache"])
async def test_rules_and_streams_work(server: TlsTestServer, tmp_path: Path, cache: bool) -> None:
    hide = rule(match=[{"userGroups": ["devs"], "labelSelector": "tier=back"}], name="hide")
    async with front_proxy(server, tmp_path, hide, cache=cache) as proxied:
        admin, dora = await proxied.client(ADMIN), await proxied.client(DORA)
        for pod in (pod_of("front"), pod_of("back", "back")):
            assert (await admin("POST", PODS, pod)).status == 201
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dora"}
        binding = {"metadata": {"name": "dora"}, "roleRef": role, "subjects": [subject]}
        assert (await admin("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding)).status == 201
        assert (await dora("GET", PODS)).names == ["front"]
        assert (await dora("GET", f"{PODS}/back")).status == 404
        assert (await admin("GET", PODS)).names == ["back", "front"]
        async with dora.watch(f"{PODS}?watch=true") as events:
            assert (await anext(events))["object"]["metadata"]["name"] == "front"


# The API server must believe the proxy


def trusted_as_client(server: TlsTestServer) -> CertificateAuthority:
    authority = server.api.options.authority
    assert authority is not None
    return authority


async def refusal(server: TlsTestServer, files: FrontProxyCertificate) -> str:
    """Return why a front proxy with this certificate does not start."""
    with pytest.raises(ConfigError) as raised:
        async with ProxyServer(server.config, ProxyOptions(front_proxy=files)):
            pass
    return str(raised.value)


async def test_a_certificate_of_another_authority_prevents_the_start(server: TlsTestServer, tmp_path: Path) -> None:
    text = await refusal(server, certificate_of(OTHERS, tmp_path))
    assert text.startswith("--proxy-client-cert-file: the API server does not believe the headers X-Remote-User")


async def test_a_certificate_that_the_api_server_takes_for_a_user_prevents_the_start(server: TlsTestServer, tmp_path: Path) -> None:
    files = certificate_of(trusted_as_client(server), tmp_path, "boss", (MASTERS,))
    assert f"it takes the proxy for user 'boss' with the groups {MASTERS}" in await refusal(server, files)


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        pytest.param({"allowed_names": ("another",)}, "Unauthorized", id="another common name is allowed"),
        pytest.param({"names": ("X-Other",)}, "does not believe", id="the user is in another header"),
        pytest.param({"groups": ("X-Other",)}, "does not believe", id="the groups are in another header"),
    ],
)
async def test_an_api_server_with_other_settings_prevents_the_start(tmp_path: Path, headers: dict[str, Any], why: str) -> None:
    async with FrontProxyServer(tmp_path, **headers) as server:
        assert why in await refusal(server, certificate_of(FRONT_PROXIES, tmp_path))


async def test_an_api_server_without_front_proxies_prevents_the_start(tmp_path: Path) -> None:
    async with TlsTestServer(tokens=TOKENS) as server:
        assert "does not believe" in await refusal(server, certificate_of(FRONT_PROXIES, tmp_path))


async def test_a_certificate_that_the_api_server_does_not_believe_any_more_lets_no_request_pass(
    server: FrontProxyServer, tmp_path: Path
) -> None:
    async with front_proxy(server, tmp_path) as proxied:
        client = await proxied.client(ADMIN)
        assert (await client("GET", PODS)).status == 200
        server.authority.write_bytes(OTHERS.certificate)
        await server.restart()
        # A kube-apiserver answers 401; this server ends the connection of an unknown authority.
        assert (await client("GET", PODS)).status in (401, 502)


async def test_files_that_cannot_be_read_prevent_the_start(server: TlsTestServer, tmp_path: Path) -> None:
    files = certificate_of(FRONT_PROXIES, tmp_path)
    files.key.unlink()
    assert "proxy-client-key-file" in await refusal(server, files)


# A kube-apiserver


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """The administrator's kubeconfig of a kube-apiserver that believes the authority of front proxies."""
    authority = tmp_path / "front-proxy-ca.crt"
    authority.write_bytes(FRONT_PROXIES.certificate)
    flags = {"client-ca-file": authority, "username-headers": "X-Remote-User", "group-headers": "X-Remote-Group"}
    flags |= {"uid-headers": "X-Remote-Uid", "extra-headers-prefix": "X-Remote-Extra-", "allowed-names": "front"}
    with real_server(binaries(), [f"--requestheader-{name}={value}" for name, value in flags.items()]) as started:
        yield started


@pytest.mark.server
@pytest.mark.kube_apiserver
async def test_a_kube_apiserver_believes_the_front_proxy_and_no_other_certificate(kubeconfig: Path, tmp_path: Path) -> None:
    config = load_config(kubeconfig)
    administrator = User("kubeloop-admin", (MASTERS,))
    as_otto = {"Impersonate-User": "otto", "Impersonate-Group": "ops", "Impersonate-Uid": "u-1", "Impersonate-Extra-Team": "red"}
    forged = {"X-Remote-User": "root", "X-Remote-Group": MASTERS}
    async with AsyncExitStack() as opened:
        options = ProxyOptions(front_proxy=certificate_of(FRONT_PROXIES, tmp_path))
        proxy = await opened.enter_async_context(ProxyServer(config, options))
        proxied = Proxied(None, proxy, tmp_path, tmp_path / "none.yaml", opened)  # type: ignore[arg-type]
        admin, dora = await proxied.client(administrator), await proxied.client(DORA)
        assert await who(dora, **forged) == (201, "dora", ("devs", "system:authenticated"))
        assert await who(admin) == (201, "kubeloop-admin", ("system:authenticated", MASTERS))
        assert await who(admin, **as_otto) == (201, "otto", ("ops", "system:authenticated"))
        assert (await dora("GET", PODS)).tree["message"].startswith('pods is forbidden: User "dora" cannot list resource "pods"')
        assert (await dora("GET", PODS, None, **as_otto)).status == 403
        reply = await (await proxied.client())("GET", PODS, None, **forged)
        assert 'User "system:anonymous" cannot list' in reply.tree["message"]
        assert (await who(await proxied.client(token="wrong"), **forged))[0] == 401
    clients = CertificateAuthority.load(*((kubeconfig.parent / f"ca.{kind}").read_bytes() for kind in ("crt", "key")))
    for authority, name, why in (
        (OTHERS, "front", "Unauthorized"),
        (FRONT_PROXIES, "another", "Unauthorized"),
        (clients, "front", "it takes the proxy for user 'front' with the groups system:masters"),
    ):
        with pytest.raises(ConfigError, match=why):
            async with ProxyServer(config, ProxyOptions(front_proxy=certificate_of(authority, tmp_path, name, (MASTERS,)))):
                pass
