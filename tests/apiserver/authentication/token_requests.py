"""Requests for and with tokens, to the embedded server and to a real one."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from kubeloop.client import Client
from kubeloop.config import ClusterConfig, Credentials
from kubeloop.transport import Transport

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
MYSELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


async def post(client: Client, path: str, body: dict[str, Any]) -> Any:
    answer = await client.transport.request("POST", path, body=json.dumps(body).encode())
    return json.loads(answer.body)


async def who(config: ClusterConfig, token: str) -> dict[str, Any]:
    """Return the user that the server takes the bearer of a token for.

    Raises:
        Unauthorized
    """
    async with Transport(replace(config, credentials=Credentials(token=token))) as transport:
        answer = await transport.request("POST", MYSELF, body=b"{}")
    found: dict[str, Any] = json.loads(answer.body)["status"]["userInfo"]
    return found


async def review(client: Client, token: str, *audiences: str) -> dict[str, Any]:
    """The status of a TokenReview."""
    spec: dict[str, Any] = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
    found: dict[str, Any] = (await post(client, REVIEWS, {"spec": spec}))["status"]
    return found


async def request_token(client: Client, account: str = "default", **spec: Any) -> dict[str, Any]:
    """A TokenRequest as answered."""
    path = f"/api/v1/namespaces/{client.namespace}/serviceaccounts/{account}/token"
    found: dict[str, Any] = await post(client, path, {"spec": spec})
    return found


async def issued(client: Client, **spec: Any) -> str:
    token: str = (await request_token(client, **spec))["status"]["token"]
    return token
