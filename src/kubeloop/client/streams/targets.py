"""Resolves targets of streams by the rules of kubectl: the pod, the container and the port that a caller names."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from kubeloop.client.mapper import segment
from kubeloop.client.streams.errors import StreamError
from kubeloop.meta import DeadlineError, LabelSelector, Resource
from kubeloop.meta.type_checks import described
from kubeloop.timing import TimeLimit

if TYPE_CHECKING:
    from kubeloop.api.core.v1 import Container, ContainerStatus, EphemeralContainer, Pod, Service, ServicePort
    from kubeloop.client.client import Client
    from kubeloop.client.selector_text import Labels


@dataclass(frozen=True, slots=True)
class ContainerLocation:
    """A pod or one of its containers; ``container`` is empty for the whole pod."""

    namespace: str
    pod: str
    container: str = ""

    def path(self, subresource: str) -> str:
        """Return the path of a subresource. Raises ValueError: a name or namespace that would lead to another path."""
        return f"/api/v1/namespaces/{segment(self.namespace, 'namespace')}/pods/{segment(self.pod, 'name')}/{subresource}"

    def __str__(self) -> str:
        container = f'container "{self.container}" of ' if self.container else ""
        return f'{container}pod "{self.pod}" in namespace "{self.namespace}"'


_LOG = logging.getLogger("kubeloop.client.streams")

Target: TypeAlias = str | Resource
"""The name of a pod, a service or workload in kubectl's form (``svc/web``, ``deploy/web``), or such an object."""

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
#: Default seconds to wait for the first pod of a workload, as in kubectl.
POD_TIMEOUT = 60.0
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)
_PHASES = {"Running": 0, "Unknown": 1, "Pending": 2}


@dataclass(frozen=True, slots=True)
class TargetPod:
    """The pod of a target, and the service that led to it, whose ports may differ from the pod's."""

    pod: Pod
    service: Service | None = None


async def find_pod(client: Client, target: Target, namespace: str | None, timeout: float = POD_TIMEOUT) -> TargetPod:
    """Return the pod of a target, the best if there are several.

    The criteria are, in this order: assigned to a node, running, ready, not being deleted, ready for longest, fewest restarts, oldest.

    Args:
        client: The client to read with.
        target: A pod, or an object with pods.
        namespace: None: the client's.
        timeout: Seconds to wait for the first pod of an object.

    Returns:
        The pod and the service, if the target is one.

    Raises:
        NotFound: The object does not exist. StreamError: the object has no selector for pods.
        DeadlineError: The object had no pod within ``timeout`` seconds.
    """
    from kubeloop.api.core.v1 import Pod, Service

    found = target if isinstance(target, Resource) else await client.get(*named(target), namespace=namespace)
    if isinstance(found, Pod):
        if not found.metadata.namespace or not found.metadata.name:
            raise ValueError(f"{_shown(found)} is not a pod that was read from a server: it has no name, or no namespace")
        return TargetPod(found)
    pods = await _pods_of(client, found, namespace) or [await _first_of(client, found, namespace, timeout)]
    return TargetPod(pods[0], found if isinstance(found, Service) else None)


async def find_pods(client: Client, targets: Sequence[Target], label_selector: Labels | None, namespace: str | None) -> list[Pod]:
    """Return all pods of each target, the best first, then the pods with matching labels; each pod once.

    Args:
        client: The client to read with.
        targets: Pods, or objects with pods.
        label_selector: Labels of further pods.
        namespace: None: the client's.

    Returns:
        The pods.

    Raises:
        NotFound: An object does not exist. StreamError: an object has no selector for pods. ValueError: neither targets nor labels.
    """
    from kubeloop.api.core.v1 import Pod

    if not targets and label_selector is None:
        raise ValueError("give targets, or label_selector; label_selector={} selects all pods of a namespace")
    result: dict[tuple[str, str], Pod] = {}
    for target in targets:
        one = target if isinstance(target, Resource) else await client.get(*named(target), namespace=namespace)
        pods = [one] if isinstance(one, Pod) else await _pods_of(client, one, namespace)
        result.update({(pod.metadata.namespace, pod.metadata.name): pod for pod in pods})
    if label_selector is not None:
        async for pod in client.list(Pod, namespace=namespace or client.namespace, label_selector=label_selector):
            result.setdefault((pod.metadata.namespace, pod.metadata.name), pod)
    return list(result.values())


