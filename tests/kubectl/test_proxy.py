"""kubectl proxy: the server without TLS and credentials, on a port of this machine, with the identity of kubectl's user."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from tests.kubectl.runner import Kubectl

pytestmark = pytest.mark.server

Start = Callable[..., subprocess.Popen[str]]


def proxied(start: Start, *args: str) -> str:
    process = start("proxy", "--port=0", *args)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"127\.0\.0\.1:\d+", line)
    assert found, line
    return f"http://{found[0]}"


def ask(url: str, *, method: str = "GET", body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"} if data else {}, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.loads(refused.read() or "null") if refused.headers.get_content_type() == "application/json" else None


def test_the_proxy_carries_reads_writes_and_refusals(kubectl: Kubectl, start_kubectl: Start) -> None:
    maps = f"{proxied(start_kubectl)}/api/v1/namespaces/{kubectl.namespace}/configmaps"
    status, created = ask(maps, method="POST", body={"metadata": {"name": "book"}, "data": {"title": "Emma"}})
    assert (status, created["data"]) == (201, {"title": "Emma"})
    assert ask(f"{maps}/book")[1]["metadata"]["uid"] == created["metadata"]["uid"]
    status, refused = ask(maps, method="POST", body={"metadata": {"name": "Bad_Name"}})
    assert (status, refused["reason"]) == (422, "Invalid")


def test_the_proxy_refuses_the_configured_paths(kubectl: Kubectl, start_kubectl: Start) -> None:
    at = proxied(start_kubectl, "--reject-paths=^/api/.*/secrets")
    assert ask(f"{at}/api/v1/namespaces/{kubectl.namespace}/configmaps")[0] == 200
    assert ask(f"{at}/api/v1/namespaces/{kubectl.namespace}/secrets")[0] == 403


def test_behind_the_proxy_a_user_without_the_right_is_refused_by_the_server(kubectl: Kubectl, start_kubectl: Start) -> None:
    at = proxied(start_kubectl, "--as", "rita")
    status, refused = ask(f"{at}/api/v1/namespaces/{kubectl.namespace}/configmaps")
    assert status == 403
    assert refused["message"] == (
        f'configmaps is forbidden: User "rita" cannot list resource "configmaps" in API group "" in the namespace "{kubectl.namespace}"'
    )
