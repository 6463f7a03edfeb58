"""The program that is traced: an informer of pods, a handler that queues keys, a reconciler that answers each with an annotation."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec

from examples.trace_event.stations import PATH
from examples.trace_event.tracer import Saying, Station, StationVisit, Tracer
from kubeloop import Client, InformerFactory
from kubeloop.api.core.v1 import Pod, ServiceAccount
from kubeloop.cache import Informer, InformerEvent
from kubeloop.cache.blobs.blob_store import SAMPLES
from kubeloop.codec import decode
from kubeloop.config import ClusterConfig
from kubeloop.meta import AlreadyExists, ObjectKey, ObjectMeta
from kubeloop.transport import Transport
from kubeloop.workqueue import WorkQueue

NAME = "traced"
#: A dictionary is trained on as many objects, see ``kubeloop.cache.blobs.compression``.
NEIGHBOURS = SAMPLES
ASKED, ANSWERED = "example.com/asked", "example.com/answered"


class Program:
    """One worker; level-triggered, like any controller."""

    def __init__(self, client: Client, pods: Informer[Pod]) -> None:
        self.client = client
        self.pods = pods
        self.queue: WorkQueue[ObjectKey] = WorkQueue()
        #: The first look at the pod is over; what was asked is answered.
        self.looked, self.answered = asyncio.Event(), asyncio.Event()

    def on_change(self, event: InformerEvent[Pod]) -> None:
        """The handler: it queues the key and is done."""
        if event.head.name == NAME:
            self.queue.add(event.key)

    async def work(self) -> None:
        """The worker."""
        while True:
            key = await self.queue.get()
            try:
                await self.reconcile(key)
            finally:
                self.queue.done(key)

    async def reconcile(self, key: ObjectKey) -> None:
        """What was asked is answered, once."""
        pod = self.pods.lister.by_key(key)
        if pod is None:
            return
        asked = pod.metadata.annotations.get(ASKED)
        if asked is None or pod.metadata.annotations.get(ANSWERED) == asked:
            self.looked.set()
            return
        await self.client.patch(Pod, key.name, {"metadata": {"annotations": {ANSWERED: asked}}}, namespace=key.namespace)
        again = self.pods.lister.by_key(key)
        assert again is not None
        assert again.metadata.annotations[ANSWERED] == asked, "after a write has returned, the lister shows it"
        self.answered.set()


def _handler(seen: dict[str, Any], _: Any) -> Saying:
    event = seen["event"]
    return None, f"{event.type.value} {event.key}, nothing decoded"


def _reconcile(seen: dict[str, Any], _: Any) -> Saying:
    return None, f"key {seen['key']} taken by the worker"


OWN = [
    Station("handler", "this program", Program.on_change, "call", _handler),
    Station("reconcile", "this program", Program.reconcile, "call", _reconcile),
]


async def trace(config: ClusterConfig, namespace: str = "default") -> list[StationVisit]:
    """Create a pod, change it as another user, and follow that one event.

    Raises:
        ApiError, TransportError, DeadlineError: the server refused, or cannot be reached.
    """
    tracer = Tracer([*PATH, *OWN])
    async with Client(Transport(config), namespace=namespace) as client:
        names = await _make(client)
        async with InformerFactory(client) as informers:
            pods = informers.for_kind(Pod, namespace=namespace, indexes={"node": "spec.nodeName", "phase": "status.phase"})
            program = Program(client, pods)
            pods.on_event(added=program.on_change, updated=program.on_change)
            await informers.wait_synced()
            try:
                async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
                    worker = tasks.create_task(program.work())
                    await program.looked.wait()
                    await _packed(pods)
                    with tracer.tracing():
                        # In its own thread, which is not traced: another user sends the request.
                        tasks.create_task(asyncio.to_thread(_ask, config, namespace))
                        await program.answered.wait()
                    worker.cancel()
            finally:
                for name in names:
                    await client.delete(Pod, name, grace_period_seconds=0)
    return tracer.visits()


async def _packed(pods: Informer[Pod]) -> None:
    """The dictionary is trained beside the loop, right after the first list: 0.1 s. Should it take longer, the picture shows that too."""
    for _ in range(200):
        head = pods.lister.head(NAME)
        if head is None or head.stored_bytes < len(head.document()):
            return
        await asyncio.sleep(0.01)


def _ask(config: ClusterConfig, namespace: str) -> None:
    async def ask() -> None:
        async with Client(Transport(config), namespace=namespace) as user:
            await user.patch(Pod, NAME, {"metadata": {"annotations": {ASKED: "what time is it?"}}})

    asyncio.run(ask())


async def _make(client: Client) -> list[str]:
    """A pod of a size that is usual, as many neighbours as compression needs to learn from, and the service account that pods need."""
    with contextlib.suppress(AlreadyExists):
        await client.create(ServiceAccount(metadata=ObjectMeta(name="default")))
    names = [NAME, *(f"{NAME}-neighbour-{number}" for number in range(NEIGHBOURS))]
    for name in names:
        with contextlib.suppress(AlreadyExists):
            await client.create(decode(Pod, msgspec.json.encode(_pod(name))))
    return names


def _pod(name: str) -> dict[str, Any]:
    environment = [{"name": f"SETTING_{number}", "value": f"value-{number}"} for number in range(20)]
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}
    resources = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}
    containers = [
        {"name": name, "image": f"example.com/{name}:1.0", "env": environment, "readinessProbe": probe, "resources": resources}
        for name in ("web", "proxy", "logs")
    ]
    metadata = {"name": name, "labels": {"app": "web", "tier": "front"}}
    return {"metadata": metadata, "spec": {"nodeName": "node-1", "containers": containers}}
