"""The requests that each verb makes, whole: method, path, parameters, headers and body; of kinds without a class, which stand for all."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from kubeloop.api.core.v1 import Node, Pod, ServiceAccount
from kubeloop.client import ALL_NAMESPACES, Client, DeleteOptions, ListOptions, WatchOptions, WriteOptions
from kubeloop.meta import PartialObject, Unstructured
from kubeloop.transport import Transport
from tests.faults import FaultServer, Reply, frames

KIND = Unstructured.for_kind("flops/v1alpha1", "Flip", plural="flips", namespaced=True)
GLOBAL = Unstructured.for_kind("flops/v1alpha1", "Flop", plural="flops", namespaced=False)
TREE: dict[str, Any] = {"apiVersion": "flops/v1alpha1", "kind": "Flip", "metadata": {"name": "mip", "namespace": "mops"}}
LIST = {"apiVersion": "flops/v1alpha1", "kind": "FlipList", "metadata": {"resourceVersion": "5"}, "items": [TREE]}
BASE = "/apis/flops/v1alpha1/namespaces/mops/flips"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
ALL_DELETE = DeleteOptions(
    propagation_policy="Foreground", grace_period_seconds=7, uid="u", resource_version="3", dry_run=True, ignore_store_read_error=True
)
ALL_DELETE_BODY = {
    "apiVersion": "v1",
    "kind": "DeleteOptions",
    "dryRun": ["All"],
    "gracePeriodSeconds": 7,
    "ignoreStoreReadErrorWithClusterBreakingPotential": True,
    "preconditions": {"uid": "u", "resourceVersion": "3"},
    "propagationPolicy": "Foreground",
}
PAGE = ListOptions(field_selector="x=y", limit=3, continue_token="t", timeout_seconds=4)
SELECTION = ListOptions(label_selector="a=b", limit=2, resource_version="5", resource_version_match="Exact")
WRITE = WriteOptions(dry_run=True, field_manager="me", field_validation="Strict")
WRITE_QUERY = "dryRun=All&fieldManager=me&fieldValidation=Strict"


def flip() -> Unstructured:
    return KIND.from_dict({**TREE, "metadata": dict(TREE["metadata"])})


async def watch_once(client: Client) -> None:
    async with client.watch(
        KIND, namespace="mops", label_selector="a=b", resource_version="5", options=WatchOptions(timeout_seconds=9)
    ) as events:
        await anext(aiter(events))


async def watch_metadata_once(client: Client) -> None:
    async with client.watch_metadata(
        KIND, resource_version="5", options=WatchOptions(timeout_seconds=9), namespace=ALL_NAMESPACES
    ) as events:
        await anext(aiter(events))


Ask = Callable[[Client], Awaitable[object]]


def case(ask: Ask, method: str, target: str, body: Any = None, media: str = "application/json", accept: str = "", name: str = "") -> Any:
    return pytest.param(ask, method, target, body, media, accept or "application/json", id=name)


@pytest.mark.parametrize(
    ("ask", "method", "target", "body", "media", "accept"),
    [
        case(lambda c: c.get(KIND, "mip", namespace="mops"), "GET", f"{BASE}/mip", name="get"),
        case(
            lambda c: c.get(KIND, "mip", namespace="mops", resource_version="0"),
            "GET",
            f"{BASE}/mip?resourceVersion=0",
            name="get old",
        ),
        case(lambda c: c.get(GLOBAL, "mip"), "GET", "/apis/flops/v1alpha1/flops/mip", name="get without a namespace"),
        case(lambda c: c.get(Node, "n1"), "GET", "/api/v1/nodes/n1", name="get of the core group"),
        case(lambda c: c.get(KIND, "mip"), "GET", "/apis/flops/v1alpha1/namespaces/default/flips/mip", name="get of default"),
        case(lambda c: c.get_metadata(KIND, "mip", namespace="mops"), "GET", f"{BASE}/mip", accept=PARTIAL, name="191: get metadata"),
        case(lambda c: c.list(KIND, namespace="mops"), "GET", f"{BASE}?limit=500", name="list"),
        case(
            lambda c: c.list(KIND, namespace=ALL_NAMESPACES), "GET", "/apis/flops/v1alpha1/flips?limit=500", name="list of all namespaces"
        ),
        case(
            lambda c: c.list_metadata(
                KIND, namespace="mops", label_selector={"a": "b"}, resource_version="0", resource_version_match="NotOlderThan"
            ),
            "GET",
            f"{BASE}?labelSelector=a%3Db&limit=500&resourceVersion=0&resourceVersionMatch=NotOlderThan",
            accept=PARTIAL_LIST,
            name="191: list metadata",
        ),
        case(
            lambda c: c.list_page(
                KIND, options=ListOptions(field_selector="x=y", limit=3, continue_token="t", timeout_seconds=4), namespace="mops"
            ),
            "GET",
            f"{BASE}?fieldSelector=x%3Dy&limit=3&continue=t&timeoutSeconds=4",
            name="list a page",
        ),
        case(
            lambda c: c.list(KIND, namespace="mops", label_selector="a=b", options=ListOptions(label_selector="c", timeout_seconds=4)),
            "GET",
            f"{BASE}?labelSelector=a%3Db&limit=500&timeoutSeconds=4",
            name="list with options",
        ),
        case(
            lambda c: c.subresource(KIND, "mip", "status", namespace="mops").get(KIND, resource_version="0"),
            "GET",
            f"{BASE}/mip/status?resourceVersion=0",
            name="get a subresource",
        ),
        case(
            watch_once,
            "GET",
            f"{BASE}?watch=true&labelSelector=a%3Db&resourceVersion=5&allowWatchBookmarks=true&timeoutSeconds=9",
            name="watch",
        ),
        case(
            watch_metadata_once,
            "GET",
            "/apis/flops/v1alpha1/flips?watch=true&resourceVersion=5&allowWatchBookmarks=true&timeoutSeconds=9",
            accept=PARTIAL,
            name="191: watch metadata",
        ),
        case(lambda c: c.create(flip()), "POST", BASE, TREE, name="create"),
        case(lambda c: c.create(flip(), options=WRITE), "POST", f"{BASE}?{WRITE_QUERY}", TREE, name="create with options"),
        case(lambda c: c.update(flip(), options=WRITE), "PUT", f"{BASE}/mip?{WRITE_QUERY}", TREE, name="update"),
        case(lambda c: c.update_status(flip()), "PUT", f"{BASE}/mip/status", TREE, name="update status"),
        case(lambda c: c.patch(KIND, "mip", {"a": None}, namespace="mops"), "PATCH", f"{BASE}/mip", {"a": None}, MERGE, name="merge patch"),
        case(
            lambda c: c.patch(KIND, "mip", [{"op": "remove", "path": "/a"}], type="json", namespace="mops", options=WRITE),
            "PATCH",
            f"{BASE}/mip?{WRITE_QUERY}",
            [{"op": "remove", "path": "/a"}],
            JSON_PATCH,
            name="json patch",
        ),
        case(
            lambda c: c.patch(KIND, "mip", b'{"a":1}', type="strategic", namespace="mops", subresource="scale"),
            "PATCH",
            f"{BASE}/mip/scale",
            {"a": 1},
            STRATEGIC,
            name="strategic patch of a subresource",
        ),
        case(
            lambda c: c.patch_metadata(KIND, "mip", {"metadata": {"labels": {"a": "b"}}}, namespace="mops"),
            "PATCH",
            f"{BASE}/mip",
            {"metadata": {"labels": {"a": "b"}}},
            MERGE,
            PARTIAL,
            name="191: patch metadata",
        ),
        case(
            lambda c: c.apply(flip(), field_manager="me", force=True),
            "PATCH",
            f"{BASE}/mip?fieldManager=me&force=true",
            TREE,
            APPLY,
            name="apply",
        ),
        case(
            lambda c: c.apply(flip(), field_manager="me", subresource="status"),
            "PATCH",
            f"{BASE}/mip/status?fieldManager=me",
            TREE,
            APPLY,
            name="apply status",
        ),
        case(
            lambda c: c.delete(KIND, "mip", namespace="mops"),
            "DELETE",
            f"{BASE}/mip",
            {"apiVersion": "v1", "kind": "DeleteOptions"},
            name="delete",
        ),
        case(lambda c: c.delete(KIND, "mip", namespace="mops", options=ALL_DELETE), "DELETE", f"{BASE}/mip", ALL_DELETE_BODY, name="all"),
        case(
            lambda c: c.delete_collection(
                KIND,
                namespace="mops",
                options=ALL_DELETE,
                list_options=ListOptions(label_selector="a=b", limit=2, resource_version="5", resource_version_match="Exact"),
            ),
            "DELETE",
            f"{BASE}?labelSelector=a%3Db&limit=2&resourceVersion=5&resourceVersionMatch=Exact",
            ALL_DELETE_BODY,
            name="delete a collection",
        ),
        case(
            lambda c: c.pods.evict("mip", namespace="mops", grace_period_seconds=3),
            "POST",
            "/api/v1/namespaces/mops/pods/mip/eviction",
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": "mip", "namespace": "mops"},
                "deleteOptions": {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 3},
            },
            name="evict",
        ),
        case(
            lambda c: c.subresource(Pod, "p", "proxy/a").get(PartialObject), "GET", "/api/v1/namespaces/default/pods/p/proxy/a", name="any"
        ),
    ],
)
async def test_o190_of(ask: Ask, method: str, target: str, body: Any, media: str, accept: str) -> None:
    # Without a kind, so an answer for each requested kind.
    some = {"metadata": TREE["metadata"]}
    answer = frames(("ADDED", some)) if "watch=true" in target else Reply(body=LIST if method == "GET" and "limit=" in target else some)
    async with FaultServer(answer) as server, Client(Transport(server.config())) as client:
        await ask(client)
    [received] = server.received
    assert (received.method, received.target, received.headers["accept"]) == (method, target, accept)
    assert (json.loads(received.body) if received.body else None) == body
    assert received.headers.get("content-type") == (media if body is not None else None)


async def test_a_token_request_is_sent_as_its_kind() -> None:
    answer = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "status": {"token": "a.b.c"}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s", "uid": "u"}}
    async with FaultServer(Reply(body=answer), Reply(body=answer)) as server, Client(Transport(server.config())) as client:
        token = await client.service_accounts.create_token("s", namespace="mops", audiences=["shop"], expiration_seconds=600)
        assert token.status.token == "a.b.c"
        await client.service_accounts.create_token(
            "s", namespace="mops", bound_to=msgspec.convert(account, ServiceAccount), options=WriteOptions(dry_run=True)
        )
    token_path = "/api/v1/namespaces/mops/serviceaccounts/s/token"
    assert [one.target for one in server.received] == [token_path, f"{token_path}?dryRun=All"]
    sent = [json.loads(one.body)["spec"] for one in server.received]
    assert sent[0] == {"audiences": ["shop"], "expirationSeconds": 600}
    assert sent[1] == {"boundObjectRef": {"apiVersion": "v1", "kind": "ServiceAccount", "name": "s", "uid": "u"}}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a/b", id="a slash"),
        pytest.param("a%2fb", id="a percent sign"),
        pytest.param(".", id="a dot"),
        pytest.param("..", id="two dots"),
        pytest.param("", id="nothing"),
    ],
)
async def test_151_a_name_that_would_reach_another_path_is_refused_by_every_verb(name: str) -> None:
    asks: list[Ask] = [
        lambda c: c.get(KIND, name),
        lambda c: c.get_metadata(KIND, name),
        lambda c: c.patch(KIND, name, {}),
        lambda c: c.delete(KIND, name),
        lambda c: c.get_scale(KIND, name),
        lambda c: c.subresource(KIND, name, "status").get(KIND),
    ]
    async with FaultServer() as server, Client(Transport(server.config())) as client:
        for ask in asks:
            with pytest.raises(ValueError, match="name"):
                await ask(client)
    assert server.received == []
