"""Models of OpenAPI documents: Go's types by reference, custom kinds in place, Kubernetes' own from kubeloop.api."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeloop.api.core.v1 import PodTemplateSpec
from kubeloop.codegen.sources import read_files
from kubeloop.codegen.typed import render_module, render_package
from kubeloop.codegen.write import write_modules
from kubeloop.meta import ConfigError, LabelSelector, ObjectMeta, Quantity
from kubeloop.meta.resource import kind_info

HERE = Path(__file__).parent
V3: dict[str, Any] = {
    "openapi": "3.0.0",
    "paths": {},
    "components": {
        "schemas": {
            "com.example.apps.v1.App": {
                "type": "object",
                "x-kubernetes-group-version-kind": [{"group": "apps.example.com", "version": "v1", "kind": "App"}],
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]},
                    "spec": {"default": {}, "allOf": [{"$ref": "#/components/schemas/com.example.apps.v1.AppSpec"}]},
                },
            },
            "com.example.apps.v1.AppSpec": {
                "type": "object",
                "required": ["template", "image"],
                "properties": {
                    "image": {"type": "string", "default": "", "description": 'What runs: "name:tag".'},
                    "mode": {"type": "string", "enum": ["On", "Off"]},
                    "template": {"default": {}, "allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.PodTemplateSpec"}]},
                },
            },
            "com.example.apps.v1.AppOptions": {
                "type": "object",
                "x-kubernetes-group-version-kind": [{"group": "apps.example.com", "version": "v1", "kind": "AppOptions"}],
                "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "force": {"type": "boolean"}},
            },
            "com.example.tools.v1.Tool": {
                "type": "object",
                "required": ["spec"],
                "x-kubernetes-group-version-kind": [{"group": "tools.example.com", "version": "v1", "kind": "Tool"}],
                "properties": {
                    "metadata": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
                    "spec": {"type": "object", "required": ["size"], "properties": {"size": {"type": "integer", "minimum": 0}}},
                },
            },
        }
    },
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("openapi_models")]:
        del sys.modules[name]


def test_types_of_go_by_reference(place: Path) -> None:
    write_modules(render_package(read_files([HERE / "widgets.json"])), place / "openapi_models")
    module: Any = importlib.import_module("openapi_models.example.v1")
    widget = module.Widget(metadata=ObjectMeta(name="w"), spec=module.WidgetSpec(size=3))
    assert widget.spec.pod_ips == []
    assert widget.template.children == []
    assert kind_info(widget).plural == "widgets"
    assert not hasattr(module, "WidgetList")
    read = msgspec.json.decode(b'{"children":[{"other":{"height":1.5}}]}', type=module.Tree)
    assert read.children[0].other.height == 1.5
    hints = {field.name: field.type for field in msgspec.structs.fields(module.WidgetSpec)}
    assert hints["selector"] == LabelSelector | None
    assert hints["limit"] == Quantity | None


def test_version_3_documents_with_kubernetes_own_structs_and_custom_kinds(place: Path) -> None:
    (place / "v3.json").write_text(json.dumps({"apis/apps.example.com/v1": V3}))
    write_modules(render_package(read_files([place / "v3.json"])), place / "openapi_models")
    apps: Any = importlib.import_module("openapi_models.apps.v1")
    tools: Any = importlib.import_module("openapi_models.tools.v1")
    app = apps.App()
    assert (app.spec.image, app.spec.mode, type(app.spec.template)) == ("", None, PodTemplateSpec)
    assert (apps.AppOptions.api_version, apps.AppOptions.kind) == ("apps.example.com/v1", "AppOptions")
    assert msgspec.json.encode(apps.AppOptions(force=True)) == b'{"force":true}'
    with pytest.raises(TypeError, match=r"^\w+ needs size: "):
        tools.ToolSpec()
    assert msgspec.json.encode(tools.ToolSpec(size=0)) == b'{"size":0}'


def test_one_module_takes_one_class_of_each_name(tmp_path: Path) -> None:
    source = read_files([HERE / "corpus" / "certificates.yaml"])
    assert "class Certificate(Resource):" in render_module(source, "certs")
    with pytest.raises(ConfigError, match=r"v1\.Route and .*v1beta1\.Route would be one class.*give --out a folder"):
        render_module(read_files([HERE / "corpus" / "gateways.yaml"]), "routes")


def test_groups_choose_kinds_and_what_they_refer_to() -> None:
    source = read_files([HERE / "corpus", HERE / "widgets.json"]).within(["example.com"])
    assert set(source.names_to_generate()) == {
        "com.example.v1.Widget", "com.example.v1.Tree", "org.other.v2.Tree", "com.example.v1.WidgetSpec", "com.example.v1.WidgetSpecPort",
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"no kind of group nothing.example.com here; groups: corpus-a.example.com"):
        read_files([HERE / "corpus"]).within(["nothing.example.com"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "kind: ConfigMap\napiVersion: v1\n", "no CustomResourceDefinition and no OpenAPI document in it; save one with"),
        ("a.yaml", "a: [", "a.yaml: cannot be read as YAML"),
        ("a.json", "{", "a.json: cannot be read as JSON"),
        ("a.yaml", "kind: CustomResourceDefinition\napiVersion: apiextensions.k8s.io/v1beta1\n", "serves apiextensions.k8s.io/v1 only"),
        ("a.yaml", "kind: CustomResourceDefinition\napiVersion: apiextensions.k8s.io/v1\n", "a CustomResourceDefinition without 'spec'"),
    ],
)
def test_an_input_that_cannot_be_used_says_so(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_files([tmp_path / name])


def test_lists_of_definitions_and_other_documents_are_taken_as_they_come(tmp_path: Path) -> None:
    crd = {"metadata": {"name": "tools.example.com"}, "spec": {
        "group": "example.com", "scope": "Cluster", "names": {"kind": "Tool", "plural": "tools"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }}  # fmt: skip
    listed = {"kind": "CustomResourceDefinitionList", "apiVersion": "apiextensions.k8s.io/v1", "items": [crd]}
    (tmp_path / "list.json").write_text(json.dumps(listed))
    (tmp_path / "other.yaml").write_text("kind: ConfigMap\napiVersion: v1\n---\n")
    messages: list[str] = []
    assert read_files([tmp_path], messages.append).names_to_generate() == ["com.example.v1.Tool"]
    counts = [line.rpartition("/")[2].partition(" documents")[0] for line in messages]
    assert counts == ["list.json: 1", "other.yaml: 0"]


def test_kubernetes_own_kinds_alone_give_nothing_to_write(tmp_path: Path) -> None:
    own = {"io.k8s.api.core.v1.Pod": {"type": "object", "properties": {}}}
    (tmp_path / "own.json").write_text(json.dumps({"swagger": "2.0", "definitions": own}))
    with pytest.raises(ConfigError, match=r"all of these kinds are in kubeloop.api already \(--builtins"):
        render_package(read_files([tmp_path / "own.json"]))


def test_group_versions_that_refer_to_each_other_need_one_module(place: Path) -> None:
    def of(name: str, other: str) -> dict[str, Any]:
        return {"type": "object", "properties": {"other": {"$ref": f"#/definitions/{other}"}, "name": {"type": "string", "title": name}}}

    one, two = "com.example.v1.One", "com.example.v2.Two"
    (place / "circle.json").write_text(json.dumps({"swagger": "2.0", "definitions": {one: of("1", two), two: of("2", one)}}))
    source = read_files([place / "circle.json"])
    with pytest.raises(ConfigError, match=r"group versions refer to each other \(example.v1 -> example.v2 -> example.v1\); give --out one"):
        render_package(source)
    (place / "openapi_models.py").write_text(render_module(source, "openapi_models"))
    module: Any = importlib.import_module("openapi_models")
    read = msgspec.json.decode(b'{"other":{"other":{"name":"inner"}}}', type=module.One)
    assert read.other.other.name == "inner"
