"""Behaviours O185-O191: discovery in both forms, and requests for kinds without a class, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.client import Client, Mapper, WriteOptions
from kubeloop.client.discovery import discover
from kubeloop.meta import ApiError, GroupVersion, GroupVersionKind, ObjectMeta, UnknownKind, Unstructured
from kubeloop.transport import Transport
from tests.faults import FaultServer, Received, Reply, status

Flip = Unstructured.for_kind("flops/v1alpha1", "Flip")


def version(name: str, *resources: tuple[str, str], stale: bool = False) -> dict[str, Any]:
    found = [
        {
            "resource": plural,
            "responseKind": {"group": "", "version": "", "kind": kind},
            "scope": "Namespaced",
            "singularResource": kind.lower(),
            "verbs": ["get"],
            "shortNames": ["fl"],
            "categories": ["all"],
        }
        for plural, kind in resources
    ]
    return {"version": name, "resources": found, "freshness": "Stale" if stale else "Current"}


def groups(*entries: tuple[str, list[dict[str, Any]]]) -> Reply:
    items = [{"metadata": {"name": name}, "versions": versions} for name, versions in entries]
    return Reply(body={"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items})


CORE = groups(("", [version("v1", ("pods", "Pod"))]))
EXTENSIONS = groups(
    ("apps", [version("v1", ("deployments", "Deployment")), version("v1beta1", ("deployments", "Deployment"))]),
    ("flops", [version("v1alpha1", ("flips", "Flip"))]),
    ("metrics.k8s.io", [version("v1beta1", ("pods", "PodMetrics"), stale=True)]),
)


def aggregated(received: Received) -> Reply:
    return {"/api": CORE, "/apis": EXTENSIONS}.get(received.path) or status(503, "ServiceUnavailable", "no endpoints")


async def test_o185_aggregated_discovery_is_requested_first_and_stale_groups_are_reported_while_the_rest_is_returned() -> None:
    async with FaultServer(answer=aggregated) as server, Transport(server.config()) as transport:
        found = await discover(transport)
        assert sorted(one.path for one in server.received) == ["/api", "/apis"]
        accepted = [one.headers["accept"].split(",")[0] for one in server.received]
    assert accepted == ["application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"] * 2
    assert [one.gvk.kind for one in found.resources] == ["Pod", "Deployment", "Deployment", "Flip"]
    assert found.failed == (GroupVersion("metrics.k8s.io", "v1beta1"),)
    assert "metrics.k8s.io/v1beta1: stale" in found.fault


async def test_o185_a_stale_groups_kind_is_requested_alone_and_its_failure_reported() -> None:
    async with FaultServer(answer=aggregated) as server, Transport(server.config(), max_retries=0) as transport:
        mapper = Mapper(transport)
        with pytest.raises(UnknownKind, match=r"metrics\.k8s\.io/v1beta1 does not answer at the moment.*no endpoints"):
            await mapper.resource_of(GroupVersionKind("metrics.k8s.io", "v1beta1", "PodMetrics"))
        assert [one.path for one in server.received[2:]] == ["/apis/metrics.k8s.io/v1beta1"]


async def test_o186_a_missing_api_is_tolerated_and_a_missing_apis_is_an_error() -> None:
    async with (
        FaultServer(answer=lambda request: Reply(404) if request.path == "/api" else EXTENSIONS) as server,
        Transport(server.config()) as transport,
    ):
        assert (await discover(transport)).resources[0].gvk.kind == "Deployment"
    async with (
        FaultServer(answer=lambda request: Reply(404) if request.path == "/apis" else CORE) as server,
        Transport(server.config()) as transport,
    ):
        with pytest.raises(ApiError):
            await discover(transport)


async def test_o189_preferred_versions_come_first_short_names_and_categories_expand_and_an_ambiguous_name_warns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FaultServer(answer=aggregated) as server, Transport(server.config()) as transport:
        mapper = Mapper(transport)
        assert (await mapper.find("deployments")).gvr.version == "v1"
        assert [one.gvr.resource for one in await mapper.expand("all")] == ["pods", "deployments", "flips"]
        assert [one.gvr.resource for one in await mapper.expand("pod,flips,pods")] == ["pods", "flips"]
        assert not caplog.records
        assert (await mapper.find("fl")).gvr.resource == "pods"
        assert 'short name "fl" means pods and could also match lower priority resource deployments.apps, flips.flops' in caplog.text


FLIP = {"apiVersion": "flops/v1alpha1", "kind": "Flip", "metadata": {"name": "mips", "namespace": "mops", "resourceVersion": "42"}}
ONE = "/apis/flops/v1alpha1/namespaces/mops/flips/mips"
ALL = "/apis/flops/v1alpha1/namespaces/mops/flips"


def flips(received: Received) -> Reply:
    if not received.path.startswith("/apis/flops"):
        return aggregated(received)
    many = received.path.endswith("flips") and received.method in ("GET", "DELETE")
    return Reply(body={"apiVersion": "flops/v1alpha1", "kind": "FlipList", "metadata": {}, "items": [FLIP]} if many else FLIP)


async def read(client: Client) -> Any:
    return await client.get(Flip, "mips")


#: What was read goes back as it came, with the server's own spaces.
SENT_BACK = f'{{"apiVersion":"flops/v1alpha1","kind":"Flip","metadata":{json.dumps(FLIP["metadata"])}}}'.encode()
DELETION = b'{"kind":"DeleteOptions","apiVersion":"v1"}'

REQUESTS = [
    pytest.param(lambda c: c.get(Flip, "mips", resource_version="42"), ("GET", f"{ONE}?resourceVersion=42", "", b""), id="get"),
    pytest.param(
        lambda c: c.list_page(Flip, resource_version="42", namespace="mops"),
        ("GET", f"{ALL}?limit=500&resourceVersion=42", "", b""),
        id="list",
    ),
    pytest.param(
        lambda c: c.create(Flip(metadata=ObjectMeta(name="mips"))),
        ("POST", ALL, "application/json", b'{"apiVersion":"flops/v1alpha1","kind":"Flip","metadata":{"name":"mips"}}'),
        id="create",
    ),
    pytest.param(lambda c: updated(c), ("PUT", ONE, "application/json", SENT_BACK), id="update"),
    pytest.param(
        lambda c: c.patch(Flip, "mips", {"foo": "bar"}, options=WriteOptions(field_manager="baz")),
        ("PATCH", f"{ONE}?fieldManager=baz", "application/merge-patch+json", b'{"foo":"bar"}'),
        id="patch",
    ),
    pytest.param(
        lambda c: c.apply(Flip(metadata=ObjectMeta(name="mips")), field_manager="baz", force=True),
        (
            "PATCH",
            f"{ONE}?fieldManager=baz&force=true",
            "application/apply-patch+yaml",
            b'{"apiVersion":"flops/v1alpha1","kind":"Flip","metadata":{"name":"mips"}}',
        ),
        id="apply",
    ),
    pytest.param(lambda c: c.delete(Flip, "mips"), ("DELETE", ONE, "application/json", DELETION), id="delete"),
]


async def updated(client: Client) -> Any:
    return await client.update(await read(client))


@pytest.mark.parametrize(("act", "expected"), REQUESTS)
async def test_o190_requests_for_kinds_without_a_class_are_exact(act: Any, expected: tuple[str, str, str, bytes]) -> None:
    async with FaultServer(answer=flips) as server, Client(Transport(server.config()), namespace="mops") as client:
        await act(client)
        last = server.received[-1]
    assert (last.method, last.target, last.headers.get("content-type", ""), last.body) == expected


async def test_o190_apply_with_managed_fields_set_is_refused() -> None:
    managed = FLIP | {"metadata": {"name": "mips", "managedFields": [{"manager": "a", "operation": "Apply"}]}}
    async with (
        FaultServer(answer=lambda request: Reply(body=managed) if request.path == ONE else flips(request)) as server,
        Client(Transport(server.config()), namespace="mops") as client,
    ):
        found = await read(client)
        asked = len(server.received)
        with pytest.raises(ValueError, match="managedFields"):
            await client.apply(found, field_manager="b")
        assert len(server.received) == asked


async def test_o191_only_metadata_is_requested_and_returned() -> None:
    async with FaultServer(answer=flips) as server, Client(Transport(server.config()), namespace="mops") as client:
        found = await client.get_metadata(Flip, "mips")
        assert server.received[-1].headers["accept"].startswith("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
        assert found.metadata.resource_version == "42"
