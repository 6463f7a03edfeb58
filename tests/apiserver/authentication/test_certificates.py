"""Certificates of clients, proxies and the server itself: whom they name, who signed them, and that files are read again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from kubeloop.apiserver.authentication import RequestHeaders
from kubeloop.apiserver.authentication.options import AuthenticationOptions
from kubeloop.apiserver.server import ApiServer, ServerOptions
from kubeloop.config import ClusterConfig, Credentials, Pem
from kubeloop.endpoints.client_certificates import parse_certificate
from kubeloop.meta import ApiError, TransportError, Unauthorized
from kubeloop.meta.errors import ConfigError
from kubeloop.pki import CertificateAuthority, IssuedCertificate
from kubeloop.transport import Transport

MYSELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
TRUST = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
PROXIES = RequestHeaders(("X-Remote-User", "X-Other-User"), ("X-Remote-Uid",), ("X-Remote-Group",), ("X-Remote-Extra-",), ("front",))


@asynccontextmanager
async def running(options: AuthenticationOptions) -> AsyncIterator[ApiServer]:
    api = ApiServer(ServerOptions(authentication=options))
    try:
        await api.start()
        yield api
    finally:
        await api.stop()


@asynccontextmanager
async def connected(api: ApiServer, user: IssuedCertificate | None = None, token: str = "") -> AsyncIterator[Transport]:
    credentials = Credentials(token=token)
    if user is not None:
        credentials = Credentials(client_certificate=Pem(data=user.certificate), client_key=Pem(data=user.key))
    config = ClusterConfig(server=api.url, ca=Pem(data=api.authority), tls_server_name=api.server_name, credentials=credentials)
    async with Transport(config) as transport:
        yield transport


async def ask(transport: Transport, **headers: str) -> dict[str, Any]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await transport.request("POST", MYSELF, body=b"{}", headers=sent)
    found: dict[str, Any] = json.loads(answer.body)["status"]["userInfo"]
    return found


async def who(api: ApiServer, user: IssuedCertificate, **headers: str) -> dict[str, Any]:
    async with connected(api, user) as transport:
        return await ask(transport, **headers)


async def is_let_in(api: ApiServer, user: IssuedCertificate) -> bool:
    """An unknown authority ends the handshake; an authority that was removed after the handshake is answered with 401."""
    try:
        await who(api, user)
    except (TransportError, Unauthorized):
        return False
    return True


def fingerprint(certificate: IssuedCertificate) -> str:
    return x509.load_pem_x509_certificate(certificate.certificate).fingerprint(hashes.SHA256()).hex()


def replace(path: Path, content: bytes) -> None:
    """As those do who renew certificates: at once."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)


async def test_clients_of_another_authority_come_in_by_its_file_and_out_with_it(tmp_path: Path) -> None:
    file, first, second = tmp_path / "clients.crt", CertificateAuthority.create("first"), CertificateAuthority.create("second")
    file.write_bytes(first.certificate)
    ann, ben = first.issue("ann", ("ops",), client=True), second.issue("ben", client=True)
    async with running(AuthenticationOptions(client_ca=file)) as api:
        found = await who(api, ann)
        assert (found["username"], found["groups"]) == ("ann", ["ops", "system:authenticated"])
        assert found["extra"] == {"authentication.kubernetes.io/credential-id": [f"X509SHA256={fingerprint(ann)}"]}
        assert not await is_let_in(api, ben)
        assert await is_let_in(api, api.administrator())
        async with connected(api, ann) as old:
            await ask(old)
            replace(file, second.certificate)
            assert (await who(api, ben))["username"] == "ben"
            with pytest.raises(Unauthorized):
                await ask(old)
        assert not await is_let_in(api, ann)
        replace(file, b"broken")
        assert await is_let_in(api, ben)
        assert await is_let_in(api, api.administrator())


async def test_a_certificate_for_servers_lets_no_client_in(tmp_path: Path) -> None:
    authority = CertificateAuthority.create("clients")
    (tmp_path / "clients.crt").write_bytes(authority.certificate)
    async with running(AuthenticationOptions(client_ca=tmp_path / "clients.crt")) as api:
        assert not await is_let_in(api, authority.issue("ann", server=True))
        assert await is_let_in(api, authority.issue("ann", server=True, client=True))


