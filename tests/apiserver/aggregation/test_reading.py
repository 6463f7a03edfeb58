"""What other servers say of themselves is read with care: they may say anything."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.apiserver.aggregation.api_services import ApiServiceTable, parse_api_service
from kubeloop.apiserver.aggregation.documents import convert_legacy_list
from kubeloop.apiserver.openapi.swagger import merge_documents
from kubeloop.types import JSONObject

OWN: JSONObject = {
    "swagger": "2.0",
    "paths": {"/version": {}},
    "definitions": {"Meta": {"type": "object", "description": "ours"}},
    "parameters": {},
}


def api_service(name: str, **service: Any) -> JSONObject:
    version, _, group = name.partition(".")
    spec = {
        "group": group,
        "version": version,
        "groupPriorityMinimum": 1,
        "versionPriority": 1,
        "service": {"namespace": "n", "name": "s", **service},
    }
    return {"metadata": {"name": name}, "spec": spec}


def table_of(swagger: Any) -> ApiServiceTable:
    one = parse_api_service(api_service("v1.example.com"))
    return ApiServiceTable(services={one.name: one}, swagger={one.name: swagger})


@pytest.mark.parametrize(
    ("path", "leads"),
    [
        pytest.param("/apis/example.com/v1", True, id="the version itself"),
        pytest.param("/apis/example.com/v1/", True, id="with a slash"),
        pytest.param("/apis/example.com/v1/namespaces/a/things/b", True, id="a path below"),
        pytest.param("/apis/example.com/v10", False, id="a longer version"),
        pytest.param("/apis/example.com", False, id="the group"),
        pytest.param("/apis/example.com/v2/things", False, id="another version"),
        pytest.param("/api/v1/pods", False, id="the core group"),
        pytest.param("//apis/example.com/v1", False, id="doubled slashes"),
        pytest.param("/openapi/v3/apis/example.com/v1", False, id="an OpenAPI document that is not announced"),
        pytest.param("/openapi/v3/apis/example.com/v1/things", False, id="below an OpenAPI document"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_a_path_leads_to_the_service_of_its_group_and_version(path: str, leads: bool) -> None:
    found = table_of({}).find_by_path(path)
    assert (found is not None) is leads


def test_aggregation_itself_is_never_delegated() -> None:
    one = parse_api_service(api_service("v1.apiregistration.k8s.io"))
    assert ApiServiceTable(services={one.name: one}).find_by_path("/apis/apiregistration.k8s.io/v1/apiservices") is None


def test_the_core_group_has_all_of_its_path() -> None:
    one = parse_api_service(api_service("v1."))
    assert ApiServiceTable(services={one.name: one}).find_by_path("/api/v1/pods") is one


def test_a_swagger_document_brings_what_its_own_paths_need() -> None:
    path = {"get": {"parameters": [{"$ref": "#/parameters/p"}], "responses": {"200": {"schema": {"$ref": "#/definitions/Thing"}}}}}
    theirs = {
        "paths": {"/apis/example.com/v1/things": path, "/apis/example.com/v10": {}, "/apis": {}},
        "definitions": {"Thing": {"properties": {"m": {"$ref": "#/definitions/Meta"}}}, "Meta": {"type": "object"}, "Unused": {}},
        "parameters": {"p": {"name": "p"}},
    }
    merged = merge_documents(OWN, table_of(theirs))
    assert sorted(merged["paths"]) == ["/apis/example.com/v1/things", "/version"]
    assert sorted(merged["definitions"]) == ["Meta", "Thing"]
    assert merged["definitions"]["Meta"] == OWN["definitions"]["Meta"]
    assert merged["parameters"] == {"p": {"name": "p"}}


def test_definitions_that_differ_get_another_name() -> None:
    theirs = {
        "paths": {"/apis/example.com/v1/things": {"get": {"schema": {"$ref": "#/definitions/Meta"}}}},
        "definitions": {"Meta": {"type": "string"}},
    }
    merged = merge_documents(OWN, table_of(theirs))
    assert merged["definitions"]["Meta_v2"] == {"type": "string"}
    assert merged["paths"]["/apis/example.com/v1/things"]["get"]["schema"] == {"$ref": "#/definitions/Meta_v2"}
    assert OWN["definitions"].keys() == {"Meta"}


@pytest.mark.parametrize(
    "theirs",
    [
        pytest.param({}, id="without paths"),
        pytest.param({"paths": []}, id="paths that are a list"),
        pytest.param({"paths": {"/apis/example.com/v1/a": {"$ref": "#/definitions/Lost"}}}, id="a reference to nothing"),
        pytest.param({"paths": {"/apis/example.com/v1/a": {"$ref": "#/elsewhere/x"}}}, id="a reference to elsewhere"),
    ],
)
def test_a_swagger_document_that_makes_no_sense_is_left_out(theirs: Any) -> None:
    merged = merge_documents(OWN, table_of(theirs))
    assert merged["paths"] == OWN["paths"]
    assert merged["definitions"] == OWN["definitions"]


def test_a_subresource_without_its_resource_makes_one() -> None:
    tree = {"resources": [{"name": "a/b", "namespaced": True, "kind": "B", "verbs": ["get"]}]}
    (found,) = convert_legacy_list(tree, "v1")["resources"]
    assert (found["resource"], found["scope"], found["verbs"]) == ("a", "Namespaced", [])
    assert found["subresources"][0]["responseKind"] == {"group": "", "version": "", "kind": "B"}


def test_a_subresource_has_the_scope_of_its_resource() -> None:
    tree = {"resources": [{"name": "a", "namespaced": False, "kind": "A"}, {"name": "a/b", "namespaced": True, "kind": "B"}]}
    with pytest.raises(ValueError, match="scopes"):
        convert_legacy_list(tree, "v1")
