"""Which clients are admitted: certificates, tokens, anonymous; impersonation; and that everything else is refused."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509 import load_pem_x509_certificate

from kubeloop.apiserver.authentication import read_tokens
from kubeloop.endpoints.access import AUTHENTICATED, User
from kubeloop.meta.errors import ConfigError
from kubeloop.pki import CertificateAuthority, IssuedCertificate
from tests.apiserver.conftest import CONFIGMAPS, PODS, Api

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def client_context(api: Api, certificate: IssuedCertificate, folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=api.server.api.authority.decode())
    pair = folder / "pair.pem"
    pair.write_bytes(certificate.certificate + certificate.key)
    context.load_cert_chain(pair)
    return context


def fingerprint(certificate: IssuedCertificate) -> str:
    return load_pem_x509_certificate(certificate.certificate).fingerprint(SHA256()).hex()


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/version"])
async def test_every_user_may_read_health_and_version(api: Api, path: str) -> None:
    assert (await api("GET", path, token="")).status == 200


async def test_readiness_tells_its_checks_when_asked(api: Api) -> None:
    assert (await api("GET", "/readyz?verbose")).text.endswith("readyz check passed\n")
    assert (await api("GET", "/readyz")).text == "ok"
    assert (await api("GET", "/readyz/nosuch")).status == 404


IN_DEFAULT = 'in API group "" in the namespace "default"'


@pytest.mark.parametrize(
    ("method", "path", "subject", "cannot"),
    [
        pytest.param("GET", CONFIGMAPS, "configmaps is ", f'list resource "configmaps" {IN_DEFAULT}', id="list"),
        pytest.param("GET", f"{CONFIGMAPS}?watch=1", "configmaps is ", f'watch resource "configmaps" {IN_DEFAULT}', id="watch"),
        pytest.param(
            "GET", "/api/v1/nodes", "nodes is ", 'list resource "nodes" in API group "" at the cluster scope', id="read the cluster"
        ),
        pytest.param("GET", f"{PODS}/x/log", 'pods "x" is ', f'get resource "pods/log" {IN_DEFAULT}', id="read a subresource"),
        pytest.param(
            "DELETE",
            "/apis/apps/v1/namespaces/a/deployments",
            "deployments.apps is ",
            'deletecollection resource "deployments" in API group "apps" in the namespace "a"',
            id="delete a collection",
        ),
        pytest.param("GET", "/api", "", 'get path "/api"', id="discover"),
        pytest.param("GET", "/nosuch", "", 'get path "/nosuch"', id="find out what does not exist"),
        pytest.param("POST", "/debug/compact", "", 'post path "/debug/compact"', id="compact"),
    ],
)
async def test_an_anonymous_user_may_not(api: Api, method: str, path: str, subject: str, cannot: str) -> None:
    answer = await api(method, path, token="")
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    assert answer.message == f'{subject}forbidden: User "system:anonymous" cannot {cannot}'


async def test_a_known_user_who_is_no_administrator_is_refused_too(api: Api) -> None:
    answer = await api("GET", f"{CONFIGMAPS}/a", token="alice-token")
    assert (
        answer.message
        == 'configmaps "a" is forbidden: User "alice" cannot get resource "configmaps" in API group "" in the namespace "default"'
    )


@pytest.mark.parametrize("path", [CONFIGMAPS, "/healthz"])
async def test_a_wrong_token_is_unauthorized_even_where_none_is_needed(api: Api, path: str) -> None:
    answer = await api("GET", path, token="wrong")
    assert (answer.status, answer.body["reason"], answer.message) == (401, "Unauthorized", "Unauthorized")


async def test_credentials_of_another_scheme_are_none(api: Api) -> None:
    answer = await api("GET", CONFIGMAPS, token="", Authorization="Basic YTpi")
    assert (answer.status, "system:anonymous" in answer.message) == (403, True)


async def test_a_token_behind_two_spaces_is_none_and_its_sender_is_warned(api: Api) -> None:
    found = await api("GET", "/api/v1/namespaces", token="", Authorization="Bearer  admin-token")
    assert (found.status, "system:anonymous" in found.message) == (403, True)
    assert found.warnings == ['299 - "the provided Authorization header contains extra space before the bearer token, and is ignored"']


async def test_a_certificate_tells_user_and_groups(api: Api, tmp_path: Path) -> None:
    certificate = api.server.api.client_certificate("jane", ("system:masters", "ops"))
    context = client_context(api, certificate, tmp_path)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(api.server.url, connector=connector) as session, session.post(REVIEW, json={}) as answer:
        info = (await answer.json())["status"]["userInfo"]
    extra = {"authentication.kubernetes.io/credential-id": [f"X509SHA256={fingerprint(certificate)}"]}
    assert info == {"username": "jane", "groups": ["system:masters", "ops", "system:authenticated"], "extra": extra}


async def test_a_certificate_of_another_authority_does_not_get_through_the_handshake(api: Api, tmp_path: Path) -> None:
    foreign = CertificateAuthority.create("foreign").issue("jane", ("system:masters",), client=True)
    context = client_context(api, foreign, tmp_path)
    async with aiohttp.ClientSession(api.server.url, connector=aiohttp.TCPConnector(ssl=context)) as session:
        with pytest.raises((aiohttp.ClientError, ssl.SSLError, asyncio.TimeoutError)):
            await session.get("/version")


async def test_an_expired_certificate_is_unauthorized(api: Api, tmp_path: Path) -> None:
    certificate = api.server.api.client_certificate("jane", ("system:masters",), days=0)
    connector = aiohttp.TCPConnector(ssl=client_context(api, certificate, tmp_path))
    async with aiohttp.ClientSession(api.server.url, connector=connector) as session, session.get("/version") as answer:
        assert (answer.status, (await answer.json())["message"]) == (401, "Unauthorized")


async def test_administrators_may_act_as_others_and_are_then_no_more_than_they(api: Api) -> None:
    answer = await api("POST", REVIEW, {}, Impersonate_User="jane", Impersonate_Group="system:masters", Impersonate_Uid="u-1")
    assert answer.body["status"]["userInfo"] == {"username": "jane", "uid": "u-1", "groups": ["system:masters", "system:authenticated"]}
    assert 'User "jane" cannot list' in (await api("GET", CONFIGMAPS, Impersonate_User="jane")).message
    assert (await api("GET", CONFIGMAPS, Impersonate_Group="dev")).status == 400
    refused = await api("GET", CONFIGMAPS, token="alice-token", Impersonate_User="jane")
    assert 'User "alice" cannot impersonate' in refused.message


async def test_a_token_review_tells_whose_a_token_is(api: Api) -> None:
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    status = (await api("POST", path, {"spec": {"token": "alice-token"}})).body["status"]
    assert (status["authenticated"], status["user"]["username"], status["user"]["uid"]) == (True, "alice", "alice-uid")
    assert (await api("POST", path, {"spec": {"token": "wrong"}})).body["status"]["error"] == "invalid bearer token"
    assert (await api("GET", path)).status == 405


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        pytest.param({"user": "alice", "groups": ["devs"]}, False, id="a user"),
        pytest.param({"user": "root", "groups": ["system:masters"]}, True, id="an administrator"),
    ],
)
async def test_an_access_review_answers_as_the_server_would_for(api: Api, spec: dict[str, object], allowed: bool) -> None:
    body = {"spec": {**spec, "resourceAttributes": {"verb": "get", "resource": "pods"}}}
    answer = await api("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    assert (answer.status, answer.body["status"]) == (201, {"allowed": allowed})


def test_a_token_file_gives_users_with_groups_and_uids(tmp_path: Path) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text('t1,bob,bob-uid,"devs,ops"\n\nt2,eve,eve-uid\n')
    assert read_tokens(path) == {
        "t1": User("bob", ("devs", "ops", AUTHENTICATED), "bob-uid"),
        "t2": User("eve", (AUTHENTICATED,), "eve-uid"),
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("only,two\n", 'line 1: wanted token,user,uid[,"groups"]', id="a line with two columns"),
        pytest.param(None, "cannot read token file", id="no file"),
    ],
)
def test_a_token_file_is_refused_with(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "tokens.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=str(path)) as refused:
        read_tokens(path)
    assert message in str(refused.value)