@pytest.fixture
async def behind_proxy(tmp_path: Path) -> AsyncIterator[tuple[ApiServer, CertificateAuthority]]:
    authority = CertificateAuthority.create("proxies")
    (tmp_path / "proxies.crt").write_bytes(authority.certificate)
    async with running(AuthenticationOptions(proxy_ca=tmp_path / "proxies.crt", proxies=PROXIES)) as api:
        yield api, authority


async def test_a_front_proxy_names_its_client(behind_proxy: tuple[ApiServer, CertificateAuthority]) -> None:
    api, authority = behind_proxy
    front = authority.issue("front", client=True)
    sent = {"X_Remote_User": "jane", "X_Remote_Group": "ops", "X_Remote_Uid": "u-1", "X_Remote_Extra_acme.com%2Fteam": "red"}
    assert await who(api, front, **sent) == {
        "username": "jane",
        "uid": "u-1",
        "groups": ["ops", "system:authenticated"],
        "extra": {"acme.com/team": ["red"]},
    }
    assert (await who(api, front, X_Other_User="joe"))["username"] == "joe"


@pytest.mark.parametrize(
    ("name", "headers"),
    [
        pytest.param("other", {"X_Remote_User": "jane"}, id="a name that is not allowed"),
        pytest.param("front", {}, id="no user named"),
        pytest.param("front", {"X_Remote_Group": "system:masters"}, id="a group without a user"),
    ],
)
async def test_a_proxy_is_anonymous_with(behind_proxy: tuple[ApiServer, CertificateAuthority], name: str, headers: dict[str, str]) -> None:
    api, authority = behind_proxy
    with pytest.raises(Unauthorized):
        await who(api, authority.issue(name, ("system:masters",), client=True), **headers)


async def test_the_headers_of_a_client_that_is_no_proxy_are_ignored(behind_proxy: tuple[ApiServer, CertificateAuthority]) -> None:
    api, _ = behind_proxy
    assert (await who(api, api.administrator(), X_Remote_User="jane"))["username"] == "kubeloop-admin"
    async with connected(api) as anonymous:
        with pytest.raises(ApiError, match='User "system:anonymous" cannot'):
            await ask(anonymous, X_Remote_User="jane", X_Remote_Group="system:masters")


async def test_servers_behind_this_one_can_read_which_proxies_to_trust(
    behind_proxy: tuple[ApiServer, CertificateAuthority], tmp_path: Path
) -> None:
    api, authority = behind_proxy
    async with connected(api, api.administrator()) as transport:
        data = json.loads((await transport.request("GET", TRUST)).body)["data"]
        assert data["client-ca-file"] == api.authority.decode()
        assert json.loads(data["requestheader-allowed-names"]) == ["front", "front-proxy-client"]
        assert json.loads(data["requestheader-username-headers"]) == ["X-Remote-User", "X-Other-User"]
        assert json.loads(data["requestheader-extra-headers-prefix"]) == ["X-Remote-Extra-"]
        assert data["requestheader-client-ca-file"].startswith(authority.certificate.decode())
        assert data["requestheader-client-ca-file"].count("BEGIN CERTIFICATE") == 2
        other = CertificateAuthority.create("other proxies")
        replace(tmp_path / "proxies.crt", other.certificate)
        async with asyncio.timeout(30):
            while other.certificate.decode() not in data["requestheader-client-ca-file"]:
                data = json.loads((await transport.request("GET", TRUST)).body)["data"]


