"""Classes of structs in place are named after their way, and Kubernetes' own structs are recognised."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.codegen.typed.source import known_struct, lift, without
from kubeloop.schema.classes.known import definition_schema

STRUCT: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}


def names(schema: dict[str, Any]) -> set[str]:
    return set(lift({"g.v1.Kind": {"type": "object", "properties": schema}})) - {"g.v1.Kind"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param({"spec": STRUCT}, {"KindSpec"}, id="a field"),
        pytest.param({"ports": {"type": "array", "items": STRUCT}}, {"KindPort"}, id="an item of a plural"),
        pytest.param({"policies": {"type": "array", "items": STRUCT}}, {"KindPolicy"}, id="an item of a plural in -ies"),
        pytest.param({"addresses": {"type": "array", "items": STRUCT}}, {"KindAddress"}, id="an item of a plural in -sses"),
        pytest.param({"indices": {"type": "array", "items": STRUCT}}, {"KindIndice"}, id="an item of an irregular plural"),
        pytest.param({"status": {"type": "array", "items": STRUCT}}, {"KindStatusItem"}, id="an item of no plural"),
        pytest.param({"env": {"type": "array", "items": STRUCT}}, {"KindEnvItem"}, id="an item of a singular"),
        pytest.param({"limits": {"type": "object", "additionalProperties": STRUCT}}, {"KindLimit"}, id="a value of a map"),
        pytest.param({"a": STRUCT, "A": STRUCT, "_a": STRUCT}, {"KindA", "KindA2", "KindA3"}, id="clashes are numbered"),
        pytest.param({"x-y.z": STRUCT}, {"KindXYZ"}, id="signs are no part of a name"),
        pytest.param({"metadata": STRUCT}, set(), id="metadata of a kind has a class already"),
    ],
)
def test_a_struct_in_place_is_named_after_its_way(schema: dict[str, Any], expected: set[str]) -> None:
    assert names(schema) == {f"g.v1.{name}" for name in expected}


def test_of_a_long_way_the_last_steps_are_kept() -> None:
    node = STRUCT
    for step in ("matchExpressions", "preference", "preferredDuringSchedulingIgnoredDuringExecution", "nodeAffinity", "affinity", "spec"):
        node = {"type": "object", "properties": {step: node}}
    longest = max(names(node["properties"]), key=len)
    assert longest == "g.v1.KindPreferredDuringSchedulingIgnoredDuringExecutionPreferenceMatchExpressions"


def test_what_belongs_to_the_field_stays_with_it() -> None:
    lifted = lift(
        {"g.v1.Kind": {"type": "object", "properties": {"spec": {**STRUCT, "default": {}, "nullable": True, "minProperties": 1}}}}
    )
    assert lifted["g.v1.Kind"]["properties"]["spec"] == {"$ref": "g.v1.KindSpec", "default": {}, "nullable": True}
    assert lifted["g.v1.KindSpec"] == {**STRUCT, "minProperties": 1}


@pytest.mark.parametrize("name", ["PodTemplateSpec", "Affinity", "Toleration", "ResourceRequirements", "EnvVar"])
def test_kubernetes_own_structs_are_recognised_whatever_their_descriptions(name: str) -> None:
    node = definition_schema(f"io.k8s.api.core.v1.{name}")
    assert known_struct({**node, "description": "In other words."}) == f"io.k8s.api.core.v1.{name}"
    assert known_struct({**node, "minProperties": 1}) is None


def test_a_struct_that_several_definitions_say_is_not_guessed() -> None:
    node = definition_schema("io.k8s.api.core.v1.SecretKeySelector")
    assert without(node) == without(definition_schema("io.k8s.api.core.v1.ConfigMapKeySelector"))
    assert known_struct(node) is None
