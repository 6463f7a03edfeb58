"""Wrong input of users, and the messages that they get from kubectl, from the client, and from the server over plain HTTP.

Each message names the cause, and nothing changes. Both servers answer alike. Other wrong input: of the command (tests/cli),
of kubeconfigs (tests/config), of certificates and sockets (tests/transport/test_trust.py), and of requests
(tests/apiserver/handlers/test_bad_requests.py).
"""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client
from kubeloop.config import ClusterConfig, Credentials, Pem
from kubeloop.meta import (
    ConfigError,
    ConnectionRefused,
    Forbidden,
    Invalid,
    KubeloopError,
    ObjectMeta,
    RequestEntityTooLarge,
    Unauthorized,
    UnknownKind,
    Unstructured,
    UntrustedCertificate,
)
from kubeloop.pki import CertificateAuthority
from kubeloop.transport import Transport
from tests.kubectl.runner import Kubectl
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

TOO_LARGE = json.dumps({"metadata": {"name": "big"}, "data": {"k": "x" * 3_200_000}})
NO_JSON = "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: "
NOT_FOUND = "the server could not find the requested resource"
NOT_ALLOWED = "the server does not allow this method on the requested resource"


def refusal(code: int, reason: str, message: str, **more: Any) -> dict[str, Any]:
    start = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**start, "message": message, "reason": reason, **more, "code": code}


def send(config: ClusterConfig, method: str, path: str, body: str | None, credentials: str | None) -> tuple[int, str]:
    """Without kubeloop's client. ``credentials``: an Authorization header, "" for none, None for an administrator's."""
    user = config.credentials
    context = msgspec.structs.replace(config, credentials=Credentials()).ssl_context()
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if credentials is None and user.client_certificate is not None and user.client_key is not None:
        context = config.ssl_context()
    if header := (f"Bearer {user.token}" if user.token else "") if credentials is None else credentials:
        headers["Authorization"] = header
    address = urlsplit(config.server)
    connection = http.client.HTTPSConnection(address.hostname or "", address.port, context=context, timeout=20)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "body", "credentials", "expected"),
    [
        pytest.param(
            "POST",
            "configmaps",
            "{bad json",
            None,
            refusal(400, "BadRequest", f"{NO_JSON}invalid character 'b' looking for beginning of object key string ({{bad json)"),
            id="a body that is not JSON",
        ),
        pytest.param(
            "POST",
            "configmaps",
            "a: b",
            None,
            refusal(400, "BadRequest", f"{NO_JSON}invalid character 'a' looking for beginning of value (613a2062)"),
            id="YAML that says it is JSON",
        ),
        pytest.param(
            "POST",
            "configmaps",
            TOO_LARGE,
            None,
            refusal(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728"),
            id="a body over 3 MiB",
        ),
        pytest.param("GET", "nosuch", None, None, refusal(404, "NotFound", NOT_FOUND, details={}), id="an unknown resource"),
        pytest.param(
            "GET", "/apis/apps/v9/deployments", None, None, refusal(404, "NotFound", NOT_FOUND, details={}), id="an unknown version"
        ),
        pytest.param("GET", "/nosuch", None, None, "404 page not found\n", id="an unknown path"),
        pytest.param(
            "PUT", "configmaps", "{}", None, refusal(405, "MethodNotAllowed", NOT_ALLOWED, details={}), id="a method out of place"
        ),
        pytest.param("FROB", "configmaps", None, None, refusal(405, "MethodNotAllowed", NOT_ALLOWED, details={}), id="an unknown method"),
        pytest.param("POST", "configmaps", "{}", "Bearer wrong", refusal(401, "Unauthorized", "Unauthorized"), id="an unknown token"),
        pytest.param(
            "POST",
            "configmaps",
            "{}",
            "",
            refusal(
                403,
                "Forbidden",
                'configmaps is forbidden: User "system:anonymous" cannot create resource "configmaps" in API group "" '
                'in the namespace "NS"',
                details={"kind": "configmaps"},
            ),
            id="no credentials",
        ),
    ],
)
async def test_over_http(
    server: ServerUnderTest,
    client: Client,
    namespace: str,
    method: str,
    path: str,
    body: str | None,
    credentials: str | None,
    expected: dict[str, Any] | str,
) -> None:
    whole = path if path.startswith("/") else f"/api/v1/namespaces/{namespace}/{path}"
    status, text = send(server.config, method, whole, body, credentials)
    if isinstance(expected, str):
        assert (status, text) == (404, expected)
    else:
        assert json.loads(text.replace(namespace, "NS")) == expected
        assert status == expected["code"]
    await nothing_was_written(client)


