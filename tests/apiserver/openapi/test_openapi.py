"""OpenAPI documents, compared with those of a Kubernetes 1.36 API server without their descriptions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kubeloop.apiserver.crd.served import served_resources
from kubeloop.apiserver.openapi import OpenAPI
from kubeloop.apiserver.openapi.documents import OpenAPIDocuments
from kubeloop.apiserver.openapi.swagger import swagger
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.schema.descriptions import Descriptions
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request
from kubeloop.timing import FakeClock

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "recorded_openapi.json").read_text())


def definition(**version: Any) -> dict[str, Any]:
    names = {"kind": "Obj", "plural": "objs", "singular": "obj", "listKind": "ObjList"}
    return {
        "metadata": {"name": "objs.kl.example.com", "uid": "1"},
        "spec": {"group": "kl.example.com", "names": names, "scope": "Namespaced", "versions": [{**RECORDED["version"], **version}]},
        "status": {"acceptedNames": names},
    }


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    for one in served_resources(definition()):
        made.add(one)
    return made


def bare(tree: Any) -> Any:
    """Without descriptions, and lists of plain values in any order."""
    if isinstance(tree, dict):
        return {name: bare(value) for name, value in tree.items() if not (name == "description" and isinstance(value, str))}
    return [bare(one) for one in tree] if isinstance(tree, list) else tree


def ask(registry: Registry, path: str, query: str = "", method: str = "GET", **headers: str) -> Answer | None:
    async def body(_: int) -> bytes:
        return b""

    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return OpenAPI(registry, FakeClock()).answer(Request(method, path, query, given, body))


def index(registry: Registry) -> dict[str, Any]:
    answer = ask(registry, "/openapi/v3")
    assert answer is not None
    paths: dict[str, Any] = json.loads(answer.body or b"")["paths"]
    return paths


def test_paths_of_a_custom_resource_are_those_of_a_real_server(registry: Registry) -> None:
    document = json.loads(OpenAPIDocuments(registry, FakeClock()).body("apis/kl.example.com/v1"))
    assert bare(document["paths"]) == RECORDED["paths"]


def test_schemas_of_a_custom_resource_are_those_of_a_real_server(registry: Registry) -> None:
    schemas = json.loads(OpenAPIDocuments(registry, FakeClock()).body("apis/kl.example.com/v1"))["components"]["schemas"]
    for name, expected in RECORDED["schemas"].items():
        assert bare(schemas[name]) == expected


def test_custom_resources_and_embedded_ones_have_the_texts_of_apiversion_kind_and_metadata(registry: Registry) -> None:
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"template": embedded}}}
    registry.replace(served_resources(definition(schema=schema))[0])
    document = json.loads(OpenAPIDocuments(registry, FakeClock(), Descriptions()).body("apis/kl.example.com/v1"))
    texts = Descriptions().of_every_kind()
    for schemas in (document["components"]["schemas"], swagger(registry, Descriptions())["definitions"]):
        published = schemas["com.example.kl.v1.Obj"]
        for described in (published, published["properties"]["template"], schemas["com.example.kl.v1.ObjList"]):
            assert {name: described["properties"][name]["description"] for name in texts} == texts
        assert "description" not in published


@pytest.mark.parametrize(
    "document", [pytest.param(name, id=f"schemas of {name} are those of a real server") for name in RECORDED["builtin"]]
)
def test_built_in_schemas(registry: Registry, document: str) -> None:
    schemas = json.loads(OpenAPIDocuments(registry, FakeClock()).body(document))["components"]["schemas"]
    for name, expected in RECORDED["builtin"][document].items():
        assert bare(schemas[name]) == expected


def test_a_document_holds_all_schemas_that_it_refers_to_and_no_others(registry: Registry) -> None:
    body = OpenAPIDocuments(registry, FakeClock()).body("apis/apps/v1")
    assert sorted(json.loads(body)["components"]["schemas"]) == RECORDED["names"]
    assert set(re.findall(r"#/components/schemas/([^\"]+)", body.decode())) <= set(RECORDED["names"])


def test_version_2_definitions_are_those_of_a_real_server(registry: Registry) -> None:
    definitions = json.loads(json.dumps(swagger(registry)))["definitions"]
    for name, expected in RECORDED["v2"].items():
        assert bare(definitions[name]) == expected
    assert sorted(name for name in definitions if name.startswith("io.k8s")) == RECORDED["v2_names"]


def test_the_index_names_each_document_with_a_hash(registry: Registry) -> None:
    paths = index(registry)
    assert re.fullmatch(r"/openapi/v3/apis/kl\.example\.com/v1\?hash=[0-9A-F]{128}", paths["apis/kl.example.com/v1"]["serverRelativeURL"])
    assert {"api/v1", "apis/apps/v1", "version"} <= set(paths)


def test_a_document_requested_by_its_hash_may_be_cached_without_expiry(registry: Registry) -> None:
    url = index(registry)["api/v1"]["serverRelativeURL"]
    answer = ask(registry, *url.split("?"))
    assert answer is not None
    assert dict(answer.headers)["Cache-Control"] == "public, immutable"


def test_a_stale_hash_is_sent_to_the_present_one(registry: Registry) -> None:
    answer = ask(registry, "/openapi/v3/api/v1", "hash=OLD")
    assert answer is not None
    assert answer.status == 301
    assert dict(answer.headers)["Location"] == index(registry)["api/v1"]["serverRelativeURL"]


def test_the_hash_changes_with_the_schema_of_a_custom_resource(registry: Registry) -> None:
    before = index(registry)
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"new": {"type": "string"}}}}
    registry.replace(served_resources(definition(schema=schema))[0])
    after = index(registry)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"apis/kl.example.com/v1"}


def test_an_unchanged_document_is_not_sent_twice(registry: Registry) -> None:
    first = ask(registry, "/openapi/v3/api/v1")
    assert first is not None
    again = ask(registry, "/openapi/v3/api/v1", if_none_match=dict(first.headers)["ETag"])
    assert again is not None
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    ("path", "accept", "status"),
    [
        pytest.param("/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", 200, id="v2 has a protobuf form"),
        pytest.param("/openapi/v3/api/v1", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf", 200, id="v3 has one too"),
        pytest.param("/openapi/v2", "application/x-protobuf, application/json", 200, id="a client that accepts JSON too gets it"),
        pytest.param("/openapi/v3/api/v1", "application/yaml", 406, id="there is no YAML"),
        pytest.param("/openapi/v3/api/v1", "*/*", 200, id="a client that accepts anything gets JSON"),
        pytest.param("/openapi/v3/apis/nosuch/v1", "", 404, id="an unknown document is not found"),
    ],
)
def test_status(registry: Registry, path: str, accept: str, status: int) -> None:
    answer = ask(registry, path, accept=accept)
    assert answer is not None
    assert answer.status == status


def test_documents_go_out_whatever_the_method(registry: Registry) -> None:
    answer = ask(registry, "/openapi/v3", method="POST")
    assert answer is not None
    assert answer.status == 200


def test_other_paths_are_left_to_others(registry: Registry) -> None:
    assert ask(registry, "/openapi/v4") is None
