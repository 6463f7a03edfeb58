"""Warnings about pods and templates: deprecated fields, and valid values that are likely mistakes. Source: pkg/api/pod/warnings.go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubeloop.apiserver.builtin.pods.options import all_containers
from kubeloop.apiserver.builtin.pods.security import APP_ARMOR, SECCOMP_CONTAINER, SECCOMP_POD
from kubeloop.apiserver.builtin.quantities import quantity
from kubeloop.apiserver.validation.formats import ip_warnings
from kubeloop.meta.strconv import go_quoted
from kubeloop.types import JSONObject

# Files of one volume with conflicting paths. Source: pkg/api/pod/warnings.go (warningsForOverlappingVirtualPaths).


#: A path in a volume, and the source that creates it.
_File = tuple[str, str]


def overlapping_files(volumes: list[JSONObject]) -> Iterator[str]:
    """Yield warnings about files of one volume with conflicting paths."""
    for volume in volumes:
        name = go_quoted(volume.get("name", ""))
        for kind, title in (("configMap", "name"), ("secret", "secretName"), ("downwardAPI", "")):
            value = volume.get(kind) or {}
            title_shown = _titled(kind, value.get(title, "")) if title else "DownwardAPI"
            yield from _overlaps(name, title_shown, [(item.get("path", ""), "") for item in value.get("items") or ()])
        yield from _projected(name, (volume.get("projected") or {}).get("sources") or [])


def _projected(name: str, sources: list[JSONObject]) -> Iterator[str]:
    files: list[_File] = []
    for source in sources:
        if not any(part is not None for part in source.values()):
            yield f"volume {name} (Projected) has no sources provided"
        files += _files(source)
    yield from _overlaps(name, "Projected", files)


def _files(source: JSONObject) -> list[_File]:
    for kind in ("configMap", "secret"):
        value = source.get(kind) or {}
        if value.get("items") is not None:
            return [(item.get("path", ""), _titled(kind, value.get("name", ""))) for item in value["items"]]
    if (items := (source.get("downwardAPI") or {}).get("items")) is not None:
        return [(item.get("path", ""), "DownwardAPI") for item in items]
    token = source.get("serviceAccountToken")
    return [] if token is None else [(token.get("path", ""), "ServiceAccountToken")]


def _titled(kind: str, name: str) -> str:
    return f"{kind[0].upper()}{kind[1:]} {go_quoted(name)}"


def _overlaps(name: str, volume_type: str, files: list[_File]) -> Iterator[str]:
    before: list[_File] = []
    for path, source in files:
        one = path.rstrip("/"), source
        for other in before:
            if one[0] and other[0] and _meet(one[0], other[0]):
                yield f"volume {name} ({volume_type}): overlapping paths: {_shown(one)} with {_shown(other)}"
        before.append(one)


def _meet(path: str, other: str) -> bool:
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")


def _shown(file: _File) -> str:
    path, source = file
    return f"{go_quoted(path)} ({source})" if source else go_quoted(path)


_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_VOLUME_PATHS = {"storageos": "storageOS"}
_NODE_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
}


def pod_warnings(path: str, metadata: JSONObject, spec: JSONObject) -> list[str]:
    """Return the warnings about a pod or template. ``path`` is that of the template, empty for a pod."""
    before = f"{path}." if path else ""
    return [
        *_node_labels(f"{before}spec", spec),
        *_annotations(f"{before}metadata.annotations", metadata.get("annotations") or {}),
        *_volumes(f"{before}spec.volumes", spec.get("volumes") or []),
        *overlapping_files(spec.get("volumes") or []),
        *_repeated(f"{before}spec", spec),
        *_fractions(f"{before}spec.overhead", spec.get("overhead") or {}),
        *_profiles(before, metadata.get("annotations") or {}, spec),
        *_ports(f"{before}spec", spec),
        *_grace(f"{before}spec.terminationGracePeriodSeconds", spec.get("terminationGracePeriodSeconds")),
        *_selectors(f"{before}spec", spec),
        *_addresses(f"{before}spec", spec),
    ]


def _node_labels(path: str, spec: JSONObject) -> Iterator[str]:
    for key in spec.get("nodeSelector") or {}:
        if key in _NODE_LABELS:
            yield f"{path}.nodeSelector[{key}]: {_NODE_LABELS[key]}"
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        here, key = f"{path}.topologySpreadConstraints[{index}]", constraint.get("topologyKey", "")
        if key in _NODE_LABELS:
            yield f"{here}.topologyKey: {key} is {_NODE_LABELS[key]}"
        if constraint.get("labelSelector") is None:
            yield f"{here}.labelSelector: a null labelSelector results in matching no pod"


def node_term_warnings(path: str, term: JSONObject) -> Iterator[str]:
    """Yield warnings about a term of a node selector."""
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        if (key := expression.get("key", "")) in _NODE_LABELS:
            yield f"{path}.matchExpressions[{index}].key: {key} is {_NODE_LABELS[key]}"


def selector_warnings(path: str, selector: JSONObject) -> Iterator[str]:
    """Yield warnings about a label selector for nodes."""
    yield from node_term_warnings(path, selector)
    for key in selector.get("matchLabels") or {}:
        if key in _NODE_LABELS:
            yield f"{path}.matchLabels.{key}: {_NODE_LABELS[key]}"


def node_label_warnings(path: str, keys: Iterable[str]) -> Iterator[str]:
    """Yield warnings about the keys of a node selector map. All warnings name the path of the map."""
    for key in keys:
        if key in _NODE_LABELS:
            yield f"{path}: {_NODE_LABELS[key]}"


def _annotations(path: str, annotations: dict[str, str]) -> Iterator[str]:
    for key, message in _ANNOTATIONS.items():
        if key in annotations:
            yield f"{path}[{key}]: {message}"


def _volumes(path: str, volumes: list[JSONObject]) -> Iterator[str]:
    for index, volume in enumerate(volumes):
        for kind, message in _VOLUMES.items():
            if volume.get(kind) is not None:
                yield f"{path}[{index}].{_VOLUME_PATHS.get(kind, kind)}: {message}"


def _repeated(path: str, spec: JSONObject) -> Iterator[str]:
    for name, key, what in (("hostAliases", "ip", "ip"), ("imagePullSecrets", "name", "name")):
        seen: set[str] = set()
        for index, one in enumerate(spec.get(name) or ()):
            value = one.get(key, "")
            if value in seen:
                yield f'{path}.{name}[{index}].{key}: duplicate {what} "{value}"'
            seen.add(value)
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'


def _fractions(path: str, resources: dict[str, str]) -> Iterator[str]:
    for name in ("memory", "ephemeral-storage"):
        if name in resources and quantity(resources[name]).milli_value() % 1000:
            yield f'{path}[{name}]: fractional byte value "{resources[name]}" is invalid, must be an integer'


def _profiles(before: str, annotations: dict[str, str], spec: JSONObject) -> Iterator[str]:
    seccomp = 'non-functional in v1.27+; use the "seccompProfile" field instead'
    context = spec.get("securityContext") or {}
    if context.get("seccompProfile") is None and SECCOMP_POD in annotations:
        yield f"{before}metadata.annotations[{SECCOMP_POD}]: {seccomp}"
    for container, here in all_containers(spec, f"{before}spec"):
        own, name = container.get("securityContext") or {}, container.get("name", "")
        if own.get("seccompProfile") is None and SECCOMP_CONTAINER + name in annotations:
            yield f"{before}metadata.annotations[{SECCOMP_CONTAINER}{name}]: {seccomp}"
        if before and own.get("appArmorProfile") is None and APP_ARMOR + name in annotations and context.get("appArmorProfile") is None:
            yield f'{before}metadata.annotations[{APP_ARMOR}{name}]: deprecated since v1.30; use the "appArmorProfile" field instead'
        resources = container.get("resources") or {}
        for resource in ("memory", "ephemeral-storage"):
            for part in ("limits", "requests"):
                value = resources.get(part) or {}
                if resource in value:
                    yield from _fractions(f"{here}.resources.{part}", {resource: value[resource]})
        yield from _environment(f"{here}.env", container.get("env") or [])


def _environment(path: str, variables: list[JSONObject]) -> Iterator[str]:
    seen: set[str] = set()
    for index, variable in enumerate(variables):
        name, value = variable.get("name", ""), variable.get("value", "")
        reference = f"$({name})"
        if name in seen and (variable.get("valueFrom") is not None or value == reference or reference not in value):
            yield f'{path}[{index}]: hides previous definition of "{name}", which may be dropped when using apply'
        seen.add(name)


def _ports(path: str, spec: JSONObject) -> Iterator[str]:
    known: dict[tuple[int, str], list[tuple[str, JSONObject]]] = {}
    for container, where in all_containers(spec, path):
        for index, port in enumerate(container.get("ports") or ()):
            here, same = f"{where}.ports[{index}]", known.setdefault((port.get("containerPort", 0), port.get("protocol", "")), [])
            if port.get("hostIP") and not port.get("hostPort"):
                yield f"{here}: hostIP set without hostPort: {_in_go(port)}"
            for other_path, other in same:
                if error := _conflict(port, other):
                    yield f"{here}: {error} port definition with {other_path}"
            same.append((here, port))
    names: dict[str, str] = {}
    for container, where in all_containers(spec, path):
        for index, port in enumerate(container.get("ports") or ()):
            here, name = f"{where}.ports[{index}]", port.get("name", "")
            if name and name in names:
                first = names[name]
                yield f'{here}: duplicate port name "{name}" with {first}, services and probes that select ports by name will use {first}'
            elif name:
                names[name] = here


def _in_go(port: JSONObject) -> str:
    """Format a port as Go prints the struct."""
    name, address, protocol = port.get("name", ""), port.get("hostIP", ""), port.get("protocol", "")
    return f"{{Name:{name} HostPort:0 ContainerPort:{port.get('containerPort', 0)} Protocol:{protocol} HostIP:{address}}}"


def _grace(path: str, seconds: int | None) -> Iterator[str]:
    if seconds is not None and seconds < 0:
        yield f"{path}: must be >= 0; negative values are invalid and will be treated as 1"


def _conflict(port: JSONObject, other: JSONObject) -> str:
    ip, number = port.get("hostIP", ""), port.get("hostPort", 0)
    other_ip, other_number = other.get("hostIP", ""), other.get("hostPort", 0)
    if (ip, number) == (other_ip, other_number):
        return "duplicate"
    if not number or not other_number:
        return "overlapping"
    return "dangerously ambiguous" if number == other_number and bool(ip) != bool(other_ip) else ""


def _selectors(path: str, spec: JSONObject) -> Iterator[str]:
    message = "a null labelSelector results in matching no pod"
    for kind in ("podAffinity", "podAntiAffinity"):
        value = (spec.get("affinity") or {}).get(kind) or {}
        for index, term in enumerate(value.get("requiredDuringSchedulingIgnoredDuringExecution") or ()):
            if term.get("labelSelector") is None:
                yield f"{path}.affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution[{index}].labelSelector: {message}"
        for index, term in enumerate(value.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
            if (term.get("podAffinityTerm") or {}).get("labelSelector") is None:
                below = f"{path}.affinity.{kind}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
                yield f"{below}.podAffinityTerm.labelSelector: {message}"


def _addresses(path: str, spec: JSONObject) -> Iterator[str]:
    for index, server in enumerate((spec.get("dnsConfig") or {}).get("nameservers") or ()):
        yield from ip_warnings(f"{path}.dnsConfig.nameservers[{index}]", server)
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        yield from ip_warnings(f"{path}.hostAliases[{index}].ip", alias.get("ip", ""))
