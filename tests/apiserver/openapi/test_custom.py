"""Custom resources in OpenAPI, as a Kubernetes 1.36 API server describes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.apiserver.crd.served import served_resources
from kubeloop.apiserver.openapi.documents import OpenAPIDocuments
from kubeloop.apiserver.openapi.swagger import swagger
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.timing import FakeClock

NAME = "com.example.my-tools.v1.Obj"
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@pytest.fixture
def registry() -> Registry:
    names = {"kind": "Obj", "plural": "objs", "singular": "obj", "listKind": "ObjList"}
    fields = {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}
    versions = [
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "selectableFields": [{"jsonPath": ".spec.a"}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": fields}},
        },
        {"name": "v2", "served": True, "storage": False, "schema": {"openAPIV3Schema": OPEN}},
    ]
    definition = {
        "metadata": {"name": "objs.my-tools.example.com", "uid": "1"},
        "spec": {"group": "my-tools.example.com", "names": names, "scope": "Cluster", "versions": versions},
        "status": {"acceptedNames": names},
    }
    made = Registry()
    for one in served_resources(definition):
        made.add(one)
    return made


def v3(registry: Registry, version: str = "v1") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(OpenAPIDocuments(registry, FakeClock()).body(f"apis/my-tools.example.com/{version}"))
    return document


def test_a_dash_in_the_group_begins_a_word(registry: Registry) -> None:
    operation = v3(registry)["paths"]["/apis/my-tools.example.com/v1/objs"]["get"]
    assert operation["operationId"] == "listMyToolsExampleComV1Obj"
    assert operation["tags"] == ["myToolsExampleCom_v1"]


@pytest.mark.parametrize("name", [NAME, f"{NAME}List"])
def test_selectable_fields_are_listed_for_the_object_and_its_list(registry: Registry, name: str) -> None:
    selectable = [{"fieldPath": "spec.a"}]
    assert v3(registry)["components"]["schemas"][name]["x-kubernetes-selectable-fields"] == selectable
    assert swagger(registry)["definitions"][name]["x-kubernetes-selectable-fields"] == selectable


def test_an_open_schema_is_no_more_than_an_object_in_version_2(registry: Registry) -> None:
    kind = [{"group": "my-tools.example.com", "kind": "Obj", "version": "v2"}]
    name = NAME.replace("v1", "v2")
    assert swagger(registry)["definitions"][name] == {"type": "object", "x-kubernetes-group-version-kind": kind}
    assert v3(registry, "v2")["components"]["schemas"][name]["x-kubernetes-preserve-unknown-fields"] is True


def test_shared_kinds_are_those_of_the_main_servers_groups(registry: Registry) -> None:
    options = v3(registry)["components"]["schemas"]["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"]
    groups = {kind["group"] for kind in options["x-kubernetes-group-version-kind"]}
    assert {"", "apps", "batch"} <= groups
    assert not {"apiextensions.k8s.io", "apiregistration.k8s.io"} & groups


@pytest.mark.parametrize(
    ("path", "method", "consumes"),
    [
        pytest.param(
            "/apis/my-tools.example.com/v1/objs", "get", ["application/json", "application/yaml"], id="a custom resource names types"
        ),
        pytest.param("/api/v1/pods", "get", ["*/*"], id="a built-in one does not"),
        pytest.param(
            "/api/v1/", "get", ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"], id="discovery does"
        ),
        pytest.param("/version/", "get", ["application/json"], id="the version is JSON"),
        pytest.param(
            "/api/v1/nodes/{name}",
            "patch",
            [
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/apply-patch+yaml",
            ],
            id="a patch has four types, apply last",
        ),
    ],
)
def test_consumed_types_in_version_2(registry: Registry, path: str, method: str, consumes: list[str]) -> None:
    assert swagger(registry)["paths"][path][method]["consumes"] == consumes


def test_a_field_without_description_is_a_bare_reference(registry: Registry) -> None:
    document = json.loads(OpenAPIDocuments(registry, FakeClock()).body("apis/networking.k8s.io/v1"))
    rule = document["components"]["schemas"]["io.k8s.api.networking.v1.IngressRule"]
    assert rule["properties"]["http"] == {"$ref": "#/components/schemas/io.k8s.api.networking.v1.HTTPIngressRuleValue"}


def test_parameters_are_shared_in_version_2(registry: Registry) -> None:
    document = swagger(registry)
    listed = document["paths"]["/apis/my-tools.example.com/v1/objs"]["get"]["parameters"]
    limit = next(one["$ref"] for one in listed if "limit-" in one["$ref"])
    assert document["parameters"][limit.removeprefix("#/parameters/")]["name"] == "limit"
    built_in = document["paths"]["/api/v1/nodes"]["get"]["parameters"]
    assert limit in [one.get("$ref") for one in (*built_in, *document["paths"]["/api/v1/nodes"]["parameters"])]


@pytest.mark.parametrize("name", ["dryRun", "fieldValidation", "body"])
def test_what_clients_look_for_in_an_operation_stays_there(registry: Registry, name: str) -> None:
    parameters = swagger(registry)["paths"]["/apis/my-tools.example.com/v1/objs"]["post"]["parameters"]
    assert name in [one.get("name") for one in parameters]