def selector_of(obj: Resource) -> Labels:
    """Return the labels of an object's pods. Raises StreamError: it has no selector."""
    selector = getattr(getattr(obj, "spec", None), "selector", None)
    if isinstance(selector, LabelSelector) and (selector.match_labels or selector.match_expressions):
        return selector
    if isinstance(selector, dict) and selector:
        return {str(key): str(value) for key, value in selector.items()}
    raise StreamError(f"{_shown(obj)} has no selector, so it has no pods; name a pod")


def container_of(pod: Pod, name: str | None) -> Container | EphemeralContainer:
    """Return a container by its name. Without a name, return the default container in the pod's annotation, or else the first one.

    Raises:
        StreamError: There is no container of that name.
    """
    spec = pod.spec
    wanted = name or (pod.metadata.annotations or {}).get(DEFAULT_CONTAINER, "")
    containers = all_containers(pod)
    if not wanted:
        if not spec.containers:
            raise StreamError(f"{_shown(pod)} has no containers")
        if len(containers) > 1:
            _LOG.info('%s: using container "%s", the first of: %s', _shown(pod), spec.containers[0].name, _names(pod))
        return spec.containers[0]
    for container in containers:
        if container.name == wanted:
            return container
    raise StreamError(f'{_shown(pod)} has no container "{wanted}"; it has: {_names(pod)}')


def all_containers(pod: Pod) -> list[Container | EphemeralContainer]:
    """Return the containers in kubectl's order for logs: in the order in which they run, with ephemeral containers last."""
    return [*pod.spec.init_containers, *pod.spec.containers, *pod.spec.ephemeral_containers]


def status_of(pod: Pod, container: str) -> ContainerStatus | None:
    """Return the status of a container of any type, or None if the pod has none yet."""
    status = pod.status
    for one in (*status.container_statuses, *status.init_container_statuses, *status.ephemeral_container_statuses):
        if one.name == container:
            return one
    return None


def check_running(pod: Pod, operation: str) -> None:
    """Raise StreamError if the pod has completed, so that it runs no process any more."""
    if pod.status.phase in ("Succeeded", "Failed"):
        raise StreamError(f"{operation} is not possible in {_shown(pod)}: it has completed (phase {pod.status.phase})")


def named(target: str) -> tuple[type[Resource], str]:
    """Return the kind and the name in a text such as ``deploy/web``; a name alone means a pod."""
    from kubeloop.api.apps.v1 import DaemonSet, Deployment, ReplicaSet, StatefulSet
    from kubeloop.api.batch.v1 import Job
    from kubeloop.api.core.v1 import Pod, ReplicationController, Service

    if not isinstance(target, str):
        raise TypeError(f'{described(target)} names no pod: give "web-0", "deploy/web", "svc/web" or an object that was read')
    word, slash, name = target.partition("/")
    if not slash:
        return Pod, target
    for kind in (Pod, Service, Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, ReplicationController):
        info = kind.__kind_info__
        if word.lower() in (info.singular, info.plural, *info.short_names):
            return kind, name
    raise ValueError(f'"{target}": "{word}" has no pods; give a pod\'s name, or one of pod/, svc/, deploy/, rs/, sts/, ds/, job/, rc/')


async def _pods_of(client: Client, obj: Resource, namespace: str | None) -> list[Pod]:
    """Return an object's pods, the best first."""
    from kubeloop.api.core.v1 import Pod

    space = obj.metadata.namespace or namespace or client.namespace
    return sorted(await client.list(Pod, namespace=space, label_selector=selector_of(obj)), key=_rank)


async def _first_of(client: Client, obj: Resource, namespace: str | None, timeout: float) -> Pod:
    from kubeloop.api.core.v1 import Pod

    space = obj.metadata.namespace or namespace or client.namespace
    try:
        async with TimeLimit(client.clock, timeout), client.watch(Pod, namespace=space, label_selector=selector_of(obj)) as events:
            async for event in events:
                if event.type != "DELETED":
                    return event.object
    except DeadlineError:
        raise
    except TimeoutError as error:
        raise DeadlineError(f"{_shown(obj)}: no pod of it was created within {timeout:g} s") from error
    raise StreamError(f"{_shown(obj)} has no pods")


