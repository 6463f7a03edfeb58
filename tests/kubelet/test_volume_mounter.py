"""When the volumes of a pod are mounted, updated, and tried again after a failure."""

from __future__ import annotations

import asyncio
import itertools
import logging
from pathlib import Path
from typing import Any, cast

import pytest

from kubeloop.api.core.v1 import PersistentVolumeClaim, Pod
from kubeloop.client import Client
from kubeloop.kubelet.environment import PodFields
from kubeloop.kubelet.volume_mounter import VolumeMounter
from kubeloop.kubelet.volumes import ObjectReader, ObjectReference, PodVolumes, VolumeError, VolumeManager
from kubeloop.meta import Forbidden, NotFound, ObjectMeta, Status
from kubeloop.tasks import Supervisor
from kubeloop.timing import FakeClock

MISSING: ObjectReference = ("ConfigMap", "none")


class Volumes(VolumeManager):
    """Volumes whose mounts fail while ``faults`` has their name; ``changes`` says which objects changed."""

    def __init__(self) -> None:
        self.faults: dict[str, dict[ObjectReference, str]] = {}
        self.mounts: list[str] = []
        self.changes: dict[ObjectReference, asyncio.Event] = {}
        self.watched: list[tuple[ObjectReference, str]] = []
        self.refusal: Exception | None = None

    async def mount(self, pod: Pod, tree: dict[str, Any], volume: dict[str, Any], volumes: PodVolumes, fields: PodFields) -> Path:
        self.mounts.append(volume["name"])
        if volume["name"] in self.faults:
            raise VolumeError(f"{volume['name']} failed", self.faults[volume["name"]])
        return Path(f"/{volume['name']}")

    async def wait_changed(self, namespace: str, reference: ObjectReference, version: str) -> None:
        self.watched.append((reference, version))
        if self.refusal is not None:
            raise self.refusal
        await self.changes.setdefault(reference, asyncio.Event()).wait()


class Worker:
    """Mounts the volumes ``data`` and ``settings`` as a pod's worker does: when they are due, and when it is woken."""

    def __init__(self) -> None:
        self.clock, self.manager, self.start = FakeClock(), Volumes(), 0.0
        self.start = self.clock.now()
        self.failures: list[tuple[float, str]] = []
        self.woken = asyncio.Event()
        self.tasks = Supervisor(self.clock, logging.getLogger("kubeloop.kubelet"))
        self.mounter = VolumeMounter(self.manager, self.tasks, 10.0, self._failed, self.woken.set)
        volumes: list[dict[str, Any]] = [{"name": "data", "emptyDir": {}}, {"name": "settings", "configMap": {"name": "none"}}]
        self.tree = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"volumes": volumes}}
        self.pod = Pod.from_dict({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"volumes": volumes, "containers": []}})

    def _failed(self, text: str) -> None:
        self.failures.append((self.clock.now() - self.start, text))

    async def mount(self) -> float | None:
        return await self.mounter.mount(self.pod, self.tree, PodFields())

    async def run(self, seconds: float) -> None:
        """Mount whenever a volume is due, for a time."""
        end = self.clock.now() + seconds
        while (wait := await self.mount()) is not None and self.clock.now() + wait <= end:
            await self.clock.advance(wait)
        await self.clock.advance(end - self.clock.now())


async def test_a_volume_that_fails_is_tried_after_half_a_second_and_then_twice_as_long_up_to_two_minutes() -> None:
    worker = Worker()
    worker.manager.faults["settings"] = {}
    await worker.run(500.0)
    times = [moment for moment, _ in worker.failures]
    assert [after - before for before, after in itertools.pairwise(times)] == [0.5, 1, 2, 4, 8, 16, 32, 64, 122, 122, 122]
    assert not worker.mounter.mounted(worker.tree)


async def test_a_mount_before_the_back_off_is_over_neither_tries_nor_reports() -> None:
    worker = Worker()
    worker.manager.faults["settings"] = {}
    for _ in range(5):
        assert await worker.mount() == 0.5
    assert worker.manager.mounts == ["data", "settings"]
    assert len(worker.failures) == 1


async def test_a_volume_that_fails_does_not_keep_the_others_from_being_mounted() -> None:
    worker = Worker()
    worker.manager.faults["data"] = {}
    await worker.mount()
    assert worker.manager.mounts == ["data", "settings"]
    assert set(worker.mounter.volumes.paths) == {"settings"}


