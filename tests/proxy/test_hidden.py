"""Hidden objects are missing ones: every answer is that for a name that does not exist, byte for byte."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kubeloop.endpoints.access import User
from tests.proxy.conftest import DORA, MERGE, HttpClient, HttpReply, StartProxy
from tests.proxy.rules.rule_texts import rule
from tests.proxy.samples import METADATA, PROTOBUF, TABLE

pytestmark = pytest.mark.usefixtures("shop")

HIDE_BACK = rule(match=[{"labelSelector": "tier=back"}], name="hide-back")
POD, DEPLOYMENT = "/api/v1/namespaces/shop/pods/{}", "/apis/apps/v1/namespaces/shop/deployments/{}"
BODY = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "NAME"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "NAME", "namespace": "shop"}, "spec": {"replicas": 2}}
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "NAME", "namespace": "shop"}}
BINDING = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "NAME"}, "target": {"kind": "Node", "name": "n"}}

REQUESTS = [
    pytest.param("GET", POD, None, {}, id="get"),
    pytest.param("HEAD", POD, None, {}, id="head"),
    pytest.param("GET", POD, None, {"Accept": PROTOBUF}, id="get as protobuf"),
    pytest.param("GET", POD, None, {"Accept": f"{TABLE},application/json"}, id="get as Table"),
    pytest.param("GET", POD, None, {"Accept": METADATA}, id="get of metadata"),
    pytest.param("GET", POD, None, {"Accept": "application/yaml"}, id="get as YAML"),
    pytest.param("GET", POD, None, {"User_Agent": "curl/8"}, id="get by curl, indented"),
    pytest.param("GET", POD + "?pretty=true", None, {}, id="get, indented"),
    pytest.param("PUT", POD, BODY, {}, id="update"),
    pytest.param("PUT", POD, b"rubbish", {}, id="update with rubbish"),
    pytest.param("PUT", POD, BODY | {"metadata": {"name": "other"}}, {}, id="update with another name"),
    pytest.param("PATCH", POD, {"metadata": {"labels": {"a": "b"}}}, {"Content_Type": MERGE}, id="merge patch"),
    pytest.param(
        "PATCH",
        POD,
        {"metadata": {"labels": {"a": "b"}}},
        {"Content_Type": "application/strategic-merge-patch+json"},
        id="strategic merge patch",
    ),
    pytest.param(
        "PATCH",
        POD,
        [{"op": "test", "path": "/metadata/labels/tier", "value": "back"}],
        {"Content_Type": "application/json-patch+json"},
        id="JSON patch",
    ),
    pytest.param("PATCH", POD, b"rubbish", {"Content_Type": MERGE}, id="rubbish as a patch"),
    pytest.param("PATCH", POD, {}, {"Content_Type": "text/plain"}, id="a patch of an unknown type"),
    pytest.param("DELETE", POD, None, {}, id="delete"),
    pytest.param(
        "DELETE", POD, {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "x"}}, {}, id="delete with a precondition"
    ),
    pytest.param("DELETE", POD + "?dryRun=All", None, {}, id="delete as a dry run"),
    pytest.param("GET", POD + "/log", None, {}, id="log"),
    pytest.param("GET", POD + "/log?follow=true", None, {}, id="followed log"),
    pytest.param("POST", POD + "/exec?command=true&stdout=true", None, {}, id="exec"),
    pytest.param("GET", POD + "/exec?command=true&stdout=true", None, {}, id="exec by GET"),
    pytest.param("POST", POD + "/portforward", None, {}, id="port-forward"),
    pytest.param("GET", POD + "/proxy/", None, {}, id="proxy"),
    pytest.param("GET", POD + "/status", None, {}, id="status"),
    pytest.param("PATCH", POD + "/status", {"status": {"phase": "Failed"}}, {"Content_Type": MERGE}, id="patch of the status"),
    pytest.param("POST", POD + "/eviction", EVICTION, {}, id="eviction"),
    pytest.param("POST", POD + "/binding", BINDING, {}, id="binding"),
    pytest.param("GET", POD + "/ephemeralcontainers", None, {}, id="ephemeral containers"),
    pytest.param("GET", POD + "/unknown", None, {}, id="an unknown subresource"),
    pytest.param("GET", DEPLOYMENT, None, {}, id="get of a named group"),
    pytest.param("GET", DEPLOYMENT + "/scale", None, {}, id="scale"),
    pytest.param("PUT", DEPLOYMENT + "/scale", SCALE, {}, id="update of the scale"),
    pytest.param("PATCH", DEPLOYMENT + "/scale", {"spec": {"replicas": 2}}, {"Content_Type": MERGE}, id="patch of the scale"),
]
#: Values that differ from one response to the next.
_VARYING = re.compile(rb"Date|Audit-Id", re.IGNORECASE)


async def answer(
    client: HttpClient, method: str, path: str, body: Any, headers: dict[str, str], name: str
) -> tuple[int, dict[str, str], bytes]:
    sent = body if isinstance(body, bytes | None) else json.dumps(body).replace("NAME", name).encode()
    reply: HttpReply = await client(method, path.format(name), sent, **headers)
    shown = {key: value for key, value in reply.headers.items() if not _VARYING.fullmatch(key.encode())}
    return reply.status, shown, reply.body.replace(name.encode(), b"NAME")


async def differences(client: HttpClient) -> dict[str, object]:
    """Return the requests whose answer tells a hidden name from a missing one, with both answers."""
    found: dict[str, object] = {}
    for request in REQUESTS:
        method, path, body, headers = request.values
        hidden, missing = ("back-0", "none-0") if "/pods/" in str(path) else ("db", "xx")
        first, second = [await answer(client, str(method), str(path), body, headers, name) for name in (hidden, missing)]  # type: ignore[arg-type]
        if first != second:
            found[str(request.id)] = (first, second)
    return found


async def test_the_answer_is_that_of_a_missing_object(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_BACK) as proxied:
        assert await differences(await proxied.client(DORA)) == {}
        direct = await proxied.direct()
        for path in (POD.format("back-0"), DEPLOYMENT.format("db")):
            assert (await direct("GET", path)).status == 200


async def test_of_a_user_without_rights_too(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_BACK) as proxied:
        assert await differences(await proxied.client()) == {}
        assert await differences(await proxied.client(User("guest"))) == {}


async def test_lists_watches_and_counts_have_no_trace(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_BACK) as proxied:
        client = await proxied.client(DORA)
        pods = POD.format("").rstrip("/")
        for query in ("", "?limit=1", "?limit=2", "?fieldSelector=metadata.name%3Dback-0", "?labelSelector=tier", "?resourceVersion=0"):
            for accept in (
                "application/json",
                f"{TABLE},application/json",
                "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            ):
                reply = await client("GET", pods + query, Accept=accept)
                assert reply.status == 200
                assert b"back" not in reply.body
                assert b"remainingItemCount" not in reply.body