async def nothing_was_written(client: Client) -> None:
    # A namespace gets this one from a controller, where controllers run.
    found = [one.metadata.name async for one in client.list(ConfigMap, namespace=client.namespace)]
    assert [name for name in found if name != "kube-root-ca.crt"] == []


SPEC = "{replicas: 1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}"
BAD = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: "


@pytest.mark.parametrize(
    ("arguments", "manifest", "message"),
    [
        pytest.param(["get", "nosuch"], "", 'error: the server doesn\'t have a resource type "nosuch"\n', id="an unknown resource"),
        pytest.param(["get", "pod", "a"], "", 'Error from server (NotFound): pods "a" not found\n', id="an object that is not there"),
        pytest.param(
            ["apply", "-f", "-"],
            "apiVersion: example.com/v1\nkind: Nosuch\nmetadata: {name: a}",
            'no matches for kind "Nosuch" in version "example.com/v1"\nensure CRDs are installed first\n',
            id="an unknown kind",
        ),
        pytest.param(
            ["apply", "-f", "-"],
            f"{BAD}{SPEC.replace('replicas: 1', 'replicsa: 1')}",
            'unknown field "spec.replicsa"',
            id="a misspelt field",
        ),
        pytest.param(
            ["create", "-f", "-", "--validate=false"],
            f"{BAD}{SPEC.replace('replicas: 1', 'replicas: many')}",
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32\n",
            id="a field of another type",
        ),
        pytest.param(
            ["apply", "-f", "-"],
            f"{BAD}{SPEC.replace('{a: b}}, template', '{a: c}}, template')}",
            'The Deployment "web" is invalid: spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template '
            "`labels`\n",
            id="a selector that selects something else",
        ),
        pytest.param(
            ["apply", "-f", "-"],
            BAD.replace("web", "Web_1") + SPEC,
            'The Deployment "Web_1" is invalid: metadata.name: Invalid value: "Web_1": a lowercase RFC 1123 subdomain must consist of',
            id="a name that cannot be one",
        ),
        pytest.param(
            ["apply", "-f", "-"], "kind: Deployment\nmetadata: {name: web}", "apiVersion not set", id="a manifest without apiVersion"
        ),
        pytest.param(
            ["create", "-n", "nosuch", "configmap", "a"],
            "",
            'error: failed to create configmap: namespaces "nosuch" not found\n',
            id="a namespace that is not there",
        ),
    ],
)
async def test_kubectl_says(
    server: ServerUnderTest, client: Client, namespace: str, tmp_path: Path, arguments: list[str], manifest: str, message: str
) -> None:
    kubectl = Kubectl(server.kubeconfig, tmp_path, namespace)
    assert message in kubectl.refused(*arguments, stdin=manifest)
    assert await client.list(Deployment, namespace=namespace) == []
    await nothing_was_written(client)


OTHER = CertificateAuthority.create("another cluster")


def untrusting(config: ClusterConfig) -> ClusterConfig:
    return msgspec.structs.replace(config, ca=Pem(data=OTHER.certificate, field="certificate-authority-data"))


def without_credentials(config: ClusterConfig) -> ClusterConfig:
    return msgspec.structs.replace(config, credentials=Credentials())


