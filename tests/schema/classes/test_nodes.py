"""What each type and marker becomes in a structural schema."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal, cast

import msgspec
import pytest
from msgspec import Meta

from kubeloop.api.core.v1 import Container, ContainerPort, LocalObjectReference, PersistentVolumeClaim, Pod, PodSpec, PodTemplateSpec
from kubeloop.declare import (
    Atomic,
    Default,
    Embedded,
    Enum,
    Format,
    Limits,
    ListMap,
    ListSet,
    Nullable,
    Opaque,
    PreserveUnknown,
    Pruned,
    Required,
    Rule,
    Schema,
    constrain,
    rule,
)
from kubeloop.meta import ConfigError, IntOrString, Invalid, Model, ObjectMeta, Quantity, Resource, Time, Unstructured, custom_resource
from kubeloop.schema.classes import check, require_valid, schema_of
from kubeloop.schema.classes.known import INT_OR_STRING, QUANTITY

_KEEPS: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Phase(enum.StrEnum):
    NEW = "New"
    DONE = "Done"


class Inner(Model):
    """Docstring of
    the class.

    Second paragraph.
    """

    name: str


class Fields(Model):
    text: str = ""
    number: int = 0
    ratio: float = 0.0
    flag: bool = False
    secret: bytes = b""
    when: Time | None = None
    limit: Quantity | None = None
    port: IntOrString = 0
    anything: Any = None
    free: dict[str, Any] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    words: list[str] = msgspec.field(default_factory=list)
    choice: Literal["A", "B"] | None = None
    level: Literal[1, 2] | None = None
    phase: Phase | None = None
    inner: Inner | None = None
    meta: ObjectMeta | None = None
    defaulted: int = 3
    started: Phase = Phase.DONE
    size: Quantity = Quantity("1Gi")
    bounded: Annotated[int, Meta(ge=1, lt=5, multiple_of=2)] = 0
    named: Annotated[str, Meta(min_length=1, max_length=9, pattern="^a", title="T", description="D")] = ""
    few: Annotated[list[int], Meta(max_length=3)] = msgspec.field(default_factory=list)
    small: Annotated[dict[str, int], Meta(min_length=1)] = msgspec.field(default_factory=dict)
    limited: Annotated[int, Limits(minimum=0, exclusive_minimum=True, maximum=7)] | None = None
    zero: Annotated[int, Default(0), Format("int32")] = 0
    mixed: Annotated[Any, Enum([1, "x", None])] = None
    nullable: Annotated[str | None, Nullable()] = None
    pruned: Annotated[dict[str, Any], Pruned()] | None = None
    whole: Annotated[dict[str, Any], Embedded()] | None = None
    items: Annotated[list[Inner], ListMap("name")] = msgspec.field(default_factory=list)
    set: Annotated[list[str], ListSet()] = msgspec.field(default_factory=list)
    one: Annotated[list[str], Atomic()] = msgspec.field(default_factory=list)
    fixed: Annotated[dict[str, str], Atomic()] = msgspec.field(default_factory=dict)
    checked: Annotated[int, Rule("self != 4", "not four", reason="FieldValueForbidden", optional_old_self=True)] = 0
    other: Annotated[str, Schema({"oneOf": [{"pattern": "a"}], "type": None})] = ""
    hidden: Annotated[Fields | None, Opaque()] = None
    camel_name: Annotated[str, Required()] = "x"
    """Below
    the field."""


_TEXT = "Docstring of the class.\n\nSecond paragraph."
_NAMED = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}


@pytest.mark.parametrize(
    ("field", "node"),
    [
        ("text", {"type": "string"}),
        ("number", {"type": "integer"}),
        ("ratio", {"type": "number"}),
        ("flag", {"type": "boolean"}),
        ("secret", {"type": "string", "format": "byte"}),
        ("when", {"type": "string", "format": "date-time"}),
        ("limit", QUANTITY),
        ("port", INT_OR_STRING),
        ("anything", {"x-kubernetes-preserve-unknown-fields": True}),
        ("free", _KEEPS),
        ("labels", {"type": "object", "additionalProperties": {"type": "string"}}),
        ("words", {"type": "array", "items": {"type": "string"}}),
        ("choice", {"type": "string", "enum": ["A", "B"]}),
        ("level", {"type": "integer", "enum": [1, 2]}),
        ("phase", {"type": "string", "enum": ["New", "Done"]}),
        ("inner", {**_NAMED, "description": _TEXT}),
        ("defaulted", {"type": "integer", "default": 3}),
        ("started", {"type": "string", "enum": ["New", "Done"], "default": "Done"}),
        ("size", {**QUANTITY, "default": "1Gi"}),
        ("bounded", {"type": "integer", "minimum": 1, "maximum": 5, "exclusiveMaximum": True, "multipleOf": 2}),
        ("named", {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a", "title": "T", "description": "D"}),
        ("few", {"type": "array", "items": {"type": "integer"}, "maxItems": 3}),
        ("small", {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1}),
        ("limited", {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "maximum": 7}),
        ("zero", {"type": "integer", "format": "int32", "default": 0}),
        ("mixed", {"enum": [1, "x", None], "x-kubernetes-preserve-unknown-fields": True}),
        ("nullable", {"type": "string", "nullable": True}),
        ("pruned", {"type": "object"}),
        ("whole", {**_KEEPS, "x-kubernetes-embedded-resource": True}),
        (
            "items",
            {
                "type": "array",
                "items": {**_NAMED, "description": _TEXT},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        ),
        ("set", {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        ("one", {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"}),
        ("fixed", {"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"}),
        (
            "checked",
            {
                "type": "integer",
                "x-kubernetes-validations": [
                    {"rule": "self != 4", "message": "not four", "reason": "FieldValueForbidden", "optionalOldSelf": True}
                ],
            },
        ),
        ("other", {"oneOf": [{"pattern": "a"}]}),
        ("hidden", _KEEPS),
        ("camelName", {"type": "string", "default": "x", "description": "Below the field."}),
    ],
)
def test_a_field_says(field: str, node: dict[str, Any]) -> None:
    assert schema_of(Fields)["properties"][field] == node


def test_fields_without_default_and_fields_marked_as_required_are_required() -> None:
    assert schema_of(Fields)["required"] == ["camelName"]
    assert schema_of(Inner)["required"] == ["name"]


class Wide(Model):
    maybe: int | None
    metadata: ObjectMeta | None = None


def test_a_field_that_must_be_given_and_may_be_none_is_nullable() -> None:
    assert schema_of(Wide)["properties"]["maybe"] == {"type": "integer", "nullable": True}


def test_metadata_of_a_template_keeps_labels_and_annotations() -> None:
    assert {"labels", "annotations"} <= set(schema_of(Wide)["properties"]["metadata"]["properties"])


@rule("self.b > 0")
@constrain(PreserveUnknown(), Schema({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}))
@rule("self.a > 0")
class Ruled(Model):
    a: int = 0
    b: int = 0


class Heir(Ruled):
    c: int = 0


def test_a_class_says_what_holds_for_all_of_its_values_and_subclasses_inherit_it() -> None:
    node = schema_of(Ruled)
    assert node["x-kubernetes-validations"] == [{"rule": "self.b > 0"}, {"rule": "self.a > 0"}]
    assert node["x-kubernetes-preserve-unknown-fields"] is True
    assert node["oneOf"] == [{"required": ["a"]}, {"required": ["b"]}]
    assert schema_of(Heir)["x-kubernetes-validations"] == node["x-kubernetes-validations"]
    assert list(schema_of(Heir)["properties"]) == ["a", "b", "c"]


@custom_resource("example.com/v1", plural="things")
class Thing(Resource):
    metadata: Annotated[ObjectMeta, Schema({"properties": {"name": {"type": "string", "maxLength": 9}}})] = msgspec.field(
        default_factory=ObjectMeta
    )
    inner: Inner | None = None


def test_a_kind_has_the_three_fields_of_all_objects() -> None:
    properties = schema_of(Thing)["properties"]
    assert properties["apiVersion"] == properties["kind"] == {"type": "string"}
    assert properties["metadata"] == {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}}


class Held(Model):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta | None = None
    size: int = 0


class Holder(Model):
    held: Annotated[Held, Embedded()] | None = None
    claim: PersistentVolumeClaim | None = None


def test_an_object_inside_of_another_is_typed_by_a_model() -> None:
    node = schema_of(Holder)["properties"]["held"]
    assert (node["x-kubernetes-embedded-resource"], node["properties"]["kind"]) == (True, {"type": "string"})
    assert "x-kubernetes-embedded-resource" not in schema_of(Holder)["properties"]["claim"]


def test_kubernetes_own_structs_are_what_kubernetes_says_of_them() -> None:
    ports = schema_of(PodTemplateSpec)["properties"]["spec"]["properties"]["containers"]["items"]["properties"]["ports"]
    assert ports["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]
    assert ports["items"]["properties"]["protocol"]["default"] == "TCP"
    assert schema_of(ContainerPort)["required"] == ["containerPort"]
    assert schema_of(LocalObjectReference)["properties"]["name"]["type"] == "string"


def test_descriptions_can_be_left_out() -> None:
    assert "description" not in schema_of(Inner, descriptions=False)


class Circle(Model):
    next: Circle | None = None


class Strange(Model):
    value: int | list[str] = 0


class Nesting(Model):
    thing: Thing | None = None


class Untyped(Model):
    thing: Unstructured | None = None


class Numbered(Model):
    by_number: dict[int, str] = msgspec.field(default_factory=dict)


class Misplaced(Model):
    name: Annotated[str, ListMap("x")] = ""


class Foreign(Model):
    value: complex = 0j


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Circle, r"Circle contains itself \(Circle -> Circle\).*declare one field of the circle Opaque\(\)"),
        (Strange, r"Strange\.value: no structural schema can express .*use IntOrString"),
        (Nesting, r"Nesting\.thing: an object inside of another is a dict or a Model, not a Thing; declare"),
        (Untyped, r"Untyped\.thing: an object inside of another is a dict or a Model, not a Unstructured; declare"),
        (Numbered, r"Numbered\.by_number: keys of a JSON object are strings, not int"),
        (Misplaced, r"Misplaced\.name: ListMap applies to a list, not of type string"),
        (Foreign, r"Foreign\.value: no schema is known for complex"),
    ],
)
def test_what_no_schema_can_say_is_named_with_its_field(cls: type[Model], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        schema_of(cls)


# Objects are checked against their classes before they are sent, in the server's words.


class LampSpec(Model):
    watts: Annotated[int, Meta(ge=1, le=100)] = 40
    colour: Literal["Warm", "Cold"] = "Warm"
    room: Annotated[str, Limits(pattern=r"^\pL+$")] = ""
    socket: Annotated[str, Required()] = "E27"
    limit: Quantity | None = None
    names: list[str] = msgspec.field(default_factory=list)


@custom_resource("example.com/v1", plural="lamps")
class Lamp(Resource):
    spec: LampSpec


def lamp(**spec: Any) -> Lamp:
    return Lamp(metadata=ObjectMeta(name="desk"), spec=LampSpec(**spec))


def test_a_right_value_passes_whatever_its_defaults() -> None:
    assert check(lamp()) == []
    assert check(lamp(watts=100, colour="Cold", room="Küche", limit=Quantity("2Gi"), names=["a"])) == []


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"watts": 0}, "spec.watts: Invalid value: 0: spec.watts in body should be greater than or equal to 1"),
        ({"colour": "Hot"}, 'spec.colour: Unsupported value: "Hot": supported values: "Warm", "Cold"'),
        ({"room": "7"}, r'spec.room: Invalid value: "7": spec.room in body should match '),
        ({"watts": "40"}, "spec.watts: Invalid value: "),
    ],
)
def test_a_wrong_value_is_named_as_the_server_names_it(spec: dict[str, Any], fault: str) -> None:
    (found,) = check(lamp(**spec))
    assert str(found).startswith(fault)


def test_require_valid_raises_the_error_of_the_server() -> None:
    require_valid(lamp())
    with pytest.raises(Invalid, match=r'Lamp.example.com "desk" is invalid: \[spec.colour.*spec.watts') as caught:
        require_valid(lamp(watts=0, colour="Hot"))
    assert {cause.field for cause in caught.value.causes} == {"spec.watts", "spec.colour"}


def test_built_in_kinds_are_checked_against_kubernetes_schemas() -> None:
    pod = Pod(metadata=ObjectMeta(name="a"), spec=PodSpec(containers=[Container(name="a", image="b")]))
    assert check(pod) == []
    pod.spec.termination_grace_period_seconds = cast("int", "soon")
    assert [fault.field for fault in check(pod)] == ["spec.terminationGracePeriodSeconds"]
