"""Configuration of the scheduler: the default profile, and profiles of a KubeSchedulerConfiguration file. It refuses unsupported settings.

Source: Kubernetes pkg/scheduler/apis/config (v1/default_plugins.go, v1/defaults.go, validation), framework/runtime/framework.go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kubeloop.controlplane.scheduling.framework import PreemptionLimits, Profile, SchedulerPlugin
from kubeloop.controlplane.scheduling.interpod_affinity import InterPodAffinity
from kubeloop.controlplane.scheduling.node_plugins import (
    ImageLocality,
    NodeAffinity,
    NodeName,
    NodePorts,
    NodeUnschedulable,
    TaintToleration,
)
from kubeloop.controlplane.scheduling.resource_plugins import (
    DEFAULT_RESOURCES,
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    ResourceWeight,
    Shape,
    capacity_ratio,
    least_allocated,
    most_allocated,
)
from kubeloop.controlplane.scheduling.topology_spread import SYSTEM_DEFAULTS, PodTopologySpread
from kubeloop.controlplane.scheduling.volume_plugins import (
    DynamicResources,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeRestrictions,
    VolumeZone,
)
from kubeloop.meta.errors import ConfigError
from kubeloop.types import JSONObject

A = TypeVar("A", bound="_Part")

DEFAULT_SCHEDULER = "default-scheduler"
API_VERSION = "kubescheduler.config.k8s.io/v1"


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Base class of the structures in a configuration file, which refuse unknown fields."""


class _EnabledPlugin(_Part, frozen=True):
    name: str
    weight: int = 0


class _PluginSet(_Part, frozen=True):
    enabled: tuple[_EnabledPlugin, ...] = ()
    disabled: tuple[_EnabledPlugin, ...] = ()


class _Plugins(_Part, frozen=True):
    multi_point: _PluginSet = _PluginSet()
    pre_enqueue: _PluginSet = _PluginSet()
    filter: _PluginSet = _PluginSet()
    post_filter: _PluginSet = _PluginSet()
    score: _PluginSet = _PluginSet()


class _PluginConfig(_Part, frozen=True):
    name: str
    args: dict[str, Any] = {}


class _Profile(_Part, frozen=True):
    scheduler_name: str = ""
    percentage_of_nodes_to_score: int | None = None
    plugins: _Plugins = _Plugins()
    plugin_config: tuple[_PluginConfig, ...] = ()


class _Configuration(_Part, frozen=True):
    api_version: str
    kind: str
    percentage_of_nodes_to_score: int = 0
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    profiles: tuple[_Profile, ...] = (_Profile(),)


class _Arguments(_Part, frozen=True):
    api_version: str = API_VERSION
    kind: str = ""


class _NoArguments(_Arguments, frozen=True):
    pass


class _NodeAffinityArguments(_Arguments, frozen=True):
    added_affinity: dict[str, Any] | None = None


class _PreemptionArguments(_Arguments, frozen=True):
    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


class _AffinityArguments(_Arguments, frozen=True):
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class _Resource(_Part, frozen=True):
    name: str
    weight: int = 1


class _Point(_Part, frozen=True):
    utilization: int = 0
    score: int = 0


class _Ratio(_Part, frozen=True):
    shape: tuple[_Point, ...] = ()


class _Strategy(_Part, frozen=True):
    type: str = "LeastAllocated"
    resources: tuple[_Resource, ...] = ()
    requested_to_capacity_ratio: _Ratio | None = None


class _FitArguments(_Arguments, frozen=True):
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: _Strategy = _Strategy()


class _BalanceArguments(_Arguments, frozen=True):
    resources: tuple[_Resource, ...] = ()


class _SpreadArguments(_Arguments, frozen=True):
    default_constraints: tuple[dict[str, Any], ...] = ()
    defaulting_type: str = "System"


class _VolumeArguments(_Arguments, frozen=True):
    bind_timeout_seconds: int = 600


