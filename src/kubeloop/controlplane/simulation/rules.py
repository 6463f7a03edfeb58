"""Simulation files, which define simulated nodes and rules for the behaviour of pods without annotations (docs/server.md)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from kubeloop.controlplane.simulation.annotations import JITTER, LOG, PREFIX, START_SECONDS, Simulation
from kubeloop.controlplane.simulation.node_templates import NodeFailure, NodeTemplate, node_names
from kubeloop.controlplane.simulation.usage import UsageFunction
from kubeloop.meta import ConfigError, DecodeError, Quantity, Selector, parse_label_selector
from kubeloop.types import JSONObject


@dataclass(frozen=True, slots=True)
class PodRule:
    """A rule for the behaviour of pods. ``simulate`` has the annotations, with values, that it adds to matching pods.

    A pod matches if it is in one of ``namespaces``, on one of ``nodes``, and has the labels and annotations; an empty field matches all
    pods. A rule with ``programs`` applies only to containers and init containers whose image, command and arguments, separated by spaces,
    match one of these shell patterns (``*``, ``?``, ``[...]``).
    """

    simulate: Mapping[str, str]
    namespaces: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    labels: Selector | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    programs: tuple[str, ...] = ()

    def values_of(self, pod: JSONObject) -> Mapping[str, str]:
        """Return the annotations that the rule adds to a pod; empty if the pod does not match."""
        if not self._matches(pod):
            return {}
        if not self.programs:
            return self.simulate
        names = [name for name, program in _programs(pod) if any(fnmatchcase(program, pattern) for pattern in self.programs)]
        return {key: ",".join(f"{name}={value}" for name in names) for key, value in self.simulate.items()} if names else {}

    def _matches(self, pod: JSONObject) -> bool:
        metadata = pod["metadata"]
        if self.namespaces and metadata.get("namespace") not in self.namespaces:
            return False
        if self.nodes and (pod.get("spec") or {}).get("nodeName") not in self.nodes:
            return False
        if self.labels is not None and not self.labels.matches(metadata.get("labels") or {}):
            return False
        return self.annotations.items() <= (metadata.get("annotations") or {}).items()


def _programs(pod: JSONObject) -> Iterator[tuple[str, str]]:
    spec = pod.get("spec") or {}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        program = [container.get("image") or "", *(container.get("command") or ()), *(container.get("args") or ())]
        yield container["name"], " ".join(program)


@dataclass(frozen=True, slots=True)
class SimulationRules:
    """The content of a simulation file.

    Args:
        nodes: The simulated nodes. None: the file has no field ``nodes``.
        pods: The rules; for each annotation the first matching rule that has it counts.
        seed: The seed of the random numbers for jitter.
    """

    nodes: tuple[NodeTemplate, ...] | None = None
    pods: tuple[PodRule, ...] = ()
    seed: int = 0

    @classmethod
    def read(cls, path: Path) -> SimulationRules:
        """Read a simulation file.

        Raises:
            ConfigError: The file cannot be read or has an invalid field, which the message names.
        """
        from kubeloop.codec import read_yaml  # A server without such a file does not load the parser.

        try:
            documents = read_yaml(path.read_bytes(), name=path.name)
            if len(documents) > 1:
                raise ConfigError("more than one document")
            return cls.from_tree(documents[0] if documents else {})
        except OSError as fault:
            raise ConfigError(f"simulation file {path}: {fault.strerror or fault}") from None
        except (DecodeError, ConfigError) as fault:
            raise ConfigError(f"simulation file {path}: {fault}") from None

    @classmethod
    def from_tree(cls, tree: Any) -> SimulationRules:
        """Return the rules of a parsed simulation file.

        Raises:
            ConfigError: A field is invalid; the message names it.
        """
        top = _fields(tree, "the file", {"seed": int, "nodes": list, "pods": list})
        nodes = None
        if "nodes" in top:
            nodes = tuple(one for number, entry in enumerate(top["nodes"]) for one in _nodes(entry, f"nodes[{number}]"))
            if len({one.name for one in nodes}) != len(nodes):
                raise ConfigError("nodes: two nodes have the same name")
        pods = tuple(_rule(entry, f"pods[{number}]") for number, entry in enumerate(top.get("pods", ())))
        return cls(nodes, pods, top.get("seed", 0))

    def simulation_of(self, pod: JSONObject) -> Simulation:
        """Return the behaviour of a pod, from its annotations and the annotations that the rules add."""
        defaults: dict[str, str] = {}
        for rule in self.pods:
            defaults = {**rule.values_of(pod), **defaults}
        return Simulation.from_pod(pod, defaults, self.seed)


_NODE_FIELDS: dict[str, Any] = {
    "name": str,
    "count": int,
    "labels": dict,
    "capacity": dict,
    "taints": list,
    "usage": dict,
    "failures": list,
}
_RULE_FIELDS: dict[str, Any] = {"namespaces": list, "nodes": list, "labels": str, "annotations": dict, "programs": list, "simulate": dict}


def _nodes(entry: Any, place: str) -> list[NodeTemplate]:
    fields = _fields(entry, place, _NODE_FIELDS)
    count, name = fields.get("count"), fields.get("name", "kubeloop-node")
    node_names(name)
    capacity = {str(key): str(value) for key, value in fields.get("capacity", {}).items()}
    for resource, amount in capacity.items():
        _quantity(amount, f"{place}.capacity.{resource}")
    failures = []
    for number, failure in enumerate(fields.get("failures", ())):
        times = _fields(failure, f"{place}.failures[{number}]", {"after": float, "seconds": float})
        failures.append(NodeFailure(times.get("after", 0.0), times.get("seconds", math.inf)))
    usage = {}
    for resource, text in fields.get("usage", {}).items():
        if resource not in ("cpu", "memory"):
            raise ConfigError(f"{place}.usage: {resource} is neither cpu nor memory")
        try:
            usage[resource] = UsageFunction.parse(str(text))
        except ValueError:
            raise ConfigError(f'{place}.usage.{resource}: "{text}" is not an amount, a growth or a wave') from None
    labels = {str(key): str(value) for key, value in fields.get("labels", {}).items()}
    taints = [{str(key): str(value) for key, value in taint.items()} for taint in fields.get("taints", ())]
    names = [name] if count is None else [f"{name}-{number}" for number in range(count)]
    return [NodeTemplate(one, labels, capacity, taints, usage, failures) for one in names]


def _rule(entry: Any, place: str) -> PodRule:
    fields = _fields(entry, place, _RULE_FIELDS)
    simulate = {}
    for name, value in fields.get("simulate", {}).items():
        if "programs" in fields and (isinstance(value, dict) or f"{PREFIX}{name}" in (START_SECONDS, JITTER)):
            raise ConfigError(f"{place}.simulate.{name}: a rule with programs has one value, for the containers that match")
        pairs = ",".join(f"{container}={_text(one)}" for container, one in value.items()) if isinstance(value, dict) else _text(value)
        simulate[f"{PREFIX}{name}"] = pairs
    if LOG in simulate:
        raise ConfigError(f"{place}.simulate.log: the log of a pod is read from its annotations only")
    if faults := Simulation.from_pod({"metadata": {"name": "", "annotations": simulate}}).faults:
        raise ConfigError(f"{place}.simulate: {'; '.join(faults)}")
    labels = None
    if "labels" in fields:
        try:
            labels = parse_label_selector(fields["labels"])
        except ValueError as fault:
            raise ConfigError(f"{place}.labels: {fault}") from None
    annotations = {str(key): str(value) for key, value in fields.get("annotations", {}).items()}
    namespaces, nodes, programs = (tuple(map(str, fields.get(name, ()))) for name in ("namespaces", "nodes", "programs"))
    return PodRule(simulate, frozenset(namespaces), frozenset(nodes), labels, annotations, programs)


def _text(value: Any) -> str:
    return "/".join(map(str, value)) if isinstance(value, list) else str(value)


def _quantity(text: str, place: str) -> None:
    try:
        Quantity(text)
    except ValueError:
        raise ConfigError(f'{place}: "{text}" is not a valid quantity') from None


def _fields(tree: Any, place: str, known: Mapping[str, type]) -> dict[str, Any]:
    if not isinstance(tree, dict):
        raise ConfigError(f"{place} is not a map of {', '.join(known)}")
    for name, value in tree.items():
        if name not in known:
            raise ConfigError(f"{place}: {name} is not known; {', '.join(known)} are")
        desired = known[name]
        if isinstance(value, bool) or not isinstance(value, (int, float) if desired is float else desired):
            raise ConfigError(f"{place}.{name}: {value!r} is not {_WORDS[desired]}")
    return tree


_WORDS = {int: "a whole number", float: "a number", str: "text", list: "a list", dict: "a map"}
