"""Configurations in use: the server under test says who we are to it."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kubeloop.api.core.v1 import ServiceAccount
from kubeloop.client import Client
from kubeloop.codec import write_yaml
from kubeloop.config import ClusterConfig, Kubeconfig, Overrides, in_cluster_config, load_config
from kubeloop.config.authenticator import TOKEN_FILE_PERIOD
from kubeloop.meta import ObjectMeta, Unauthorized
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport
from tests.config.documents import V1, script, write
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

REVIEW = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()


async def ask(transport: Transport) -> dict[str, Any]:
    """The user name by which the server knows the client."""
    answer = await transport.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=REVIEW)
    found: dict[str, Any] = json.loads(answer.body)["status"]["userInfo"]
    return found


async def who(config: ClusterConfig) -> dict[str, Any]:
    async with Transport(config) as transport:
        return await ask(transport)


async def test_a_minified_and_flattened_kubeconfig_works_in_another_folder(server: ServerUnderTest, tmp_path: Path) -> None:
    tree = Kubeconfig.read(server.kubeconfig).view(minify=True, flatten=True, raw=True)
    taken = load_config(write(tmp_path / "elsewhere" / "config", write_yaml(tree)))
    assert (await who(taken))["username"] == (await who(server.config))["username"]


async def test_the_three_certificates_of_a_kubeconfig_are_pem_files_that_others_can_use(server: ServerUnderTest, tmp_path: Path) -> None:
    config = server.config
    user = config.credentials
    assert config.ca is not None
    assert user.client_certificate is not None
    assert user.client_key is not None
    for name, pem in (("ca.crt", config.ca), ("tls.crt", user.client_certificate), ("tls.key", user.client_key)):
        (tmp_path / name).write_bytes(pem.read())
    context = ssl.create_default_context(cafile=tmp_path / "ca.crt")
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    address = urlsplit(config.server)

    def get() -> int:
        connection = http.client.HTTPSConnection(address.hostname or "", address.port, context=context, timeout=30)
        try:
            connection.request("GET", "/api/v1/namespaces/default")
            return connection.getresponse().status
        finally:
            connection.close()

    assert await asyncio.to_thread(get) == 200


async def test_verification_that_is_skipped_by_an_override_drops_the_authority(server: ServerUnderTest) -> None:
    config = load_config(server.kubeconfig, overrides=Overrides(insecure_skip_tls_verify=True))
    assert config.ca is None
    assert (await who(config))["username"] == (await who(server.config))["username"]


async def test_impersonation_arrives_whole_and_escaped_keys_come_back_L160(server: ServerUnderTest) -> None:
    extra = {"acme.com/it's 100%": ("x", "y")}
    given = Overrides(impersonate="ann", impersonate_uid="7", impersonate_groups=("dev", "system:masters"), impersonate_extra=extra)
    found = await who(load_config(server.kubeconfig, overrides=given))
    assert (found["username"], found["uid"]) == ("ann", "7")
    assert {"dev", "system:masters"} <= set(found["groups"])
    assert found["extra"]["acme.com/it's 100%"] == ["x", "y"]


async def _token(client: Client, namespace: str, account: str) -> str:
    body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}).encode()
    answer = await client.transport.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", body=body)
    token: str = json.loads(answer.body)["status"]["token"]
    return token


async def test_in_a_pod_the_rotated_token_of_the_service_account_is_read_again(
    server: ServerUnderTest, client: Client, namespace: str, tmp_path: Path
) -> None:
    await client.create(ServiceAccount(metadata=ObjectMeta(name="other", namespace=namespace)))
    address = urlsplit(server.config.server)
    environ = {"KUBERNETES_SERVICE_HOST": address.hostname or "", "KUBERNETES_SERVICE_PORT": str(address.port)}
    assert server.config.ca is not None
    (tmp_path / "ca.crt").write_bytes(server.config.ca.read())
    (tmp_path / "namespace").write_text(namespace)
    (tmp_path / "token").write_text(await _token(client, namespace, "default"))
    config, clock = in_cluster_config(environ, tmp_path), FakeClock()
    assert config.namespace == namespace
    async with Transport(config, clock=clock) as transport:
        assert (await ask(transport))["username"] == f"system:serviceaccount:{namespace}:default"
        (tmp_path / "token").write_text(await _token(client, namespace, "other"))
        assert (await ask(transport))["username"] == f"system:serviceaccount:{namespace}:default"
        await clock.advance(TOKEN_FILE_PERIOD)
        assert (await ask(transport))["username"] == f"system:serviceaccount:{namespace}:other"


async def test_a_plugin_whose_token_the_server_refuses_is_asked_once_more(
    server: ServerUnderTest, client: Client, namespace: str, tmp_path: Path
) -> None:
    answer = '{"apiVersion": "' + V1 + '", "kind": "ExecCredential", "status": {"token": "%s"}}'
    (tmp_path / "token").write_text("refused")
    script(tmp_path / "login", f"printf '{answer}' \"$(cat {tmp_path}/token)\"")
    file = write(tmp_path / "config", write_yaml(Kubeconfig.read(server.kubeconfig).view(minify=True, flatten=True, raw=True)))
    tree = Kubeconfig.read(file).view(raw=True)
    tree["users"][0]["user"] = {"exec": {"command": "./login", "apiVersion": V1, "interactiveMode": "Never"}}
    async with Transport(load_config(write(file, write_yaml(tree)))) as transport:
        with pytest.raises(Unauthorized):
            await ask(transport)
        (tmp_path / "token").write_text(await _token(client, namespace, "default"))
        assert (await ask(transport))["username"] == f"system:serviceaccount:{namespace}:default"