def _node_affinity(args: _NodeAffinityArguments) -> SchedulerPlugin:
    return NodeAffinity(args.added_affinity)


def _fit(args: _FitArguments) -> SchedulerPlugin:
    strategy = args.scoring_strategy
    resources = _weights(strategy.resources)
    for number, one in enumerate(resources):
        _require(0 < one.weight <= 100, f"scoringStrategy.resources[{number}].weight", one.weight, "not in valid range (0, 100]")
    for number, group in enumerate(args.ignored_resource_groups):
        _require("/" not in group, f"ignoredResourceGroups[{number}]", group, "resource group name can't contain '/'")
    ratio, rounded = strategy.requested_to_capacity_ratio, False
    shape: Shape = least_allocated
    if strategy.type == "RequestedToCapacityRatio":
        if ratio is None:
            raise ConfigError("scoringStrategy.requestedToCapacityRatio: must be specified when type is RequestedToCapacityRatio")
        shape, rounded = capacity_ratio(_checked_points(ratio.shape)), True
    elif ratio is not None:
        raise ConfigError("scoringStrategy.requestedToCapacityRatio: must be nil when type is not RequestedToCapacityRatio")
    elif strategy.type == "MostAllocated":
        shape = most_allocated
    elif strategy.type != "LeastAllocated":
        supported = '"LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"'
        raise ConfigError(f'scoringStrategy.type: Unsupported value: "{strategy.type}": supported values: {supported}')
    ignored, groups = args.ignored_resources, args.ignored_resource_groups
    return NodeResourcesFit(resources, shape, rounded=rounded, ignored=ignored, ignored_groups=groups)


def _checked_points(shape: Sequence[_Point]) -> list[tuple[int, int]]:
    path = "scoringStrategy.requestedToCapacityRatio.shape"
    if not shape:
        raise ConfigError(f"{path}: at least one point must be specified")
    for number, point in enumerate(shape):
        _require(0 <= point.utilization <= 100, f"{path}[{number}].utilization", point.utilization, "not in valid range [0, 100]")
        _require(0 <= point.score <= 10, f"{path}[{number}].score", point.score, "not in valid range [0, 10]")
        ascending = number == 0 or shape[number - 1].utilization < point.utilization
        _require(ascending, f"{path}[{number}].utilization", point.utilization, "values must be sorted in increasing order")
    return [(point.utilization, point.score) for point in shape]


def _balance(args: _BalanceArguments) -> SchedulerPlugin:
    for number, one in enumerate(args.resources):
        _require(one.weight == 1, f"resources[{number}].weight", one.weight, "must be 1")
    return NodeResourcesBalancedAllocation(_weights(args.resources))


def _weights(resources: Sequence[_Resource]) -> Sequence[ResourceWeight]:
    return [ResourceWeight(one.name, one.weight or 1) for one in resources] or DEFAULT_RESOURCES


def _spread(args: _SpreadArguments) -> SchedulerPlugin:
    if args.defaulting_type == "System":
        _require(not args.default_constraints, "defaultingType", "System", "when .defaultConstraints are not empty")
        return PodTopologySpread(SYSTEM_DEFAULTS)
    if args.defaulting_type != "List":
        raise ConfigError(f'defaultingType: Unsupported value: "{args.defaulting_type}": supported values: "List", "System"')
    for number, one in enumerate(args.default_constraints):
        path = f"defaultConstraints[{number}]"
        _require((one.get("maxSkew") or 0) > 0, f"{path}.maxSkew", one.get("maxSkew") or 0, "not in valid range (0, inf)")
        if not one.get("topologyKey"):
            raise ConfigError(f"{path}.topologyKey: Required value: can not be empty")
        if one.get("whenUnsatisfiable") not in ("DoNotSchedule", "ScheduleAnyway"):
            raise ConfigError(f'{path}.whenUnsatisfiable: Unsupported value: supported values: "DoNotSchedule", "ScheduleAnyway"')
        if one.get("labelSelector") is not None:
            raise ConfigError(f"{path}.labelSelector: Forbidden: constraint must not define a selector, as they deduced for each pod")
    return PodTopologySpread(args.default_constraints, system=False)


