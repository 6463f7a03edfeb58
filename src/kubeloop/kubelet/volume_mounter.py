"""Mounts the volumes of one pod and updates their files, with a back-off for each volume that fails.

Source: Kubernetes pkg/kubelet/volumemanager/reconciler, pkg/volume/util/operationexecutor, pkg/util/goroutinemap/exponentialbackoff.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from kubeloop.api.core.v1 import Pod
from kubeloop.kubelet.environment import PodFields
from kubeloop.kubelet.volumes import FILLED_KINDS, ObjectReference, PodVolumes, VolumeError, VolumeManager, volume_kind
from kubeloop.meta.errors import KubeloopError
from kubeloop.tasks import SupervisedTask, Supervisor, close_all
from kubeloop.types import JSONObject

_LOG = logging.getLogger("kubeloop.kubelet")
#: Seconds of the first and the longest back-off of a volume: initialDurationBeforeRetry and maxDurationBeforeRetry upstream.
FIRST_RETRY, LONGEST_RETRY = 0.5, 122.0


@dataclass(slots=True)
class _Attempt:
    """When a volume is mounted or updated next, and the seconds of its back-off; zero after a success."""

    due: float
    back_off: float = 0.0


class VolumeMounter:
    """Mounts the volumes of one pod, each independently of the others.

    Guarantees:
        A volume that cannot be mounted or updated is retried after 0.5 s, then after twice as long each time, up to 122 s, and at once when
        a ConfigMap, Secret or claim that it needs appears or changes. Each failed attempt is reported once.

    Args:
        manager: Creates the volumes of all pods of the node.
        tasks: Supervises the watches of missing objects; its clock is that of the back-off.
        frequency: Seconds between two updates of a volume whose files come from the API server.
        failed: Called with the error text of each failed attempt.
        wake: Called when a volume that failed should be tried again at once.
    """

    def __init__(
        self, manager: VolumeManager, tasks: Supervisor, frequency: float, failed: Callable[[str], object], wake: Callable[[], object]
    ) -> None:
        self.volumes = PodVolumes()
        self._manager = manager
        self._tasks = tasks
        self._clock = tasks.clock
        self._frequency = frequency
        self._failed = failed
        self._wake = wake
        self._attempts: dict[str, _Attempt] = {}
        self._watches: dict[str, list[SupervisedTask]] = {}

    def mounted(self, tree: JSONObject) -> bool:
        """Return whether all volumes of the pod are mounted, even if a later update failed."""
        return all(volume["name"] in self.volumes.paths for volume in tree["spec"].get("volumes") or ())

    async def mount(self, pod: Pod, tree: JSONObject, fields: PodFields) -> float | None:
        """Mount or update the volumes that are due.

        Args:
            pod: The pod.
            tree: The pod as a JSON object.
            fields: Addresses and node resources for the downward API.

        Returns:
            The seconds until the next volume is due; None if no volume needs another attempt.

        Raises:
            ApiError: The server did not answer a request.
        """
        for volume in tree["spec"].get("volumes") or ():
            name, attempt = volume["name"], self._attempts.get(volume["name"])
            if attempt is not None and attempt.due > self._clock.now():
                continue
            if attempt is None and name in self.volumes.paths:
                continue
            await self._end_watches(name)
            try:
                self.volumes.paths[name] = await self._manager.mount(pod, tree, volume, self.volumes, fields)
            except VolumeError as error:
                self._back_off(name, attempt)
                self._failed(str(error))
                self._watch(pod.metadata.namespace, name, error.versions)
            else:
                self._attempts.pop(name, None)
                if volume_kind(volume) in FILLED_KINDS:
                    self._attempts[name] = _Attempt(self._clock.now() + self._frequency)
        dues = [attempt.due for attempt in self._attempts.values()]
        return max(0.0, min(dues) - self._clock.now()) if dues else None

    def _back_off(self, name: str, attempt: _Attempt | None) -> None:
        seconds = min(attempt.back_off * 2, LONGEST_RETRY) if attempt is not None and attempt.back_off else FIRST_RETRY
        self._attempts[name] = _Attempt(self._clock.now() + seconds, seconds)

    def _watch(self, namespace: str, volume: str, versions: Mapping[ObjectReference, str]) -> None:
        """Watch the objects that a failed volume needs, so that the volume is retried when an object appears or changes."""
        works = [partial(self._retry_after_change, namespace, volume, reference, version) for reference, version in versions.items()]
        self._watches[volume] = [self._tasks.start(work, name="volume-watch", subject=volume) for work in works]

    async def _end_watches(self, volume: str) -> None:
        await close_all(*[task.stop for task in self._watches.pop(volume, ())])

    async def _retry_after_change(self, namespace: str, volume: str, reference: ObjectReference, version: str) -> None:
        try:
            await self._manager.wait_changed(namespace, reference, version)
        except KubeloopError as error:
            # The back-off still retries the volume.
            _LOG.info("%s %s/%s cannot be watched: %s", reference[0], namespace, reference[1], error)
            return
        if attempt := self._attempts.get(volume):
            attempt.due = self._clock.now()
        self._wake()

    async def close(self) -> None:
        """End the watches."""
        await close_all(*[partial(self._end_watches, volume) for volume in list(self._watches)])
