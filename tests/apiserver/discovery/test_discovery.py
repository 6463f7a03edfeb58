"""Discovery: the documents of a default server as recorded, and of custom resources as they come and go."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from kubeloop.apiserver.crd.served import served_resources
from kubeloop.apiserver.discovery import Discovery, documents
from kubeloop.apiserver.discovery.documents import Order
from kubeloop.apiserver.registry.registry import Registry, by_priority
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.registry.strategy import Strategy
from kubeloop.meta.errors import MethodNotAllowed, NotAcceptable, NotFound
from kubeloop.meta.kinds import GroupVersion
from kubeloop.schema import TypeSchema, builtin
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "recorded_discovery.json").read_text())
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    for info in builtin().resources():
        made.add(
            ServedResource(
                gvr=info.gvr,
                kind=info.kind,
                singular=info.singular,
                namespaced=info.namespaced,
                verbs=info.verbs,
                schema=TypeSchema(),
                strategy_source=Strategy,
                short_names=info.short_names,
                categories=info.categories,
                subresources=tuple(sub.name for sub in info.subresources),
            )
        )
    return made


def definition(*versions: str, group: str = "kl.example.com") -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object"}}
    names = {"kind": "Obj", "plural": "objs", "singular": "obj", "listKind": "ObjList", "shortNames": ["ob"]}
    shown = [
        {"name": name, "served": True, "storage": at == 0, "schema": schema, "subresources": {"status": {}}}
        for at, name in enumerate(versions)
    ]
    return {
        "metadata": {"name": f"objs.{group}", "uid": "1"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": shown},
        "status": {"acceptedNames": names},
    }


def ask(registry: Registry, path: str, accept: str = "", method: str = "GET", **headers: str) -> Answer | None:
    async def body(_: int) -> bytes:
        return b""

    given = {"accept": accept, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return Discovery(registry, "127.0.0.1:1").answer(Request(method, path, "", given, body))


def test_the_aggregated_documents_are_those_of_a_real_server(registry: Registry) -> None:
    assert documents.aggregated(registry, Order(registry), core=True) == RECORDED["api"]
    assert documents.aggregated(registry, Order(registry), core=False) == RECORDED["apis"]


@pytest.mark.parametrize("path", [pytest.param(path, id=f"{path} is that of a real server") for path in RECORDED["legacy"]])
def test_legacy_document(registry: Registry, path: str) -> None:
    answer = ask(registry, path)
    assert answer is not None
    assert answer.object is not None
    shown = {name: value for name, value in answer.object.items() if name != "serverAddressByClientCIDRs"}
    assert shown == RECORDED["legacy"][path]


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        pytest.param(["v1", "v2"], ["v2", "v1"], id="a higher version comes first"),
        pytest.param(["v2beta1", "v1"], ["v1", "v2beta1"], id="stable comes before beta"),
        pytest.param(["v1alpha9", "v1beta1"], ["v1beta1", "v1alpha9"], id="beta comes before alpha"),
        pytest.param(["v1beta2", "v1beta10"], ["v1beta10", "v1beta2"], id="numbers are compared as numbers"),
        pytest.param(["foo", "bar", "v1"], ["v1", "bar", "foo"], id="other names come last, by alphabet"),
    ],
)
def test_version_order(versions: list[str], expected: list[str]) -> None:
    assert by_priority(versions) == expected


def test_a_custom_resource_appears_and_vanishes(registry: Registry) -> None:
    assert ask(registry, "/apis/kl.example.com") is None
    served = served_resources(definition("v1beta1", "v1"))
    for one in served:
        registry.add(one)
    group = documents.api_group(Order(registry), "kl.example.com")
    assert group["preferredVersion"] == {"groupVersion": "kl.example.com/v1", "version": "v1"}
    assert documents.api_group_list(Order(registry))["groups"][-1]["name"] == "kl.example.com"
    for one in served:
        registry.remove(one.gvr)
    assert ask(registry, "/apis/kl.example.com") is None


def test_a_custom_resource_is_shown_with_its_subresources_and_full_kinds(registry: Registry) -> None:
    (one,) = served_resources(definition("v1"))
    registry.add(one)
    shown = documents.aggregated(registry, Order(registry), core=False)["items"][-1]["versions"][0]["resources"][0]
    kind = {"group": "kl.example.com", "version": "v1", "kind": "Obj"}
    assert shown["responseKind"] == kind
    assert shown["subresources"] == [{"subresource": "status", "responseKind": kind, "verbs": ["get", "patch", "update"]}]
    listed = documents.api_resource_list(registry, GroupVersion("kl.example.com", "v1"))["resources"]
    assert [resource["name"] for resource in listed] == ["objs", "objs/status"]
    assert listed[0]["storageVersionHash"]


def test_an_unchanged_aggregated_document_is_not_sent_twice(registry: Registry) -> None:
    first = ask(registry, "/apis", AGGREGATED)
    assert first is not None
    assert first.content_type == AGGREGATED
    tag = dict(first.headers)["ETag"]
    again = ask(registry, "/apis", AGGREGATED, if_none_match=tag)
    assert again is not None
    assert (again.status, again.body) == (304, b"")


def test_the_tag_changes_with_the_registry(registry: Registry) -> None:
    handler = Discovery(registry, "127.0.0.1:1")

    async def body(_: int) -> bytes:
        return b""

    request = Request("GET", "/apis", "", {"accept": AGGREGATED}, body)
    before = handler.answer(request)
    registry.add(served_resources(definition("v1"))[0])
    after = handler.answer(request)
    assert before is not None
    assert after is not None
    assert dict(before.headers)["ETag"] != dict(after.headers)["ETag"]


@pytest.mark.parametrize(
    ("accept", "aggregated"),
    [
        pytest.param(f"{AGGREGATED},application/json", True, id="a client that accepts both forms gets the first one"),
        pytest.param(f"application/json,{AGGREGATED}", True, id="the aggregated form goes before the legacy one, whatever comes first"),
        pytest.param("application/json", False, id="a client that does not know the aggregated form gets the legacy one"),
        pytest.param(AGGREGATED.replace("json", "yaml"), True, id="it may be YAML"),
        pytest.param(AGGREGATED.replace("application/json", "*/*"), True, id="any media type will do"),
        pytest.param(f"application/vnd.kubernetes.protobuf,{AGGREGATED}", True, id="clauses that cannot be served are passed over"),
        pytest.param("", False, id="without Accept the legacy form is sent"),
    ],
)
def test_form(registry: Registry, accept: str, aggregated: bool) -> None:
    answer = ask(registry, "/apis", accept)
    assert answer is not None
    assert (answer.object is None) == aggregated


def test_an_unknown_version_of_the_aggregated_form_is_not_acceptable(registry: Registry) -> None:
    with pytest.raises(NotAcceptable):
        ask(registry, "/apis", AGGREGATED.replace("v=v2", "v=v99"))


def test_an_unknown_version_of_a_built_in_group_is_refused_with_a_status(registry: Registry) -> None:
    with pytest.raises(NotFound):
        ask(registry, "/apis/apps/v9")


def test_an_unknown_group_is_left_to_others(registry: Registry) -> None:
    assert ask(registry, "/apis/nosuch.example.com/v1") is None


@pytest.mark.parametrize("path", ["/api", "/api/v1", "/apis/apps/v1"])
def test_discovery_that_a_router_stands_before_is_read_only(registry: Registry, path: str) -> None:
    with pytest.raises(MethodNotAllowed):
        ask(registry, path, method="POST")


@pytest.mark.parametrize("path", ["/", "/apis", "/apis/apps"])
def test_other_discovery_answers_whatever_the_method(registry: Registry, path: str) -> None:
    answer = ask(registry, path, method="POST")
    assert answer is not None
    assert answer.status == 200


def test_the_root_names_groups_and_health(registry: Registry) -> None:
    answer = ask(registry, "/")
    assert answer is not None
    assert answer.body is not None
    assert {"/api/v1", "/apis/apps/v1", "/healthz", "/openapi/v3", "/version"} <= set(json.loads(answer.body)["paths"])


def test_subresources_that_a_resource_does_not_serve_are_not_shown(registry: Registry) -> None:
    deployments = next(one for one in registry.resources() if one.gvr.resource == "deployments")
    registry.replace(dataclasses.replace(deployments, subresources=("status",)))
    listed = documents.api_resource_list(registry, GroupVersion("apps", "v1"))["resources"]
    assert "deployments/scale" not in [resource["name"] for resource in listed]
