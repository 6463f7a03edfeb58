"""Ports of containers, and the probes and lifecycle hooks that connect to them.

Source: validateContainerPorts, checkHostPortConflicts, validateProbe, validateHandler, validateLifecycle.
"""

from __future__ import annotations

from kubeloop.apiserver.validation.formats import check_not_negative, each, unsupported
from kubeloop.meta.field_error import Errors, duplicate, forbidden, invalid, required
from kubeloop.meta.names import http_header_name, port_name, port_number
from kubeloop.types import JSONObject


def validate_port_number_or_name(path: str, port: object) -> Errors:
    """Validate a port number or the name of a port."""
    if isinstance(port, str):
        yield from each(path, port, port_name(port))
    else:
        number = port if isinstance(port, int) else 0
        yield from each(path, number, port_number(number))


def validate_probes(path: str, container: JSONObject, grace: int | None) -> Errors:
    """Validate the probes of a container. ``grace`` is the termination grace period of the pod in seconds."""
    for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe, here = container.get(kind), f"{path}.{kind}"
        if probe is None:
            continue
        yield from _probe(here, probe, grace)
        if kind == "readinessProbe":
            if probe.get("terminationGracePeriodSeconds") is not None:
                yield invalid(
                    f"{here}.terminationGracePeriodSeconds", probe["terminationGracePeriodSeconds"], "must not be set for readinessProbes"
                )
        elif probe.get("successThreshold", 0) != 1:
            yield invalid(f"{here}.successThreshold", probe.get("successThreshold", 0), "must be 1")


def _probe(path: str, probe: JSONObject, grace: int | None) -> Errors:
    yield from validate_handler(path, probe, grace, ("exec", "httpGet", "tcpSocket", "grpc"))
    for name in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        yield from check_not_negative(f"{path}.{name}", probe.get(name))
    seconds = probe.get("terminationGracePeriodSeconds")
    if seconds is not None and seconds <= 0:
        yield invalid(f"{path}.terminationGracePeriodSeconds", seconds, "must be greater than 0")


def validate_handler(path: str, value: JSONObject, grace: int | None, kinds: tuple[str, ...]) -> Errors:
    """Validate a handler, which must have exactly one action.

    Args:
        path: Path of the handler.
        value: The handler.
        grace: Termination grace period of the pod in seconds; None if it is not set.
        kinds: Names of the allowed actions.

    Returns:
        The errors.
    """
    values = [kind for kind in kinds if value.get(kind) is not None]
    if not values:
        yield required(path, "must specify a handler type")
    for index, kind in enumerate(values):
        here = f"{path}.{kind}"
        if index:
            yield forbidden(here, "may not specify more than 1 handler type")
        else:
            yield from _action(here, kind, value[kind], grace)


def _action(path: str, kind: str, action: JSONObject, grace: int | None) -> Errors:
    if kind == "exec":
        if not action.get("command"):
            yield required(f"{path}.command")
    elif kind == "httpGet":
        yield from _http_get(path, action)
    elif kind in ("tcpSocket", "grpc"):
        yield from validate_port_number_or_name(f"{path}.port", action.get("port", 0))
    elif grace is not None and not 0 <= action.get("seconds", 0) <= grace:
        yield invalid(path, action.get("seconds", 0), f"must be non-negative and less than terminationGracePeriodSeconds ({grace})")


def _http_get(path: str, action: JSONObject) -> Errors:
    if not action.get("path"):
        yield required(f"{path}.path")
    yield from validate_port_number_or_name(f"{path}.port", action.get("port", 0))
    if action.get("scheme", "") not in ("HTTP", "HTTPS"):
        yield unsupported(f"{path}.scheme", action.get("scheme", ""), ("HTTP", "HTTPS"))
    for header in action.get("httpHeaders") or ():
        name = header.get("name", "")
        yield from each(f"{path}.httpHeaders", name, http_header_name(name))


def validate_lifecycle(path: str, value: JSONObject, grace: int | None) -> Errors:
    """Validate lifecycle hooks."""
    for name in ("postStart", "preStop"):
        if value.get(name) is not None:
            yield from validate_handler(f"{path}.{name}", value[name], grace, ("exec", "httpGet", "tcpSocket", "sleep"))


PROTOCOLS = ("SCTP", "TCP", "UDP")


def validate_container_ports(path: str, ports: list[JSONObject]) -> Errors:
    """Validate the ports of a container."""
    names: set[str] = set()
    for index, port in enumerate(ports):
        here = f"{path}[{index}]"
        if name := port.get("name"):
            if errors := port_name(name):
                yield from each(f"{here}.name", name, errors)
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


def check_host_port_conflicts(path: str, containers: list[JSONObject], *, first: int = 0) -> Errors:
    """Check that no two containers use the same host port. ``first`` is the index of the first container in messages."""
    taken: set[str] = set()
    for index, container in enumerate(containers):
        for port_at, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
            if key in taken:
                yield duplicate(f"{path}[{index + first}].ports[{port_at}].hostPort", key)
            taken.add(key)


def check_host_network_ports(path: str, spec: JSONObject, *, is_pod: bool) -> Errors:
    """Check that host ports equal container ports if the pod uses the network of the host.

    A template may leave the host ports to the defaults of pods.
    """
    if not spec.get("hostNetwork"):
        return
    for index, container in enumerate(spec.get("containers") or ()):
        for port_at, port in enumerate(container.get("ports") or ()):
            host, own = port.get("hostPort", 0), port.get("containerPort", 0)
            if (is_pod or host) and host != own:
                here = f"{path}.containers[{index}].ports[{port_at}].hostPort"
                yield invalid(here, host, "must match `containerPort` when `hostNetwork` is true")
