"""Secrets that hold a service account's token."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from kubeloop.api.core.v1 import Secret, ServiceAccount
from kubeloop.client import Client
from kubeloop.controlplane.accounts.service_accounts import TokenSecretController
from kubeloop.meta import ObjectMeta
from kubeloop.pki import SigningKey
from tests.controlplane.simulated import simulation
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server


def secret(account: str, **annotations: str) -> Secret:
    named = {"kubernetes.io/service-account.name": account, **annotations}
    return Secret(metadata=ObjectMeta(name="token", annotations=named), type="kubernetes.io/service-account-token")


def claims(token: bytes) -> dict[str, Any]:
    part = token.split(b".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    return found


async def test_a_secret_of_that_type_is_filled_and_goes_with_its_account(client: Client, bare_server: ServerUnderTest) -> None:
    account = await client.create(ServiceAccount(metadata=ObjectMeta(name="robot")))
    await client.create(secret("robot"))
    found = await client.wait_for(Secret, "token", lambda secret: "token" in secret.data, timeout=60)
    assert found.data["ca.crt"].decode() == bare_server.authority
    assert found.data["namespace"].decode() == client.namespace
    assert found.metadata.annotations["kubernetes.io/service-account.uid"] == account.metadata.uid
    said = claims(found.data["token"])
    assert said["sub"] == f"system:serviceaccount:{client.namespace}:robot"
    assert said["kubernetes.io/serviceaccount/secret.name"] == "token"
    assert "exp" not in said
    await client.delete(ServiceAccount, "robot")
    await client.wait_gone(Secret, "token", timeout=60)


async def test_removed_data_comes_back(client: Client) -> None:
    await client.create(ServiceAccount(metadata=ObjectMeta(name="robot")))
    await client.create(secret("robot"))
    await client.wait_for(Secret, "token", lambda secret: "token" in secret.data, timeout=60)
    await client.patch(Secret, "token", {"data": {"token": None, "ca.crt": ""}})
    await client.wait_for(Secret, "token", lambda secret: bool(secret.data.get("token") and secret.data.get("ca.crt")), timeout=60)


async def test_one_for_an_account_that_there_is_not_goes(client: Client) -> None:
    await client.create(secret("nobody"))
    await client.wait_gone(Secret, "token", timeout=60)


async def test_one_for_an_earlier_account_of_the_name_goes(client: Client) -> None:
    await client.create(ServiceAccount(metadata=ObjectMeta(name="robot")))
    await client.create(secret("robot", **{"kubernetes.io/service-account.uid": "another"}))
    await client.wait_gone(Secret, "token", timeout=60)


async def test_a_secret_of_a_new_account_stays_although_the_cache_shows_the_earlier_one() -> None:
    async with simulation(TokenSecretController("authority", SigningKey.create())) as cluster:
        await cluster.client.create(ServiceAccount(metadata=ObjectMeta(name="robot")))
        await cluster.pass_time(5)
        async with cluster.faults.hidden_changes(matching=lambda request: request.path.endswith("/serviceaccounts")):
            await cluster.client.delete(ServiceAccount, "robot")
            account = await cluster.client.create(ServiceAccount(metadata=ObjectMeta(name="robot")))
            await cluster.client.create(secret("robot", **{"kubernetes.io/service-account.uid": str(account.metadata.uid)}))
            await cluster.pass_time(5)
        found = await cluster.client.get(Secret, "token")
        assert claims(found.data["token"])["kubernetes.io/serviceaccount/service-account.uid"] == account.metadata.uid


async def test_a_deleted_one_is_no_longer_among_the_secrets_of_its_account(client: Client) -> None:
    await client.create(ServiceAccount(metadata=ObjectMeta(name="robot")))
    await client.create(secret("robot"))
    await client.wait_for(Secret, "token", lambda secret: "token" in secret.data, timeout=60)
    await client.patch(ServiceAccount, "robot", {"secrets": [{"name": "token"}, {"name": "other"}]})
    await client.delete(Secret, "token")
    await client.wait_for(ServiceAccount, "robot", lambda account: [one.name for one in account.secrets] == ["other"], timeout=60)