async def test_a_success_ends_the_back_off_and_only_files_of_the_api_server_are_updated() -> None:
    worker = Worker()
    worker.manager.faults["settings"] = {}
    await worker.run(3.0)
    worker.manager.faults.clear()
    await worker.run(21.0)
    assert worker.mounter.mounted(worker.tree)
    assert worker.manager.mounts.count("data") == 1
    assert worker.manager.mounts.count("settings") == 3 + 3, "three failures, then one mount and two updates"
    worker.manager.faults["settings"] = {}
    await worker.run(9.5)
    assert await worker.mount() == 0.5, "the first back-off again"
    assert worker.mounter.mounted(worker.tree)


async def test_a_volume_is_tried_at_once_when_the_object_that_it_needs_changes() -> None:
    worker = Worker()
    worker.manager.faults["settings"] = {MISSING: "7"}
    await worker.run(100.0)
    failures = len(worker.failures)
    assert worker.manager.watched == [(MISSING, "7")] * failures
    assert not worker.woken.is_set()
    worker.manager.faults.clear()
    worker.manager.changes[MISSING].set()
    await worker.woken.wait()
    await worker.mount()
    assert worker.mounter.mounted(worker.tree)
    assert len(worker.failures) == failures


async def test_an_object_that_may_not_be_watched_leaves_the_back_off() -> None:
    worker = Worker()
    worker.manager.faults["settings"] = {MISSING: ""}
    worker.manager.refusal = Forbidden(Status(code=403, reason="Forbidden", message="no"))
    await worker.run(4.0)
    assert [moment for moment, _ in worker.failures] == [0, 0.5, 1.5, 3.5]
    assert not worker.woken.is_set()


async def test_a_watch_that_fails_unexpectedly_is_counted_and_restarted() -> None:
    worker = Worker()
    worker.manager.faults["settings"] = {MISSING: ""}
    worker.manager.refusal = ZeroDivisionError("a defect")
    await worker.mount()
    await worker.clock.advance(0)
    assert (worker.tasks.failures["volume-watch"], worker.tasks.healthy("volume-watch")) == (1, False)
    worker.manager.refusal = None
    await worker.clock.advance(0.2)
    worker.manager.changes[MISSING].set()
    await worker.woken.wait()
    await worker.mounter.close()


async def test_the_end_of_the_pod_ends_the_watches() -> None:
    worker = Worker()
    worker.manager.faults["settings"] = {MISSING: ""}
    await worker.mount()
    await worker.mounter.close()
    assert len(asyncio.all_tasks()) == 1


class Claims:
    """A client that reads the states of a claim one after the other; None is a claim that does not exist."""

    def __init__(self, clock: FakeClock, *versions: str | None) -> None:
        self.clock = clock
        self.versions = list(versions)

    async def get(self, kind: type[PersistentVolumeClaim], name: str, *, namespace: str) -> PersistentVolumeClaim:
        version = self.versions.pop(0)
        if version is None:
            raise NotFound(Status(code=404, reason="NotFound", message=f"{namespace}/{name}"))
        return kind(metadata=ObjectMeta(name=name, namespace=namespace, resource_version=version))


async def test_a_claim_is_read_each_second_until_it_appears_or_changes() -> None:
    clock = FakeClock()
    claims = Claims(clock, None, "7", "7", "8")
    reader = ObjectReader(cast("Client", claims))
    for known, seconds in (("", 2.0), ("7", 2.0)):
        waiting = asyncio.create_task(reader.wait_changed("shop", ("PersistentVolumeClaim", "data"), known))
        await clock.advance(seconds - 0.1)
        assert not waiting.done()
        await clock.advance(0.1)
        await waiting
    assert claims.versions == []


@pytest.mark.parametrize("volumes", [pytest.param([], id="no volumes"), pytest.param([{"name": "data"}], id="an emptyDir")])
async def test_a_pod_whose_volumes_need_no_update_is_not_woken(volumes: list[dict[str, Any]]) -> None:
    worker = Worker()
    worker.tree["spec"] = {"volumes": volumes}
    assert await worker.mount() is None
    assert worker.mounter.mounted(worker.tree)
