"""Environment variables of a container: values, references, the downward API, and the variables of services.

Pure functions: the data of ConfigMaps and Secrets are arguments.

Source: Kubernetes pkg/kubelet/kubelet_pods.go (makeEnvironmentVariables), pkg/kubelet/envvars, third_party/forked/golang/expansion.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubeloop.meta import Quantity
from kubeloop.types import JSONObject


class ConfigurationError(Exception):
    """A container cannot be created from its specification; the reason of its state is CreateContainerConfigError."""


@dataclass(frozen=True)
class PodFields:
    """Values of the downward API that the kubelet knows before they are in the pod's status.

    ``allocatable`` has the node's resources, which replace limits that a container does not set.
    """

    pod_ip: str = ""
    host_ip: str = ""
    allocatable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ConfigurationSources:
    """Data of ConfigMaps and Secrets by kind and name; None for an object that does not exist.

    Example:
        >>> ConfigurationSources({("ConfigMap", "web"): {"color": b"red"}}).data("ConfigMap", "web")
        {'color': b'red'}
    """

    objects: Mapping[tuple[str, str], Mapping[str, bytes] | None] = field(default_factory=dict)
    #: Resource versions of the objects; empty for an object that does not exist.
    versions: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def data(self, kind: str, name: str, *, optional: bool = False) -> Mapping[str, bytes] | None:
        """Return the data of an object, or None if it is optional and missing.

        Raises:
            ConfigurationError: The object does not exist.
        """
        result = self.objects.get((kind, name))
        if result is None and not optional:
            raise ConfigurationError(f'{kind.lower()} "{name}" not found')
        return result


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` by values; ``$$`` stands for a dollar sign, and an unknown reference stays as it is."""
    parts: list[str] = []
    position = 0
    while (dollar := text.find("$", position)) >= 0 and dollar + 1 < len(text):
        parts.append(text[position:dollar])
        following = text[dollar + 1]
        if following == "$":
            parts.append("$")
            position = dollar + 2
        elif following == "(" and (end := text.find(")", dollar + 2)) >= 0:
            name = text[dollar + 2 : end]
            parts.append(variables.get(name, f"$({name})"))
            position = end + 1
        elif following == "(":
            parts.append("$(")
            position = dollar + 2
        else:
            parts.append("$" + following)
            position = dollar + 2
    return "".join(parts) + text[position:]


def service_variables(services: Iterable[JSONObject], namespace: str) -> dict[str, str]:
    """Return the environment variables of services, such as WEB_SERVICE_HOST and WEB_PORT_80_TCP_ADDR.

    Args:
        services: The services of all namespaces.
        namespace: The pod's namespace; the service ``kubernetes`` of the namespace ``default`` is always included.
    """
    chosen: dict[str, JSONObject] = {}
    for service in services:
        metadata, spec = service["metadata"], service.get("spec") or {}
        if spec.get("clusterIP") in (None, "", "None") or not spec.get("ports"):
            continue
        master = metadata["namespace"] == "default" and metadata["name"] == "kubernetes"
        if metadata["namespace"] == namespace or (master and "kubernetes" not in chosen):
            chosen[metadata["name"]] = spec
    result: dict[str, str] = {}
    for name, spec in sorted(chosen.items()):
        prefix, address, ports = name.upper().replace("-", "_"), spec["clusterIP"], spec["ports"]
        result[f"{prefix}_SERVICE_HOST"] = address
        result[f"{prefix}_SERVICE_PORT"] = str(ports[0]["port"])
        for port in ports:
            if port.get("name"):
                result[f"{prefix}_SERVICE_PORT_{port['name'].upper().replace('-', '_')}"] = str(port["port"])
        for number, port in enumerate(ports):
            protocol = port.get("protocol") or "TCP"
            url = f"{protocol.lower()}://{address}:{port['port']}"
            if number == 0:
                result[f"{prefix}_PORT"] = url
            start = f"{prefix}_PORT_{port['port']}_{protocol}"
            result |= {start: url, f"{start}_PROTO": protocol.lower(), f"{start}_PORT": str(port["port"]), f"{start}_ADDR": address}
    return result


