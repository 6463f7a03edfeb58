"""Which reads the cache answers, and what selectors select."""

from __future__ import annotations

import pytest

from kubeloop.endpoints.request_info import request_info
from kubeloop.proxy.cached.queries import matcher_of, read_query
from tests.proxy.cached.caches import cache_of
from tests.proxy.samples import METADATA_LIST, PROTOBUF, TABLE, pod, request_for

PODS = "/api/v1/namespaces/shop/pods"


@pytest.mark.parametrize(
    ("target", "headers", "expected"),
    [
        pytest.param(f"{PODS}", {}, "consistent", id="a list without a version is consistent"),
        pytest.param(f"{PODS}?resourceVersion=0", {}, "any", id="a list at 0 takes any version"),
        pytest.param(f"{PODS}?resourceVersion=0&limit=500", {}, "any", id="a limit of a list at 0 is ignored"),
        pytest.param(f"{PODS}?resourceVersion=7", {}, "at least 7", id="a version without a match is NotOlderThan"),
        pytest.param(f"{PODS}?resourceVersion=7&resourceVersionMatch=NotOlderThan", {}, "at least 7", id="NotOlderThan"),
        pytest.param(f"{PODS}?resourceVersion=7&resourceVersionMatch=Exact", {}, None, id="an exact version is forwarded"),
        pytest.param(f"{PODS}?limit=500", {}, None, id="pages are forwarded"),
        pytest.param(f"{PODS}?resourceVersion=7&limit=5", {}, None, id="pages at a version are forwarded"),
        pytest.param(f"{PODS}?continue=abc", {}, None, id="a continue token is forwarded"),
        pytest.param(f"{PODS}?resourceVersion=x", {}, None, id="the API server refuses a wrong version"),
        pytest.param(f"{PODS}?resourceVersionMatch=NotOlderThan", {}, None, id="the API server refuses a match without a version"),
        pytest.param(f"{PODS}?limit=x", {}, None, id="the API server refuses a wrong limit"),
        pytest.param(f"{PODS}?unknown=1", {}, None, id="an unknown parameter is forwarded"),
        pytest.param(f"{PODS}?resourceVersion=0&resourceVersion=7", {}, None, id="a repeated parameter is forwarded"),
        pytest.param(f"{PODS}/a", {}, None, id="a consistent get is forwarded, as a kube-apiserver reads etcd for it"),
        pytest.param(f"{PODS}/a?resourceVersion=0", {}, "any", id="a get at 0"),
        pytest.param(f"{PODS}/a?resourceVersion=7", {}, "at least 7", id="a get at a version"),
        pytest.param(f"{PODS}/a/status?resourceVersion=0", {}, None, id="a subresource is forwarded"),
        pytest.param(f"{PODS}?watch=true", {}, "consistent", id="a watch without a version begins with the newest state"),
        pytest.param(f"{PODS}?watch=1&resourceVersion=7", {}, "after 7", id="a watch from a version"),
        pytest.param(f"{PODS}?watch=true&resourceVersion=0", {}, "any", id="a watch from 0"),
        pytest.param(
            f"{PODS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
            {},
            "consistent",
            id="a streamed list",
        ),
        pytest.param(f"{PODS}?watch=true&sendInitialEvents=true", {}, None, id="the API server refuses a streamed list without a match"),
        pytest.param(f"{PODS}?watch=true&sendInitialEvents=false", {}, None, id="a watch without its initial events is forwarded"),
        pytest.param(
            f"{PODS}?watch=true&resourceVersion=7&resourceVersionMatch=NotOlderThan", {}, None, id="a watch with a match is refused"
        ),
        pytest.param(f"{PODS}?watch=true&timeoutSeconds=x", {}, None, id="the API server refuses a wrong timeout"),
        pytest.param(f"/api/v1/watch{PODS[7:]}?resourceVersion=0", {}, None, id="the deprecated path is forwarded"),
        pytest.param(f"{PODS}/?resourceVersion=0", {}, None, id="a path that is spelled in another way is forwarded"),
        pytest.param(f"{PODS}?resourceVersion=0", {"Accept": TABLE}, None, id="a Table is forwarded"),
        pytest.param(f"{PODS}?resourceVersion=0", {"Accept": PROTOBUF}, None, id="protobuf is forwarded"),
        pytest.param(f"{PODS}?resourceVersion=0", {"Accept": "application/yaml"}, None, id="YAML is forwarded"),
        pytest.param(f"{PODS}?resourceVersion=0", {"Accept": "text/plain"}, None, id="the API server refuses another media type"),
        pytest.param(
            f"{PODS}?resourceVersion=0", {"Accept": f"{PROTOBUF},application/json"}, "any", id="client-go's typed clients get JSON"
        ),
        pytest.param(f"{PODS}?resourceVersion=0", {"Accept": METADATA_LIST}, "any", id="a list of metadata"),
        pytest.param(f"{PODS}?watch=true", {"Upgrade": "websocket"}, None, id="a WebSocket is forwarded"),
    ],
)
def test_read_query(target: str, headers: dict[str, str], expected: str | None) -> None:
    request = request_for(target, **headers)
    query = read_query(request, request_info(request))
    if query is None:
        assert expected is None
        return
    shown = "consistent" if query.consistent else "any" if not query.version else "at least" if not query.resumes else "after"
    assert (f"{shown} {query.version}" if query.version else shown) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param("", ["a", "b"], id="nothing selects everything"),
        pytest.param("labelSelector=tier%3Dfront", ["a"], id="a label"),
        pytest.param("labelSelector=tier+notin+(front)", ["b"], id="a set of labels"),
        pytest.param("fieldSelector=metadata.name%3Da", ["a"], id="the name"),
        pytest.param("fieldSelector=metadata.namespace%21%3Dshop", [], id="not the namespace"),
        pytest.param("fieldSelector=spec.nodeName%3Dnode-2", ["b"], id="the node"),
        pytest.param("fieldSelector=status.phase%3DRunning,spec.hostNetwork%3Dfalse", ["a", "b"], id="a missing boolean is false"),
        pytest.param("fieldSelector=status.podIP%3D", ["a", "b"], id="a missing text is empty"),
        pytest.param("fieldSelector=spec.other%3Dx", None, id="the API server refuses an unknown field"),
        pytest.param("fieldSelector=nonsense", None, id="the API server refuses nonsense"),
        pytest.param("labelSelector=%3D%3D", None, id="the API server refuses a wrong label selector"),
    ],
)
async def test_matcher(query: str, expected: list[str] | None) -> None:
    matcher = matcher_of(query, "shop", is_pods=True, namespaced=True)
    if matcher is None:
        assert expected is None
        return
    async with cache_of(pod("a", "front", version="3"), pod("b", "back", version="4", node="node-2")) as cache:
        assert [head.name for head in cache.objects.snapshot() if matcher(head)] == expected


def test_fields_of_pods_select_pods_only() -> None:
    assert matcher_of("fieldSelector=spec.nodeName%3Dnode-2", "", is_pods=False, namespaced=True) is None


def test_cluster_scoped_objects_have_no_namespace_to_select_by() -> None:
    assert matcher_of("fieldSelector=metadata.namespace%3Da", "", is_pods=False, namespaced=False) is None
