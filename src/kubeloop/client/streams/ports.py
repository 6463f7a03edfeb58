"""Which port is meant: kubectl's ``local:remote``, names of ports, and ports of a service, which are not those of its pods.

Source: kubectl pkg/cmd/portforward and pkg/util (service_port.go, pod_port.go).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from kubeloop.client.streams.errors import StreamError
from kubeloop.client.streams.pods import Found
from kubeloop.meta.type_checks import described

if TYPE_CHECKING:
    from kubeloop.api.core.v1 import Pod, Service, ServicePort

PortSpec: TypeAlias = int | str
"""``8080``, ``"8080:80"``, ``":80"`` (any free local port), ``"8080:http"``."""

_LARGEST = 65535
# Names of a service's ports are labels of DNS; those of a container's are shorter (apimachinery pkg/util/validation).
_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Wanted:
    """``local`` 0 is any free port. ``remote`` is as the caller named it: a number, or a name."""

    local: int
    remote: str


def parse_port(spec: PortSpec) -> Wanted:
    """Raises ValueError: it is none of those forms, or a number is no port. TypeError: neither a text nor a number."""
    if not isinstance(spec, str | int):
        raise TypeError(f'{described(spec)} is no port to forward; write 8080, "8080:80", ":80" or "8080:http"')
    local, colon, remote = str(spec).partition(":")
    if not colon:
        remote = local
    if not remote or ":" in remote:
        raise ValueError(f'{spec!r} is no port to forward; write 8080, "8080:80", ":80" or "8080:http"')
    if remote.isascii() and remote.isdecimal() and not 1 <= _number(remote) <= _LARGEST:
        raise ValueError(f"{spec!r}: the remote port must be between 1 and {_LARGEST}")
    if not remote.isdecimal() and _NAME.fullmatch(remote) is None:
        raise ValueError(f'{spec!r}: "{remote}" is neither the number nor the name of a port')
    if not colon and not remote.isdecimal():
        return Wanted(-1, remote)  # the number behind the name, once it is known
    if local and not (local.isascii() and local.isdecimal() and _number(local) <= _LARGEST):
        raise ValueError(f"{spec!r}: the local port must be a number between 0 and {_LARGEST}")
    return Wanted(int(local or 0), remote)


def pod_port(found: Found, remote: str) -> int:
    """The port of the pod that ``remote`` leads to.

    Raises:
        StreamError: the service or pod has no such port, or not for TCP.
    """
    if found.service is not None:
        return _through(found.service, found.pod, remote)
    if remote.isdecimal():
        _check_tcp([(one.container_port, one.protocol) for container in found.pod.spec.containers for one in container.ports], int(remote))
        return int(remote)
    return _named(found.pod, remote)


def _through(service: Service, pod: Pod, remote: str) -> int:
    ports = service.spec.ports
    port = next((one for one in ports if (one.port == int(remote) if remote.isdecimal() else one.name == remote)), None)
    if port is None:
        told = ", ".join(f"{one.port}" + (f" ({one.name})" if one.name else "") for one in ports) or "none"
        raise StreamError(f'Service "{service.metadata.name}" has no port {remote}; it has: {told}')
    _check_tcp([(one.port, one.protocol) for one in ports], port.port)
    return _target(service, port, pod)


def _target(service: Service, port: ServicePort, pod: Pod) -> int:
    # A headless service leads to the pods themselves: its target port is not used.
    if service.spec.cluster_ip == "None" or not port.target_port:
        return port.port
    return port.target_port if isinstance(port.target_port, int) else _named(pod, port.target_port)


def _named(pod: Pod, name: str) -> int:
    # Containers that go on beside the others may serve ports as well (restartPolicy Always of an init container).
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for port in container.ports:
            if port.name == name:
                if port.protocol not in (None, "TCP"):
                    raise StreamError(
                        f'the port "{name}" of pod "{pod.metadata.name}" is for {port.protocol}, and only TCP can be forwarded'
                    )
                return port.container_port
    raise StreamError(f'pod "{pod.metadata.name}" has no port named "{name}"')


def _check_tcp(ports: list[tuple[int, str | None]], wanted: int) -> None:
    protocols = {protocol or "TCP" for port, protocol in ports if port == wanted}
    if protocols and "TCP" not in protocols:
        raise StreamError(f"port {wanted} is for {', '.join(sorted(protocols))}, and only TCP can be forwarded")


def _number(text: str) -> int:
    # More digits are no port, and int() refuses thousands of them with an error of its own.
    return int(text) if len(text) < 8 else _LARGEST + 1
