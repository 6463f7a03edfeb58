"""A controller chooses where its events go, and how long failed keys wait."""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.api.events.v1 import Event
from kubeloop.controller import Controller, Manager
from kubeloop.controller.events import EventSink, SeriesEvents
from kubeloop.meta import ObjectKey, ObjectMeta
from kubeloop.testing import HandlerServer, eventually, many
from kubeloop.timing import Clock, FakeClock, TokenBucket
from kubeloop.workqueue import BucketLimiter, Limiter


class Names(Controller[ConfigMap]):
    def __init__(self) -> None:
        self.tries: list[float] = []

    def event_sinks(self) -> Sequence[EventSink]:
        return [SeriesEvents()]

    def retry_limiter(self, clock: Clock) -> Limiter[ObjectKey]:
        return BucketLimiter(TokenBucket(1 / 50, 1, clock))

    async def reconcile(self, obj: ConfigMap) -> None:
        self.tries.append(self.clock.now())
        if len(self.tries) < 4:
            raise ValueError("not yet")
        self.events.normal(obj, "Named", obj.metadata.name)


async def test_events_go_to_the_sinks_and_retries_wait_by_the_limiter_that_a_controller_chooses() -> None:
    clock = FakeClock()
    async with HandlerServer(clock=clock) as server:
        client, names = server.client(), Names()
        await client.create(ConfigMap(metadata=ObjectMeta(name="c")))
        async with Manager(client, [names], clock=clock, namespace="default"):
            (event,) = await eventually(many(client, Event), lambda events: len(events) == 1, within=600)
    assert (event.reason, event.reporting_controller, event.deprecated_count) == ("Named", "configmap", None)
    assert [round(after - before) for before, after in zip(names.tries, names.tries[1:], strict=False)] == [0, 50, 50]
