"""Responses without a table form: a client that accepts only tables gets an error."""

from __future__ import annotations

import json

import pytest

from kubeloop.meta import ApiError
from kubeloop.transport import Transport
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/apis/certificates.k8s.io/v1/certificatesigningrequests/none/approval"),
        ("GET", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/none/status"),
        ("GET", "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps/status"),
        ("PUT", "/api/v1/namespaces/default/finalize"),
        ("POST", "/api/v1/namespaces/default/pods/none/eviction"),
        ("POST", "/api/v1/namespaces/default/pods/none/binding"),
        ("POST", "/api/v1/namespaces/default/bindings"),
        ("POST", f"{AUTHORIZATION}/selfsubjectaccessreviews"),
        ("POST", f"{AUTHORIZATION}/subjectaccessreviews"),
        ("POST", f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews"),
        ("POST", f"{AUTHORIZATION}/selfsubjectrulesreviews"),
        ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews"),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews"),
    ],
)
async def test_it_is_not_acceptable(server: ServerUnderTest, method: str, path: str) -> None:
    async with Transport(server.config) as transport:
        with pytest.raises(ApiError) as caught:
            await transport.request(method, path, headers={"Accept": TABLE}, body=b"" if method == "GET" else b"{}")
    assert caught.value.status.code == 406
    accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    assert caught.value.status.message == f"only the following media types are accepted: {accepted}"


async def test_the_next_type_is_tried(server: ServerUnderTest) -> None:
    async with Transport(server.config) as transport:
        path = "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps/status"
        answer = await transport.request("GET", path, headers={"Accept": f"{TABLE},application/json"})
    assert json.loads(answer.body)["kind"] == "APIService"