def _affinity(args: _AffinityArguments) -> SchedulerPlugin:
    weight = args.hard_pod_affinity_weight
    _require(0 <= weight <= 100, "hardPodAffinityWeight", weight, "not in valid range [0, 100]")
    return InterPodAffinity(weight, ignores_preferences=args.ignore_preferred_terms_of_existing_pods)


def _require(condition: bool, path: str, value: object, message: str) -> None:
    if not condition:
        shown = f'"{value}"' if isinstance(value, str) else value
        raise ConfigError(f"{path}: Invalid value: {shown}: {message}")


@dataclass(frozen=True)
class _Entry:
    """A plugin of the registry: the type of its arguments, a function that creates it, its default weight, and its stages.

    ``make`` is None for a plugin that neither filters nor scores.
    """

    arguments: type[_Arguments] = _NoArguments
    make: Callable[[Any], SchedulerPlugin] | None = None
    weight: int = 0
    filters: bool = True
    scores: bool = False


def _plain(plugin: type[SchedulerPlugin]) -> Callable[[Any], SchedulerPlugin]:
    return lambda _: plugin()


#: All plugins in upstream's order. Plugins without ``make`` neither filter nor score.
_REGISTRY: dict[str, _Entry] = {
    "SchedulingGates": _Entry(),
    "PrioritySort": _Entry(),
    "NodeUnschedulable": _Entry(make=_plain(NodeUnschedulable)),
    "NodeName": _Entry(make=_plain(NodeName)),
    "TaintToleration": _Entry(make=_plain(TaintToleration), weight=3, scores=True),
    "NodeAffinity": _Entry(_NodeAffinityArguments, _node_affinity, weight=2, scores=True),
    "NodePorts": _Entry(make=_plain(NodePorts)),
    "NodeResourcesFit": _Entry(_FitArguments, _fit, weight=1, scores=True),
    "VolumeRestrictions": _Entry(make=_plain(VolumeRestrictions)),
    "NodeVolumeLimits": _Entry(make=_plain(NodeVolumeLimits)),
    "VolumeBinding": _Entry(_VolumeArguments, _plain(VolumeBinding)),
    "VolumeZone": _Entry(make=_plain(VolumeZone)),
    "PodTopologySpread": _Entry(_SpreadArguments, _spread, weight=2, scores=True),
    "InterPodAffinity": _Entry(_AffinityArguments, _affinity, weight=2, scores=True),
    "DynamicResources": _Entry(make=_plain(DynamicResources)),
    "DefaultPreemption": _Entry(_PreemptionArguments),
    "NodeResourcesBalancedAllocation": _Entry(_BalanceArguments, _balance, weight=1, filters=False, scores=True),
    "ImageLocality": _Entry(make=_plain(ImageLocality), weight=1, filters=False, scores=True),
    "DefaultBinder": _Entry(),
}
#: Plugins that every profile needs.
_NECESSARY = ("PrioritySort", "DefaultBinder")


@dataclass(frozen=True)
class SchedulerConfiguration:
    """The settings of a scheduler: its profiles by scheduler name, and the first and longest back-off of pods in seconds."""

    profiles: dict[str, Profile]
    initial_backoff: float = 1.0
    max_backoff: float = 10.0


def default_profile() -> Profile:
    """Return the profile of a scheduler without a configuration."""
    return _profile(_Profile(scheduler_name=DEFAULT_SCHEDULER), 0)


def default_configuration() -> SchedulerConfiguration:
    """Return the configuration of a scheduler without a file."""
    return SchedulerConfiguration({DEFAULT_SCHEDULER: default_profile()})


