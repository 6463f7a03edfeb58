"""The strategy of custom objects: status and scale subresources, generation, selectable fields, warnings, conversion, columns."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.apiserver.crd.served import served_resources
from kubeloop.apiserver.crd.strategies import CustomResourceStrategy
from kubeloop.meta.errors import Forbidden
from kubeloop.meta.kinds import GroupResource
from tests.apiserver.write_requests import write_request

RESOURCE = GroupResource("kl.example.com", "objs")
STRING = {"type": "string"}


def fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def strategy(schema: dict[str, Any], **version: Any) -> CustomResourceStrategy:
    return CustomResourceStrategy({"name": "v1", "schema": {"openAPIV3Schema": schema}, **version}, RESOURCE)


def obj(**parts: Any) -> dict[str, Any]:
    return {"apiVersion": "kl.example.com/v1", "kind": "Obj", "metadata": {"name": "a", "resourceVersion": "2"}, **parts}


STATUS = fields(spec=fields(n={"type": "integer"}), status=fields(n={"type": "integer", "maximum": 3}))
WITH_STATUS = strategy(STATUS, subresources={"status": {}})
WITHOUT_STATUS = strategy(STATUS)
SCALED = strategy(
    {}, subresources={"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.s"}}
)


def test_a_status_subresource_drops_the_status_of_a_new_object() -> None:
    new = obj(status={"n": 1})
    WITH_STATUS.prepare_create(write_request(), new)
    assert "status" not in new


def test_without_a_status_subresource_the_status_is_like_any_other_field() -> None:
    new = obj(status={"n": 1})
    WITHOUT_STATUS.prepare_create(write_request(), new)
    assert new["status"] == {"n": 1}


def test_an_update_of_the_status_changes_nothing_else() -> None:
    old = obj(spec={"n": 1}, status={"n": 1})
    new = obj(spec={"n": 2}, status={"n": 2})
    new["metadata"] = {"name": "a", "resourceVersion": "1", "labels": {"x": "y"}}
    WITH_STATUS.prepare_status_update(write_request(), new, old)
    assert new == {**obj(spec={"n": 1}, status={"n": 2}), "metadata": {"name": "a", "resourceVersion": "1"}}
    assert old["status"] == {"n": 1}


def test_faults_of_a_status_are_named_below_status() -> None:
    (fault,) = WITH_STATUS.validate_status_update(write_request(), obj(status={"n": 9}), obj())
    assert str(fault) == "status.n: Invalid value: 9: n in body should be less than or equal to 3"


@pytest.mark.parametrize(
    ("kind", "change", "counts"),
    [
        pytest.param(WITH_STATUS, {"spec": {"n": 2}}, True, id="a change of the spec raises the generation"),
        pytest.param(WITH_STATUS, {"status": {"n": 2}}, False, id="a change of a status that is a subresource does not"),
        pytest.param(WITHOUT_STATUS, {"status": {"n": 2}}, True, id="a change of a status that is none does"),
        pytest.param(WITH_STATUS, {"metadata": {"name": "b"}}, False, id="a change of metadata does not"),
    ],
)
def test_generation(kind: CustomResourceStrategy, change: dict[str, Any], counts: bool) -> None:
    before = obj(spec={"n": 1}, status={"n": 1})
    assert (kind.counts_for_generation(before) != kind.counts_for_generation({**before, **change})) == counts


@pytest.mark.parametrize(
    ("parts", "messages"),
    [
        pytest.param({"spec": {"n": 1}}, [], id="a whole number is a count of replicas"),
        pytest.param({"spec": {}}, [], id="no count is none"),
        pytest.param({"spec": {"n": -1}}, [".spec.n: Invalid value: -1: should be a non-negative integer"], id="a count is not negative"),
        pytest.param(
            {"spec": {"n": 2**31}}, [".spec.n: Invalid value: 2147483648: should be less than or equal to 2147483647"],
            id="a count fits an int32",
        ),
        pytest.param(
            {"spec": {"n": "x"}}, [".spec.n: Invalid value: 0: .spec.n accessor error: x is of the type string, expected int64"],
            id="a count is a number",
        ),
        pytest.param(
            {"status": {"s": 3}}, ['.status.s: Invalid value: "": .status.s accessor error: 3 is of the type int64, expected string'],
            id="a selector is a string",
        ),
    ],
)  # fmt: skip
def test_scale(parts: dict[str, Any], messages: list[str]) -> None:
    assert [str(fault) for fault in SCALED.validate_create(write_request(), obj(**parts))] == messages


def test_nothing_is_created_while_the_definition_is_being_deleted() -> None:
    terminating = CustomResourceStrategy({"name": "v1"}, RESOURCE, terminating=True)
    with pytest.raises(Forbidden) as refused:
        terminating.prepare_create(write_request(), obj())
    assert refused.value.status.message == (
        'objs.kl.example.com "a" is forbidden: create not allowed while custom resource definition is terminating'
    )


def test_a_cel_rule_that_does_not_hold_refuses_the_object() -> None:
    ruled = strategy(fields(spec={**fields(n={"type": "integer"}), "x-kubernetes-validations": [{"rule": "self.n > 1"}]}))
    assert ruled.validate_create(write_request(), obj(spec={"n": 2})) == []
    assert [str(fault) for fault in ruled.validate_create(write_request(), obj(spec={"n": 0}))] == [
        "spec: Invalid value: failed rule: self.n > 1"
    ]


@pytest.mark.parametrize(
    ("finalizer", "warnings"),
    [
        pytest.param("example.com/hold", 0, id="a qualified finalizer is fine"),
        pytest.param("orphan", 0, id="a standard finalizer is fine"),
        pytest.param("hold", 1, id="a bare finalizer may collide"),
        pytest.param("hold.example.com", 1, id="a domain without a path may collide"),
    ],
)
def test_finalizers(finalizer: str, warnings: int) -> None:
    new = obj()
    new["metadata"]["finalizers"] = [finalizer]
    assert len(WITHOUT_STATUS.warnings(write_request(), new)) == warnings


def test_selectable_fields_are_texts_and_empty_where_nothing_is() -> None:
    selectable = strategy({}, selectableFields=[{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.n"}, {"jsonPath": ".spec.z"}])
    assert selectable.field_labels == ("spec.a", "spec.n", "spec.z")
    assert selectable.selectable_fields(obj(spec={"a": "x", "n": True})) == {"spec.a": "x", "spec.n": "true", "spec.z": ""}


def definition() -> dict[str, Any]:
    names = {"kind": "Obj", "plural": "objs", "singular": "obj", "listKind": "ObjList"}
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": fields(a={**STRING, "default": "one"})}}
    two_schema = {"openAPIV3Schema": fields(b={**STRING, "default": "two"})}
    columns = [
        {"name": "A", "type": "string", "jsonPath": ".a"},
        {"name": "N", "type": "integer", "jsonPath": ".n"},
        {"name": "When", "type": "date", "jsonPath": ".when", "priority": 1},
        {"name": "First", "type": "string", "jsonPath": ".list[0].x"},
        {"name": "Bad", "type": "boolean", "jsonPath": ".a"},
    ]
    two = {"name": "v2", "served": True, "storage": False, "schema": two_schema, "deprecated": True, "additionalPrinterColumns": columns}
    hidden = {"name": "v3", "served": False, "storage": False, "schema": two_schema}
    return {
        "metadata": {"name": "objs.kl.example.com", "uid": "1"},
        "spec": {"group": "kl.example.com", "names": names, "scope": "Cluster", "versions": [one, two, hidden]},
        "status": {"acceptedNames": names},
    }


def test_only_served_versions_are_served_all_stored_in_one() -> None:
    served = served_resources(definition())
    assert [one.gvr.version for one in served] == ["v1", "v2"]
    assert {one.storage.version for one in served if one.storage} == {"v1"}
    assert [one.deprecation_warning for one in served] == ["", "kl.example.com/v2 Obj is deprecated"]


def test_another_version_of_an_object_keeps_the_fields_that_it_knows() -> None:
    convert = served_resources(definition())[0].convert
    assert convert is not None
    stored = {"apiVersion": "kl.example.com/v1", "kind": "Obj", "metadata": {"name": "a"}, "b": "gone"}
    assert convert(stored, "v2") == {"apiVersion": "kl.example.com/v2", "kind": "Obj", "metadata": {"name": "a"}}


def test_printer_columns_show_values_of_their_type_and_null_for_others() -> None:
    columns = served_resources(definition())[1].columns
    shown = {"metadata": {"name": "a"}, "a": "x", "n": 3.7, "when": "1970-01-01T00:00:00Z", "list": [{"x": {"y": 1}}]}
    assert [column.value(shown, 90.0) for column in columns] == ["a", "x", 3, "90s", '{"y":1}', None]
    assert [column.value({"metadata": {"name": "b"}, "list": []}, 0.0) for column in columns] == ["b", None, None, None, None, None]
    assert [column.priority for column in columns] == [0, 0, 0, 1, 0, 0]


def test_without_printer_columns_the_age_is_shown() -> None:
    columns = served_resources(definition())[0].columns
    assert [column.name for column in columns] == ["Name", "Age"]