def outdated(config: ClusterConfig) -> ClusterConfig:
    return msgspec.structs.replace(config, credentials=Credentials(token="expired-or-unknown", owner='user "jane"'))


def elsewhere(config: ClusterConfig) -> ClusterConfig:
    return msgspec.structs.replace(config, server="https://127.0.0.1:1")


@pytest.mark.parametrize(
    ("altered", "error", "message"),
    [
        pytest.param(
            untrusting,
            UntrustedCertificate,
            ["x509: certificate signed by unknown authority", "trusted: certificate-authority-data", "give the authority that signed it"],
            id="the authority of another cluster",
        ),
        pytest.param(without_credentials, Forbidden, ['User "system:anonymous" cannot list resource "configmaps"'], id="no credentials"),
        pytest.param(outdated, Unauthorized, ['user "jane"', "they are unknown or expired: renew them"], id="an expired token"),
        pytest.param(elsewhere, ConnectionRefused, ["nothing listens there; is the server running"], id="no server at that address"),
    ],
)
async def test_the_client_says_of_a_configuration(
    server: ServerUnderTest, altered: Callable[[ClusterConfig], ClusterConfig], error: type[KubeloopError], message: list[str]
) -> None:
    config = altered(server.config)
    async with Client(Transport(config)) as client:
        with pytest.raises(error) as raised:
            await client.list(ConfigMap, namespace="default")
    assert [part for part in message if part not in str(raised.value)] == []
    assert "expired-or-unknown" not in str(raised.value)  # no secret in a message


def test_the_client_says_of_a_broken_kubeconfig(tmp_path: Path) -> None:
    broken = tmp_path / "config"
    broken.write_text("clusters: [\n")
    with pytest.raises(ConfigError, match=rf"{broken}:2:1: not valid YAML: .*; correct that line"):
        Client.from_config(broken)


NAMELESS = Deployment(metadata=ObjectMeta(name="web"))
LARGE = ConfigMap(metadata=ObjectMeta(name="big"), data={"k": "x" * 3_200_000})


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        pytest.param(
            lambda client: client.get(Unstructured.for_kind("example.com/v1", "Nosuch"), "a"),
            UnknownKind,
            ['serves no kind "Nosuch" in example.com/v1; install the CustomResourceDefinition'],
            id="an unknown kind",
        ),
        pytest.param(
            lambda client: client.create(NAMELESS),
            Invalid,
            ['Deployment.apps "web" is invalid', "spec.template.spec.containers: Required value", "(create deployments.apps in namespace"],
            id="an invalid object",
        ),
        pytest.param(
            lambda client: client.create(LARGE),
            RequestEntityTooLarge,
            ["Request entity too large: limit is 3145728"],
            id="an object over 3 MiB",
        ),
    ],
)
async def test_the_client_says_of_a_request(
    client: Client, act: Callable[[Client], Awaitable[object]], error: type[KubeloopError], message: list[str]
) -> None:
    with pytest.raises(error) as raised:
        await act(client)
    assert [part for part in message if part not in str(raised.value)] == []
    await nothing_was_written(client)


@pytest.mark.parametrize(
    ("authority", "message"),
    [
        pytest.param(
            OTHER.certificate, "tls: failed to verify certificate: x509: certificate signed by unknown authority", id="another authority"
        ),
        pytest.param(
            None,
            "error: You must be logged in to the server (the server has asked for the client to provide credentials)\n",
            id="a token that is unknown or expired",
        ),
    ],
)
def test_kubectl_says_of_a_configuration(server: ServerUnderTest, tmp_path: Path, authority: bytes | None, message: str) -> None:
    config = server.config
    assert config.ca is not None
    trusted = base64.b64encode(authority or config.ca.read()).decode()
    document = {
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": config.server, "certificate-authority-data": trusted}}],
        "users": [{"name": "x", "user": {"token": "wrong"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(document))
    assert message in Kubectl(path, tmp_path).refused("get", "pods")
