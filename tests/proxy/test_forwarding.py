"""What no rule concerns passes unchanged: bytes of bodies, statuses and headers, on connections that are used again."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kubeloop.types import JSONObject
from tests.proxy.conftest import HttpClient, StartProxy
from tests.proxy.rules.rule_texts import rule

pytestmark = pytest.mark.usefixtures("shop")

PODS = "/api/v1/namespaces/shop/pods"
ELSEWHERE = rule(match=[{"resources": ["secrets"]}], name="elsewhere")
#: It concerns every resource and touches no object.
IDLE = rule(match=[{"labelSelector": "no-object-has-this-label"}], name="idle", writes="Pass")
RULES = [
    pytest.param((), id="without rules"),
    pytest.param((ELSEWHERE,), id="with rules for others"),
    pytest.param((IDLE,), id="with idle rules"),
]

REQUESTS: list[tuple[str, str, Any, dict[str, str]]] = [
    ("GET", "/version", None, {}),
    ("GET", "/api", None, {}),
    ("GET", "/apis", None, {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"}),
    ("GET", "/openapi/v3", None, {}),
    ("GET", "/openapi/v3/apis/apps/v1", None, {"Accept": "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"}),
    ("GET", "/readyz?verbose", None, {}),
    ("GET", "/nothing/here", None, {}),
    ("GET", PODS, None, {}),
    ("GET", f"{PODS}?limit=1", None, {}),
    ("GET", f"{PODS}?limit=1&pretty=1", None, {}),
    ("GET", PODS, None, {"Accept": "application/vnd.kubernetes.protobuf"}),
    ("GET", PODS, None, {"Accept": "application/yaml"}),
    ("GET", PODS, None, {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}),
    ("GET", f"{PODS}?includeObject=None", None, {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}),
    ("GET", PODS, None, {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}),
    ("GET", f"{PODS}?labelSelector=tier%3Dback", None, {}),
    ("GET", f"{PODS}?labelSelector=%3D%3D", None, {}),
    ("GET", f"{PODS}?fieldSelector=nothing%3Dx", None, {}),
    ("GET", f"{PODS}?limit=x", None, {}),
    ("GET", f"{PODS}/front-0", None, {}),
    ("GET", f"{PODS}/front-0", None, {"User-Agent": "curl/8.0"}),
    ("GET", f"{PODS}/front-0", None, {"Accept": "application/vnd.kubernetes.protobuf"}),
    ("GET", f"{PODS}/front-0", None, {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}),
    ("GET", f"{PODS}/front-0", None, {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}),
    ("GET", f"{PODS}/front-0", None, {"Accept": "text/html"}),
    ("HEAD", f"{PODS}/front-0", None, {}),
    ("GET", f"{PODS}/missing", None, {}),
    ("GET", f"{PODS}/front-0/log", None, {}),
    ("PUT", f"{PODS}/front-0", b"rubbish", {}),
    ("POST", PODS, {"metadata": {"name": "Bad_Name"}}, {}),
    ("PATCH", f"{PODS}/front-0?dryRun=All", {"metadata": {"labels": {"a": "b"}}}, {"Content-Type": "application/merge-patch+json"}),
    ("DELETE", f"{PODS}/missing", None, {}),
    ("GET", "/apis/apps/v1/namespaces/shop/deployments/web/scale", None, {}),
]


async def answers(client: HttpClient, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    reply = await client(method, path, body, **headers)
    # Refusals of the form of a request are the proxy's own.
    varying = r"Date|Audit-Id|Content-Length|Transfer-Encoding" + (
        r"|X-Kubernetes-Pf-.*|Cache-Control" if reply.status in (405, 406) else ""
    )
    shown = {name: value for name, value in reply.headers.items() if not re.fullmatch(varying, name)}
    # A write is stamped with its second, and the other server's write may follow in the next one.
    return reply.status, shown, re.sub(rb'"time":"[^"]*"', b'"time":""', reply.body) if method == "PATCH" else reply.body


@pytest.mark.parametrize("rules", RULES)
async def test_answers_are_those_of_the_server_byte_for_byte(start_proxy: StartProxy, rules: tuple[JSONObject, ...]) -> None:
    async with start_proxy(*rules) as proxied:
        client, direct = await proxied.client(token="admin-token"), await proxied.direct()
        different = {}
        for request in REQUESTS:
            here, there = await answers(client, *request), await answers(direct, *request)
            if rules == (IDLE,) and "limit=1" in request[1]:
                assert here[2].count(b"remainingItemCount") < there[2].count(b"remainingItemCount") == 1
                continue
            if here != there:
                different[f"{request[0]} {request[1]} {request[3]}"] = (here, there)
        assert different == {}, "\n".join(f"{name}: {pair}" for name, pair in different.items())


@pytest.mark.parametrize("rules", RULES)
async def test_a_document_that_has_not_changed_is_304_and_the_connection_goes_on(
    start_proxy: StartProxy, rules: tuple[JSONObject, ...]
) -> None:
    async with start_proxy(*rules) as proxied:
        client = await proxied.client(token="admin-token")
        first = await client("GET", "/openapi/v2")
        for _ in range(3):
            again = await client("GET", "/openapi/v2", None, **{"If-None-Match": first.headers["Etag"]})
            assert (again.status, again.body, again.headers["Etag"]) == (304, b"", first.headers["Etag"])
            assert (await client("HEAD", "/version")).status == 405
            assert (await client("GET", "/version")).status == 200


async def test_large_bodies_pass_in_both_directions(start_proxy: StartProxy) -> None:
    async with start_proxy(IDLE) as proxied:
        client = await proxied.client(token="admin-token")
        maps = "/api/v1/namespaces/shop/configmaps"
        large = {"metadata": {"name": "large"}, "data": {"a": "x" * 1_000_000}}
        assert (await client("POST", maps, large)).status == 201
        assert (await client("GET", f"{maps}/large")).tree["data"] == large["data"]
        assert len((await client("GET", maps, None, Accept_Encoding="gzip")).tree["items"]) >= 1
        reply = await client("POST", maps, {"metadata": {"name": "larger"}, "data": {"a": "x" * 4_000_000}})
        assert (reply.status, reply.tree["kind"]) in ((413, "Status"), (422, "Status"))