def read_configuration(path: Path | str) -> SchedulerConfiguration:
    """Read a KubeSchedulerConfiguration file (YAML or JSON).

    Raises:
        ConfigError: The file cannot be read, is invalid, or has a setting that this scheduler does not support, which the message names.
    """
    from kubeloop.codec import read_yaml

    try:
        documents = read_yaml(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read the scheduler's configuration {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    if len(documents) != 1:
        raise ConfigError(f"{path}: wanted one KubeSchedulerConfiguration, found {len(documents)} documents")
    try:
        return configuration_from(documents[0])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def configuration_from(tree: Any) -> SchedulerConfiguration:
    """Return the configuration in a KubeSchedulerConfiguration, which is a tree of JSON values.

    Raises:
        ConfigError: The tree is invalid, or has a setting that this scheduler does not support.
    """
    source = _converted(tree, _Configuration, "")
    if (source.api_version, source.kind) != (API_VERSION, "KubeSchedulerConfiguration"):
        raise ConfigError(f"wanted apiVersion {API_VERSION}, kind KubeSchedulerConfiguration")
    initial, most = source.pod_initial_backoff_seconds, source.pod_max_backoff_seconds
    _require(initial > 0, "podInitialBackoffSeconds", initial, "must be greater than 0")
    _require(most >= initial, "podMaxBackoffSeconds", most, "must be greater than or equal to PodInitialBackoffSeconds")
    profiles: dict[str, Profile] = {}
    for number, one in enumerate(source.profiles or (_Profile(),)):
        path = f"profiles[{number}]"
        if not one.scheduler_name:
            if len(source.profiles) > 1:
                raise ConfigError(f"{path}.schedulerName: Required value")
            one = msgspec.structs.replace(one, scheduler_name=DEFAULT_SCHEDULER)
        if one.scheduler_name in profiles:
            raise ConfigError(f'{path}.schedulerName: Duplicate value: "{one.scheduler_name}"')
        try:
            profiles[one.scheduler_name] = _profile(one, source.percentage_of_nodes_to_score)
        except ConfigError as error:
            raise ConfigError(f"{path}.{error}") from None
    return SchedulerConfiguration(profiles, float(initial), float(most))


def _profile(source: _Profile, percentage: int) -> Profile:
    plugins = source.plugins
    for stage in plugins.__struct_fields__:
        chosen: _PluginSet = getattr(plugins, stage)
        for one in (*chosen.enabled, *chosen.disabled):
            if one.name not in _REGISTRY and one.name != "*":
                raise ConfigError(f'plugins: kubeloop\'s scheduler has no plugin "{one.name}"; it has {", ".join(_REGISTRY)}')
    base = _merged({name: entry.weight for name, entry in _REGISTRY.items()}, plugins.multi_point)
    if missing := [name for name in _NECESSARY if name not in base]:
        raise ConfigError(f"plugins.multiPoint: kubeloop's scheduler needs {missing[0]}")
    made = _make_plugins(source)
    filters = _expanded({name: 0 for name in base if _REGISTRY[name].make and _REGISTRY[name].filters}, plugins.filter)
    scorers = _expanded({name: weight for name, weight in base.items() if _REGISTRY[name].scores}, plugins.score)
    if wrong := [name for name in filters if not (_REGISTRY[name].make and _REGISTRY[name].filters)]:
        raise ConfigError(f"plugins.filter: {wrong[0]} does not filter")
    if wrong := [name for name in scorers if not _REGISTRY[name].scores]:
        raise ConfigError(f"plugins.score: {wrong[0]} does not score")
    post = _expanded({name: 0 for name in base if name == "DefaultPreemption"}, plugins.post_filter)
    gates = _expanded({name: 0 for name in base if name == "SchedulingGates"}, plugins.pre_enqueue)
    own = source.percentage_of_nodes_to_score
    share = percentage if own is None else own
    _require(0 <= share <= 100, "percentageOfNodesToScore", share, "not in valid range [0-100]")
    return Profile(
        source.scheduler_name,
        tuple(made[name] for name in filters),
        tuple((made[name], weight or 1) for name, weight in scorers.items()),
        _preemption(source) if "DefaultPreemption" in post else None,
        share,
        "SchedulingGates" in gates,
        float(_arguments(source, "VolumeBinding", _VolumeArguments).bind_timeout_seconds),
    )


def _merged(base: dict[str, int], chosen: _PluginSet) -> dict[str, int]:
    """Return plugins with their weights after a set has disabled and enabled some; an enabled plugin has the weight in the set."""
    disabled, enabled = {one.name for one in chosen.disabled}, {one.name: one.weight for one in chosen.enabled}
    stays = {} if "*" in disabled else {name: enabled.get(name, weight) for name, weight in base.items() if name not in disabled}
    return {**stays, **{name: weight for name, weight in enabled.items() if name not in stays}}


def _expanded(base: dict[str, int], chosen: _PluginSet) -> dict[str, int]:
    """Return the plugins of one stage with their weights.

    The plugins that the stage itself enables come first if they are in ``base``, otherwise last.
    """
    disabled, enabled = {one.name for one in chosen.disabled}, {one.name: one.weight for one in chosen.enabled}
    stays = {} if "*" in disabled else {name: weight for name, weight in base.items() if name not in disabled and name not in enabled}
    first = {name: weight for name, weight in enabled.items() if name in base}
    return {**first, **stays, **{name: weight for name, weight in enabled.items() if name not in base}}


def _make_plugins(source: _Profile) -> dict[str, SchedulerPlugin]:
    """Create one instance of each plugin with the arguments in the profile."""
    seen: set[str] = set()
    for number, one in enumerate(source.plugin_config):
        if one.name not in _REGISTRY:
            raise ConfigError(f'pluginConfig[{number}]: kubeloop\'s scheduler has no plugin "{one.name}"')
        if one.name in seen:
            raise ConfigError(f'pluginConfig[{number}]: Duplicate value: "{one.name}"')
        seen.add(one.name)
        # The arguments of every plugin are checked, even if the plugin is not enabled.
        _arguments(source, one.name, _REGISTRY[one.name].arguments)
    result: dict[str, SchedulerPlugin] = {}
    for name, entry in _REGISTRY.items():
        if entry.make is not None:
            try:
                result[name] = entry.make(_arguments(source, name, entry.arguments))
            except ConfigError as error:
                text = str(error)
                raise ConfigError(text if text.startswith("pluginConfig") else f"pluginConfig.{name}.args.{text}") from None
    return result


def _arguments(source: _Profile, name: str, kind: type[A]) -> A:
    tree: JSONObject = next((one.args for one in source.plugin_config if one.name == name), {})
    return _converted(tree, kind, f"pluginConfig.{name}.args")


def _preemption(source: _Profile) -> PreemptionLimits:
    args, path = _arguments(source, "DefaultPreemption", _PreemptionArguments), "pluginConfig.DefaultPreemption.args"
    percentage, absolute = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
    _require(0 <= percentage <= 100, f"{path}.minCandidateNodesPercentage", percentage, "not in valid range [0, 100]")
    _require(absolute >= 0, f"{path}.minCandidateNodesAbsolute", absolute, "not in valid range [0, inf)")
    together = "cannot be zero at the same time as minCandidateNodesAbsolute"
    _require(bool(percentage or absolute), f"{path}.minCandidateNodesPercentage", 0, together)
    return PreemptionLimits(percentage, absolute)


def _converted(tree: Any, kind: type[A], path: str) -> A:
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        text = str(error).replace("Object contains unknown field", "kubeloop's scheduler does not support the field")
        raise ConfigError(f"{path}: {text}" if path else text) from None
