"""KubeSchedulerConfiguration files: profiles, plugins and arguments, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeloop.controlplane.scheduling.configuration import SchedulerConfiguration, configuration_from, default_profile, read_configuration
from kubeloop.controlplane.scheduling.framework import Profile
from kubeloop.meta.errors import ConfigError

HEADER = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def configured(*profiles: dict[str, Any], **fields: Any) -> SchedulerConfiguration:
    return configuration_from({**HEADER, **fields, **({"profiles": list(profiles)} if profiles else {})})


def profile(plugins: dict[str, Any] | None = None, **args: dict[str, Any]) -> Profile:
    configs = [{"name": name, "args": {"apiVersion": HEADER["apiVersion"], "kind": f"{name}Args"} | one} for name, one in args.items()]
    (made,) = configured({"plugins": plugins or {}, "pluginConfig": configs}).profiles.values()
    return made


def test_the_default_profile_has_upstreams_plugins_and_weights() -> None:
    made = default_profile()
    assert [one.name for one in made.filters] == [
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
    ]
    assert {plugin.name: weight for plugin, weight in made.scorers} == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }


def test_a_file_without_profiles_has_the_default_one() -> None:
    assert list(configured().profiles) == ["default-scheduler"]


def test_several_profiles_and_back_off(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\npodInitialBackoffSeconds: 2\n"
        "podMaxBackoffSeconds: 20\npercentageOfNodesToScore: 30\n"
        "profiles: [{schedulerName: a}, {schedulerName: b, percentageOfNodesToScore: 50}]\n"
    )
    made = read_configuration(file)
    assert {name: one.node_percentage for name, one in made.profiles.items()} == {"a": 30, "b": 50}
    assert (made.initial_backoff, made.max_backoff) == (2.0, 20.0)


def test_multi_point_disables_and_weighs_plugins_at_all_stages() -> None:
    enabled = [{"name": "NodeAffinity", "weight": 9}, {"name": "ImageLocality"}]
    made = profile({"multiPoint": {"disabled": [{"name": "TaintToleration"}, {"name": "DefaultPreemption"}], "enabled": enabled}})
    assert made.plugin("TaintToleration") is None
    assert made.preemption is None
    assert {plugin.name: weight for plugin, weight in made.scorers if plugin.name in ("NodeAffinity", "ImageLocality")} == {
        "NodeAffinity": 9,
        "ImageLocality": 1,
    }


def test_a_stage_disables_all_plugins_and_enables_one() -> None:
    stage = {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 5}]}
    made = profile({"score": stage})
    assert [(plugin.name, weight) for plugin, weight in made.scorers] == [("NodeResourcesFit", 5)]
    assert len(made.filters) == len(default_profile().filters)


def test_scheduling_gates_can_be_disabled() -> None:
    assert not profile({"preEnqueue": {"disabled": [{"name": "SchedulingGates"}]}}).respects_gates


def test_arguments_of_volume_binding_and_preemption() -> None:
    made = profile(VolumeBinding={"bindTimeoutSeconds": 60}, DefaultPreemption={"minCandidateNodesAbsolute": 7})
    assert made.bind_timeout == 60
    assert made.preemption is not None
    assert (made.preemption.percentage, made.preemption.absolute) == (10, 7)


def strategy(kind: str, **fields: Any) -> dict[str, Any]:
    return {"scoringStrategy": {"type": kind} | fields}


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"apiVersion": "v1", "kind": "Pod"}, "wanted apiVersion kubescheduler.config.k8s.io/v1, kind KubeSchedulerConfiguration"),
        (HEADER | {"extenders": []}, "kubeloop's scheduler does not support the field `extenders`"),
        (HEADER | {"podInitialBackoffSeconds": 0}, "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0"),
        (HEADER | {"profiles": [{"schedulerName": "a"}, {}]}, "profiles[1].schedulerName: Required value"),
        (HEADER | {"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]}, 'profiles[1].schedulerName: Duplicate value: "a"'),
        (
            HEADER | {"profiles": [{"plugins": {"filter": {"enabled": [{"name": "Mine"}]}}}]},
            'profiles[0].plugins: kubeloop\'s scheduler has no plugin "Mine"; it has SchedulingGates,',
        ),
        (
            HEADER | {"profiles": [{"plugins": {"permit": {}}}]},
            "kubeloop's scheduler does not support the field `permit` - at `$.profiles[0].plugins`",
        ),
        (
            HEADER | {"profiles": [{"plugins": {"multiPoint": {"disabled": [{"name": "DefaultBinder"}]}}}]},
            "profiles[0].plugins.multiPoint: kubeloop's scheduler needs DefaultBinder",
        ),
        (
            HEADER | {"profiles": [{"plugins": {"score": {"enabled": [{"name": "NodePorts"}]}}}]},
            "profiles[0].plugins.score: NodePorts does not score",
        ),
    ],
)
def test_an_unsupported_setting_is_refused(tree: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        configuration_from(tree)
    assert expected in str(raised.value)


@pytest.mark.parametrize(
    ("plugin", "args", "expected"),
    [
        ("InterPodAffinity", {"hardPodAffinityWeight": 101}, "hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"),
        ("NodeResourcesFit", strategy("Best"), 'scoringStrategy.type: Unsupported value: "Best"'),
        (
            "NodeResourcesFit",
            strategy("RequestedToCapacityRatio"),
            "requestedToCapacityRatio: must be specified when type is RequestedToCapacityRatio",
        ),
        (
            "NodeResourcesFit",
            strategy("RequestedToCapacityRatio", requestedToCapacityRatio={"shape": [{"utilization": 50}, {"utilization": 10}]}),
            "shape[1].utilization: Invalid value: 10: values must be sorted in increasing order",
        ),
        ("NodeResourcesFit", {"ignoredResourceGroups": ["a/b"]}, "resource group name can't contain '/'"),
        (
            "NodeResourcesBalancedAllocation",
            {"resources": [{"name": "cpu", "weight": 2}]},
            "resources[0].weight: Invalid value: 2: must be 1",
        ),
        ("PodTopologySpread", {"defaultingType": "Mine"}, 'defaultingType: Unsupported value: "Mine"'),
        (
            "PodTopologySpread",
            {"defaultConstraints": [{"maxSkew": 1}]},
            'defaultingType: Invalid value: "System": when .defaultConstraints are not empty',
        ),
        (
            "DefaultPreemption",
            {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
            "cannot be zero at the same time as minCandidateNodesAbsolute",
        ),
        ("VolumeBinding", {"shape": []}, "kubeloop's scheduler does not support the field `shape`"),
    ],
)
def test_wrong_arguments_are_refused(plugin: str, args: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        profile(None, **{plugin: args})
    assert expected in str(raised.value)
    assert "profiles[0].pluginConfig" in str(raised.value)


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the scheduler's configuration"):
        read_configuration(tmp_path / "none.yaml")