async def test_the_certificate_that_flags_name_is_shown_and_another_one_once_it_is_there(tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    first, second = CertificateAuthority.create("first"), CertificateAuthority.create("second")

    def put(authority: CertificateAuthority) -> None:
        pair = authority.issue("server", ip_addresses=("127.0.0.1",), server=True)
        replace(key, pair.key)
        replace(certificate, pair.certificate)

    async def is_shown(authority: CertificateAuthority) -> bool:
        async with Transport(ClusterConfig(server=api.url, ca=Pem(data=authority.certificate))) as transport:
            try:
                await transport.request("GET", "/version")
            except TransportError:
                return False
            return True

    put(first)
    async with running(AuthenticationOptions(tls_certificate=certificate, tls_key=key)) as api:
        assert (await is_shown(first), await is_shown(second)) == (True, False)
        put(second)
        assert (await is_shown(first), await is_shown(second)) == (False, True)
        replace(key, b"broken")
        assert await is_shown(second)
        assert (await who(api, api.administrator()))["username"] == "kubeloop-admin"  # by the server's own name


def test_files_that_make_no_certificate_are_named(tmp_path: Path) -> None:
    one, other = CertificateAuthority.create("a").issue("s", server=True), CertificateAuthority.create("b").issue("s", server=True)
    (tmp_path / "tls.crt").write_bytes(one.certificate)
    (tmp_path / "tls.key").write_bytes(other.key)
    with pytest.raises(ConfigError, match=r"--tls-cert-file .*tls\.crt and --tls-private-key-file .*tls\.key do not belong together"):
        ApiServer(ServerOptions(authentication=AuthenticationOptions(tls_certificate=tmp_path / "tls.crt", tls_key=tmp_path / "tls.key")))
    (tmp_path / "ca.crt").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match=r"--client-ca-file .*ca\.crt: no certificates in it"):
        ApiServer(ServerOptions(authentication=AuthenticationOptions(client_ca=tmp_path / "ca.crt")))
    with pytest.raises(ConfigError, match=r"--requestheader-client-ca-file .*none\.crt: No such file"):
        ApiServer(ServerOptions(authentication=AuthenticationOptions(proxy_ca=tmp_path / "none.crt")))


async def test_tokens_of_a_file_come_and_go_with_it(tmp_path: Path) -> None:
    file = tmp_path / "tokens.csv"
    file.write_text("t1,ann,u1\n")
    async with running(AuthenticationOptions(token_file=file)) as api:
        async with connected(api, token="t1") as transport:
            assert (await ask(transport))["username"] == "ann"
            replace(file, b"t2,ben,u2\n")
            with pytest.raises(Unauthorized):
                await ask(transport)
        async with connected(api, token="t2") as transport:
            assert (await ask(transport))["username"] == "ben"
            replace(file, b"broken\n")
            assert (await ask(transport))["username"] == "ben"


async def test_without_anonymous_requests_all_are_401_that_show_nothing() -> None:
    async with running(AuthenticationOptions(anonymous=False)) as api:
        async with connected(api) as anonymous:
            for path in ("/healthz", "/version", "/api"):
                with pytest.raises(Unauthorized, match="Unauthorized"):
                    await anonymous.request("GET", path)
        assert await is_let_in(api, api.administrator())


async def test_a_certificate_counts_before_a_token_and_a_token_where_the_certificate_is_void(tmp_path: Path) -> None:
    (tmp_path / "tokens.csv").write_text("t1,ben,u1\n")
    async with running(AuthenticationOptions(token_file=tmp_path / "tokens.csv")) as api:
        assert (await who(api, api.administrator(), Authorization="Bearer wrong"))["username"] == "kubeloop-admin"
        expired = api.client_certificate("ann", days=0)
        with pytest.raises(Unauthorized):
            await who(api, expired)
        assert (await who(api, expired, Authorization="Bearer t1"))["username"] == "ben"


def certificate(*uids: str, name: str = "ann") -> bytes:
    """DER, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    uid = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else []
    subject = x509.Name([*attributes, *(x509.NameAttribute(uid, one) for one in uids)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key()).serial_number(1)
    return builder.not_valid_before(now).not_valid_after(now + timedelta(days=1)).sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def test_a_certificate_may_say_the_uid_once() -> None:
    assert parse_certificate(certificate()).uid == ""
    assert parse_certificate(certificate("u-1")).uid == "u-1"
    assert parse_certificate(certificate("u-1", "u-2")).fault == "expected 1 UID, but found multiple: [u-1 u-2]"
    assert parse_certificate(certificate("u-1", name="")).user is None
