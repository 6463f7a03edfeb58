"""Field types read off schemas, built-in and custom."""

import pytest

from kubeloop.merge.fields import DEDUCED, MergeType, builtin_types, custom_type
from kubeloop.merge.fields.field_types import ATOMIC
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.schema.structural import parse
from kubeloop.types import JSONObject


def at(type_: MergeType, *names: str) -> MergeType:
    """The type below: of a field, or with "*" of the items or values."""
    for name in names:
        below: MergeType | None
        if name == "*":
            below = type_.list.items if type_.list is not None else type_.map.values if type_.map is not None else None
        else:
            below = type_.map.fields.get(name) if type_.map is not None else None
        assert below is not None, name
        type_ = below
    return type_


def builtin(group: str, version: str, kind: str) -> MergeType:
    found = builtin_types().of_kind(GroupVersionKind(group, version, kind))
    assert found is not None
    return found


def custom(schema: JSONObject, preserve: bool = False) -> MergeType:
    return custom_type(parse({"type": "object", "properties": {"x": schema}}), preserve_unknown=preserve)


def test_containers_are_a_map_by_name() -> None:
    containers = at(builtin("", "v1", "Pod"), "spec", "containers").list
    assert containers is not None
    assert (containers.atomic, containers.keys) == (False, ("name",))


def test_ports_of_a_container_are_distinguished_by_number_and_protocol_with_its_default() -> None:
    ports = at(builtin("", "v1", "Pod"), "spec", "containers", "*", "ports").list
    assert ports is not None
    assert ports.element({"containerPort": 80}) == ports.element({"containerPort": 80, "protocol": "TCP"})
    assert ports.element({"containerPort": 80}) == 'k:{"containerPort":80,"protocol":"TCP"}'


def test_finalizers_are_a_set() -> None:
    finalizers = at(builtin("", "v1", "Pod"), "metadata", "finalizers").list
    assert finalizers is not None
    assert (finalizers.atomic, finalizers.keys) == (False, ())


@pytest.mark.parametrize(
    ("group", "version", "kind", "path"),
    [
        pytest.param("", "v1", "Service", ("spec", "selector"), id="a service's selector"),
        pytest.param("apps", "v1", "Deployment", ("spec", "selector"), id="a label selector"),
        pytest.param("", "v1", "Pod", ("spec", "nodeSelector"), id="a node selector"),
        pytest.param("", "v1", "Pod", ("spec", "containers", "*", "env", "*", "valueFrom", "fieldRef"), id="a reference to a field"),
    ],
)
def test_maps_that_are_one_field(group: str, version: str, kind: str, path: tuple[str, ...]) -> None:
    found = at(builtin(group, version, kind), *path).map
    assert found is not None
    assert found.atomic


def test_quantities_may_be_numbers_or_texts() -> None:
    limits = at(builtin("", "v1", "Pod"), "spec", "containers", "*", "resources", "limits", "*")
    assert (limits.scalar, limits.map) == ("untyped", None)


def test_raw_objects_are_one_field() -> None:
    assert at(builtin("apps", "v1", "ControllerRevision"), "data") is ATOMIC


def test_definitions_that_hold_themselves_end() -> None:
    schema = at(builtin("apiextensions.k8s.io", "v1", "CustomResourceDefinition"), "spec", "versions", "*", "schema", "openAPIV3Schema")
    assert at(schema, "properties", "*") is schema


def test_a_kind_that_is_not_built_in_has_no_type() -> None:
    assert builtin_types().of_kind(GroupVersionKind("example.com", "v1", "Thing")) is None


def test_types_are_made_once() -> None:
    assert builtin("", "v1", "Pod") is builtin("", "v1", "Pod")


@pytest.mark.parametrize(
    ("schema", "atomic", "keys"),
    [
        pytest.param({}, True, (), id="a list of which nothing is said is atomic"),
        pytest.param({"x-kubernetes-list-type": "atomic"}, True, (), id="an atomic list"),
        pytest.param({"x-kubernetes-list-type": "set"}, False, (), id="a set"),
        pytest.param({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b", "a"]}, False, ("b", "a"), id="a map"),
    ],
)
def test_lists_of_custom_resources(schema: JSONObject, atomic: bool, keys: tuple[str, ...]) -> None:
    found = at(custom({"type": "array", "items": {"type": "object"}, **schema}), "x").list
    assert found is not None
    assert (found.atomic, found.keys) == (atomic, keys)


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        pytest.param({"type": "object"}, DEDUCED, id="an object of which nothing is said may hold anything"),
        pytest.param({"type": "object", "properties": {"a": {"type": "string"}}}, None, id="one with fields holds no others"),
        pytest.param(
            {"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-preserve-unknown-fields": True},
            DEDUCED,
            id="unless it preserves unknown fields",
        ),
        pytest.param({"type": "object", "additionalProperties": True}, DEDUCED, id="a map of anything"),
        pytest.param({"type": "object", "additionalProperties": False}, None, id="a map of nothing"),
    ],
)
def test_objects_of_custom_resources(schema: JSONObject, values: MergeType | None) -> None:
    found = at(custom(schema), "x").map
    assert found is not None
    assert found.values is values


def test_what_preserves_unknown_fields_does_so_for_all_below_it() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "string"}}}
    type_ = custom({"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"y": inner}})
    found = at(type_, "x", "y").map
    assert found is not None
    assert found.values is DEDUCED


def test_a_definition_may_preserve_unknown_fields_everywhere() -> None:
    found = at(custom({"type": "object", "properties": {"a": {"type": "string"}}}, preserve=True), "x").map
    assert found is not None
    assert found.values is DEDUCED


def test_every_custom_resource_has_metadata_and_says_what_it_is() -> None:
    type_ = custom_type(parse({"type": "object"}))
    assert type_.map is not None
    assert set(type_.map.fields) == {"apiVersion", "kind", "metadata"}
    assert type_.map.values is None
    assert at(type_, "metadata") is at(builtin("", "v1", "Pod"), "metadata")


def test_embedded_resources_have_metadata_too() -> None:
    type_ = custom({"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True})
    assert at(type_, "x", "metadata") is at(builtin("", "v1", "Pod"), "metadata")


@pytest.mark.parametrize(
    ("schema", "scalar"),
    [
        pytest.param({"type": "string"}, "string", id="text"),
        pytest.param({"type": "string", "format": "byte"}, "string", id="bytes are text"),
        pytest.param({"type": "string", "format": "date-time"}, "untyped", id="other formats may be written in several ways"),
        pytest.param({"type": "integer"}, "numeric", id="whole numbers"),
        pytest.param({"type": "number"}, "numeric", id="numbers"),
        pytest.param({"type": "boolean"}, "boolean", id="truth values"),
        pytest.param({"x-kubernetes-int-or-string": True}, "untyped", id="a number or a text"),
    ],
)
def test_scalars_of_custom_resources(schema: JSONObject, scalar: str) -> None:
    assert at(custom(schema), "x").scalar == scalar


@pytest.mark.parametrize(
    ("schema", "loose"),
    [
        pytest.param({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}}, False, id="typed fields"),
        pytest.param({"x-kubernetes-int-or-string": True}, False, id="a number or a text"),
        pytest.param({"type": "array", "items": {"type": "object"}}, True, id="free objects within a list"),
        pytest.param({"x-kubernetes-preserve-unknown-fields": True}, True, id="any value"),
    ],
)
def test_loose_types_may_hold_a_truth_value_where_a_number_was(schema: JSONObject, loose: bool) -> None:
    assert at(custom(schema), "x").loose is loose
