"""The table of protobuf messages: the content of .proto files, joined with Go's JSON names."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from kubeloop.cli.generate import generate
from kubeloop.codec.protobuf.table import Count, MessageDefinition, MessageForm, Scalar, ZeroInJSON, table
from kubeloop.codegen.protobuf import ProtoField, read_messages
from kubeloop.meta.errors import ConfigError
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.schema import builtin

PROTO = """
syntax = "proto2";
package k8s.io.api.things.v1;
import "k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto";

// A thing; optional string not = 1;
message Thing {
  optional .k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta metadata = 1;

  // +listType=set
  repeated string names = 3;
  map<string, Part> parts = 4;
  optional Part part = 130;
  reserved 5;
}

message Part {
}
"""


def test_messages_are_read_from_proto_files_with_full_names(tmp_path: Path) -> None:
    folder = tmp_path / "things" / "v1"
    folder.mkdir(parents=True)
    (folder / "generated.proto").write_text(PROTO)
    assert read_messages([tmp_path]) == {
        "k8s.io.api.things.v1.Thing": [
            ProtoField(1, "metadata", "optional", "k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta"),
            ProtoField(3, "names", "repeated", "string"),
            ProtoField(4, "parts", "map", "k8s.io.api.things.v1.Part"),
            ProtoField(130, "part", "optional", "k8s.io.api.things.v1.Part"),
        ],
        "k8s.io.api.things.v1.Part": [],
    }


def test_messages_are_read_from_a_json_document(tmp_path: Path) -> None:
    document = tmp_path / "fields.json"
    document.write_text('{"a.M": [[1, "one", "optional", "string"], [2, "two", "map", "string", "bytes"]]}')
    assert read_messages([document]) == {"a.M": [ProtoField(1, "one", "optional", "string"), ProtoField(2, "two", "map", "bytes")]}


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        pytest.param("fields.json", '{"a.M": [[1]]}', "not a document of message fields", id="a document of something else"),
        pytest.param("fields.json", "{}", "no protobuf message in it", id="a document without messages"),
        pytest.param("a/generated.proto", "message M {\n}", "names no package", id="a file without a package"),
        pytest.param(
            "a/generated.proto",
            "package a;\nmessage M {\n  oneof x = 1;\n}",
            'cannot read the field "oneof x = 1"',
            id="another kind of field",
        ),
    ],
)
def test_a_file_that_is_no_source_is_refused_with_its_path(tmp_path: Path, name: str, text: str, error: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_messages([tmp_path if name.endswith(".proto") else path])
    assert error in str(caught.value)
    assert str(path) in str(caught.value)


def test_an_empty_folder_is_refused_with_the_way_out(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(generate, ["protobuf", "--fields", str(tmp_path), "--out", str(tmp_path / "out.gz")])
    assert outcome.exit_code == 1
    assert "no protobuf message in it; name a folder with generated.proto files" in outcome.output
    assert not (tmp_path / "out.gz").exists()


def message(group: str, version: str, kind: str) -> MessageDefinition:
    return table().kind(GroupVersionKind(group, version, kind))


def inner(outer: MessageDefinition, *names: str) -> MessageDefinition:
    for name in names:
        found = next(field for field in outer.fields if field.name == name).message
        assert found is not None
        outer = found
    return outer


def test_every_kind_that_a_default_server_serves_has_protobuf() -> None:
    served = builtin().resources()
    kinds = {resource.gvk for resource in served} | {sub.kind for resource in served for sub in resource.subresources}
    lists = {gvk._replace(kind=f"{gvk.kind}List") for gvk in {resource.gvk for resource in served if "list" in resource.verbs}}
    assert {gvk for gvk in kinds | lists if gvk not in table()} == set()


def test_every_message_can_be_made_ready() -> None:
    for gvk in table().kinds():
        found = table().kind(gvk)
        assert found.by_name
        assert msgspec.json.encode(found.empty())


def test_names_of_json_replace_those_of_protobuf() -> None:
    schema = inner(message("apiextensions.k8s.io", "v1", "CustomResourceDefinition"), "spec", "versions", "schema", "openAPIV3Schema")
    assert {"$ref", "$schema", "x-kubernetes-int-or-string", "multipleOf"} <= set(schema.by_name)
    assert inner(schema, "items").form == MessageForm.SCHEMA_OR_ARRAY
    assert inner(schema, "additionalProperties").form == MessageForm.SCHEMA_OR_BOOL


def test_embedded_structs_show_their_fields_beside_the_others() -> None:
    volume = inner(message("", "v1", "Pod"), "spec", "volumes")
    assert volume.by_name["emptyDir"].count == Count.INLINE
    assert volume.by_name["name"].type == Scalar.STRING
    probe = inner(message("", "v1", "Pod"), "spec", "containers", "livenessProbe")
    assert probe.by_name["httpGet"].count == Count.INLINE


@pytest.mark.parametrize(
    ("name", "zero"),
    [
        pytest.param("containers", ZeroInJSON.NULL, id="a list that is always shown is null without elements"),
        pytest.param("hostNetwork", ZeroInJSON.LEFT_OUT, id="a plain field with omitempty is left out when zero"),
        pytest.param("terminationGracePeriodSeconds", ZeroInJSON.AS_IS, id="a pointer is shown whatever it points to"),
        pytest.param("volumes", ZeroInJSON.AS_IS, id="a list with omitempty is left out without elements"),
    ],
)
def test_zero_values_are_treated_as_go_does(name: str, zero: ZeroInJSON) -> None:
    assert inner(message("", "v1", "Pod"), "spec").by_name[name].zero == zero


def test_structs_are_shown_even_when_they_are_empty() -> None:
    assert message("apps", "v1", "Deployment").empty() == {
        "metadata": {},
        "spec": {"selector": None, "template": {"metadata": {}, "spec": {"containers": None}}, "strategy": {}},
        "status": {},
    }