def _rank(pod: Pod) -> tuple[bool, int, bool, bool, float, int, float]:
    """Return the sort key of a pod; the best pod has the smallest."""
    ready = next((one for one in pod.status.conditions if one.type == "Ready" and one.status == "True"), None)
    since = _seconds(getattr(ready, "last_transition_time", None))
    restarts = max((one.restart_count for one in pod.status.container_statuses), default=0)
    deleting = pod.metadata.deletion_timestamp is not None
    return (
        not pod.spec.node_name,
        _PHASES.get(pod.status.phase or "", 2),
        ready is None,
        deleting,
        since,
        restarts,
        _seconds(pod.metadata.creation_timestamp),
    )


def _seconds(time: object) -> float:
    """Return a time in seconds since 1970; None counts as later than any time."""
    return (time if isinstance(time, datetime) else _END_OF_TIME).timestamp()


def _names(pod: Pod) -> str:
    spec = pod.spec
    names = [one.name for one in spec.containers]
    names += [f"{one.name} (ephemeral)" for one in spec.ephemeral_containers] + [f"{one.name} (init)" for one in spec.init_containers]
    return ", ".join(names)


def _shown(obj: Resource) -> str:
    namespace = f' in namespace "{obj.metadata.namespace}"' if obj.metadata.namespace else ""
    return f'{obj.kind} "{obj.metadata.name}"{namespace}'


# Resolves ports: kubectl's ``local:remote``, names of ports, and ports of a service, which may differ from those of its pods.
#
# Source: kubectl pkg/cmd/portforward and pkg/util (service_port.go, pod_port.go).


PortSpec: TypeAlias = int | str
"""``8080``, ``"8080:80"``, ``":80"`` (any free local port), ``"8080:http"``."""

_LARGEST = 65535
# Names of a service's ports are labels of DNS; those of a container's are shorter (apimachinery pkg/util/validation).
_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class PortRequest:
    """A port to forward. ``local`` 0 is any free port, -1 the number of ``remote``; ``remote`` is a number or name as in the argument."""

    local: int
    remote: str


def parse_port(spec: PortSpec) -> PortRequest:
    """Parse a port in kubectl's syntax. Raises ValueError if it is malformed or out of range, TypeError if it is not text or a number."""
    if not isinstance(spec, str | int):
        raise TypeError(f'{described(spec)} is not a port to forward; write 8080, "8080:80", ":80" or "8080:http"')
    local, colon, remote = str(spec).partition(":")
    if not colon:
        remote = local
    if not remote or ":" in remote:
        raise ValueError(f'{spec!r} is not a port to forward; write 8080, "8080:80", ":80" or "8080:http"')
    if remote.isascii() and remote.isdecimal() and not 1 <= _number(remote) <= _LARGEST:
        raise ValueError(f"{spec!r}: the remote port must be between 1 and {_LARGEST}")
    if not remote.isdecimal() and _NAME.fullmatch(remote) is None:
        raise ValueError(f'{spec!r}: "{remote}" is neither the number nor the name of a port')
    if not colon and not remote.isdecimal():
        return PortRequest(-1, remote)  # the number behind the name, once it is known
    if local and not (local.isascii() and local.isdecimal() and _number(local) <= _LARGEST):
        raise ValueError(f"{spec!r}: the local port must be a number between 0 and {_LARGEST}")
    return PortRequest(int(local or 0), remote)


def pod_port(target: TargetPod, remote: str) -> int:
    """Return the number of the pod's port for ``remote``.

    Raises:
        StreamError: The service or pod has no such port, or not for TCP.
    """
    if target.service is not None:
        return _through(target.service, target.pod, remote)
    if remote.isdecimal():
        _check_tcp([(one.container_port, one.protocol) for container in target.pod.spec.containers for one in container.ports], int(remote))
        return int(remote)
    return _named(target.pod, remote)


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
    # Sidecar containers (init containers with restartPolicy Always) may serve ports as well.
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for port in container.ports:
            if port.name == name:
                if port.protocol not in (None, "TCP"):
                    raise StreamError(
                        f'the port "{name}" of pod "{pod.metadata.name}" is for {port.protocol}, and only TCP can be forwarded'
                    )
                return port.container_port
    raise StreamError(f'pod "{pod.metadata.name}" has no port named "{name}"')


def _check_tcp(ports: list[tuple[int, str | None]], port_number: int) -> None:
    protocols = {protocol or "TCP" for port, protocol in ports if port == port_number}
    if protocols and "TCP" not in protocols:
        raise StreamError(f"port {port_number} is for {', '.join(sorted(protocols))}, and only TCP can be forwarded")


def _number(text: str) -> int:
    # More digits are no port, and int() refuses thousands of digits with another error.
    return int(text) if len(text) < 8 else _LARGEST + 1
