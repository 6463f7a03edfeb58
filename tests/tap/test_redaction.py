"""Secrets that must not reach a recording or a terminal."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from multidict import CIMultiDict

from kubeloop.codec.protobuf import decode
from kubeloop.endpoints.request_info import RequestInfo, request_info
from kubeloop.serving.request import Request
from kubeloop.tap.redaction import redacted_body, redacted_command, redacted_headers, redacted_text, redacted_tree

SECRET = "aGlkZGVu"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJqYW5lIn0.c2lnbmF0dXJl"
KEY = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIB\n-----END EC PRIVATE KEY-----"


def info(target: str = "/api/v1/namespaces/a/secrets/x", method: str = "GET") -> RequestInfo:
    path, _, query = target.partition("?")

    async def no_body(_: int) -> bytes:
        return b""

    return request_info(Request(method, path, query, CIMultiDict(), no_body))


def secret(**more: Any) -> dict[str, Any]:
    applied = json.dumps({"data": {"a": SECRET}})
    metadata = {"name": "x", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": applied}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"a": SECRET}, "stringData": {"b": SECRET}, **more}


@pytest.mark.parametrize(
    ("tree", "target"),
    [
        pytest.param(secret(), "/api/v1/namespaces/a/secrets/x", id="a Secret"),
        pytest.param(secret(), "/api/v1/namespaces/a/pods/x", id="a Secret where none is expected"),
        pytest.param(
            {"kind": "SecretList", "items": [{**secret(), "kind": None}]}, "/api/v1/secrets", id="items of a list, which have no kind"
        ),
        pytest.param({"kind": "List", "items": [secret()]}, "/api/v1/pods", id="a Secret in a list of several kinds"),
        pytest.param({"type": "ADDED", "object": secret()}, "/api/v1/secrets?watch=1", id="a watch event"),
        pytest.param({"kind": "Table", "rows": [{"cells": ["x"], "object": secret()}]}, "/api/v1/secrets", id="a row of a Table"),
        pytest.param(
            {"kind": "Table", "rows": [{"cells": ["x"], "object": {**secret(), "kind": "PartialObjectMetadata"}}]},
            "/api/v1/secrets",
            id="the metadata of a Secret",
        ),
        pytest.param({"data": {"a": SECRET}}, "/api/v1/namespaces/a/secrets/x", id="a merge patch of a Secret"),
        pytest.param([{"op": "add", "path": "/data/a", "value": SECRET}], "/api/v1/namespaces/a/secrets/x", id="a JSON patch of a Secret"),
        pytest.param(
            {"kind": "TokenRequest", "status": {"token": SECRET}}, "/api/v1/namespaces/a/serviceaccounts/b/token", id="an issued token"
        ),
        pytest.param(
            {"kind": "TokenReview", "spec": {"token": SECRET}}, "/apis/authentication.k8s.io/v1/tokenreviews", id="a reviewed token"
        ),
        pytest.param(
            {"kind": "ConfigMap", "data": {"kubeconfig": f"client-key-data: {SECRET}"}},
            "/api/v1/configmaps",
            id="a kubeconfig in a ConfigMap",
        ),
        pytest.param(
            {"kind": "ConfigMap", "data": {"kubeconfig": f'{{"token": "{SECRET}"}}'}},
            "/api/v1/configmaps",
            id="a token in a JSON kubeconfig",
        ),
    ],
)
def test_no_secret_is_left(tree: Any, target: str) -> None:
    before = json.dumps(tree)
    shown = redacted_tree(tree, info(target))
    assert SECRET in before
    assert SECRET not in msgspec.json.encode(shown).decode()
    assert json.dumps(tree) == before


@pytest.mark.parametrize(
    "tree",
    [
        pytest.param({"kind": "ConfigMap", "data": {"a": "b"}}, id="a ConfigMap keeps its data"),
        pytest.param({"kind": "Pod", "spec": {"containers": [{"name": "token-reader"}]}}, id="a Pod stays"),
        pytest.param([{"op": "replace", "path": "/spec/replicas", "value": 3}], id="a JSON patch stays"),
        pytest.param({"kind": "Status", "message": "the token: expired"}, id="a message stays"),
    ],
)
def test_other_objects_stay(tree: Any) -> None:
    assert redacted_tree(tree, info("/api/v1/configmaps")) == tree


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("Authorization", "Bearer abc", "Bearer ***"),
        ("authorization", "abc", "***"),
        ("Proxy-Authorization", "Basic eDp5", "Basic ***"),
        ("Cookie", "a=b", "***"),
        ("Set-Cookie", "a=b; Secure", "***"),
        (
            "Sec-WebSocket-Protocol",
            "base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io",
            "base64url.bearer.authorization.k8s.io.***, v5.channel.k8s.io",
        ),
        ("Accept", "application/json", "application/json"),
        ("Impersonate-User", "jane", "jane"),
    ],
)
def test_headers(name: str, value: str, expected: str) -> None:
    assert redacted_headers([(name, value)]) == [(name, expected)]


@pytest.mark.parametrize("text", [TOKEN, f"a {TOKEN} b", KEY, KEY[:45], f"password: {SECRET}", f'"client-key-data":"{SECRET}"'])
def test_texts(text: str) -> None:
    shown = redacted_text(text)
    assert "***" in shown
    for hidden in (TOKEN, "MHcCAQ", SECRET):
        assert hidden not in shown


def test_a_command_line() -> None:
    command = ["kubectl", "--token=abc", "--token", "def", "-n", "a", "--password=x", f"--header={TOKEN}"]
    assert redacted_command(command) == ["kubectl", "--token=***", "--token", "***", "-n", "a", "--password=***", "--header=***"]


def test_a_secret_in_protobuf_stays_protobuf() -> None:
    body = redacted_body({**secret(stringData=None), "data": {"a": SECRET}}, info(), protobuf=True)
    assert body is not None
    assert decode(body)["data"] == {"a": "Kioq"}
