"""Rules that concern every resource and touch no object: clients get what they get without a proxy, in every form."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from kubeloop.proxy.lists import COMMIT
from tests.proxy.conftest import TOKENS, HttpClient, HttpReply, StartProxy, pod_of
from tests.proxy.in_front import IDLE

CORE, SHOP, APPS = "/api/v1/namespaces", "/api/v1/namespaces/shop", "/apis/apps/v1/namespaces/shop"
WIDGETS = "/apis/example.com/v1/namespaces/shop/widgets"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings"
#: Headers that differ from response to response, or belong to one connection.
OF_ONE_RESPONSE = {
    *("Audit-Id", "Date", "Content-Length", "Transfer-Encoding"),
    *("X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid"),
}

TABLE = "application/json;as=Table;v={};g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadata;v={};g=meta.k8s.io"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v={};g=meta.k8s.io"
FORMS = {
    "JSON": "application/json",
    "YAML": "application/yaml",
    "protobuf": "application/vnd.kubernetes.protobuf",
    "CBOR": "application/cbor",
    "indented JSON": "application/json;pretty=1",
    **{f"a Table of {version}": TABLE.format(version) for version in ("v1", "v1beta1")},
    **{f"metadata of {version}": METADATA.format(version) for version in ("v1", "v1beta1")},
    **{f"metadata of a list, {version}": METADATA_LIST.format(version) for version in ("v1", "v1beta1")},
}
PATHS = {
    "a list": f"{SHOP}/pods",
    "a list of all namespaces": "/apis/apps/v1/deployments",
    "an empty list": f"{SHOP}/services",
    "an empty list with the default columns": f"{SHOP}/limitranges",
    "a list that a selector empties": f"{SHOP}/pods?labelSelector=tier%3Dno-such-tier",
    "a list by a label": f"{SHOP}/pods?labelSelector=tier%3Dback",
    "a list by a field": f"{SHOP}/pods?fieldSelector=spec.nodeName%3D",
    "a malformed label selector": f"{SHOP}/pods?labelSelector=a%20b",
    "a malformed field selector": f"{SHOP}/pods?fieldSelector=a",
    "a malformed version": f"{SHOP}/pods?resourceVersion=x",
    "an object": f"{SHOP}/pods/front-0",
    "an object with selectors": f"{SHOP}/pods/front-0?labelSelector=tier%3Dback&fieldSelector=a",
    "the status of an object": f"{SHOP}/pods/front-0/status",
    "the scale of an object": f"{APPS}/deployments/web/scale",
    "a missing object": f"{SHOP}/pods/absent",
    "a missing resource": f"{SHOP}/gadgets",
    "a list of a custom resource": WIDGETS,
    "an empty list of a custom resource": f"{WIDGETS}?labelSelector=none",
    "a custom object": f"{WIDGETS}/a",
    "rows with whole objects": f"{SHOP}/pods?includeObject=Object",
    "rows without objects": f"{SHOP}/pods?includeObject=None",
    "an unknown part of a row": f"{SHOP}/pods?includeObject=Half",
    "a large object": f"{SHOP}/configmaps/large-0",
    "a large list": f"{SHOP}/configmaps?fieldSelector=metadata.name%3Dlarge-0",
    "a list that is written as a stream": f"{SHOP}/configmaps",
}


async def create_objects(client: HttpClient) -> None:
    """Create a custom resource with one object, and ConfigMaps that are large together and alone."""
    names = {"kind": "Widget", "plural": "widgets"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    assert (await client("POST", DEFINITIONS, {"metadata": {"name": "widgets.example.com"}, "spec": spec})).status == 201
    for number in range(2):
        body = {"metadata": {"name": f"large-{number}"}, "data": {"key": "x" * (150 << 10)}}
        assert (await client("POST", f"{SHOP}/configmaps", body)).status == 201
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
    while (await client("POST", WIDGETS, widget)).status == 404:
        await asyncio.sleep(0)  # the definition is not established yet


def shown(reply: HttpReply) -> tuple[int, dict[str, str], int, Any]:
    """Return what a client sees of a response: status, headers, number of lines, body. In JSON the order of fields does not count.

    The proxy does not indent lists that it writes as a stream.
    """
    headers = {name: value for name, value in reply.headers.items() if name not in OF_ONE_RESPONSE}
    body = json.loads(reply.body) if reply.body and headers.get("Content-Type") == "application/json" else reply.body
    return reply.status, headers, reply.body.count(b"\n") if len(reply.body) < COMMIT else 0, body


async def differing(direct: HttpClient, through: HttpClient, requests: Mapping[str, tuple[str, str, Any, dict[str, str]]]) -> list[str]:
    """Return the requests whose responses differ, with what differs."""
    found = []
    for sentence, (method, path, body, headers) in requests.items():
        expected, actual = shown(await direct(method, path, body, **headers)), shown(await through(method, path, body, **headers))
        found += [f"{sentence}: expected {str(a)[:300]}, got {str(b)[:300]}" for a, b in zip(expected, actual, strict=True) if a != b]
    return found


async def test_reads_in_every_form_are_as_without_a_proxy(start_proxy: StartProxy, shop: None) -> None:
    async with start_proxy(IDLE) as proxied:
        direct, through = await proxied.direct(), await proxied.client(token="admin-token")
        await create_objects(direct)
        requests = {
            f"{what} as {form}": ("GET", path, None, {"Accept": accept}) for what, path in PATHS.items() for form, accept in FORMS.items()
        }
        assert await differing(direct, through, requests) == []


async def test_how_a_client_wants_it_written_is_as_without_a_proxy(start_proxy: StartProxy, shop: None) -> None:
    async with start_proxy(IDLE) as proxied:
        direct, through = await proxied.direct(), await proxied.client(token="admin-token")
        await create_objects(direct)
        wishes: dict[str, tuple[str, dict[str, str]]] = {
            "without compression": ("", {"Accept-Encoding": "identity"}),
            "with gzip": ("", {"Accept-Encoding": "gzip"}),
            "with gzip by quality": ("", {"Accept-Encoding": "gzip;q=1"}),
            "with another compression": ("", {"Accept-Encoding": "deflate"}),
            "indented": ("pretty=true", {}),
            "not indented": ("pretty=false", {"User-Agent": "curl/8"}),
            "for a person": ("", {"User-Agent": "curl/8"}),
            "if it has changed": ("", {"If-None-Match": '"x"'}),
            "in part": ("", {"Range": "bytes=0-5"}),
        }
        requests = {}
        for what, path in PATHS.items():
            for wish, (query, headers) in wishes.items():
                requests[f"{what} {wish}"] = "GET", f"{path}{'&' if '?' in path else '?'}{query}" if query else path, None, headers
        assert await differing(direct, through, requests) == []


async def test_refusals_for_each_user_are_as_without_a_proxy(start_proxy: StartProxy, shop: None) -> None:
    apply, merge, patch = (f"application/{name}" for name in ("apply-patch+yaml", "merge-patch+json", "json-patch+json"))
    pod, missing = f"{SHOP}/pods/front-0", f"{SHOP}/pods/absent"
    requests: dict[str, tuple[str, str, Any, dict[str, str]]] = {
        "reads in another namespace": ("GET", f"{CORE}/default/pods", None, {}),
        "a malformed selector in another namespace": ("GET", f"{CORE}/default/pods?fieldSelector=a", None, {}),
        "an unacceptable form in another namespace": ("GET", f"{CORE}/default/pods", None, {"Accept": METADATA.format("v1")}),
        "a watch in another namespace": ("GET", f"{CORE}/default/pods?watch=true", None, {}),
        "a creation in another namespace": ("POST", f"{CORE}/default/pods", pod_of("a"), {}),
        "a deletion in another namespace": ("DELETE", f"{CORE}/default/pods/a", None, {}),
        "a creation that is invalid": ("POST", f"{SHOP}/pods", {"metadata": {"name": "A B"}}, {}),
        "a creation of what exists": ("POST", f"{SHOP}/pods", pod_of("front-0"), {}),
        "a creation that is no JSON": ("POST", f"{SHOP}/pods", b"{", {}),
        "a creation of another kind": ("POST", f"{SHOP}/pods", {"kind": "Service", "apiVersion": "v1"}, {}),
        "a creation in an unknown media type": ("POST", f"{SHOP}/pods", b"{}", {"Content-Type": "text/plain"}),
        "a creation with an unknown parameter": ("POST", f"{SHOP}/pods?fieldValidation=Never&dryRun=Some", pod_of("b"), {}),
        "an update of a missing object": ("PUT", missing, pod_of("absent"), {}),
        "an update of an old version": ("PUT", pod, {"metadata": {"name": "front-0", "resourceVersion": "1"}}, {}),
        "an update with another name": ("PUT", pod, pod_of("back-0"), {}),
        "a patch of a missing object": ("PATCH", missing, {}, {"Content-Type": merge}),
        "a patch in an unknown media type": ("PATCH", pod, {}, {}),
        "a patch that does not apply": ("PATCH", pod, [{"op": "remove", "path": "/absent"}], {"Content-Type": patch}),
        "an apply without a manager": ("PATCH", pod, {}, {"Content-Type": apply}),
        "a deletion of a missing object": ("DELETE", missing, None, {}),
        "a deletion with wrong preconditions": ("DELETE", pod, {"preconditions": {"uid": "other"}}, {}),
        "a deletion of a collection with a malformed selector": ("DELETE", f"{SHOP}/pods?labelSelector=a%20b", None, {}),
        # The proxy refuses these before the API server authenticates the client.
        "a write with an answer that the proxy knows to be unacceptable": ("POST", f"{SHOP}/pods", pod_of("c"), {"Accept": "text/plain"}),
        "a scale that is invalid": ("PUT", f"{APPS}/deployments/web/scale", {"spec": {"replicas": -1}}, {}),
        "a scale of a missing object": ("PUT", f"{APPS}/deployments/absent/scale", {}, {}),
        "an eviction of a missing object": ("POST", f"{missing}/eviction", {}, {}),
        "a log of a missing object": ("GET", f"{missing}/log", None, {}),
        "a method that the proxy knows to be missing": ("OPTIONS", f"{SHOP}/pods", None, {}),
        "HEAD, which the proxy knows to be missing": ("HEAD", pod, None, {}),
        "a creation at the path of an object": ("POST", pod, pod_of("front-0"), {}),
        "a deletion of bindings": ("DELETE", f"{SHOP}/bindings", None, {}),
        "a missing path": ("GET", "/apis/absent.example.com/v1/things", None, {}),
    }
    async with start_proxy(IDLE) as proxied:
        for token in ("admin-token", "dora-token", "otto-token", "no-such-token", ""):
            direct, through = await proxied.direct(), await proxied.client(token=token)
            direct.token = token
            left_out = "another namespace" if token == "admin-token" else "the proxy knows" if token not in TOKENS else "nothing"
            refused = {what: asked for what, asked in requests.items() if left_out not in what}
            assert await differing(direct, through, refused) == [], token or "anonymous"