def container_environment(
    pod: JSONObject, container: JSONObject, sources: ConfigurationSources, fields: PodFields, services: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a container, without the variables of its image.

    Args:
        pod: The pod.
        container: One of its containers.
        sources: The ConfigMaps and Secrets that the container refers to.
        fields: Addresses and node resources for the downward API.
        services: Variables of services; the container's own variables take precedence.

    Returns:
        Values by name.

    Raises:
        ConfigurationError: A required object or key does not exist, or a reference is not supported.
    """
    enabled = pod["spec"].get("enableServiceLinks", True)
    links = {name: value for name, value in services.items() if enabled or name.startswith("KUBERNETES_")}
    result: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        kind, reference = ("ConfigMap", source["configMapRef"]) if source.get("configMapRef") else ("Secret", source["secretRef"])
        data = sources.data(kind, reference["name"], optional=bool(reference.get("optional"))) or {}
        result |= {f"{source.get('prefix') or ''}{key}": value.decode("utf-8", "replace") for key, value in data.items()}
    for variable in container.get("env") or ():
        if not variable.get("valueFrom"):
            result[variable["name"]] = expand(variable.get("value") or "", {**links, **result})
            continue
        value = _referenced(pod, container, variable["valueFrom"], sources, fields)
        if value is not None:
            result[variable["name"]] = value
    return {**links, **result}


def _referenced(pod: JSONObject, container: JSONObject, source: JSONObject, sources: ConfigurationSources, fields: PodFields) -> str | None:
    if source.get("fieldRef"):
        return field_value(pod, source["fieldRef"]["fieldPath"], fields)
    if source.get("resourceFieldRef"):
        return resource_value(pod, source["resourceFieldRef"], fields, container["name"])
    kind, name = ("ConfigMap", "configMapKeyRef") if source.get("configMapKeyRef") else ("Secret", "secretKeyRef")
    if name not in source:
        raise ConfigurationError(f"the environment's source {next(iter(source), '')} is not implemented by process pods")
    reference = source[name]
    optional = bool(reference.get("optional"))
    data = sources.data(kind, reference["name"], optional=optional)
    if data is None or reference["key"] not in data:
        if optional:
            return None
        namespace = pod["metadata"].get("namespace")
        raise ConfigurationError(f"couldn't find key {reference['key']} in {kind} {namespace}/{reference['name']}")
    return data[reference["key"]].decode("utf-8", "replace")


_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")


def field_value(pod: JSONObject, path: str, fields: PodFields) -> str:
    """Return the value of a ``fieldRef``.

    Raises:
        ConfigurationError: The downward API has no such field.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    if match := _SUBSCRIPT.fullmatch(path):
        return str((metadata.get(match[1]) or {}).get(match[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        values = metadata.get(path.partition(".")[2]) or {}
        return "\n".join(f"{key}={_quoted(value)}" for key, value in sorted(values.items()))
    values = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata.get("namespace") or "",
        "metadata.uid": metadata.get("uid") or "",
        "spec.nodeName": spec.get("nodeName") or "",
        "spec.serviceAccountName": spec.get("serviceAccountName") or "",
        "status.podIP": fields.pod_ip,
        "status.podIPs": fields.pod_ip,
        "status.hostIP": fields.host_ip,
        "status.hostIPs": fields.host_ip,
    }
    if path not in values:
        raise ConfigurationError(f"unsupported fieldPath: {path}")
    return str(values[path])


def resource_value(pod: JSONObject, reference: JSONObject, fields: PodFields, container_name: str = "") -> str:
    """Return the value of a ``resourceFieldRef``: the amount divided by the divisor, rounded up.

    Args:
        pod: The pod.
        reference: ``containerName``, ``resource`` and ``divisor``.
        fields: The node's resources, which replace missing limits.
        container_name: The container if the reference names none.

    Raises:
        ConfigurationError: The pod has no such container, or the reference is neither to limits nor to requests.
    """
    name = reference.get("containerName") or container_name
    spec = pod["spec"]
    container = next((one for one in [*(spec.get("initContainers") or ()), *spec["containers"]] if one["name"] == name), None)
    if container is None:
        raise ConfigurationError(f"container {name} not found")
    side, _, resource = reference["resource"].partition(".")
    if side not in ("limits", "requests"):
        raise ConfigurationError(f"Unsupported container resource : {reference['resource']}")
    amounts = container.get("resources") or {}
    text = (amounts.get(side) or {}).get(resource)
    if text is None:
        text = fields.allocatable.get(resource, "0") if side == "limits" else "0"
    divisor = Quantity(reference.get("divisor") or "1")
    if divisor == Quantity("0"):
        divisor = Quantity("1")
    return str(math.ceil(Quantity(text).as_fraction() / divisor.as_fraction()))


def _quoted(text: str) -> str:
    """Quote a text like Go's verb %q; correct for printable characters, newlines, carriage returns and tabs."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return f'"{escaped}"'


def references(container: JSONObject) -> set[tuple[str, str]]:
    """Return kind and name of the ConfigMaps and Secrets that a container's environment refers to."""
    result: set[tuple[str, str]] = set()
    sources: list[Any] = [*(container.get("envFrom") or ()), *(one.get("valueFrom") or {} for one in container.get("env") or ())]
    for source in sources:
        for kind, names in (("ConfigMap", ("configMapRef", "configMapKeyRef")), ("Secret", ("secretRef", "secretKeyRef"))):
            result |= {(kind, source[name]["name"]) for name in names if source.get(name)}
    return result
