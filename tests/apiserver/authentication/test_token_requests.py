"""TokenRequests: the answers, the refusals, and how long a token holds."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from typing import Any

import pytest

from kubeloop.api.core.v1 import Container, Node, Pod, PodSpec, Secret, ServiceAccount
from kubeloop.client import Client
from kubeloop.meta import ApiError, BadRequest, Conflict, Invalid, NotFound, ObjectMeta, Unauthorized
from tests.apiserver.authentication.token_requests import issued, request_token, review, who
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

EXTRA = "authentication.kubernetes.io"
OTHERS = "https://elsewhere.example.com"


def claims(token: str) -> Any:
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def reference(obj: Pod | Secret | Node, kind: str) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": kind, "name": obj.metadata.name, "uid": obj.metadata.uid}


def pod(**spec: Any) -> Pod:
    return Pod(metadata=ObjectMeta(name="p"), spec=PodSpec(containers=[Container(name="c", image="i")], **spec))


async def test_a_token_says_whose_it_is_and_its_bearer_is_the_account(server: ServerUnderTest, client: Client) -> None:
    answer = await request_token(client, expirationSeconds=700)
    account = await client.get(ServiceAccount, "default")
    claimed = claims(answer["status"]["token"])
    assert (claimed["sub"], claimed["exp"] - claimed["iat"]) == (f"system:serviceaccount:{client.namespace}:default", 700)
    assert claimed["kubernetes.io"] == {"namespace": client.namespace, "serviceaccount": {"name": "default", "uid": account.metadata.uid}}
    assert answer["metadata"]["uid"] == account.metadata.uid
    me = await who(server.config, answer["status"]["token"])
    assert me == {
        "username": f"system:serviceaccount:{client.namespace}:default",
        "uid": account.metadata.uid,
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{client.namespace}", "system:authenticated"],
        "extra": {f"{EXTRA}/credential-id": [f"JTI={claimed['jti']}"]},
    }


async def test_a_token_for_others_is_none_for_the_server(server: ServerUnderTest, client: Client) -> None:
    token = await issued(client, audiences=[OTHERS, "https://third.example.com"])
    with pytest.raises(Unauthorized):
        await who(server.config, token)
    refused = (await review(client, token))["error"]
    assert refused.startswith(f'[invalid bearer token, token audiences ["{OTHERS}" "https://third.example.com"] is invalid for the target')
    accepted = await review(client, token, "nobody", OTHERS)
    assert (accepted["authenticated"], accepted["audiences"]) == (True, [OTHERS])
    with pytest.raises(Unauthorized):
        await who(server.config, token)  # that it was verified for others makes no difference


async def test_a_token_of_a_pod_tells_the_pod_and_its_node_and_ends_with_the_pod(server: ServerUnderTest, client: Client) -> None:
    node = await client.create(Node(metadata=ObjectMeta(name=f"node-{client.namespace}")))
    made = await client.create(pod(node_name=node.metadata.name, service_account_name="default"))
    token = await issued(client, boundObjectRef=reference(made, "Pod"))
    extra = (await who(server.config, token))["extra"]
    await client.delete(Node, node.metadata.name)
    assert extra == {
        f"{EXTRA}/credential-id": [f"JTI={claims(token)['jti']}"],
        f"{EXTRA}/node-name": [node.metadata.name],
        f"{EXTRA}/node-uid": [node.metadata.uid],
        f"{EXTRA}/pod-name": ["p"],
        f"{EXTRA}/pod-uid": [made.metadata.uid],
    }
    assert (await review(client, token))["authenticated"]
    claimed = claims(await issued(client, boundObjectRef=reference(made, "Pod")))["kubernetes.io"]
    assert claimed["node"] == {"name": node.metadata.name}
    await client.delete(Pod, "p", grace_period_seconds=0)
    await until_refused(client, token, "service account token has been invalidated")


async def until_refused(client: Client, token: str, why: str) -> None:
    """A real server hears of a deletion a moment later, and believes for ten seconds in a token that it has seen for the same audiences."""
    found: dict[str, Any] = {"authenticated": True}
    async with asyncio.timeout(30):
        while found.get("authenticated"):
            found = await review(client, token, claims(token)["aud"][0], str(uuid.uuid4()))
    assert found == {"user": {}, "error": f"[invalid bearer token, {why}]"}


@pytest.mark.parametrize("kind", [Secret, Node])
async def test_a_token_ends_with_what_it_is_bound_to(client: Client, kind: type[Secret | Node]) -> None:
    name = f"bound-{client.namespace}"
    made = await client.create(kind(metadata=ObjectMeta(name=name)))
    token = await issued(client, boundObjectRef=reference(made, kind.__name__))
    extra = (await review(client, token))["user"]["extra"]
    assert extra.get(f"{EXTRA}/node-name") == ([name] if kind is Node else None)
    await client.delete(kind, name)
    await until_refused(client, token, "service account token has been invalidated")


async def test_a_token_ends_with_its_account_whatever_comes_after_it(client: Client) -> None:
    await client.create(ServiceAccount(metadata=ObjectMeta(name="short")))
    token = (await request_token(client, "short"))["status"]["token"]
    first = claims(token)["kubernetes.io"]["serviceaccount"]["uid"]
    await client.delete(ServiceAccount, "short")
    await until_refused(client, token, 'serviceaccounts "short" not found')
    second = (await client.create(ServiceAccount(metadata=ObjectMeta(name="short")))).metadata.uid
    found = await review(client, token, claims(token)["aud"][0], "y")
    known = f"service account UID ({second}) does not match claim ({first})"
    unknown = 'serviceaccounts "short" not found'  # where a real server has not heard of the new one yet
    assert found["error"] in (f"[invalid bearer token, {known}]", f"[invalid bearer token, {unknown}]")


async def test_what_kubelets_ask_for_lasts_a_year(client: Client) -> None:
    made = await client.create(pod())
    answer = await request_token(client, expirationSeconds=3607, boundObjectRef=reference(made, "Pod"))
    claimed = claims(answer["status"]["token"])
    assert (answer["spec"]["expirationSeconds"], claimed["exp"] - claimed["iat"]) == (3607, 365 * 24 * 3600)
    assert claimed["kubernetes.io"]["warnafter"] - claimed["iat"] == 3607
    assert "warnafter" not in claims(await issued(client, expirationSeconds=3607))["kubernetes.io"]


@pytest.mark.parametrize(
    ("spec", "metadata", "error", "why"),
    [
        pytest.param(
            {"expirationSeconds": 599}, {}, Invalid, "may not specify a duration less than 10 minutes", id="less than ten minutes"
        ),
        pytest.param({"expirationSeconds": 2**32 + 1}, {}, Invalid, "duration larger than 2\\^32 seconds", id="more than 2^32 seconds"),
        pytest.param({}, {"name": "other"}, Invalid, "must match the service account name if specified", id="the name of another account"),
        pytest.param({}, {"namespace": "other"}, BadRequest, "namespace of the provided object does not match", id="another namespace"),
        pytest.param(
            {}, {"uid": "other"}, Conflict, "the UID in the token request \\(other\\) does not match", id="the uid of another account"
        ),
        pytest.param(
            {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "nosuch"}},
            {},
            NotFound,
            'pods "nosuch" not found',
            id="no such pod",
        ),
        pytest.param(
            {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "other"}},
            {},
            Conflict,
            'on Pod "p": the UID in the bound object reference \\(other\\) does not match the UID in record',
            id="the uid of another pod",
        ),
        pytest.param(
            {"boundObjectRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
            {},
            BadRequest,
            "cannot bind token to object of type apps/v1, Kind=Deployment",
            id="a kind that nothing is bound to",
        ),
        pytest.param(
            {"boundObjectRef": {"apiVersion": "v1", "kind": "Secret"}},
            {},
            BadRequest,
            "Name parameter required.",
            id="a secret without name",
        ),
        pytest.param(
            {"boundObjectRef": {"apiVersion": "a/b/c", "kind": "Pod", "name": "p%"}},
            {},
            BadRequest,
            "Name parameter invalid: \"p%\": may not contain '%'",
            id="a pod of a version that cannot be read, by a name that none has",
        ),
        pytest.param({"audiences": 5}, {}, BadRequest, "cannot unmarshal number into Go struct field", id="audiences that are no list"),
    ],
)
async def test_refused_is(client: Client, spec: dict[str, Any], metadata: dict[str, str], error: type[ApiError], why: str) -> None:
    await client.create(pod())
    path = f"/api/v1/namespaces/{client.namespace}/serviceaccounts/default/token"
    with pytest.raises(error, match=why):
        await client.transport.request("POST", path, body=json.dumps({"metadata": metadata, "spec": spec}).encode())


async def test_a_pod_of_another_account_is_not_bound_to(client: Client) -> None:
    await client.create(ServiceAccount(metadata=ObjectMeta(name="other")))
    made = await client.create(pod())
    with pytest.raises(BadRequest, match='cannot bind token for serviceaccount "other" to pod running with different serviceaccount name'):
        await request_token(client, "other", boundObjectRef=reference(made, "Pod"))


@pytest.mark.parametrize(
    ("token", "status"),
    [
        pytest.param(" x", "system:anonymous", id="a space first: the request has no token"),
        pytest.param("x y", None, id="a space within: up to there"),
    ],
)
async def test_a_reviewed_token_is_read_as_a_header_would_be(client: Client, token: str, status: str | None) -> None:
    found = await review(client, token)
    assert found["user"].get("username") == status
    assert found.get("error") == (None if status else "invalid bearer token")
