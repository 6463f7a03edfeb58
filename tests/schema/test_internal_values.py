"""Values as messages quote them. That these are what Kubernetes answers is shown over the wire (tests/apiserver/builtin)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.meta.kinds import GroupKind
from kubeloop.schema.internal_values import UnlikeType, internal_types, internal_value

_DEPLOYMENT, _POD = GroupKind("apps", "Deployment"), GroupKind("", "Pod")


@pytest.mark.parametrize(
    ("struct", "tree", "expected"),
    [
        pytest.param(
            "core.Taint",
            {"effect": "NoSchedule", "key": "a"},
            {"Key": "a", "Value": "", "Effect": "NoSchedule", "TimeAdded": None},
            id="each field bears the name in Go, in the order of Go, set or not",
        ),
        pytest.param(
            "core.EnvVar",
            {"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "b"}}},
            {
                "Name": "a",
                "Value": "",
                "ValueFrom": {
                    "FieldRef": {"APIVersion": "", "FieldPath": "b"},
                    "ResourceFieldRef": None,
                    "ConfigMapKeyRef": None,
                    "SecretKeyRef": None,
                    "FileKeyRef": None,
                },
            },
            id="a struct is whole all the way down, a pointer to none is null",
        ),
        pytest.param(
            "core.ResourceRequirements",
            {"limits": {"memory": "1Gi", "cpu": "1"}},
            {"Limits": {"cpu": "1", "memory": "1Gi"}, "Requests": None, "Claims": None},
            id="a map is sorted by its keys",
        ),
        pytest.param(
            "policy.PodDisruptionBudgetSpec",
            {"selector": {"matchLabels": {"a": "b"}}, "minAvailable": "10%"},
            {
                "MinAvailable": "10%",
                "Selector": {"matchLabels": {"a": "b"}},
                "MaxUnavailable": None,
                "UnhealthyPodEvictionPolicy": None,
            },
            id="types that have no internal form keep the names and the omissions of the wire",
        ),
        pytest.param("core.LocalObjectReference", [{"name": "a"}], [{"Name": "a"}], id="a list holds the same struct many times"),
    ],
)
def test_shows(struct: str, tree: Any, expected: Any) -> None:
    found = internal_value(struct, tree)
    assert found == expected
    assert str(found) == str(expected)  # the order is part of it


def test_what_a_pod_says_of_its_host_stands_in_its_security_context() -> None:
    shown = internal_value("core.PodSpec", {"hostNetwork": True, "containers": []})
    assert shown["SecurityContext"]["HostNetwork"] is True
    assert "HostNetwork" not in shown
    assert internal_value("core.PodSpec", {})["SecurityContext"] is None


def test_a_templates_metadata_stands_beside_its_spec() -> None:
    shown = internal_value("core.PodTemplateSpec", {"metadata": {"labels": {"a": "b"}}, "spec": {}})
    assert list(shown) == ["labels", "Spec"]


@pytest.mark.parametrize(
    ("kind", "path", "struct"),
    [
        pytest.param(_DEPLOYMENT, "spec.template", "core.PodTemplateSpec", id="a field of a field"),
        pytest.param(_DEPLOYMENT, "spec.template.spec.containers[3]", "core.Container", id="an item of a list"),
        pytest.param(_DEPLOYMENT, "spec.junk", None, id="no field"),
        pytest.param(_DEPLOYMENT, "spec.template.metadata", None, id="embedded metadata have no separate type"),
        pytest.param(_DEPLOYMENT, "spec[1]", None, id="no list"),
        pytest.param(GroupKind("example.com", "Gear"), "spec", None, id="no built-in kind"),
    ],
)
def test_finds_the_type_at_a_path(kind: GroupKind, path: str, struct: str | None) -> None:
    types = internal_types()
    found = types.at(kind, path)
    shown = None if found is None else list(types.shown(found, {}))
    assert shown == (None if struct is None else list(internal_value(struct, {})))


def test_tells_an_empty_list_that_was_sent_from_none() -> None:
    types = internal_types()
    index = types.named("batch.PodFailurePolicy")
    assert types.shown(index, {"rules": None}, {"rules": []}) == {"Rules": []}
    assert types.shown(index, {}, {}) == {"Rules": None}


@pytest.mark.parametrize("tree", [[], "a", {"Key": "already"}])
def test_refuses_a_value_of_another_type(tree: Any) -> None:
    types = internal_types()
    with pytest.raises(UnlikeType):
        types.shown(types.named("core.Taint"), tree)
