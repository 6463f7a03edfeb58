"""A definition that a server would refuse is refused here, and the fault is put down to a class and a field."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kubeloop.codegen.crd import Definition, check_definition, classes_at, definitions_of, version_warnings
from kubeloop.declare import crd
from kubeloop.meta import ConfigError, Resource, custom_resource
from tests.codegen.crd import broken, kinds


@pytest.mark.parametrize(
    ("cls", "line"),
    [
        pytest.param(broken.Key, r"broken\.Item\.name: Required value: this property is in x-kubernetes-list-map-keys", id="a key"),
        pytest.param(broken.Ruled, r"broken\.Ruled\.spec: Invalid value: .*undefined field 'mni'", id="a rule"),
        pytest.param(broken.Defaulted, r"broken\.Defaulted\.size: Invalid value: .*must be of type integer", id="a default"),
        pytest.param(broken.Columned, r"broken\.Columned: Invalid value: .*must be a simple json path", id="a column"),
        pytest.param(broken.Rooted, r"broken\.Rooted: Invalid value: .*at the root of the schema", id="a root"),
        pytest.param(broken.Guarded, r"broken\.Guarded: Required value: protected groups must have approval", id="a protected group"),
        pytest.param(broken.Groupless, r"broken\.Groupless: Required value", id="no group"),
    ],
)
def test_a_fault_names_class_and_field(cls: type[Resource], line: str) -> None:
    (definition,) = definitions_of([cls])
    found = check_definition(definition)
    assert any(re.search(line, one) for one in found), found


def test_right_definitions_have_no_faults_and_their_documents_stay_as_they_are() -> None:
    definitions = definitions_of(classes_at("tests.codegen.crd.kinds"))
    before = [str(one.document) for one in definitions]
    assert [check_definition(one) for one in definitions] == [[], []]
    assert [str(one.document) for one in definitions] == before


def _two_versions(first: dict[str, Any], other: dict[str, Any], *, served: bool = True, **spec: Any) -> Definition:
    versions = [
        {"name": name, "served": flag, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}}}
        for name, schema, flag in (("v1", first, True), ("v2", other, served))
    ]
    return Definition({"metadata": {"name": "cars.example.com"}, "spec": {"versions": versions, **spec}}, ())


_TEXT = {"type": "string"}
_SIZE = {"type": "object", "properties": {"size": _TEXT}}
_BOTH = {"type": "object", "properties": {"size": _TEXT, "color": _TEXT}}
_SIZES, _BOTHS = {"type": "array", "items": _SIZE}, {"type": "array", "items": _BOTH}
_FREE = {**_SIZE, "x-kubernetes-preserve-unknown-fields": True}


@pytest.mark.parametrize(
    ("definition", "warned"),
    [
        pytest.param(_two_versions(_BOTH, _BOTH), [], id="the same fields"),
        pytest.param(_two_versions(_BOTH, _SIZE), [("v1", ".spec.color", "v2")], id="a field of the first version only"),
        pytest.param(_two_versions(_SIZE, _BOTH), [("v2", ".spec.color", "v1")], id="a field of the second version only"),
        pytest.param(_two_versions(_BOTH, _FREE), [], id="a version that preserves unknown fields"),
        pytest.param(_two_versions(_BOTH, {"type": "object", "additionalProperties": _TEXT}), [], id="a map"),
        pytest.param(
            _two_versions(_BOTHS, _SIZES),
            [("v1", ".spec[].color", "v2")],
            id="in a list",
        ),
        pytest.param(
            _two_versions({"additionalProperties": _BOTH}, {"additionalProperties": _SIZE}), [("v1", ".spec[*].color", "v2")], id="in a map"
        ),
        pytest.param(_two_versions(_BOTH, _SIZE, served=False), [], id="a version that is not served"),
        pytest.param(_two_versions(_BOTH, _SIZE, conversion={"strategy": "Webhook"}), [], id="a webhook converts"),
    ],
)
def test_a_field_that_another_version_lacks_is_warned_of(definition: Definition, warned: list[tuple[str, str, str]]) -> None:
    expected = [f"cars.example.com: version {one} declares {path} and version {other} does not: " for one, path, other in warned]
    found = version_warnings(definition)
    assert [text.partition("a write in")[0] for text in found] == expected


def test_versions_are_ranked_as_discovery_ranks_them_and_one_is_stored() -> None:
    (document,) = [one.document for one in definitions_of([kinds.OldGadget, kinds.Gadget])]
    versions = document["spec"]["versions"]
    assert [(one["name"], one["storage"]) for one in versions] == [("v1", True), ("v1beta1", False)]
    assert versions[1]["deprecationWarning"] == "use v1"


def test_the_only_version_is_stored_and_a_cluster_scoped_kind_says_so() -> None:
    (document,) = [one.document for one in definitions_of([kinds.Hall])]
    assert document["spec"]["scope"] == "Cluster"
    assert document["spec"]["versions"][0]["storage"] is True
    assert "subresources" not in document["spec"]["versions"][0]


@custom_resource("example.com/v1", plural="pens")
class Pen(Resource):
    pass


@custom_resource("example.com/v2", plural="pens", kind="Pen")
class PenTwo(Resource):
    pass


@custom_resource("example.com/v1alpha1", plural="pens", kind="Pen", short_names=("p",))
class PenAlpha(Resource):
    pass


@custom_resource("example.com/v2", plural="pens", kind="Quill", singular="pen")
@crd(storage=True)
class Quill(Resource):
    pass


@custom_resource("example.com/v1", plural="pens", kind="Pen")
class PenAgain(Resource):
    pass


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        pytest.param([Pen, PenTwo], r"pens.example.com: exactly one .* stored, here: none; set @crd\(storage=True\)", id="none is stored"),
        pytest.param([Pen, PenAlpha], r"short_names is \('p',\), but .*Pen of the same kind says \(\)", id="names differ"),
        pytest.param([Pen, Quill], r"Pen: kind Pen for pens.example.com, which .*Quill calls Quill", id="kinds differ"),
        pytest.param([Pen, PenAgain], r"pens.example.com: v1 is declared twice", id="a version twice"),
    ],
)
def test_versions_that_contradict_each_other_are_named(classes: list[type[Resource]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        definitions_of(classes)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no_such_module", "no_such_module: no module no_such_module here or on PYTHONPATH"),
        ("tests.codegen.crd.nothing", "no module tests.codegen.crd.nothing here"),
        ("tests.servers", r"tests\.servers: no custom kind in it; decorate"),
        ("tests.codegen.crd.kinds:Gizmo", r"has no Gizmo; its custom kinds: Gadget, OldGadget, Hall"),
        ("tests.codegen.crd.kinds:Port", r"no custom kind; decorate it with @custom_resource"),
        ("tests/codegen/crd/kinds.py", r"name the module as Python imports it: tests\.codegen\.crd\.kinds"),
    ],
)
def test_a_target_without_kinds_says_what_to_do(target: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        classes_at(target)


def test_a_class_a_module_and_a_package_are_targets() -> None:
    assert classes_at("tests.codegen.crd.kinds:Hall") == [kinds.Hall]
    assert classes_at("tests.codegen.crd.kinds") == [kinds.Gadget, kinds.OldGadget, kinds.Hall]
