"""Finds the pod and container that a caller means, by the rules of kubectl (pkg/polymorphichelpers, pkg/cmd/util/podcmd)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from kubeloop.client.streams.errors import StreamError
from kubeloop.meta import DeadlineError, LabelSelector, Resource

if TYPE_CHECKING:
    from kubeloop.api.core.v1 import Container, ContainerStatus, EphemeralContainer, Pod, Service
    from kubeloop.client.client import Client
    from kubeloop.client.selector_text import Labels

_logger = logging.getLogger("kubeloop.client.streams")

Target: TypeAlias = str | Resource
"""A pod by name, anything with pods as kubectl spells it (``svc/web``, ``deploy/web``), or the object itself."""

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
#: Seconds that are waited for a first pod of a workload, as by kubectl.
POD_TIMEOUT = 60.0
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)
_PHASES = {"Running": 0, "Unknown": 1, "Pending": 2}


@dataclass(frozen=True, slots=True)
class Found:
    """The pod, and the service that led to it, whose ports are not the pod's."""

    pod: Pod
    service: Service | None = None


async def find_pod(client: Client, target: Target, namespace: str | None, timeout: float = POD_TIMEOUT) -> Found:
    """The pod that ``target`` is, or the best one of its pods: assigned, running, ready, ready for longest, restarted least, oldest.

    Raises:
        NotFound: there is no such object. StreamError: it selects no pods.
        DeadlineError: none of its pods came into being within ``timeout`` seconds.
    """
    from kubeloop.api.core.v1 import Pod, Service

    found = target if isinstance(target, Resource) else await client.get(*_named(target), namespace=namespace)
    if isinstance(found, Pod):
        return Found(found)
    selector = selector_of(found)
    if not (space := found.metadata.namespace or namespace or client.namespace):
        raise ValueError(f"{_shown(found)} has no namespace; set metadata.namespace or give namespace=")
    pods = list(await client.list(Pod, namespace=space, labels=selector))
    if not pods:
        pods = [await _first_of(client, found, space, selector, timeout)]
    return Found(min(pods, key=_rank), found if isinstance(found, Service) else None)


def selector_of(found: Resource) -> Labels:
    """Which pods belong to it. Raises StreamError: it has none."""
    selector = getattr(getattr(found, "spec", None), "selector", None)
    if isinstance(selector, LabelSelector) and (selector.match_labels or selector.match_expressions):
        return selector
    if isinstance(selector, dict) and selector:
        return {str(key): str(value) for key, value in selector.items()}
    raise StreamError(f"{_shown(found)} has no selector, so it has no pods; name a pod")


def container_of(pod: Pod, name: str | None) -> Container | EphemeralContainer:
    """The container of that name; without one the pod's default one, which is the first if no annotation says otherwise.

    Raises:
        StreamError: there is none of that name.
    """
    spec = pod.spec
    wanted = name or (pod.metadata.annotations or {}).get(DEFAULT_CONTAINER, "")
    containers = all_containers(pod)
    if not wanted:
        if not spec.containers:
            raise StreamError(f"{_shown(pod)} has no containers")
        if len(containers) > 1:
            _logger.info('%s: container "%s" is taken, the first of: %s', _shown(pod), spec.containers[0].name, _names(pod))
        return spec.containers[0]
    for container in containers:
        if container.name == wanted:
            return container
    raise StreamError(f'{_shown(pod)} has no container "{wanted}"; it has: {_names(pod)}')


def all_containers(pod: Pod) -> list[Container | EphemeralContainer]:
    """In kubectl's order for logs: those that run first, first; ephemeral ones last."""
    return [*pod.spec.init_containers, *pod.spec.containers, *pod.spec.ephemeral_containers]


def status_of(pod: Pod, container: str) -> ContainerStatus | None:
    status = pod.status
    for one in (*status.container_statuses, *status.init_container_statuses, *status.ephemeral_container_statuses):
        if one.name == container:
            return one
    return None


def check_running(pod: Pod, what: str) -> None:
    """Raises StreamError: the pod has completed, so that nothing runs in it any more."""
    if pod.status.phase in ("Succeeded", "Failed"):
        raise StreamError(f"{what} is not possible in {_shown(pod)}: it has completed (phase {pod.status.phase})")


def _named(target: str) -> tuple[type[Resource], str]:
    from kubeloop.api.apps.v1 import DaemonSet, Deployment, ReplicaSet, StatefulSet
    from kubeloop.api.batch.v1 import Job
    from kubeloop.api.core.v1 import Pod, ReplicationController, Service

    word, slash, name = target.partition("/")
    if not slash:
        return Pod, target
    for kind in (Pod, Service, Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, ReplicationController):
        info = kind.__kind_info__
        if word.lower() in (info.singular, info.plural, *info.short_names):
            return kind, name
    raise ValueError(f'"{target}": "{word}" has no pods; give a pod\'s name, or one of pod/, svc/, deploy/, rs/, sts/, ds/, job/, rc/')


async def _first_of(client: Client, found: Resource, namespace: str, selector: Labels, timeout: float) -> Pod:
    from kubeloop.api.core.v1 import Pod

    try:
        async with asyncio.timeout(timeout), client.watch(Pod, namespace=namespace, labels=selector) as events:
            async for event in events:
                if event.type != "DELETED":
                    return event.object
    except TimeoutError as error:
        raise DeadlineError(f"{_shown(found)}: no pod of its came into being within {timeout:g} s") from error
    raise StreamError(f"{_shown(found)} has no pods")


def _rank(pod: Pod) -> tuple[bool, int, bool, bool, float, int, float]:
    """The smaller the better."""
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
    """None is later than anything."""
    return (time if isinstance(time, datetime) else _END_OF_TIME).timestamp()


def _names(pod: Pod) -> str:
    spec = pod.spec
    names = [one.name for one in spec.containers]
    names += [f"{one.name} (ephemeral)" for one in spec.ephemeral_containers] + [f"{one.name} (init)" for one in spec.init_containers]
    return ", ".join(names)


def _shown(found: Resource) -> str:
    namespace = f' in namespace "{found.metadata.namespace}"' if found.metadata.namespace else ""
    return f'{found.kind} "{found.metadata.name}"{namespace}'
