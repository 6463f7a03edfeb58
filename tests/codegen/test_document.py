import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kubeloop.codegen.document import schemas_from, write_documents
from kubeloop.codegen.openapi import merge, normal
from kubeloop.meta import ConfigError
from kubeloop.schema.document import DOCUMENT, PATHS, Schemas

SAMPLE = Path(__file__).with_name("widgets.json")
V3 = {
    "apis/example.com/v1": {
        "openapi": "3.0.0",
        "info": {"version": "9.9"},
        "paths": {"/apis/example.com/v1/": {"get": {"description": "left out", "operationId": "x"}}},
        "components": {
            "schemas": {
                "com.example.v1.Tree": {
                    "description": "left out",
                    "properties": {
                        "children": {
                            "type": "array",
                            "items": {"allOf": [{"$ref": "#/components/schemas/com.example.v1.Tree"}], "default": {}},
                        },
                        "other": {"allOf": [{"$ref": "#/components/schemas/org.other.v2.Tree"}], "description": "left out", "default": {}},
                    },
                }
            }
        },
    }
}
DISCOVERY = {
    "items": [
        {
            "metadata": {"name": "example.com"},
            "versions": [
                {
                    "version": "v1",
                    "resources": [
                        {
                            "resource": "widgets",
                            "responseKind": {"group": "", "version": "", "kind": "Widget"},
                            "scope": "Namespaced",
                            "singularResource": "widget",
                            "verbs": ["get"],
                            "shortNames": ["wd"],
                            "subresources": [
                                {
                                    "subresource": "scale",
                                    "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
                                    "verbs": ["get"],
                                }
                            ],
                        }
                    ],
                }
            ],
        }
    ]
}


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    def save(name: str, tree: Any) -> Path:
        path = tmp_path / name
        path.write_text(json.dumps(tree))
        return path

    save("discovery-api.json", {"items": []})
    save("discovery-apis.json", DISCOVERY)
    save("discovery-legacy.json", {"/apis/example.com/v1": {"resources": [{"name": "widgets", "storageVersionHash": "abc="}]}})
    save("field-selectors.json", {"/apis/example.com/v1/widgets": ["metadata.name"]})
    return {"v2": SAMPLE, "v3": save("v3.json", V3), "facts": tmp_path}


def test_a_document_joins_version_2_version_3_and_discovery(inputs: dict[str, Path], tmp_path: Path) -> None:
    write_documents(tmp_path, **inputs)
    schemas = Schemas.decode(gzip.decompress((tmp_path / DOCUMENT).read_bytes()))
    tree = schemas.definition("com.example.v1.Tree")
    assert tree.properties["other"].ref == "org.other.v2.Tree"
    assert tree.properties["other"].default == {}
    assert schemas.version == "9.9"
    (widgets,) = schemas.resources()
    assert (widgets.short_names, widgets.selectable_fields, widgets.storage_version_hash) == (("wd",), ("metadata.name",), "abc=")
    assert str(widgets.subresources[0].kind) == "autoscaling/v1, Kind=Scale"
    paths = gzip.decompress((tmp_path / PATHS).read_bytes())
    assert json.loads(paths) == {"apis/example.com/v1": {"/apis/example.com/v1/": {"get": {"operationId": "x"}}}}


def test_the_same_input_gives_the_same_bytes(inputs: dict[str, Path], tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_documents(tmp_path / name, **inputs)
    assert (tmp_path / "one" / DOCUMENT).read_bytes() == (tmp_path / "two" / DOCUMENT).read_bytes()


def test_a_folder_of_documents_is_read_as_one_and_other_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "v2.json.gz").write_bytes(gzip.compress(SAMPLE.read_bytes()))
    (tmp_path / "v3.json").write_text(json.dumps(V3["apis/example.com/v1"]))
    (tmp_path / "other.json").write_text('{"message": [1]}')
    schemas = schemas_from(tmp_path)
    assert schemas.definition("com.example.v1.Tree").properties["other"].default == {}
    assert schemas.definition("com.example.v1.WidgetSpec").required == ("size", "ports")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{", "cannot be read as JSON", id="broken JSON names the file"),
        pytest.param("[]", "expected a JSON object", id="a list is no document"),
        pytest.param("{}", "no OpenAPI document in it", id="another object is no document"),
        pytest.param('{"swagger": "1.2"}', "not an OpenAPI v2 document", id="an older swagger is refused"),
    ],
)
def test_the_error_for_a_bad_input_says_the_reason(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "input.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        schemas_from(path)
    assert "input.json" in str(caught.value)


def test_a_property_called_description_is_kept() -> None:
    assert normal({"description": "text", "properties": {"description": {"type": "string", "description": "text"}}}) == {
        "properties": {"description": {"type": "string"}}
    }


def test_what_only_version_3_knows_is_kept() -> None:
    assert merge({}, {"a": {"type": "string", "default": ""}}) == {"a": {"type": "string", "default": ""}}
