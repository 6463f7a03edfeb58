"""Container ports and the host ports that containers share. Source: validateContainerPorts, checkHostPortConflicts."""

from __future__ import annotations

from kubeloop.apiserver.validation.formats import each, unsupported
from kubeloop.meta.field_error import Errors, duplicate, invalid, required
from kubeloop.meta.names import port_name, port_number
from kubeloop.types import JSONObject

PROTOCOLS = ("SCTP", "TCP", "UDP")


def container_ports(path: str, ports: list[JSONObject]) -> Errors:
    names: set[str] = set()
    for at, port in enumerate(ports):
        here = f"{path}[{at}]"
        if name := port.get("name"):
            if faults := port_name(name):
                yield from each(f"{here}.name", name, faults)
            elif name in names:
                yield duplicate(f"{here}.name", name)
            names.add(name)
        if number := port.get("containerPort"):
            yield from each(f"{here}.containerPort", number, port_number(number))
        else:
            yield required(f"{here}.containerPort")
        if number := port.get("hostPort"):
            yield from each(f"{here}.hostPort", number, port_number(number))
        if not port.get("protocol"):
            yield required(f"{here}.protocol")
        elif port["protocol"] not in PROTOCOLS:
            yield unsupported(f"{here}.protocol", port["protocol"], PROTOCOLS)


def host_port_conflicts(path: str, containers: list[JSONObject], *, first: int = 0) -> Errors:
    """``first``: what upstream counts from when it looks at one container by itself."""
    taken: set[str] = set()
    for at, container in enumerate(containers):
        for port_at, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
            if key in taken:
                yield duplicate(f"{path}[{at + first}].ports[{port_at}].hostPort", key)
            taken.add(key)


def host_network_ports(path: str, spec: JSONObject, *, is_pod: bool) -> Errors:
    """With the host's network a container's port is the host's; a template may leave it to the pod's defaults."""
    if not spec.get("hostNetwork"):
        return
    for at, container in enumerate(spec.get("containers") or ()):
        for port_at, port in enumerate(container.get("ports") or ()):
            host, own = port.get("hostPort", 0), port.get("containerPort", 0)
            if (is_pod or host) and host != own:
                here = f"{path}.containers[{at}].ports[{port_at}].hostPort"
                yield invalid(here, host, "must match `containerPort` when `hostNetwork` is true")
