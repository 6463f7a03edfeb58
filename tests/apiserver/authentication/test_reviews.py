"""SelfSubjectReview, TokenReview, and impersonation of another user."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from kubeloop.client import Client
from kubeloop.config import ClusterConfig
from kubeloop.config.credentials import ImpersonatedUser
from kubeloop.meta import ApiError, BadRequest, MethodNotAllowed
from kubeloop.transport import Transport
from tests.apiserver.authentication.token_requests import MYSELF, REVIEWS, post, review
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server


async def me(config: ClusterConfig, user: ImpersonatedUser) -> dict[str, Any]:
    credentials = replace(config.credentials, impersonate=user)
    async with Transport(replace(config, credentials=credentials)) as transport:
        answer = await transport.request("POST", MYSELF, body=b"{}")
    found: dict[str, Any] = json.loads(answer.body)["status"]["userInfo"]
    return found


async def test_fields_that_are_sent_with_a_self_review_are_not_answered(client: Client) -> None:
    sent = {"metadata": {"name": "x", "labels": {"a": "b"}}, "status": {"userInfo": {"username": "root"}}}
    found = await post(client, MYSELF, sent)
    assert list(found["metadata"]) == ["creationTimestamp"]
    assert found["status"]["userInfo"]["username"] != "root"


async def test_a_review_without_a_token_is_a_bad_request(client: Client) -> None:
    with pytest.raises(BadRequest, match="token is required for TokenReview in authentication"):
        await post(client, REVIEWS, {"spec": {"audiences": ["a"]}})
    for path in (MYSELF, REVIEWS):
        with pytest.raises(MethodNotAllowed):
            await client.transport.request("GET", path)


async def test_what_a_review_was_sent_with_does_not_make_a_token_valid(client: Client) -> None:
    status = {"authenticated": True, "user": {"username": "root"}, "audiences": ["a"], "error": "none"}
    found = (await post(client, REVIEWS, {"spec": {"token": "wrong"}, "status": status}))["status"]
    assert found["error"] == "invalid bearer token"
    assert not found.get("authenticated")


async def test_a_review_of_an_unknown_token_says_no_more_than_that(client: Client) -> None:
    assert await review(client, "wrong") == {"user": {}, "error": "invalid bearer token"}


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        pytest.param(ImpersonatedUser(user="jane"), {"username": "jane", "groups": ["system:authenticated"]}, id="a user"),
        pytest.param(
            ImpersonatedUser(user="jane", uid="7", groups=("b", "a")),
            {"username": "jane", "uid": "7", "groups": ["b", "a", "system:authenticated"]},
            id="with groups and a uid",
        ),
        pytest.param(
            ImpersonatedUser(user="system:anonymous", groups=("system:masters",)),
            {"username": "system:anonymous", "groups": ["system:masters", "system:unauthenticated"]},
            id="the anonymous user",
        ),
        pytest.param(
            ImpersonatedUser(user="jane", groups=("system:masters", "system:unauthenticated")),
            {"username": "jane", "groups": ["system:masters", "system:unauthenticated"]},
            id="a user in the group of unauthenticated users",
        ),
        pytest.param(
            ImpersonatedUser(user="system:serviceaccount:a:b"),
            {
                "username": "system:serviceaccount:a:b",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"],
            },
            id="a service account",
        ),
        pytest.param(
            ImpersonatedUser(user="system:serviceaccount:a:b", groups=("c",)),
            {"username": "system:serviceaccount:a:b", "groups": ["c", "system:authenticated"]},
            id="a service account with other groups",
        ),
        pytest.param(
            ImpersonatedUser(user="jane", extra=(("acme.com/team", ("red", "blue")),)),
            {"username": "jane", "groups": ["system:authenticated"], "extra": {"acme.com/team": ["red", "blue"]}},
            id="a user with extra",
        ),
    ],
)
async def test_an_administrator_is_taken_for(server: ServerUnderTest, user: ImpersonatedUser, expected: dict[str, Any]) -> None:
    assert await me(server.config, user) == expected


async def test_groups_without_a_user_are_a_bad_request(client: Client) -> None:
    with pytest.raises(BadRequest, match=r'Groups:\[\]string\{"a"\}.* without impersonating a user name'):
        await client.transport.request("GET", "/api", headers={"Impersonate-Group": "a"})


async def test_an_impersonator_may_no_more_than_the_impersonated_user(client: Client) -> None:
    with pytest.raises(ApiError, match='User "jane" cannot list resource "secrets"'):
        await client.transport.request("GET", "/api/v1/secrets", headers={"Impersonate-User": "jane"})
